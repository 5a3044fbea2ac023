"""The appends of a node: which of them make the next transaction, and what its answer means.

One transaction is under way at a time. Appends that come meanwhile wait and go into the next one, of all partitions
together. So a node that is idle writes at once, and a busy one writes much with each transaction.

For each partition a transaction compares the head with its last known value and moves it on by one (keys.py). **If the
answer is lost, the same transaction is sent again**, until the store tells what became of it:

    succeeded                    durable
    the head has moved as meant  an earlier try was carried out: durable
    the head has not moved       another partition stopped the transaction; this one goes into the next
    anything else                fenced: another node has claimed the partition

All heads are compared together, so a transaction that failed has written nothing. A head never returns to a former
value, so a try that arrives late, after another one or after another transaction, changes nothing.

The store may report an error about a transaction that it has carried out (etcd, if its space runs out). So after a
refusal the heads are read, and decide.

`give_up` ends the wait for an answer. Then nobody knows whether the transaction will still be carried out; the
partition takes no appends until `barrier` has moved its head, which ends all chances of the old try.

House rule: pure. The caller sends, measures time, and tells.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator.config import STORED_MAX_BYTES, STORED_MAX_RECORDS
from coordinator.log.cluster.keys import NO_HEAD, Head, Keys, any_head
from coordinator.log.cluster.port import Compare, Delete, Get, Put, Target, Txn, TxnResult
from coordinator.log.cluster.session import Session
from coordinator.log.engine import Appended, Fenced, Unavailable
from protocol.records.batch import Record
from protocol.records.packing import packed, plain_bytes, stored_bytes

OPERATIONS_MAX = 1_024
"""Records in a transaction. etcd takes 4,096, and holds up all others while it writes them."""
BYTES_MAX = 1_000_000
"""Keys and values of a transaction. etcd takes requests of 1.5 MiB (its flag --max-request-bytes)."""
ATOMIC_RECORDS_MAX, ATOMIC_BYTES_MAX = STORED_MAX_RECORDS, STORED_MAX_BYTES
"""The most that a batch may have that can't be divided: all that etcd takes in one request."""
PARTITIONS_MAX = 64
"""Partitions in a transaction. Conditions and the largest nested transaction share etcd's 128 operations."""
DIVISIBLE = (
    frozenset({b"\x00\x00", b"\x00\x01"}),
    frozenset({b"\x00\x06", b"\x00\x07"}),
    frozenset({b"\x00\x03", b"\x00\x10"}),
)
"""How the keys of a batch begin that may be divided, so that a part of it may stay alone if its owner dies.

Committed offsets: each stands for itself. Targets of members, and behind them their epoch; resolved regular
expressions, and behind them the group's epoch: as long as the epoch isn't there, the next heartbeat makes them anew.
Each record of such a batch must fit into a transaction.
"""


class Owned:
    """An ownership of a partition; see engine.Ownership.

    claim: the create revision of own/ppp. head: its last known value. closed: why appends are refused, "" if they are
    not. unknown: a transaction may still be carried out late, so the head needs a barrier. is_over: no longer owned.
    """

    def __init__(self, partition: int, head: Head, claim: int, session: Session) -> None:
        self.partition = partition
        self.head = head
        self.claim = claim
        self.closed = "not loaded"
        self.unknown = False
        self.is_over = False
        self._session = session

    @property
    def epoch(self) -> int:
        """The owner's epoch."""
        return self.head.epoch

    def valid(self) -> bool:
        """See engine.Ownership."""
        # In this order: a lost lease ends the ownership before a new one is there.
        return self._session.valid() and not self.is_over

    @property
    def lapses(self) -> int:
        """See engine.Ownership."""
        return self._session.lapses


class _Append:
    """Batches of one call that are not durable yet, some of them as several parts. durable: how many batches are."""

    __slots__ = ("done", "durable", "parts")

    def __init__(self, parts: list[tuple[list[Record], bool]], done: Appended) -> None:
        self.parts = deque(parts)
        self.done = done
        self.durable = 0

    def is_durable(self, count: int) -> None:
        """So many further parts are durable; with the last part of a batch, the batch is."""
        for _ in range(count):
            _, is_last = self.parts.popleft()
            self.durable += is_last


class _Part(NamedTuple):
    """The part of a transaction that belongs to one partition. records: newest per key."""

    own: Owned
    head: Head
    records: dict[bytes, bytes | None]
    appends: list[tuple[_Append, int]]


