"""The transaction coordinator answers as Apache Kafka does. The numbers are those of the measured facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.group.client import ANONYMOUS, NOBODY, Now
from coordinator.transaction import coordinator
from coordinator.transaction.coordinator import Settings
from coordinator.transaction.events import (
    DescribeTransaction,
    Expire,
    Granted,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    Outcome,
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


def test_each_init_has_the_next_epoch(bench: Bench) -> None:
    """Fact 1: epochs 0, 1, 2 of one producer id; each one fences the one before."""
    first, second, third = bench.init(), bench.init(), bench.init()
    assert [first.epoch, second.epoch, third.epoch] == [0, 1, 2]
    assert first.producer_id == second.producer_id == third.producer_id
    assert bench.add(first) == {FENCED}


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


def test_requests_that_wait_have_a_limit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is to try again."""
    monkeypatch.setattr(coordinator, "WAITING_MAX", 1)
    producer = bench.init()
    bench.add(producer)
    bench.end(producer)
    assert bench.add(producer, waits=True) is None
    assert bench.add(producer, waits=True) == {CONCURRENT}


@pytest.mark.parametrize("timeout_ms", [0, -1, Settings().timeout_max_ms + 1])
def test_a_bad_timeout_changes_nothing(bench: Bench, timeout_ms: int) -> None:
    """Fact 4: nothing is created; a good one replaces the former."""
    assert bench.init(timeout_ms=timeout_ms) == error(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert bench.core.groups == {}
    bench.init(timeout_ms=5)
    bench.init(timeout_ms=7)
    assert bench.known.timeout_ms == 7


def test_init_during_a_transaction_aborts_it(bench: Bench) -> None:
    """Fact 5: CONCURRENT_TRANSACTIONS until the abort is written, then the epoch is 2; the fence is at once."""
    producer = bench.init()
    bench.add(producer)
    assert bench.init() == error(CONCURRENT)
    assert (bench.known.status, bench.known.epoch) == (Status.PREPARE_ABORT, 1)
    assert bench.init() == error(CONCURRENT)
    asked = bench.write_markers()
    assert (asked.epoch, asked.outcome, asked.partitions) == (1, Outcome.FENCED, {ORDERS})
    assert bench.init().epoch == 2


def test_a_claim_goes_on_and_may_be_repeated(bench: Bench) -> None:
    """Fact 6: the claim of epoch 0 gets 1, however often; anything else is fenced."""
    producer = bench.init()
    who = producer.producer_id
    assert [bench.init(who, 0).epoch for _ in range(3)] == [1, 1, 1]
    now = Granted(NONE, who, 1)
    bench.add(now)
    bench.end(now)
    bench.write_markers()
    assert bench.init(who, 0) == now
    assert bench.init(who, 7) == error(FENCED)
    assert bench.init(who + 5, 1) == error(FENCED)
    bench.init()
    assert bench.init(who, 0) == error(FENCED)


def test_a_claim_for_an_unknown_id_is_believed(bench: Bench) -> None:
    """Fact 7: epoch 0 and a new producer id."""
    assert bench.init(7, 3) == Granted(NONE, 101, 0)


def test_a_claim_during_the_own_transaction(bench: Bench) -> None:
    """Fact 8: it aborts; repeated it gets the fence's epoch. A wrong producer id is refused before."""
    producer = bench.init()
    bench.add(producer)
    assert bench.init(producer.producer_id + 1, 0) == error(FENCED)
    assert bench.known.status is Status.ONGOING
    assert bench.init(producer.producer_id, 0) == error(CONCURRENT)
    bench.write_markers()
    assert bench.init(producer.producer_id, 0) == Granted(NONE, producer.producer_id, 1)


def test_the_last_epoch_is_not_in_the_log(bench: Bench) -> None:
    """Fact 9: after a restart the repetition is fenced."""
    producer = bench.init()
    bench.init(producer.producer_id, 0)
    bench.restart()
    assert bench.init(producer.producer_id, 0) == error(FENCED)


def test_epochs_run_out(bench: Bench) -> None:
    """Fact 10: at 32766 a new producer id has epoch 0, also for the claim and its repetition."""
    producer = bench.init()
    bench.known.epoch = EPOCH_MAX - 1
    old = producer.producer_id
    granted = [bench.init(old, EPOCH_MAX - 1) for _ in range(2)]
    assert granted[0] == granted[1]
    assert (granted[0].epoch, granted[0].producer_id == old) == (0, False)
    assert bench.add(Granted(NONE, old, EPOCH_MAX - 1)) == {MAPPING}


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


def test_add_partitions_checks_the_producer(bench: Bench) -> None:
    """Fact 11: unknown id or producer id 49; epoch too low or too high 90."""
    assert bench.add(Granted(NONE, 1, 0)) == {MAPPING}
    producer = bench.init()
    assert bench.add(Granted(NONE, producer.producer_id + 9, 0)) == {MAPPING}
    assert bench.add(Granted(NONE, producer.producer_id, 1)) == {FENCED}


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


def test_end_v5_raises_the_epoch(bench: Bench) -> None:
    """Fact 20: epoch + 1, also when repeated; abort where nothing was begun is fine, commit isn't."""
    producer = bench.init()
    assert bench.end_v2(producer) == error(INVALID)
    bench.add(producer, version=V2)
    granted = bench.end_v2(producer)
    assert granted == Granted(NONE, producer.producer_id, 1)
    assert bench.end_v2(producer) == error(CONCURRENT)
    assert bench.write_markers().epoch == 1
    assert bench.end_v2(producer) == granted
    assert bench.end_v2(producer, commit=False) == error(INVALID)
    empty = bench.end_v2(granted, commit=False)
    assert empty == Granted(NONE, producer.producer_id, 2)
    assert bench.write_markers().partitions == frozenset()
    assert bench.known.status is Status.COMPLETE_ABORT
    assert bench.end_v2(granted, commit=False) == empty
    bench.add(empty, version=V2)
    assert bench.end_v2(granted) == error(FENCED)


def test_end_v4_after_v5(bench: Bench) -> None:
    """Fact 21: the present epoch and outcome NONE without a new epoch; the old epoch is fenced."""
    producer = bench.init()
    bench.add(producer, version=V2)
    granted = bench.end_v2(producer)
    bench.write_markers()
    assert bench.end(granted) == granted
    assert bench.end(producer) == error(FENCED)


def test_timeout(bench: Bench) -> None:
    """Fact 22: the abort raises the epoch; v1 is fenced, v2 takes it for its own abort, a claim goes on."""
    producer = bench.init(timeout_ms=500)
    bench.add(producer)
    bench.time_out()
    assert bench.now.ms == 500
    assert bench.write_markers().epoch == 1
    assert bench.add(producer) == {FENCED}
    assert bench.end(producer) == error(FENCED)
    assert bench.end_v2(producer) == error(INVALID)
    assert bench.end_v2(producer, commit=False) == Granted(NONE, producer.producer_id, 1)
    assert bench.init(producer.producer_id, 0) == Granted(NONE, producer.producer_id, 1)


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


def test_describe_and_list(bench: Bench) -> None:
    """Facts 24 and 25: an unknown id is 105; the start is -1 before the first transaction; all ids are listed."""
    assert bench.handle(DescribeTransaction("d", NOBODY, "t")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    producer = bench.init()
    state = bench.handle(DescribeTransaction("d", NOBODY, "t"))
    assert (state.transaction_state, state.transaction_start_time_ms, state.topics) == ("Empty", -1, [])
    bench.add(producer)
    bench.end(producer)
    state = bench.handle(DescribeTransaction("d", NOBODY, "t"))
    assert [(each.topic, each.partitions) for each in state.topics] == [("orders", [0])]
    ((name, _, label, start_ms),) = bench.handle(ListTransactions("l"))
    assert (name, label, start_ms) == ("t", "PrepareCommit", 1_000_000)


def test_a_verification_adds_nothing(bench: Bench) -> None:
    """Facts 30 and 49: a partition that isn't in the transaction is TRANSACTION_ABORTABLE, and nothing begins."""
    producer = bench.init()
    assert bench.add(producer, only_verify=True) == {ErrorCode.TRANSACTION_ABORTABLE}
    assert bench.known.status is Status.EMPTY
    bench.add(producer)
    assert bench.add(producer, only_verify=True) == {NONE}


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
