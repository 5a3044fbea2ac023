"""Tests ownerships: epochs only rise, even after a loss of files, and a partition has one owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.config import INT64_MAX
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.engine import Damaged, Fenced, Unavailable
from coordinator.log.segments.partition import EPOCH_MAX, OFFSET_ROOM
from coordinator.log.segments.segment import partition_folder, segment_at
from protocol.records.batch import encode_batch
from protocol.records.walk import decode_batches
from tests.log.calls import (
    acquire,
    append,
    load,
    numbers_of,
    opened,
    owned,
    record,
    release,
)
from tests.log.embedded.test_engine import running


def test_epoch_of_the_owner_is_in_its_batches(tmp_path: Path) -> None:
    """A batch's partitionLeaderEpoch is the epoch of the ownership that wrote it."""
    epochs = []
    with running(tmp_path) as engine:
        for number in range(3):
            own, _ = opened(engine)
            assert append(engine, own, record(number)) is None
            epochs.append(own.epoch)
    content = (partition_folder(tmp_path, 0) / "00000000000000000000.log").read_bytes()
    assert [batch.header.partition_leader_epoch for batch in decode_batches(content)] == epochs


def test_epoch_without_lock_files(tmp_path: Path) -> None:
    """If the lock files lose their contents, the next epoch is still higher than that of every batch."""
    with running(tmp_path) as engine:
        owned(engine)
        own, _ = opened(engine)
        assert append(engine, own, record(1)) is None
    for path in tmp_path.glob(".lock*"):
        path.unlink()
    told: list[tuple[int, int | None, int]] = []
    engine = EmbeddedEngine(tmp_path, 50, 1)
    engine.start(lambda *change: told.append(change))
    newer, records = opened(engine)
    assert (newer.epoch, records) == (own.epoch + 1, [record(1)])
    assert append(engine, newer, record(2)) is None
    assert load(engine, newer) == ([record(1), record(2)], None)
    assert newer.epoch == own.epoch + 1
    engine.close()
    assert told[50:] == [(0, 1, 0), (0, 1, newer.epoch), (0, None, newer.epoch)]
    with running(tmp_path) as engine:
        assert owned(engine).epoch == newer.epoch + 1


def test_an_owner_that_writes_nothing_has_its_own_epoch(tmp_path: Path) -> None:
    """No batch shows it, so the lock file does: a call of an owner is fenced behind the next one."""
    epochs = []
    for _ in range(3):
        with running(tmp_path) as engine:
            epochs.append(owned(engine).epoch)
    assert epochs == [0, 1, 2]


@pytest.mark.parametrize("noted", [b"", b"%010d\n" % EPOCH_MAX, b"9" * 19])
def test_last_epoch(tmp_path: Path, noted: bytes) -> None:
    """Behind the last epoch all owners share it, and the partition serves; a number that is no epoch is no note."""
    with running(tmp_path) as engine:
        own, _ = opened(engine)
        assert append(engine, own, record(1)) is None
    segment = partition_folder(tmp_path, 0) / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[12:16] = EPOCH_MAX.to_bytes(4, "big")
    segment.write_bytes(content)
    (tmp_path / ".lock-0").write_bytes(noted)
    for number in (2, 3):
        with running(tmp_path) as engine:
            own, records = opened(engine)
            assert numbers_of(records) == list(range(1, number))
            assert own.epoch == EPOCH_MAX
            assert append(engine, own, record(number)) is None
    (tmp_path / ".lock-1").write_bytes(b"9" * 19)
    with running(tmp_path) as engine:
        assert owned(engine, 1).epoch == 0


def test_last_offset(tmp_path: Path) -> None:
    """A log whose offsets end soon is refused, by its file; the other partitions serve."""
    for partition, left in ((0, OFFSET_ROOM - 1), (1, OFFSET_ROOM)):
        first = INT64_MAX - left - 1
        segment = segment_at(partition_folder(tmp_path, partition), first).path
        segment.parent.mkdir()
        segment.write_bytes(encode_batch([record(1)], first, 0))
    with running(tmp_path) as engine:
        outcome = load(engine, owned(engine))[1]
        assert isinstance(outcome, Damaged)
        assert "leaves no room" in outcome.reason
        own, records = opened(engine, 1)
        assert numbers_of(records) == [1]
        assert append(engine, own, record(2)) is None


def test_second_owner(tmp_path: Path) -> None:
    """Of two workers under one supervisor, one owns a partition; the other gets it after a release."""
    with running(tmp_path) as first, running(tmp_path) as second:
        own, _ = opened(first)
        assert append(first, own, record(1)) is None
        outcome = acquire(second, 0)
        assert isinstance(outcome, Unavailable)
        assert "owned by another process" in str(outcome)
        opened(second, 1)
        assert own.valid()
        release(first, own)
        taken, records = opened(second)
        assert taken.epoch > own.epoch
        assert records == [record(1)]
        assert isinstance(append(first, own, record(2)), Fenced)
