"""Tests how a pass reads closed segments: it names damage and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.log.compaction.reading import closed_segments
from coordinator.log.compaction.rewrite import compact
from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import segment_at
from protocol.records.batch import HEADER_SIZE, encode_batch
from protocol.records.batch import peek_header as header_of
from tests.log.compaction.closed import (
    not_swapped,
    put,
    task,
    write,
)


class TestDamage:
    """Damage ends a compaction."""

    def test_damage_is_named(self, folder: Path) -> None:
        """A flipped bit ends the compaction, which names file and position and leaves the log unchanged."""
        end = write(folder, [[put(1)], [put(1)]])
        path = segment_at(folder, 0).path
        content = bytearray(path.read_bytes())
        second = header_of(bytes(content)).size
        content[second + HEADER_SIZE] ^= 1
        path.write_bytes(content)
        with pytest.raises(Damaged) as caught:
            compact(Disk(), folder, task(end), not_swapped)
        assert (caught.value.file, caught.value.position) == (str(path), second)
        assert path.read_bytes() == content

    @pytest.mark.parametrize("dirty_offset", [0, 2, 4])
    def test_wrong_order_is_named(self, folder: Path, dirty_offset: int) -> None:
        """An offset that isn't above the one before it ends the compaction, in the clean and in the dirty part."""
        folder.mkdir()
        batch = encode_batch([put(1), put(2)], 0, 1)
        segment_at(folder, 0).path.write_bytes(batch + batch)
        segment_at(folder, 2).path.write_bytes(encode_batch([put(1), put(2)], 2, 1))
        with pytest.raises(Damaged, match="offset 0, expected 2 or later") as caught:
            compact(Disk(), folder, task(4, dirty_offset=dirty_offset), not_swapped)
        assert caught.value.position == len(batch)


def test_closed_segments(folder: Path) -> None:
    """Each segment that starts below the end offset is closed, and ends where the next one starts."""
    write(folder, [[put(1)]], [[put(1), put(2)]], [[put(3)]])
    found = closed_segments(Disk(), folder, 3)
    assert [(source.segment.base_offset, source.end) for source in found] == [(0, 1), (1, 3)]