class Writer:
    """See the module. keys: of the cluster."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._waiting: dict[Owned, deque[_Append]] = {}
        self._parts: list[_Part] = []

    @property
    def under_way(self) -> bool:
        """Whether a transaction waits for its answer."""
        return bool(self._parts)

    def busy_with(self, own: Owned) -> bool:
        """Whether appends of an ownership are under way, or wait."""
        return own in self._waiting or any(part.own is own for part in self._parts)

    def append(self, own: Owned, batches: list[list[Record]], done: Appended) -> None:
        """Take an append, or refuse it at once.

        A batch that is too large closes the ownership; the outcomes of earlier appends come later.
        """
        if own.is_over or own.closed:
            done(0, Fenced.of(own) if own.is_over else Unavailable(own.closed))
            return
        try:
            parts = [part for batch in batches for part in _fitted(batch)]
        except Unavailable as refused:
            own.closed = str(refused)
            done(0, refused)
            return
        self._waiting.setdefault(own, deque()).append(_Append(parts, done))

    def next(self) -> Txn | None:
        """The next transaction; None if nothing waits, or one is under way."""
        if self._parts or not self._waiting:
            return None
        operations, size = 0, 0
        for own in list(self._waiting):
            part = _Part(own, own.head.next(), {}, [])
            operations += 1
            for append in self._waiting[own]:
                taken = 0
                for batch, _ in append.parts:
                    more, longer = len(batch), plain_bytes(batch)
                    if operations > 1 and (operations + more > OPERATIONS_MAX or size + longer > BYTES_MAX):
                        break
                    operations += more
                    size += longer
                    part.records.update((record.key, record.value) for record in batch)
                    taken += 1
                if taken:
                    part.appends.append((append, taken))
                if taken < len(append.parts):
                    break
            if part.appends:
                self._parts.append(part)
            if operations >= OPERATIONS_MAX or size >= BYTES_MAX or len(self._parts) == PARTITIONS_MAX:
                break
        # So that the partitions that got nothing this time come first next time.
        for part in self._parts:
            self._waiting[part.own] = self._waiting.pop(part.own)
        return self._txn()

    def told(self, result: TxnResult) -> Txn | None:
        """Take the answer. Returns the transaction to send now: the rest of this one, without fenced partitions."""
        parts, self._parts = self._parts, []
        if result.succeeded:
            for part in parts:
                self._durable(part)
            return None
        self._parts = left = [part for part in self._undone(parts, result) if not part.own.is_over]
        return self._txn() if left else None

    def heads(self) -> Txn:
        """The transaction that reads the heads of the one under way."""
        return Txn([], [Get(self._keys.head(part.own.partition)) for part in self._parts])

    def was_refused(self, heads: TxnResult, error: Unavailable, *, was_lost: bool) -> None:
        """The store refused the transaction; its heads were read after that. Appends that it hasn't carried out fail.

        was_lost: an earlier try had no answer, so it may still come.
        """
        parts, self._parts = self._parts, []
        for part in self._undone(parts, heads):
            part.own.unknown = was_lost
            self.refuse(part.own, error)

    def _undone(self, parts: Sequence[_Part], heads: TxnResult) -> Iterator[_Part]:
        """Yield those whose partition has its former head. Others are durable, or fenced."""
        for part, found in zip(parts, heads.gets, strict=True):
            head = NO_HEAD if found is None else any_head(found.value)
            if head == part.head:
                self._durable(part)
            elif head == part.own.head:
                yield part
            else:
                self.fence(part.own, f"{head.owner or 'nobody'} owns partition {part.own.partition} now")

    def give_up(self, error: Unavailable) -> None:
        """Wait no longer for the answer, and refuse all appends of the partitions in it."""
        parts, self._parts = self._parts, []
        for part in parts:
            part.own.unknown = True
            self.refuse(part.own, error)

    def refuse(self, own: Owned, error: Fenced | Unavailable) -> None:
        """Refuse the appends of an ownership that wait, and further ones."""
        own.closed = own.closed or str(error)
        for append in self._waiting.pop(own, ()):
            append.done(append.durable, error)

    def fence(self, own: Owned, reason: str) -> None:
        """An ownership is over."""
        own.is_over = True
        self.refuse(own, Fenced(reason))

    def barrier(self, own: Owned) -> Txn:
        """The transaction that moves the head of an ownership and writes nothing else."""
        key = self._keys.head(own.partition)
        return Txn([Compare(key, Target.VALUE, own.head.text())], [Put(key, own.head.next().text())], [Get(key)])

    def _durable(self, part: _Part) -> None:
        own = part.own
        own.head = part.head
        waiting = self._waiting.get(own)
        if waiting is None:  # it was fenced meanwhile, and its appends refused
            return
        for append, taken in part.appends:
            append.is_durable(taken)
            if not append.parts:
                waiting.remove(append)
        if not waiting:
            del self._waiting[own]
        for append, _ in part.appends:
            if not append.parts:
                append.done(append.durable, None)

    def _txn(self) -> Txn:
        compares: list[Compare] = []
        success: list[Put | Delete | Get] = []
        failure: list[Get] = []
        for part in self._parts:
            key = self._keys.head(part.own.partition)
            compares.append(Compare(key, Target.VALUE, part.own.head.text()))
            success.append(Put(key, part.head.text()))
            failure.append(Get(key))
            success += self._operations(part)
        return Txn(compares, success, failure)

    def _operations(self, part: _Part) -> Iterator[Put | Delete]:
        prefix = self._keys.log(part.own.partition)
        for key, value in part.records.items():
            yield Delete(prefix + key) if value is None else Put(prefix + key, packed(value))


def _fitted(batch: list[Record]) -> Iterator[tuple[list[Record], bool]]:
    """A batch as parts that fit into a transaction each, and whether it is the last part. Raises Unavailable."""
    if len(batch) < OPERATIONS_MAX and plain_bytes(batch) <= BYTES_MAX:
        yield batch, True
        return
    versions = {(record.key or b"")[:2] for record in batch}
    if any(versions <= divisible for divisible in DIVISIBLE):
        part: list[Record] = []
        size = 0
        for record in batch:
            longer = plain_bytes([record])
            if longer > BYTES_MAX:
                _check_whole([record])
            if part and (len(part) + 2 > OPERATIONS_MAX or size + longer > BYTES_MAX):
                yield part, False
                part, size = [], 0
            part.append(record)
            size += longer
        yield part, True
        return
    _check_whole(batch)
    yield batch, True


def _check_whole(batch: list[Record]) -> None:
    """Raises Unavailable if a transaction has no room for all of these records."""
    small = stored_bytes(batch)
    if len(batch) > ATOMIC_RECORDS_MAX or small > ATOMIC_BYTES_MAX:
        raise Unavailable(f"{len(batch)} records of {small} bytes are more than a transaction takes")
