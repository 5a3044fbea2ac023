"""The log of transactional ids is read into the last record of each."""

from __future__ import annotations

from pathlib import Path

from coordinator.audit.read.ids import read_ids
from coordinator.transaction.state import Status
from tests.audit.check.test_transactions import MINUTE_MS, NAME, PRODUCER, known, write_ids
from tests.audit.scenes import START_MS


def test_last_record_of_an_id_counts(tmp_path: Path) -> None:
    """Its former producers stay known; a folder without the topic has no ids."""
    assert not read_ids(tmp_path).is_whole
    write_ids(tmp_path, known(Status.ONGOING, producer_id=3), known(Status.COMPLETE_COMMIT), end_ms=START_MS)
    read = read_ids(tmp_path)
    (last,) = read.by_producer.values()
    assert (last.producer_id, last.group_id, last.status) == (PRODUCER, NAME, Status.COMPLETE_COMMIT)
    assert (last.timeout_ms, last.start_ms, last.update_ms) == (MINUTE_MS, START_MS, START_MS)
    assert read.named >= {3, PRODUCER}
    assert (read.is_whole, read.end_ms, read.notes()) == (True, START_MS, [])
