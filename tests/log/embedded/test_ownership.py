"""Tests ownerships: epochs only rise, even after a loss of files, and a partition has one owner."""

from __future__ import annotations

from pathlib import Path

from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.engine import Damaged, Fenced, Unavailable
from coordinator.log.segments.segment import partition_folder
from protocol.records.walk import decode_batches
from tests.log.calls import (
    acquire,
    append,
    load,
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
    assert [batch.leader_epoch for batch in decode_batches(content)] == epochs


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


def test_last_epoch(tmp_path: Path) -> None:
    """After the highest epoch, the engine refuses to acquire the partition; the epoch doesn't wrap around."""
    with running(tmp_path) as engine:
        own, _ = opened(engine)
        assert append(engine, own, record(1)) is None
    segment = partition_folder(tmp_path, 0) / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[12:16] = (2**31 - 1).to_bytes(4, "big")
    segment.write_bytes(content)
    with running(tmp_path) as engine:
        outcome = load(engine, owned(engine))[1]
        assert isinstance(outcome, Damaged)
        assert "epoch" in outcome.reason
        opened(engine, 1)
    (tmp_path / ".lock-0").write_bytes(b"%010d\n" % (2**31 - 1))
    with running(tmp_path) as engine:
        refused = acquire(engine, 0)
        assert isinstance(refused, Damaged)
        assert "epoch" in refused.reason


def test_second_owner(tmp_path: Path) -> None:
    """Of two workers under one supervisor, one owns a partition; the other gets it after a release."""
    with running(tmp_path, lock_folder=False) as first, running(tmp_path, lock_folder=False) as second:
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
