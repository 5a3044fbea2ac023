"""Transactions move between Apache Kafka and Tenure, with their offsets: open ones, prepared ones, complete ones."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from coordinator.cli.log.command import app
from coordinator.transaction.state import V2
from protocol.messages import Message
from schemas.errors import ErrorCode
from tests.cli.conftest import run_app
from tests.cli.log.test_apache import COUNT, SETTINGS, TOPIC, create_orders
from tests.oracle.producer import COMMIT, END, TRANSACTION
from tests.support.apache import VERSION, VERSION_44, ApacheKafka
from tests.support.ids_log import prepare
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.requests import request
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

IDS_COUNT = 3
V1 = 1
COUNTS = {**SETTINGS, "transaction.state.log.num.partitions": str(IDS_COUNT)}
COUNT_OF_IDS = f"transaction.state.log.num.partitions={IDS_COUNT}"
OWNERS = 5
"""Starts of Tenure before the move to a broker: its epochs are then above those of the broker's coordinator."""
OPEN, PREPARED, COMPLETE = "open", "prepared", "complete"
"""The transactional ids, and the groups whose offsets they commit."""

RETRIED = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Granted(NamedTuple):
    """What a producer is known by."""

    producer_id: int
    producer_epoch: int


def asked(port: int, api: str, version: int, **fields: Any) -> Any:
    """The answer of a server that has loaded what it is asked about."""

    def answer() -> Message | None:
        with Connection(port) as connection:
            if "transactional_id" in fields:  # Kafka makes the topic for this request
                asks = request("FindCoordinator", key_type=TRANSACTION, coordinator_keys=[fields["transactional_id"]])
                connection.ask(asks, 6)
            found: Any = connection.ask(request(api, **fields), version)
        errors = {getattr(found, "error_code", 0)}
        errors |= {each.error_code for topic in getattr(found, "topics", ()) for each in topic.partitions}
        errors |= {each.error_code for name in ("groups", "coordinators") for each in getattr(found, name, ())}
        return None if errors & RETRIED else found

    return wait_until(answer, f"{api} is answered", WITHIN_S)


def begin(port: int, name: str, offset: int, version: int) -> Granted:
    """A producer whose transaction has an offset of the group of that name. version: of producers, see V1 and V2."""
    made = asked(port, "InitProducerId", 5, transactional_id=name, transaction_timeout_ms=600_000)
    producer = Granted(made.producer_id, made.producer_epoch)
    partitions = [{"partition_index": 0, "committed_offset": offset}]
    topics = [{"name": TOPIC, "partitions": partitions}]
    own = {"transactional_id": name, "group_id": name, **producer._asdict()}
    if version < V2:
        assert asked(port, "AddOffsetsToTxn", 3, **own).error_code == ErrorCode.NONE
    found = asked(port, "TxnOffsetCommit", COMMIT[version], topics=topics, **own)
    assert found.topics[0].partitions[0].error_code == ErrorCode.NONE
    return producer


def commit(port: int, name: str, producer: Granted, version: int) -> None:
    """EndTxn, until the offset of the group is stable."""
    ended = asked(port, "EndTxn", END[version], transactional_id=name, committed=True, **producer._asdict())
    assert ended.error_code == ErrorCode.NONE
    wait_until(lambda: stable_offset(port, name)[0] == ErrorCode.NONE, f"the marker of {name} is written", WITHIN_S)


def stable_offset(port: int, name: str) -> tuple[ErrorCode, int]:
    """The error and the offset of a group, for a reader of stable offsets."""
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    found = asked(port, "OffsetFetch", 8, groups=[{"group_id": name, "topics": topics}], require_stable=True)
    (partition,) = found.groups[0].topics[0].partitions
    return ErrorCode(partition.error_code), partition.committed_offset


def is_complete(port: int, name: str) -> bool:
    """Whether the transaction of this id was committed, everywhere."""
    return state(port, name) == "CompleteCommit"


