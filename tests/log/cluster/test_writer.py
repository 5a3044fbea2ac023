"""Tests which appends make a transaction, and what its answer means."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.config import STORED_MAX_BYTES, STORED_MAX_RECORDS
from coordinator.log.cluster.keys import Head, Keys, parse_head
from coordinator.log.cluster.port import Get, KeyValue, Put, Txn, TxnResult
from coordinator.log.cluster.writer import BYTES_MAX, OPERATIONS_MAX, PARTITIONS_MAX, Owned, Writer
from coordinator.log.engine import EngineError, Fenced, Unavailable
from protocol.records.batch import Record
from protocol.records.packing import packed, plain_bytes, unpacked
from tests.log.calls import Session, record
from tests.support.length import rounds

KEYS = Keys("c")
Outcomes = list[tuple[int, EngineError | None]]


class Store:
    """The keys of etcd, as far as transactions of a writer need them."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes] = {}

    def carry_out(self, txn: Txn) -> TxnResult:
        """Do a transaction."""
        if all(self.keys.get(each.key) == each.value for each in txn.compares):
            for each in txn.success:
                if isinstance(each, Put):
                    self.keys[each.key] = each.value
                else:
                    self.keys.pop(each.key, None)
            return TxnResult(succeeded=True, revision=1, gets=[])
        return TxnResult(succeeded=False, revision=1, gets=[self._get(each) for each in txn.failure])

    def _get(self, get: Get) -> KeyValue | None:
        value = self.keys.get(get.key)
        return None if value is None else KeyValue(get.key, value, 1, 1, 0)


def owned(store: Store, partition: int) -> Owned:
    """Return an open ownership, as a claim leaves it."""
    own = Owned(partition, Head(3, 0, "1/5"), 5, cast("Any", Session()))
    own.closed = ""
    store.keys[KEYS.head(partition)] = own.head.text()
    return own


def appended(writer: Writer, own: Owned, *records: Record) -> Outcomes:
    """Append one batch; its outcome comes into the list."""
    outcomes: Outcomes = []
    writer.append(own, [list(records)], lambda *outcome: outcomes.append(outcome))
    return outcomes


def test_all_that_waits_goes_into_one_transaction() -> None:
    """Two partitions, with the last value of each key; the heads move by one."""
    store, writer = Store(), Writer(KEYS)
    a, b = owned(store, 0), owned(store, 1)
    outcomes = [
        appended(writer, a, record(1)),
        appended(writer, b, record(2)),
        appended(writer, a, Record(b"key-1", None, 0), record(3)),
    ]
    txn = writer.next()
    assert txn is not None
    assert writer.next() is None  # one at a time
    assert writer.told(store.carry_out(txn)) is None
    assert outcomes == [[(1, None)]] * 3
    assert store.keys[KEYS.log(0) + b"key-3"] == record(3).value
    assert KEYS.log(0) + b"key-1" not in store.keys
    assert (parse_head(store.keys[KEYS.head(0)]).sequence, parse_head(store.keys[KEYS.head(1)]).sequence) == (1, 1)
    assert writer.next() is None


def sent_at_once(*batches: list[Record]) -> int:
    """How many of these batches, of a partition each, the first transaction has."""
    store, writer = Store(), Writer(KEYS)
    for partition, batch in enumerate(batches):
        appended(writer, owned(store, partition), *batch)
    txn = writer.next()
    assert txn is not None
    return len(txn.compares)


