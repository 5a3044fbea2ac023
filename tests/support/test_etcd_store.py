"""The model's store and a real etcd get the same requests, and answer the same."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.log.cluster.port import (
    Compacted,
    Compare,
    Delete,
    Event,
    Get,
    KeyValue,
    Page,
    Put,
    Rejected,
    Target,
    Txn,
    TxnResult,
)
from tests.support.etcd import Etcd, EtcdError
from tests.support.etcd_store import Store
from tests.support.patience import WITHIN_S

pytestmark = pytest.mark.etcd

KEYS = [b"a", b"b", b"c", b"c/1", b"c/2"]
LEASES = [0, 0, 0, 1, 2]
LAST = b"z"
"""A key written at the end of each example: a watch has seen all when it sees this one."""

keys = st.sampled_from(KEYS)
puts = st.builds(Put, keys, st.sampled_from([b"", b"1", b"2"]), st.sampled_from(LEASES))
operations = st.one_of(puts, puts, st.builds(Delete, keys), st.builds(Get, keys))
revisions = st.integers(0, 12)
compares = st.one_of(
    st.builds(Compare, keys, st.sampled_from([Target.CREATE_REVISION, Target.MOD_REVISION]), revisions),
    st.builds(Compare, keys, st.just(Target.VALUE), st.sampled_from([b"", b"1", b"2"])),
)
txns = st.builds(
    Txn,
    st.lists(compares, max_size=2),
    st.lists(operations, max_size=4),
    st.lists(st.builds(Get, keys), max_size=2),
)
steps = st.one_of(
    txns.map(lambda txn: ("txn", txn)),
    txns.map(lambda txn: ("txn", txn)),
    st.tuples(st.just("range"), st.sampled_from([b"", b"b", b"c/"]), st.sampled_from([b"c", b"c0", b"zz"]),
              st.integers(0, 3), revisions, st.booleans()),
    st.tuples(st.just("compact"), revisions),
    st.tuples(st.just("grant"), st.integers(1, 2)),
    st.tuples(st.just("revoke"), st.integers(1, 2)),
)  # fmt: skip


def text(data: bytes) -> str:
    """Bytes as etcd's gateway takes them."""
    return base64.b64encode(data).decode()


