"""Moves a whole cluster into etcd and out of it, and makes a cluster safe that etcd has restored from a snapshot.

    with Mover(access, "prod", fresh_id) as mover:
        mover.write(stored)      # a new cluster, from what another store had
        stored = mover.read()    # all of a cluster, as it was at one moment
        mover.restored()

No node may be registered while a cluster is read or written.

**The fence.** While a cluster is written, its meta key has the field `moving`, which keeps nodes from starting, and
each own/ppp names nobody, without a lease. A node that started before, and registers in the middle, finds no partition
that it could claim. The fence goes in one transaction, after everything was read back and found equal. A write that was
interrupted leaves it there: the next one removes what was written, and begins anew. Two writes at once fence each other
by the heads, as two owners of a partition do.

**After a snapshot** heads and leases have old values. A node that still runs could take them for its own. So `restored`
ends all leases of nodes, and raises the epoch of each head by EPOCHS before any node claims a partition: no head ever
returns to a value that somebody may know.

House rule: one call after the other, each tried again while etcd doesn't answer, and none without a condition.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from coordinator.log.cluster.keys import NO_HEAD, Head, Keys, parse_head, prefix_end
from coordinator.log.cluster.loop import Loop
from coordinator.log.cluster.port import (
    NOT_FOUND,
    Compacted,
    Compare,
    Delete,
    Get,
    KeyValue,
    Lost,
    Page,
    Put,
    Rejected,
    Target,
    Txn,
    TxnResult,
)
from coordinator.log.cluster.shared import Shared, StateHead, entry_name, parse_state_head
from coordinator.log.engine import NOBODY, EngineError
from coordinator.log.etcd.client import Access, Client
from coordinator.log.etcd.engine import FORMAT, read_meta
from coordinator.log.segments.partition import EPOCH_MAX
from protocol.records.packing import packed, unpacked

EPOCHS = 1_000_000
"""A restore raises epochs and sequence numbers by so many: more than a cluster counts between two snapshots."""
ANSWER_WITHIN_S = 20.0
"""How long a call is tried again while etcd doesn't answer."""
AGAIN_S = 0.1
PAGE_KEYS = 1_000
OPERATIONS_MAX, BYTES_MAX = 1_000, 1_000_000
"""Of a transaction."""
MOVING = "moving"
Value = TypeVar("Value")
FENCE = b"%d" % NOBODY
"""The value of own/ppp while a cluster is written."""


class Stored(NamedTuple):
    """All that a cluster keeps.

    records: of each partition, the newest value of each key. epochs: of the last owner of each partition, -1 for none.
    entries: what the nodes share beside groups.
    """

    cluster_id: str
    records: Sequence[Mapping[bytes, bytes]]
    epochs: Sequence[int]
    entries: Mapping[str, bytes]


class Restored(NamedTuple):
    """The outcome of `restored`. leases: of nodes, which it ended."""

    partitions: int
    leases: int


class _Meta(NamedTuple):
    fields: dict[str, Any]
    mod_revision: int