def state(port: int, name: str) -> str:
    """The state of a transactional id."""
    found = asked(port, "DescribeTransactions", 0, transactional_ids=[name])
    return cast("str", found.transaction_states[0].transaction_state)


def begin_three(port: int, base: int, version: int) -> dict[str, Granted]:
    """A transaction with an offset for each id; that of COMPLETE ends."""
    producers = {name: begin(port, name, base + at, version) for at, name in enumerate((OPEN, PREPARED, COMPLETE))}
    commit(port, COMPLETE, producers[COMPLETE], version)
    return producers


def prepare_one(folder: Path, version: int) -> None:
    """Write into the log of a stopped server that the open transaction of PREPARED is to be committed."""
    prepare(folder, PREPARED, IDS_COUNT, raises_epoch=version == V2)


def assert_moved(port: int, base: int, producers: dict[str, Granted], version: int) -> None:
    """The open transaction is open until its producer ends it, and the acknowledged commits are visible."""
    assert stable_offset(port, COMPLETE) == (ErrorCode.NONE, base + 2)
    wait_until(lambda: stable_offset(port, PREPARED) == (ErrorCode.NONE, base + 1), "the commit is finished", WITHIN_S)
    assert stable_offset(port, OPEN) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert state(port, OPEN) == "Ongoing"
    commit(port, OPEN, producers[OPEN], version)
    assert stable_offset(port, OPEN) == (ErrorCode.NONE, base)
    for name in producers:
        wait_until(partial(is_complete, port, name), f"{name} is complete", WITHIN_S)


@pytest.mark.parametrize("release, version", [(VERSION, V1), (VERSION_44, V2)])
def test_transactions_go_to_tenure_and_back(tmp_path: Path, release: str, version: int) -> None:
    """Open ones go on, and no acknowledged commit is lost; export refuses prepared ones, whose end Kafka may skip."""
    with ApacheKafka(COUNTS, version=release) as first, ApacheKafka(COUNTS, version=release) as second:
        for kafka in (first, second):
            create_orders(kafka.bootstrap)
        asked(second.port, "FindCoordinator", 6, key_type=TRANSACTION, coordinator_keys=[OPEN])  # makes the topic
        second.stop()
        producers = begin_three(first.port, 10, version)
        first.stop()
        prepare_one(first.log_dir, version)
        assert_clean(first.log_dir)
        with closing(Tenure(COUNTS, directory=tmp_path)) as tenure:
            moves = ["--data-dir", str(tenure.data_dir)]
            ran = run_app(app, "import", str(first.log_dir), *moves, "--set", COUNT, "--set", COUNT_OF_IDS)
            assert (ran.code, ran.err) == (0, ""), ran.out
            for _ in range(OWNERS):
                tenure.start()
                assert tenure.stop() == 0
            tenure.start()
            assert_moved(tenure.port, 10, producers, version)
            producers = begin_three(tenure.port, 20, version)
            assert tenure.stop() == 0
            prepare_one(tenure.data_dir, version)
            assert_clean(tenure.data_dir)
            ran = run_app(app, "export", *moves, str(second.log_dir))
            assert (ran.code, "start the server of this log and stop it once more" in ran.err) == (2, True)
            tenure.start()
            wait_until(partial(is_complete, tenure.port, PREPARED), "the commit is finished", WITHIN_S)
            assert tenure.stop() == 0
            ran = run_app(app, "export", *moves, str(second.log_dir))
            assert (ran.code, ran.err) == (0, ""), ran.out
        second.start()
        assert_moved(second.port, 20, producers, version)
        second.stop()
        assert_clean(second.log_dir)


def assert_clean(folder: Path) -> None:
    """Verify finds nothing in the groups' log, nor in that of transactional ids."""
    ran = run_app(app, "verify", str(folder))
    assert (ran.code, ran.err) == (0, ""), ran.out
