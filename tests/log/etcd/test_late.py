"""Tests the trap that the head chain closes: a transaction that a frozen member of etcd carries out late.

A client that gives a try up tells its member so, and then a member that wakes up drops most of those tries. A message
may be lost, though, and a machine may stand still before it can send one. So here the first client forgets its calls
without a word, and another client goes on.
"""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue

import pytest

from coordinator.log.cluster.keys import Head, Keys
from coordinator.log.cluster.loop import Loop
from coordinator.log.cluster.port import Compare, Get, Lost, Put, Rejected, Target, Txn, TxnResult
from coordinator.log.cluster.writer import Owned, Writer
from coordinator.log.engine import EngineError
from coordinator.log.etcd import client as clients
from coordinator.log.etcd.client import Access, Client
from protocol.records.batch import Record
from tests.log.calls import Session
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S

pytestmark = pytest.mark.etcd

KEYS = Keys("late")


def ask(loop: Loop, client: Client, txn: Txn) -> TxnResult:
    """Have a client carry out a transaction, and return the outcome."""
    told: SimpleQueue[TxnResult | Lost | Rejected] = SimpleQueue()
    loop.call(partial(client.txn, txn, told.put))
    outcome = told.get(timeout=WITHIN_S)
    assert isinstance(outcome, TxnResult)
    return outcome


def made(writer: Writer, own: Owned, value: bytes) -> Txn:
    """Return the transaction that appends a value of the one key."""
    outcomes: SimpleQueue[tuple[int, EngineError | None]] = SimpleQueue()
    writer.append(own, [[Record(b"k", value, 0)]], lambda *outcome: outcomes.put(outcome))
    txn = writer.next()
    assert txn is not None
    return txn


def without_chain(txn: Txn) -> Txn:
    """Return the transaction as a writer without the chain makes it: the claim alone is its condition."""
    return Txn(
        [Compare(KEYS.own(0), Target.CREATE_REVISION, 2)],
        [each for each in txn.success if each.key != KEYS.head(0)],
        [],
    )


@pytest.mark.parametrize("has_chain", [True, False])
def test_a_late_transaction_does_not_bring_the_old_value_back(has_chain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member freezes with an append in it; another one carries the append out, and a newer one; it wakes up.

    Without the chain the old value is back, although the claim holds: this shows that the test meets the trap.
    """
    monkeypatch.setattr(clients, "TRY_S", WITHIN_S)
    loop = Loop("late")
    loop.start()
    with Etcd(members=3) as etcd:
        frozen = next(number for number in range(3) if number != etcd.leader())
        first = Client(Access([etcd.endpoints[frozen]]), loop)
        other = Client(Access([etcd.endpoints[etcd.leader()]]), loop)
        writer = Writer(KEYS)
        own = Owned(0, Head(0, 0, "1/2"), 2, Session())  # type: ignore[arg-type]
        own.closed = ""
        setup = Txn([], [Put(KEYS.own(0), b"1"), Put(KEYS.head(0), own.head.text())])
        assert ask(loop, first, setup).succeeded

        old = made(writer, own, b"old")
        etcd.members[frozen].freeze()
        late: SimpleQueue[TxnResult | Lost | Rejected] = SimpleQueue()
        sent = old if has_chain else without_chain(old)
        loop.call(partial(first.txn, sent, late.put))
        for value in (b"old", b"new"):
            txn = old if value == b"old" else made(writer, own, value)
            result = ask(loop, other, txn if has_chain else without_chain(txn))
            assert result.succeeded
            writer.told(result)
        assert late.empty()
        etcd.members[frozen].thaw()
        assert isinstance(outcome := late.get(timeout=WITHIN_S), TxnResult)
        assert outcome.succeeded is not has_chain
        found = ask(loop, other, Txn([], [Get(KEYS.log(0) + b"k")]))
        assert found.gets[0] is not None
        assert found.gets[0].value == (b"new" if has_chain else b"old")
        loop.end(WITHIN_S)
        first.close()
        other.close()
