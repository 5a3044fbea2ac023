"""The audit reads batches and markers, within limits."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from coordinator.audit.read import batches as module
from coordinator.audit.read.batches import read_marker, read_records, unpack
from coordinator.log.segments.outside import find_logs
from protocol.records.batch import CorruptBatch, Record, encode_batch, peek_header
from tests.audit.scenes import GROUP, START_MS, Scene, offset_key


@pytest.mark.parametrize(("number", "ends"), [(0, False), (1, True)])
def test_marker_says_how_a_transaction_ended(number: int, ends: bool) -> None:
    """A marker gives its transaction's end: committed or aborted."""
    assert read_marker(Record(struct.pack(">hh", 0, number), struct.pack(">hi", 0, 7), START_MS)) == (0, ends, None)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"\0\0\1", b"\0" * 6, "a marker's key of 3 bytes"),
        (b"\0\0\0\7", b"\0" * 6, "unknown marker 7"),
        (b"\0\0\0\1", b"\0" * 5, "a marker's value of 5 bytes"),
        (b"\0\0\0\1", None, "a marker's value of 0 bytes"),
    ],
)
def test_marker_that_can_not_be_read_ends_nothing(key: bytes, value: bytes | None, reason: str) -> None:
    """A marker that can't be read ends no transaction, and its row has the reason."""
    marker = read_marker(Record(key, value, START_MS))
    assert (marker.ends, marker.reason) == (None, reason)


def test_batch_of_very_many_records_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose header counts more records than the limit isn't unpacked."""
    data = encode_batch([Record(offset_key(GROUP), None, START_MS)] * 3, 0, 0)
    monkeypatch.setattr(module, "RECORDS_MAX", 3)
    assert len(unpack(data, 0, peek_header(data)).records) == 3
    monkeypatch.setattr(module, "RECORDS_MAX", 2)
    with pytest.raises(CorruptBatch, match="3 records, 2 allowed"):
        unpack(data, 0, peek_header(data))


def test_reading_goes_on_behind_damage(tmp_path: Path) -> None:
    """A damaged batch is None, and the records around it have their offsets."""
    scene = Scene().commit(1).commit(2).commit(3)
    scene.batches[1] = scene.batches[1][:-1] + b"\xff"
    (log,) = find_logs(scene.write(tmp_path))
    assert [each and each[0] for each in read_records(log)] == [0, None, 2]
