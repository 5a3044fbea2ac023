"""`tenure transactions` on a server with a transaction that is open, and with one that nobody will end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.cli.groups import app as groups
from coordinator.cli.transactions import DESCRIBE_COLUMNS, OPEN_COLUMNS, app
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import list_segments
from tests.cli.conftest import Ran, at, run_app
from tests.oracle.producer import producer
from tests.oracle.stage import Stage
from tests.support.batches import batch
from tests.support.raw import Connection
from tests.support.requests import commit_request
from tests.support.tenure import Tenure

HANGING = ("--older-than", "0")


def hang(folder: Path, offset: int) -> None:
    """Put a record of a transaction that no coordinator knows behind a log's last batch."""
    now_ms = time.time_ns() // 1_000_000
    data = batch(
        [(b"k", b"v", now_ms)], producer_id=77, producer_epoch=3, sequence=0, attributes=16, base_offset=offset
    )
    path = list_segments(Disk(), folder)[-1].path
    path.write_bytes(path.read_bytes() + data)


@pytest.fixture(scope="module")
def server() -> Iterator[Tenure]:
    """One whose topic "orders" has a hanging transaction at offset 2, and an open one behind it."""
    with Tenure({"tenure.topics": "orders:1", "transaction.state.log.num.partitions": "4"}) as tenure:
        stage = Stage(tenure, "cli")
        ended = producer(stage, "ended", version=2)
        ended.init()
        ended.send("orders", b"one")
        ended.end()
        stage.close()
        tenure.stop()
        hang(tenure.data_dir / "orders-0", 2)
        tenure.start()
        stage = Stage(tenure, "cli")
        opened = producer(stage, "open", version=2)
        opened.init(transaction_timeout_ms=900_000)
        opened.send("orders", b"two")
        stage.close()
        yield tenure


def run(server: Tenure, *arguments: str) -> Ran:
    """Run a command."""
    return run_app(app, *arguments, *at(server.bootstrap))


def test_ids_are_listed_and_described(server: Tenure) -> None:
    """All of them, or those of a state; an unknown one has exit code 3."""
    rows = {row["TRANSACTIONAL-ID"]: row["TRANSACTION-STATE"] for row in run(server, "list").rows}
    assert rows == {"cli.ended": "CompleteCommit", "cli.open": "Ongoing", "ready": "Empty"}
    (listed,) = run(server, "list", "--state", "Ongoing", "--output", "json").json
    assert (listed["transactional_id"], listed["partitions"]) == ("cli.open", [{"topic": "orders", "partition": 0}])
    ran = run(server, "describe", "cli.open", "nobody")
    assert (ran.code, ran.err) == (3, "tenure: there is no transactional id nobody\n")
    assert ran.out.splitlines()[0].split() == list(DESCRIBE_COLUMNS)
    (row,) = ran.rows
    assert (row["TIMEOUT-MS"], row["TOPIC-PARTITIONS"]) == ("900000", "orders-0")


def test_lag_that_readers_of_committed_records_see_is_explained(server: Tenure) -> None:
    """A lag counts to the end of the log; where a transaction holds readers back, a line names it and the place."""
    with Connection(server.port) as connection:
        for group, offset in (("idle", 4), ("behind", 1)):
            connection.ask(commit_request(group, {("orders", 0): offset}), 8)
    ran = run_app(groups, "describe", "behind", *at(server.bootstrap))
    assert (ran.code, [row["LAG"] for row in ran.rows]) == (0, ["3"])
    assert "orders-0: readers of committed records wait at 2, for the transaction of producer id 77" in ran.err
    assert "wait at" not in run_app(groups, "describe", "idle", *at(server.bootstrap)).err


def test_a_hanging_transaction_is_found_and_aborted(server: Tenure) -> None:
    """The open one, which its coordinator will end, is in neither list."""
    assert run(server, "find-hanging").code == 0
    ran = run(server, "find-hanging", *HANGING)
    assert (ran.code, ran.err) == (1, "tenure: `tenure transactions abort --hanging` ends them\n")
    assert ran.out.splitlines()[0].split() == list(OPEN_COLUMNS)
    (row,) = ran.rows
    assert (row["TOPIC"], row["PRODUCER-ID"], row["START-OFFSET"]) == ("orders", "77", "2")
    assert run(server, "abort", "--hanging", *HANGING, "--dry-run").rows == [row]
    assert run(server, "abort", "--hanging", *HANGING).rows == [row]
    assert run(server, "find-hanging", *HANGING).code == 0


def test_an_open_transaction_is_aborted_by_its_place(server: Tenure) -> None:
    """By topic, partition and start; where nothing begins, the exit code is 3."""
    named = ("abort", "--topic", "orders", "--partition", "0", "--start-offset")
    assert run(server, *named, "1").code == 3
    (found,) = run(server, *named, "3", "--output", "json").json
    assert (found["topic"], found["start_offset"]) == ("orders", 3)
    assert run(server, *named, "3").code == 3


def test_abort_needs_a_transaction(server: Tenure) -> None:
    """A partition alone names none."""
    assert run(server, "abort").code == 2
    assert run(server, "abort", "--start-offset", "3").code == 2
