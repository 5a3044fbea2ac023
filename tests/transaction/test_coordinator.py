"""The transaction coordinator answers as Apache Kafka does. The numbers are those of the measured facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.group.client import ANONYMOUS, NOBODY, Now
from coordinator.transaction import coordinator
from coordinator.transaction.coordinator import Settings
from coordinator.transaction.events import (
    Expire,
    Granted,
    InitProducerId,
    MarkersWritten,
)
from coordinator.transaction.state import EPOCH_MAX, V2, Status, TopicPartition
from schemas.errors import ErrorCode
from tests.transaction.harness import ORDERS, Bench, error

NONE = ErrorCode.NONE
MAPPING, FENCED = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
CONCURRENT, INVALID = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE


@pytest.fixture
def bench() -> Bench:
    """A coordinator that knows no id."""
    return Bench()


def test_ids_of_a_principal_have_a_limit(bench: Bench) -> None:
    """An id too many is refused; those that are there go on, also after a restart. An expired one makes room."""
    bench.core.config = Settings(ids_max=1)
    one_more = InitProducerId("init", NOBODY, "other", 60_000, 7)
    other_user = replace(one_more, transactional_id="another", client=NOBODY._replace(principal="User:bob"))
    assert bench.init().epoch == 0
    assert bench.handle(one_more) == error(ErrorCode.POLICY_VIOLATION)
    assert bench.handle(other_user) == Granted(NONE, 7, 0)
    assert bench.ids_of == {ANONYMOUS: 1, "User:bob": 1}
    assert bench.handle(other_user).epoch == 1
    bench.restart()
    assert not bench.ids_of
    assert bench.init().epoch == 1
    assert bench.ids_of == {ANONYMOUS: 1}
    assert bench.handle(one_more) == error(ErrorCode.POLICY_VIOLATION)
    bench.now = Now(0, bench.now.wall_ms + Settings().expiration_ms)
    bench.handle(Expire(["t", "another"]))
    assert not bench.ids_of
    assert bench.handle(one_more) == Granted(NONE, 7, 0)


def test_a_new_id_names_its_producer_as_the_former_one_too(bench: Bench) -> None:
    """The first record has it, as Kafka writes it."""
    granted = bench.init()
    assert bench.known.previous_producer_id == granted.producer_id
    bench.restart()
    assert bench.known.previous_producer_id == granted.producer_id


def test_a_producer_starts_anew_behind_the_end_of_its_transaction(bench: Bench) -> None:
    """While markers are due, it is to try again. Then its record has no list of partitions, as Kafka's."""
    producer = bench.init()
    bench.add(producer)
    bench.end(producer)
    assert bench.init() == bench.init(producer.producer_id, producer.epoch) == error(CONCURRENT)
    bench.write_markers()
    assert bench.known.partitions is not None
    assert bench.init() == Granted(NONE, producer.producer_id, 1)
    assert bench.known.partitions is None