def test_a_transaction_is_filled_up_to_its_bound() -> None:
    """With one operation more, or one byte more, the second batch waits. The head of a partition is an operation."""
    half = [record(number) for number in range(OPERATIONS_MAX // 2 - 1)]
    assert sent_at_once(half, half) == 2
    assert sent_at_once(half, [*half, record(-1)]) == 1
    value = bytes(BYTES_MAX // 2 - plain_bytes([Record(b"key", b"", 0)]))
    large = Record(b"key", value, 0)
    assert sent_at_once([large], [large]) == 2
    assert sent_at_once([large], [Record(b"key", value + b"\0", 0)]) == 1


def test_a_lost_answer_is_asked_for_with_the_same_transaction() -> None:
    """The second try shows that the first was carried out; nothing is written twice."""
    store, writer = Store(), Writer(KEYS)
    own = owned(store, 0)
    outcomes = appended(writer, own, record(1))
    txn = writer.next()
    assert txn is not None
    store.carry_out(txn)
    assert writer.told(store.carry_out(txn)) is None
    assert outcomes == [(1, None)]


def test_one_fenced_partition_stops_no_other() -> None:
    """The others are sent again without it, and become durable exactly once."""
    store, writer = Store(), Writer(KEYS)
    a, b = owned(store, 0), owned(store, 1)
    lost, kept = appended(writer, a, record(1)), appended(writer, b, record(2))
    txn = writer.next()
    assert txn is not None
    store.keys[KEYS.head(0)] = Head(4, 0, "2/9").text()
    again = writer.told(store.carry_out(txn))
    assert again is not None
    assert isinstance(lost[0][1], Fenced)
    assert not a.valid()
    assert writer.told(store.carry_out(again)) is None
    assert kept == [(1, None)]
    assert KEYS.log(0) + b"key-1" not in store.keys


@pytest.mark.parametrize("was_lost", [False, True])
def test_a_refused_append_needs_a_barrier_if_a_try_before_had_no_answer(*, was_lost: bool) -> None:
    """That try may be carried out late."""
    store, writer = Store(), Writer(KEYS)
    own = owned(store, 0)
    outcomes = appended(writer, own, record(1))
    assert writer.next() is not None
    heads = TxnResult(succeeded=True, revision=1, gets=[KeyValue(KEYS.head(0), own.head.text(), 1, 1, 0)])
    writer.was_refused(heads, Unavailable("no space"), was_lost=was_lost)
    assert [str(error) for _, error in outcomes] == ["no space"]
    assert own.unknown == was_lost


def test_an_append_that_finds_no_head_is_fenced() -> None:
    """Somebody has deleted it: the partition is nobody's, and nothing was written."""
    store, writer = Store(), Writer(KEYS)
    outcomes = appended(writer, owned(store, 0), record(1))
    del store.keys[KEYS.head(0)]
    txn = writer.next()
    assert txn is not None
    assert writer.told(store.carry_out(txn)) is None
    assert [str(error) for _, error in outcomes] == ["nobody owns partition 0 now"]
    assert store.keys == {}


def test_a_late_duplicate_changes_nothing() -> None:
    """A transaction that arrives again behind a newer one finds another head: the newer value stays."""
    store, writer = Store(), Writer(KEYS)
    own = owned(store, 0)
    appended(writer, own, Record(b"k", b"old", 0))
    first = writer.next()
    assert first is not None
    writer.told(store.carry_out(first))
    appended(writer, own, Record(b"k", b"new", 0))
    second = writer.next()
    assert second is not None
    writer.told(store.carry_out(second))
    store.carry_out(first)
    assert store.keys[KEYS.log(0) + b"k"] == b"new"


def test_a_lost_try_that_was_given_up_needs_a_barrier() -> None:
    """Nobody knows what becomes of the transaction, so appends are refused; the barrier ends its chances."""
    store, writer = Store(), Writer(KEYS)
    own = owned(store, 0)
    outcomes = appended(writer, own, record(1))
    late = writer.next()
    assert late is not None
    writer.give_up(Unavailable("no answer"))
    assert isinstance(outcomes[0][1], Unavailable)
    assert own.unknown
    assert isinstance(appended(writer, own, record(2))[0][1], Unavailable)
    assert store.carry_out(writer.barrier(own)).succeeded
    store.carry_out(late)
    assert KEYS.log(0) + b"key-1" not in store.keys


@pytest.mark.parametrize(("versions", "last"), [(b"\1\1", 1), (b"\0\1", 1), (b"\7\7", 6), (b"\x10\x10", 3)])
def test_a_batch_whose_parts_may_stand_alone_is_divided(versions: bytes, last: int) -> None:
    """Committed offsets; targets and regular expressions, whose epoch comes last. They are durable together."""
    store, writer = Store(), Writer(KEYS)
    own = owned(store, 0)
    count = 5 * OPERATIONS_MAX
    batch = [Record(b"\0%c%05d" % (versions[number % 2], number), b"\0", 0) for number in range(count)]
    batch.append(Record(b"\0%c" % last, b"\0", 0))
    outcomes = appended(writer, own, *batch)
    sizes = []
    while (txn := writer.next()) is not None:
        assert not outcomes
        assert (KEYS.log(0) + batch[-1].key) not in store.keys
        sizes.append(len(txn.success))
        writer.told(store.carry_out(txn))
    assert max(sizes) <= OPERATIONS_MAX
    assert outcomes == [(1, None)]
    assert len(store.keys) == 1 + len(batch)


@pytest.mark.parametrize("mixed", [b"\2\2", b"\7\5", b"\1\7"])
def test_other_batches_are_whole_or_refused(mixed: bytes) -> None:
    """A part of them would be a group that never was."""
    writer = Writer(KEYS)
    own = owned(Store(), 0)
    whole = [Record(b"\0%c%05d" % (mixed[number % 2], number), b"\0", 0) for number in range(STORED_MAX_RECORDS)]
    appended(writer, own, *whole)
    txn = writer.next()
    assert txn is not None
    assert len(txn.success) == 1 + len(whole)
    assert isinstance(appended(writer, own, *whole, record(1))[0][1], Unavailable)


@pytest.mark.parametrize("versions", [b"\1\1", b"\7\6", b"\x10\3"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_record_that_no_transaction_takes_is_never_sent(versions: bytes, place: int) -> None:
    """A batch that may be divided is refused as a whole because of it; one that is small once it is packed is sent."""
    store, writer = Store(), Writer(KEYS)
    own = owned(store, 0)
    for value, error in ((b"\0\3" + bytes(4 * STORED_MAX_BYTES), None), (Random(1).randbytes(1_450_000), Unavailable)):
        large = Record(b"\0%c large" % versions[0], value, 0)
        batch = [Record(b"\0%c%d" % (versions[number], number), b"\0", 0) for number in range(2)]
        batch.insert(place, large)
        outcomes = appended(writer, own, *batch)
        sent = 0
        while (txn := writer.next()) is not None:
            sent += 1
            sizes = [len(each.key) + len(each.value) for each in txn.success if isinstance(each, Put)]
            assert sum(sizes) <= STORED_MAX_BYTES
            writer.told(store.carry_out(txn))
        if error is None:
            assert outcomes == [(1, None)]
        else:
            assert sent == 0
            assert isinstance(outcomes[0][1], error)


@pytest.mark.parametrize("value", [b"\x00\x03small", b"\x00\x03" + b"large" * 200_000])
def test_a_large_value_is_packed(value: bytes) -> None:
    """It takes less room, and is the same when it is read."""
    assert unpacked(packed(value)) == value
    assert len(packed(value)) < 600_000


def test_more_partitions_than_a_transaction_holds_wait_for_the_next() -> None:
    """Each partition brings a condition, and etcd allows only so many beside nested transactions."""
    store, writer = Store(), Writer(KEYS)
    outcomes = [appended(writer, owned(store, partition), record(partition)) for partition in range(PARTITIONS_MAX + 1)]
    first = writer.next()
    assert first is not None
    assert len(first.compares) == PARTITIONS_MAX
    writer.told(store.carry_out(first))
    assert [len(outcome) for outcome in outcomes] == [1] * PARTITIONS_MAX + [0]
    second = writer.next()
    assert second is not None
    writer.told(store.carry_out(second))
    assert outcomes[-1] == [(1, None)]


def test_a_partition_that_a_transaction_has_no_room_for_comes_first_in_the_next() -> None:
    """The next transaction begins with it, however much waits for another partition."""
    store, writer = Store(), Writer(KEYS)
    busy, other = owned(store, 0), owned(store, 1)
    for number in range(3):
        appended(writer, busy, *(record(each) for each in range(number, number + OPERATIONS_MAX - 1)))
    outcomes = appended(writer, other, record(1))
    for answered in ([], [(1, None)]):
        txn = writer.next()
        assert txn is not None
        writer.told(store.carry_out(txn))
        assert outcomes == answered


PARTITIONS = 3
STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1), st.integers(1, 3)),
    st.tuples(st.sampled_from(["answer", "lose", "lose late", "give up"]), st.just(0), st.just(0)),
    st.tuples(st.just("late"), st.integers(0, 5), st.just(0)),
    st.tuples(st.sampled_from(["claim", "load"]), st.integers(0, PARTITIONS - 1), st.just(0)),
)


class Play:
    """A writer, and a store whose answers get lost and whose tries come late. It checks outcomes by what is written.

    written: the numbers of the records of each partition, in the order in which the store got them.
    outcomes: of each append, by the numbers of its records.
    """

    def __init__(self) -> None:
        self.store, self.writer = Store(), Writer(KEYS)
        self.owns = [owned(self.store, partition) for partition in range(PARTITIONS)]
        self.written: list[list[int]] = [[] for _ in self.owns]
        self.outcomes: dict[tuple[int, tuple[int, ...]], list[tuple[int, EngineError | None]]] = {}
        self.late: list[Txn] = []
        self.under_way: Txn | None = None
        self.count = 0

    def carry_out(self, txn: Txn) -> TxnResult:
        """Let the store do a transaction, and note the records that it wrote."""
        result = self.store.carry_out(txn)
        if result.succeeded:
            for each in txn.success:
                for own in self.owns:
                    if isinstance(each, Put) and each.key.startswith(KEYS.log(own.partition)):
                        self.written[own.partition].append(int(each.value))
        return result

    def step(self, what: str, which: int, count: int) -> None:
        """Do one step."""
        if what == "append":
            self.append(which, count)
        elif what == "late" and self.late:
            self.carry_out(self.late[which % len(self.late)])
        elif what == "claim":
            key = KEYS.head(which)
            self.store.keys[key] = Head(parse_head(self.store.keys[key]).epoch + 1, 0, "2/9").text()
        elif what == "load":
            self.load(self.owns[which])
        elif self.under_way is not None:
            self.answer(self.under_way, what)
        if self.under_way is None:
            self.under_way = self.writer.next()

    def append(self, partition: int, count: int) -> None:
        """Append a batch of new records."""
        numbers = tuple(range(self.count, self.count + count))
        self.count += count
        outcome = self.outcomes[partition, numbers] = []
        batch = [Record(b"%d" % number, b"%d" % number, 0) for number in numbers]
        self.writer.append(self.owns[partition], [batch], lambda *told: outcome.append(told))

    def answer(self, txn: Txn, what: str) -> None:
        """End a try: with its answer, without it, or without it and later done all the same."""
        if what == "answer":
            self.under_way = self.writer.told(self.carry_out(txn))
        elif what == "lose":
            self.carry_out(txn)
        else:
            self.late.append(txn)
            if what == "give up":
                self.under_way = None
                self.writer.give_up(Unavailable("no answer"))

    def load(self, own: Owned) -> None:
        """Open a partition again that the writer has given up, as the engine does."""
        if own.closed and not own.is_over and not self.writer.busy_with(own):
            if own.unknown:
                result = self.carry_out(self.writer.barrier(own))
                if not result.succeeded:
                    (found,) = result.gets
                    assert found is not None
                    if parse_head(found.value) != own.head.next():
                        self.writer.fence(own, "claimed")
                        return
                own.head, own.unknown = own.head.next(), False
            own.closed = ""

    def check(self) -> None:
        """The rules that hold at every moment."""
        for written in self.written:
            assert len(set(written)) == len(written)
        for (partition, numbers), outcome in self.outcomes.items():
            assert len(outcome) <= 1
            done = [number for number in self.written[partition] if number in numbers]
            assert done in ([], list(numbers))
            if outcome and outcome[0][1] is None:
                assert outcome == [(1, None)]
                assert done

    def finish(self) -> None:
        """Answer everything; then an append has its outcome, and the log its acknowledged records in their order."""
        while self.under_way is not None:
            self.step("answer", 0, 0)
            self.check()
        assert all(len(outcome) == 1 for outcome in self.outcomes.values())
        for own in self.owns:
            assert not own.is_over or self.store.keys[KEYS.head(own.partition)].endswith(b"2/9")
        for partition, written in enumerate(self.written):
            acked = [numbers for (of, numbers), told in self.outcomes.items() if of == partition and told[0][1] is None]
            ordered = [number for numbers in acked for number in numbers]
            assert [number for number in written if number in set(ordered)] == ordered


@pytest.mark.rounds
@settings(max_examples=rounds(100, 300, 3_000), deadline=None)
@given(st.lists(STEP, max_size=60))
def test_each_acknowledged_append_is_written_once_and_in_order(steps: list[tuple[str, int, int]]) -> None:
    """Answers get lost, tries come late or twice, and other nodes claim partitions in between."""
    play = Play()
    for step in steps:
        play.step(*step)
        play.check()
    play.finish()
    before = [list(written) for written in play.written]
    for own in play.owns:
        play.load(own)
    after_barriers = [list(written) for written in play.written]
    assert after_barriers == before
    for txn in play.late:
        play.carry_out(txn)
    assert play.written == after_barriers