class Real:
    """One example on a real etcd: its keys have a prefix of their own, its revisions count from where it began."""

    examples = 0

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        Real.examples += 1
        self._prefix = b"/%d/" % Real.examples
        answer = etcd.ask("/v3/kv/put", {"key": text(b"begin"), "value": ""})
        self._before = int(answer["header"]["revision"]) - 1

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any] | Rejected:
        """A request, and its answer or refusal."""
        try:
            return self._etcd.ask(path, body)
        except EtcdError as error:
            told = json.loads(str(error).partition(": ")[2])
            return Rejected(told["message"], told["code"])  # 3.4 and 3.5 have it as "error" too

    def do(self, step: Any) -> Any:
        """Carry out one step."""
        return getattr(self, f"_{step[0]}")(*step[1:])

    def _txn(self, txn: Txn) -> TxnResult | Rejected:
        answer = self.ask(
            "/v3/kv/txn",
            {
                "compare": [self._compare(each) for each in txn.compares],
                "success": [self._operation(each) for each in txn.success],
                "failure": [self._operation(each) for each in txn.failure],
            },
        )
        if isinstance(answer, Rejected):
            return answer
        gets = [
            self._kv(each["response_range"]["kvs"][0]) if each["response_range"].get("kvs") else None
            for each in answer.get("responses", [])
            if "response_range" in each
        ]
        return TxnResult(answer.get("succeeded", False), self._revision(answer), gets)

    def _compare(self, compare: Compare) -> dict[str, Any]:
        if compare.target is Target.VALUE:
            assert isinstance(compare.value, bytes)
            what: dict[str, Any] = {"target": "VALUE", "value": text(compare.value)}
        else:
            assert isinstance(compare.value, int)
            name = compare.target.value
            what = {"target": name.upper().removesuffix("_REVISION"), name: self._real_revision(compare.value)}
        return {"key": text(self._prefix + compare.key), "result": "EQUAL", **what}

    def _operation(self, operation: Put | Delete | Get) -> dict[str, Any]:
        key = text(self._prefix + operation.key)
        if isinstance(operation, Put):
            lease = self._lease(operation.lease) if operation.lease else 0
            return {"request_put": {"key": key, "value": text(operation.value), "lease": lease}}
        if isinstance(operation, Delete):
            return {"request_delete_range": {"key": key}}
        return {"request_range": {"key": key}}

    def _range(self, start: bytes, end: bytes, limit: int, revision: int, keys_only: bool) -> Any:
        answer = self.ask(
            "/v3/kv/range",
            {
                "key": text(self._prefix + start),
                "range_end": text(self._prefix + end),
                "limit": limit,
                "revision": self._real_revision(revision),
                "keys_only": keys_only,
            },
        )
        if isinstance(answer, Rejected):
            return Compacted() if "has been compacted" in answer.reason else answer
        return self._revision(answer), [self._kv(each) for each in answer.get("kvs", [])], answer.get("more", False)

    def _compact(self, revision: int) -> Rejected | None:
        answer = self.ask("/v3/kv/compaction", {"revision": self._real_revision(max(revision, 1))})
        return answer if isinstance(answer, Rejected) else None

    def _grant(self, lease: int) -> Rejected | None:
        answer = self.ask("/v3/lease/grant", {"ID": self._lease(lease), "TTL": 86_400})
        return answer if isinstance(answer, Rejected) else None

    def _revoke(self, lease: int) -> Rejected | None:
        answer = self.ask("/v3/lease/revoke", {"ID": self._lease(lease)})
        return answer if isinstance(answer, Rejected) else None

    def events(self, start: int) -> list[Event] | int:
        """The events of a watch of the example's keys up to LAST; the compacted revision if it was too late."""
        body = {"create_request": {"key": text(self._prefix), "range_end": text(self._prefix[:-1] + b"0"),
                                   "start_revision": self._before + start}}  # fmt: skip
        request = urllib.request.Request(f"http://{self._etcd.endpoints[0]}/v3/watch", json.dumps(body).encode())
        found: list[Event] = []
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            for line in answer:
                told = json.loads(line)["result"]
                if told.get("compact_revision"):
                    return int(told["compact_revision"]) - self._before
                for each in told.get("events", []):
                    found.append(Event(self._kv(each["kv"]), each.get("type") == "DELETE"))
                if found and found[-1].kv.key == LAST:
                    return found
        raise AssertionError("the watch ended")

    def _lease(self, lease: int) -> int:
        return Real.examples * 10 + lease

    def _real_revision(self, revision: int) -> int:
        return revision and self._before + revision

    def _revision(self, answer: dict[str, Any]) -> int:
        return int(answer["header"]["revision"]) - self._before

    def _kv(self, told: dict[str, Any]) -> KeyValue:
        lease = int(told.get("lease", 0))
        created = int(told.get("create_revision", 0))
        return KeyValue(
            base64.b64decode(told["key"]).removeprefix(self._prefix),
            base64.b64decode(told.get("value", "")),
            created and created - self._before,
            int(told["mod_revision"]) - self._before,
            lease and lease - Real.examples * 10,
        )


def modelled(store: Store, step: Any) -> Any:
    """Carry out one step on the model."""
    match step:
        case "txn", txn:
            return store.txn(txn)
        case "range", start, end, limit, revision, keys_only:
            page = store.range(start, end, limit, revision, keys_only=keys_only)
            return tuple(page) if isinstance(page, Page) else page
        case "compact", revision:
            return store.compact(max(revision, 1))
        case "grant", lease:
            return store.grant(lease)
    return None if store.revoke(step[1]) else Rejected("etcdserver: requested lease not found", 5)


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    """Yield a cluster of one member."""
    with Etcd() as started:
        yield started


@given(script=st.lists(steps, max_size=12), start=st.integers(1, 8))
def test_the_model_answers_as_etcd_does(etcd: Etcd, script: list[Any], start: int) -> None:
    """Transactions, ranges at a revision, leases, compactions and watches: every answer and refusal is the same."""
    real, store = Real(etcd), Store()
    for step in script:
        assert modelled(store, step) == real.do(step), step
    last = ("txn", Txn([], [Put(LAST, b"")], []))
    assert modelled(store, last) == real.do(last)
    start = min(start, store.revision)
    compacted = store.compacted_for(start)
    events = [event for events in store.events(b"", start) for event in events]
    assert real.events(start) == (events if compacted is None else store.compacted)