def test_requests_that_wait_have_a_limit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is to try again."""
    monkeypatch.setattr(coordinator, "WAITING_MAX", 1)
    producer = bench.init()
    bench.add(producer)
    bench.end(producer)
    assert bench.add(producer, waits=True) is None
    assert bench.add(producer, waits=True) == {CONCURRENT}


def test_epochs_run_out(bench: Bench) -> None:
    """Fact 10: at 32766 a new producer id has epoch 0, also for the claim and its repetition."""
    producer = bench.init()
    bench.known.epoch = EPOCH_MAX - 1
    old = producer.producer_id
    granted = [bench.init(old, EPOCH_MAX - 1) for _ in range(2)]
    assert granted[0] == granted[1]
    assert (granted[0].epoch, granted[0].producer_id == old) == (0, False)
    assert bench.add(Granted(NONE, old, EPOCH_MAX - 1)) == {MAPPING}
    assert bench.init(old, 0) == error(FENCED), "the epoch of the new producer id is no claim by the old one"


def test_epochs_run_out_at_an_end(bench: Bench) -> None:
    """Fact 10: EndTxn v5 grants a new producer id; the markers have the old one with epoch 32767."""
    producer = bench.init()
    bench.known.epoch = EPOCH_MAX - 1
    last = Granted(NONE, producer.producer_id, EPOCH_MAX - 1)
    bench.add(last, version=V2)
    granted = bench.end_v2(last)
    assert (granted.error, granted.epoch, granted.producer_id == last.producer_id) == (NONE, 0, False)
    assert bench.add(granted, version=V2) == {CONCURRENT}
    assert bench.write_markers()[1:3] == (last.producer_id, EPOCH_MAX)
    assert bench.end_v2(last) == granted
    assert bench.add(granted, version=V2) == {NONE}


def test_only_the_last_epoch_of_the_former_producer_is_a_claim(bench: Bench) -> None:
    """An older epoch of the former producer id, or the last epoch of another one, is fenced and aborts nothing."""
    old = bench.init().producer_id
    bench.known.epoch = EPOCH_MAX - 1
    bench.add(bench.init(old, EPOCH_MAX - 1))
    for producer_id, epoch in ((old, EPOCH_MAX - 2), (7_777, EPOCH_MAX - 1)):
        assert bench.init(producer_id, epoch) == error(FENCED), (producer_id, epoch)
    course = [bench.known.status, bench.init(old, EPOCH_MAX - 1), bench.known.status]
    assert course == [Status.ONGOING, error(CONCURRENT), Status.PREPARE_ABORT]


def test_a_former_epoch_takes_no_new_producer_id(bench: Bench) -> None:
    """When the epochs run out, a claim that isn't the last epoch is fenced."""
    old = bench.init().producer_id
    bench.known.epoch = EPOCH_MAX - 2
    assert bench.init(old, EPOCH_MAX - 2).epoch == EPOCH_MAX - 1
    assert bench.init(old, 5) == error(FENCED)
    assert bench.known.producer_id == old


def test_the_former_producer_is_the_one_before(bench: Bench) -> None:
    """Once the second producer has got a next epoch, the first one may claim nothing."""
    first = bench.init().producer_id
    bench.known.epoch = EPOCH_MAX - 1
    second = bench.init(first, EPOCH_MAX - 1)
    bench.add(bench.init(second.producer_id, second.epoch))
    assert bench.init(first, EPOCH_MAX - 1) == error(FENCED)
    assert bench.known.status is Status.ONGOING


def test_each_new_producer_id_names_the_one_before(bench: Bench) -> None:
    """Ends of version 2 used up the epochs of the second id: its claim of the third can be repeated."""
    first = bench.init().producer_id
    bench.known.epoch = EPOCH_MAX - 1
    second = bench.init(first, EPOCH_MAX - 1).producer_id
    bench.known.epoch = EPOCH_MAX - 2
    one_but_last = Granted(NONE, second, EPOCH_MAX - 2)
    bench.add(one_but_last, version=V2)
    assert bench.end_v2(one_but_last) == Granted(NONE, second, EPOCH_MAX - 1)
    bench.write_markers()
    third = bench.init(second, EPOCH_MAX - 1)
    assert (third.epoch, third.producer_id == second) == (0, False)
    assert bench.init(second, EPOCH_MAX - 1) == third


def test_only_the_end_that_took_the_last_epoch_can_be_repeated(bench: Bench) -> None:
    """An older epoch, another producer, or the same end after the next transaction: the producer id is unknown."""
    old = bench.init().producer_id
    bench.known.epoch = EPOCH_MAX - 1
    last = Granted(NONE, old, EPOCH_MAX - 1)
    bench.add(last, version=V2)
    granted = bench.end_v2(last)
    bench.write_markers()
    assert bench.end_v2(Granted(NONE, old, EPOCH_MAX - 2)) == error(MAPPING)
    assert bench.end_v2(Granted(NONE, 7_777, EPOCH_MAX - 1)) == error(MAPPING)
    assert bench.end_v2(last) == granted
    bench.add(granted, version=V2)
    bench.end_v2(granted)
    bench.write_markers()
    assert bench.end_v2(last) == error(MAPPING)


def test_markers_of_a_former_transaction_end_no_other(bench: Bench) -> None:
    """They are written late, and the next transaction has the same producer and epoch: it waits for its own."""
    producer = bench.init()
    bench.add(producer)
    bench.end(producer)
    late = bench.write_markers()
    bench.add(producer)
    bench.end(producer)
    assert not bench.core.awaits(late)
    bench.handle(MarkersWritten(late))
    assert bench.known.status.label == "PrepareCommit"
    bench.write_markers()
    assert bench.known.status.label == "CompleteCommit"


