"""The commands read the log of a running server, which appends and compacts: no finding, no half-replaced log."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from coordinator.cli.log.command import app
from coordinator.log.segments.outside import find_logs, opened, read_segment
from coordinator.log.segments.segment import Frame
from protocol.messages import OffsetCommitRequest
from protocol.records.walk import decode_records
from tests.cli.conftest import run_app
from tests.support.length import rounds
from tests.support.raw import Connection
from tests.support.requests import commit_request
from tests.support.tenure import Tenure

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "20000",
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.min.cleanable.ratio": "0.1",
}
COMPACTIONS = rounds(3, 10, 30)
PAUSE_S = 0.002
TOPIC_PARTITIONS = 20
ONCE = "committed-once"
"""A group whose records are only in compacted segments."""


def commits(group_id: str, offset: int) -> OffsetCommitRequest:
    """A request that commits the offset for all topic partitions, without a member."""
    offsets = {("orders", number): offset for number in range(TOPIC_PARTITIONS)}
    return commit_request(group_id, offsets, metadata="x" * 200)


def commit_until(port: int, ended: threading.Event) -> None:
    """Commit all the time. The pause is for a disk in memory: each commit would be answered at once."""
    offset = 0
    with Connection(port) as connection:
        connection.ask(commits(ONCE, 7), 8)
        while not ended.wait(PAUSE_S):
            offset += 1
            connection.ask(commits("always", offset), 8)


def count_of_once(data_dir: Path) -> int:
    """The number of records of that group in the log at this moment."""
    (log,) = find_logs(data_dir)
    marker = ONCE.encode()
    with opened(log) as segments:
        frames = [found for segment in segments for found in read_segment(segment)]
    found = [decode_records(each.data, each.at, each.header).records for each in frames if isinstance(each, Frame)]
    return sum(marker in record.key for records in found for record in records)


@pytest.mark.rounds
def test_log_of_a_server_at_work_is_clean(tmp_path: Path) -> None:
    """Verify has no finding, dump shows no damage, and no record is missing while segments are replaced."""
    topics = {"tenure.topics": f"orders:{TOPIC_PARTITIONS}"}
    with Tenure({**SETTINGS, **topics}, directory=tmp_path) as tenure:
        ended = threading.Event()
        thread = threading.Thread(target=commit_until, args=(tenure.port, ended))
        thread.start()
        try:
            tenure.wait_for_event("compacted")
            deadline = tenure.count("compacted") + COMPACTIONS
            while tenure.count("compacted") < deadline:
                assert thread.is_alive(), tenure.tail()
                ran = run_app(app, "verify", str(tenure.data_dir))
                assert (ran.code, ran.out.endswith(" clean\n")) == (0, True), (ran.out, ran.err)
                assert run_app(app, "dump", str(tenure.data_dir), "--group", ONCE).code == 0
                assert {count_of_once(tenure.data_dir) for _ in range(50)} == {TOPIC_PARTITIONS}
        finally:
            ended.set()
            thread.join()
        assert tenure.count("compaction_failed") == 0


def test_export_of_a_running_server_is_refused(tmp_path: Path) -> None:
    """The broker would lose later records of a running server, so the export refuses and says what to do."""
    with Tenure(directory=tmp_path / "server") as tenure:
        ran = run_app(app, "export", "--data-dir", str(tenure.data_dir), str(tmp_path))
    assert ran.code == 2
    assert ran.err == f"tenure: {tenure.data_dir} is in use by a running server: stop it first\n"
