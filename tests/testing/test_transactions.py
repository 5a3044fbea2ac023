"""Transactions of the test kit: ids, committed records, the matcher; with a client's producer."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from coordinator.client.errors import Refused
from coordinator.testing import Tenure
from coordinator.testing.transactions import Record, assert_exactly_once
from tests.support.patience import WITHIN_S

pytestmark = pytest.mark.interop


def producer(tenure: Tenure, transactional_id: str | None = None, **settings: Any) -> confluent_kafka.Producer:
    """A producer; one with a transactional id is ready for its first transaction."""
    named = {} if transactional_id is None else {"transactional.id": transactional_id}
    made = confluent_kafka.Producer(
        {"bootstrap.servers": tenure.bootstrap_servers, "log_level": 0, **named, **settings}
    )
    if transactional_id is not None:
        made.init_transactions(WITHIN_S)
    return made


def test_an_id_is_shown_with_its_newest_transaction() -> None:
    """From the start of its producer to the end of a transaction; while it is open, with its partitions."""
    with Tenure(topics={"orders": 3}) as tenure:
        assert tenure.transactions == {}
        writing = producer(tenure, "copier")
        assert tenure.transactions["copier"].state == "Empty"
        writing.begin_transaction()
        writing.produce("orders", b"1", partition=2)
        assert writing.flush(WITHIN_S) == 0
        (shown,) = tenure.transactions.values()
        assert (shown.transactional_id, shown.state, shown.producer_epoch) == ("copier", "Ongoing", 0)
        assert (shown.partitions, shown.timeout_ms) == ([("orders", 2)], 60_000)
        writing.commit_transaction(WITHIN_S)
        assert [record.value for record in tenure.records("orders")] == [b"1"]
        assert tenure.transactions["copier"].state == "CompleteCommit"


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_records_are_those_that_are_committed(codec: str) -> None:
    """Aborted ones and open ones are left out, plain ones behind an open one too; keys and values may be absent."""
    with Tenure(topics={"orders": 2}) as tenure:
        plain, writing = producer(tenure), producer(tenure, "copier", **{"compression.type": codec})
        for end in (writing.commit_transaction, writing.abort_transaction, writing.commit_transaction):
            writing.begin_transaction()
            name = end.__name__.encode()
            for number in range(40):
                writing.produce("orders", b"%s-%d" % (name, number), key=None if number % 2 else b"k", partition=0)
            writing.produce("orders", None, key=name, partition=1)
            assert writing.flush(WITHIN_S) == 0
            end(WITHIN_S)
        plain.produce("orders", b"plain", partition=0)
        assert plain.flush(WITHIN_S) == 0
        writing.begin_transaction()
        writing.produce("orders", b"open", partition=0)
        assert writing.flush(WITHIN_S) == 0
        plain.produce("orders", b"behind", partition=0)
        assert plain.flush(WITHIN_S) == 0
        first = [b"commit_transaction-%d" % number for number in range(40)]
        found = tenure.records("orders")
        assert [record.value for record in found if record.partition == 0] == [*first, *first, b"plain"]
        assert [record.key for record in found if record.partition == 0][:3] == [b"k", None, b"k"]
        expected = [(0, b"commit_transaction", None), (4, b"commit_transaction", None)]
        assert [(record.offset, record.key, record.value) for record in found if record.partition == 1] == expected
        writing.commit_transaction(WITHIN_S)
        assert [record.value for record in tenure.records("orders") if record.partition == 0][-2:] == [
            b"open",
            b"behind",
        ]
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            tenure.records("prices")


def test_many_records_take_several_requests() -> None:
    """A topic that is larger than one answer is read to its end."""
    with Tenure(topics={"orders": 1}) as tenure:
        writing = producer(tenure, "copier")
        values = [b"%07d" % number * 10_000 for number in range(40)]
        writing.begin_transaction()
        for value in values:
            writing.produce("orders", value)
        writing.commit_transaction(WITHIN_S)
        assert [record.value for record in tenure.records("orders")] == values
        tenure.assert_exactly_once("orders", values)


def test_the_matcher_names_what_is_wrong() -> None:
    """Missing values, those that are there twice, and those that nobody expected."""
    found = [Record(0, offset, None, value, 0) for offset, value in enumerate([b"a", b"b", b"b", b"x"])]
    assert_exactly_once("orders", found, [b"b", b"x", b"a", b"b"])
    with pytest.raises(AssertionError) as failed:
        assert_exactly_once("orders", found, [b"a", b"b", b"c"])
    assert str(failed.value).splitlines() == [
        "topic orders: 4 committed records, expected 3",
        "    missing: b'c'",
        "    more than once: b'b': 2 times",
        "    not expected: b'x'",
    ]
    with pytest.raises(AssertionError, match=r"missing: b'0', .*, and 2 more"):
        assert_exactly_once("orders", [], [b"%d" % number for number in range(12)])


def test_a_wait_for_a_fault_ends_when_it_has_fired() -> None:
    """As often as was asked for; the error of one that never does has the plan."""
    with Tenure(topics={"orders": 1}) as tenure:
        (once,) = tenure.faults.add("InitProducerId transactional_id=copier -> error CONCURRENT_TRANSACTIONS")
        (never,) = tenure.faults.add("EndTxn transactional_id=other -> disconnect")
        producer(tenure, "copier")
        tenure.wait_until_fired(once)
        with pytest.raises(AssertionError, match=r"not 2 requests got the fault InitProducerId (?s:.*)EndTxn"):
            tenure.wait_until_fired(once, times=2, timeout=0)
        with pytest.raises(AssertionError, match="not 1 requests got the fault EndTxn"):
            tenure.wait_until_fired(never, timeout=0)