class Mover:
    """See the module. All methods raise EngineError, whose text gives the reason in one line."""

    def __init__(self, access: Access, cluster: str, fresh_id: Callable[[], str]) -> None:
        self._cluster = cluster
        self._keys = Keys(cluster)
        self._fresh_id = fresh_id
        self._tag = f"{NOBODY}/{fresh_id()}"
        self._endpoints = ", ".join(access.endpoints)
        self._loop = Loop("etcd")
        self._client = Client(access, self._loop)

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self._ask(self._client.log_in)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._loop.end(ANSWER_WITHIN_S)
        self._client.close()

    # Out of etcd.

    def read(self) -> Stored:
        """All of a cluster that no node serves."""
        meta = self._known_meta()
        if MOVING in meta.fields:
            raise EngineError(f"a move into {self._cluster} is under way or was interrupted: make that one again first")
        self._refuse_nodes()
        stored = self._read(meta.fields["cluster_id"], meta.fields["partitions"])
        self._refuse_nodes()
        return stored

    def _read(self, cluster_id: str, count: int) -> Stored:
        prefix, entries = self._keys.state + b"entry/", dict[str, bytes]()
        revision = self._call_txn(Txn([], [Get(self._keys.meta)])).revision
        for kv in self._range(prefix, revision):
            entries[entry_name(kv.key[len(prefix) :])] = kv.value
        records: list[dict[bytes, bytes]] = []
        for partition in range(count):
            prefix, found = self._keys.log(partition), dict[bytes, bytes]()
            for kv in self._range(prefix, revision):
                found[kv.key[len(prefix) :]] = _readable(unpacked, kv)
            records.append(found)
        kvs = self._range(self._keys.heads, revision)
        heads = {self._keys.number(kv.key): _readable(parse_head, kv) for kv in kvs}
        epochs = [heads.get(partition, NO_HEAD).epoch for partition in range(count)]
        return Stored(cluster_id, records, epochs, entries)

    # Into etcd.

    def write(self, stored: Stored) -> None:
        """Make a new cluster of all this. The cluster may be there, if it has no group and shares nothing."""
        self._refuse_nodes()
        meta = self._meta()
        is_again = meta is not None and MOVING in meta.fields
        if meta is not None and meta.fields["partitions"] != len(stored.records):
            has, wanted = meta.fields["partitions"], len(stored.records)
            raise EngineError(f"the cluster {self._cluster} has {has} partitions, the source {wanted}")
        for prefix in (self._keys.prefix + b"log/", self._keys.state + b"entry/"):
            if not is_again and next(self._range(prefix, 0, limit=1), None) is not None:
                raise EngineError(
                    f"the cluster {self._cluster} has groups, topics or users: a move makes a new cluster"
                )
        self._set_fence(stored, meta)
        try:
            self._refuse_nodes()
        except EngineError:
            if not is_again:
                self._end_fence(None if meta is None else meta.fields)
            raise
        self._clear()
        for partition, records in enumerate(stored.records):
            self._write_partition(partition, records, stored.epochs[partition])
        self._write_entries(stored.entries)
        written = self._read(stored.cluster_id, len(stored.records))
        if written.records != list(map(dict, stored.records)) or written.entries != stored.entries:
            raise EngineError(f"what is in {self._cluster} now isn't what was written: another program writes there")
        fields = self._known_meta().fields | {"cluster_id": stored.cluster_id}
        self._end_fence({name: value for name, value in fields.items() if name != MOVING})

    def _set_fence(self, stored: Stored, meta: _Meta | None) -> None:
        count = len(stored.records)
        fields = {"format": FORMAT, "partitions": count, "cluster_id": stored.cluster_id}
        fields |= {} if meta is None else meta.fields
        value = json.dumps(fields | {MOVING: self._tag}).encode()
        key = self._keys.meta
        unchanged = Compare(key, Target.MOD_REVISION, 0 if meta is None else meta.mod_revision)
        if not self._txn([unchanged], [Put(key, value)], Get(key), value):
            raise EngineError(f"another program changes the cluster {self._cluster}")
        for partition in range(count):
            own = self._keys.own(partition)
            absent = Compare(own, Target.CREATE_REVISION, 0)
            if not self._txn([absent], [Put(own, FENCE)], Get(own), FENCE):
                raise EngineError(
                    f"a node of {self._cluster} owns partition {partition}: stop all nodes, and try again"
                )

    def _end_fence(self, fields: Mapping[str, Any] | None) -> None:
        """Let nodes claim partitions. fields: of the meta key; None if there was none."""
        meta = self._known_meta()
        key = self._keys.meta
        unchanged = Compare(key, Target.MOD_REVISION, meta.mod_revision)
        ends = [Delete(kv.key) for kv in self._range(self._keys.owners, 0) if kv.value == FENCE and not kv.lease]
        value = json.dumps(fields).encode()
        last = Delete(key) if fields is None else Put(key, value)
        # The meta key goes with the last of them: until then no node can start.
        while len(ends) > OPERATIONS_MAX:
            self._call_txn(Txn([unchanged], ends[:OPERATIONS_MAX], []))
            del ends[:OPERATIONS_MAX]
        if not self._txn([unchanged], [last, *ends], Get(key), None if fields is None else value):
            raise EngineError(f"another program changes the cluster {self._cluster}")

    def _clear(self) -> None:
        """Remove what an interrupted write has left."""
        for prefix in (self._keys.prefix + b"log/", self._keys.state + b"entry/"):
            found = [kv.key for kv in self._range(prefix, 0, keys_only=True)]
            for start in range(0, len(found), OPERATIONS_MAX):
                self._call_txn(Txn([], [Delete(key) for key in found[start : start + OPERATIONS_MAX]]))

    def _write_partition(self, partition: int, records: Mapping[bytes, bytes], epoch: int) -> None:
        key = self._keys.head(partition)
        (found,) = self._call_txn(Txn([], [Get(key)])).gets
        before = NO_HEAD if found is None else _readable(parse_head, found)
        head = Head(max(before.epoch, epoch) + 1, 0, self._tag)
        fenced = EngineError(f"another program writes to partition {partition} of {self._cluster}")
        condition = Compare(key, Target.MOD_REVISION, 0 if found is None else found.mod_revision)
        if not self._txn([condition], [Put(key, head.text())], Get(key), head.text()):
            raise fenced
        for puts in _parts(self._keys.log(partition), records):
            condition = Compare(key, Target.VALUE, head.text())
            head = head.next()
            if not self._txn([condition], [Put(key, head.text()), *puts], Get(key), head.text()):
                raise fenced

    def _write_entries(self, entries: Mapping[str, bytes]) -> None:
        """As a node changes what all nodes share."""
        shared = Shared(self._client, self._keys, NOBODY, self._fresh_id)
        over: SimpleQueue[EngineError | None] = SimpleQueue()

        def decide(present: Mapping[str, bytes]) -> Mapping[str, bytes]:
            return {name: value for name, value in entries.items() if present.get(name) != value}

        self._loop.call(shared.start)
        self._loop.call(shared.change, decide, over.put)
        error = over.get()
        self._loop.call(shared.end)
        if error is not None:
            raise error

    # After a snapshot.

    def restored(self) -> Restored:
        """Make a cluster safe whose etcd was restored from a snapshot, before any node is started."""
        count = self._known_meta().fields["partitions"]
        leases = {kv.lease for prefix in (self._keys.nodes, self._keys.owners) for kv in self._range(prefix, 0)}
        for lease in leases - {0}:
            ended = self._outcome(partial(self._client.revoke, lease))
            if isinstance(ended, Rejected) and ended.code != NOT_FOUND:
                raise EngineError(f"etcd refuses: {ended.reason}")
        for partition in range(count):
            self._raise_head(self._keys.head(partition), partial(_raised, self._tag))
        self._raise_head(self._keys.state + b"head", partial(_raised_state, self._tag))
        return Restored(count, len(leases - {0}))

    def _raise_head(self, key: bytes, raised: Callable[[KeyValue], bytes]) -> None:
        while True:
            (found,) = self._call_txn(Txn([], [Get(key)])).gets
            if found is None or self._tag.encode() in found.value:
                return
            value = raised(found)
            unchanged = Compare(key, Target.MOD_REVISION, found.mod_revision)
            if self._txn([unchanged], [Put(key, value)], Get(key), value):
                return

    # Calls.

    def _known_meta(self) -> _Meta:
        meta = self._meta()
        if meta is None:
            raise EngineError(f"etcd has no cluster {self._cluster} ({self._endpoints})")
        return meta

    def _meta(self) -> _Meta | None:
        (found,) = self._call_txn(Txn([], [Get(self._keys.meta)])).gets
        if found is None:
            return None
        return _Meta(read_meta(found.value), found.mod_revision)

    def _refuse_nodes(self) -> None:
        nodes = [self._keys.number(kv.key) for kv in self._range(self._keys.nodes, 0)]
        if nodes:
            names = ", ".join(map(str, nodes))
            raise EngineError(f"nodes of {self._cluster} are running: {names}. Stop all nodes, and try again")

    def _txn(
        self, compares: Sequence[Compare], success: Sequence[Put | Delete], read: Get, written: bytes | None
    ) -> bool:
        """Carry a transaction out; whether it was. read, written: if a key has this value, an earlier try was."""
        result = self._call_txn(Txn(compares, success, [read]))
        if result.succeeded:
            return True
        (found,) = result.gets
        return (None if found is None else found.value) == written

    def _call_txn(self, txn: Txn) -> TxnResult:
        result: TxnResult = self._ask(partial(self._client.txn, txn))
        return result

    def _range(
        self, prefix: bytes, revision: int, *, limit: int = PAGE_KEYS, keys_only: bool = False
    ) -> Iterator[KeyValue]:
        """All keys with a prefix at one revision, 0 for the newest. limit: of a page; less if that is too large."""
        start, end = prefix, prefix_end(prefix)
        more = True
        while more:
            read = partial(self._client.range, start, end, limit=limit, revision=revision, keys_only=keys_only)
            page = self._outcome(read)
            if isinstance(page, Rejected) and limit > 1:  # a page that is too large for gRPC
                limit = max(limit // 8, 1)
                continue
            if isinstance(page, Rejected):
                raise EngineError(f"etcd refuses: {page.reason}")
            if isinstance(page, Compacted):
                raise EngineError("etcd has compacted the history that this read needs: try again")
            assert isinstance(page, Page)
            revision = revision or page.revision
            for kv in page.kvs:
                yield kv
                start = kv.key + b"\0"
            more = page.more

    def _ask(self, call: Callable[[Callable[[Any], None]], None]) -> Any:
        """Make a call until it has an answer, which is no refusal."""
        outcome = self._outcome(call)
        if isinstance(outcome, Rejected):
            raise EngineError(f"etcd refuses: {outcome.reason}")
        return outcome

    def _outcome(self, call: Callable[[Callable[[Any], None]], None]) -> Any:
        """Make a call until it has an answer or a refusal."""
        until_s = time.monotonic() + ANSWER_WITHIN_S
        while True:
            answer: SimpleQueue[Any] = SimpleQueue()
            self._loop.call(call, answer.put)
            outcome = answer.get(timeout=ANSWER_WITHIN_S)
            if not isinstance(outcome, Lost):
                return outcome
            if time.monotonic() > until_s:
                raise EngineError(f"etcd doesn't answer: {outcome.reason} ({self._endpoints})")
            time.sleep(AGAIN_S)


def _parts(prefix: bytes, records: Mapping[bytes, bytes]) -> Iterator[list[Put]]:
    """The records as writes, in parts that fit into a transaction each."""
    part: list[Put] = []
    size = 0
    for key, value in records.items():
        put = Put(prefix + key, packed(value))
        longer = len(put.key) + len(put.value)
        if part and (len(part) >= OPERATIONS_MAX or size + longer > BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(put)
        size += longer
    if part:
        yield part


def _readable(read: Callable[[bytes], Value], kv: KeyValue) -> Value:
    """Decode a value. Raises EngineError if another version wrote it in another way."""
    try:
        return read(kv.value)
    except ValueError as error:
        raise EngineError(f"{kv.key!r} has a value that this version can't read: {error}") from None


def _raised(tag: str, kv: KeyValue) -> bytes:
    head = _readable(parse_head, kv)
    if head.epoch > EPOCH_MAX - EPOCHS:
        raise EngineError(f"the epoch {head.epoch} can't be raised by {EPOCHS}")
    return Head(head.epoch + EPOCHS, 0, tag).text()


def _raised_state(tag: str, kv: KeyValue) -> bytes:
    head = _readable(parse_state_head, kv)
    return StateHead(head.sequence + EPOCHS, tag).text()