def test_adding_what_is_there_writes_nothing(bench: Bench) -> None:
    """Facts 12 and 15: no record, and the start stays; a transaction without partitions begins too."""
    producer = bench.init()
    bench.add(producer)
    written, start_ms = len(bench.records), bench.known.start_ms
    bench.now = Now(5, 1_000_005)
    assert bench.add(producer) == {NONE}
    assert (len(bench.records), bench.known.start_ms) == (written, start_ms)
    bench.add(producer, TopicPartition("orders", 1))
    assert (len(bench.records), bench.known.start_ms) == (written + 1, start_ms)


def test_end_without_a_transaction(bench: Bench) -> None:
    """Fact 16: 48; a repetition of the same outcome NONE, of the other one 48, before the markers 51."""
    producer = bench.init()
    assert bench.end(producer) == error(INVALID)
    bench.add(producer)
    assert bench.end(producer).error is NONE
    assert bench.end(producer) == bench.end(producer, commit=False) == error(CONCURRENT)
    bench.write_markers()
    written = len(bench.records)
    assert bench.end(producer).error is NONE
    assert bench.end(producer, commit=False) == error(INVALID)
    assert (len(bench.records), bench.markers) == (written, [])


def test_an_end_takes_an_epoch(bench: Bench) -> None:
    """EndTxn v5, also an abort of nothing: a repetition, or a claim by the epoch before, gets the epoch once more."""
    producer = bench.init()
    granted = bench.end_v2(producer, commit=False)
    assert granted == Granted(NONE, producer.producer_id, 1)
    assert (bench.known.client_version, bench.known.partitions) == (V2, set())
    assert bench.end_v2(producer, commit=False) == error(CONCURRENT)
    bench.write_markers()
    assert bench.end_v2(producer, commit=False) == granted
    assert bench.end_v2(producer) == error(INVALID)
    assert bench.init(producer.producer_id, producer.epoch) == granted


def test_until_it_is_complete_others_are_concurrent(bench: Bench) -> None:
    """Fact 17: 51 for what comes; a Produce waits and goes on by itself."""
    producer = bench.init()
    bench.add(producer)
    bench.end(producer)
    assert bench.add(producer) == {CONCURRENT}
    assert bench.add(producer, waits=True) is None
    bench.write_markers()
    assert bench.answers.pop("add") == {ORDERS: NONE}
    assert bench.known.status is Status.ONGOING


def test_expiry(bench: Bench) -> None:
    """Fact 23: an unused id goes after its time, with a tombstone; one in a transaction stays."""
    producer = bench.init()
    bench.add(producer)
    bench.now = Now(0, 1_000_000 + Settings().expiration_ms)
    bench.handle(Expire(["t"]))
    assert "t" in bench.core.groups
    bench.end(producer)
    bench.write_markers()
    bench.now = Now(0, bench.now.wall_ms + Settings().expiration_ms)
    (look,) = bench.core.offsets_in(None)
    bench.handle(look)
    assert bench.core.groups == {}
    assert bench.records[-1].value is None
    assert bench.end(producer) == error(MAPPING)


def test_a_start_finishes_what_was_decided(bench: Bench) -> None:
    """Part D, and fact 57: after a crash between the answer of EndTxn and the markers, the load asks for them."""
    producer = bench.init()
    bench.add(producer)
    bench.end(producer)
    bench.restart()
    asked = bench.write_markers()
    assert (asked.is_commit, asked.partitions) == (True, {ORDERS})
    assert bench.known.status is Status.COMPLETE_COMMIT


def test_an_open_transaction_times_out_after_a_restart(bench: Bench) -> None:
    """Part D: its time began with the first partition."""
    producer = bench.init(timeout_ms=500)
    bench.add(producer)
    bench.now = Now(0, 1_000_300)
    bench.restart()
    bench.time_out()
    assert bench.now.wall_ms == 1_000_500
    assert bench.known.status is Status.PREPARE_ABORT
