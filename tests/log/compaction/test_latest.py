"""Tests the first pass: where it ends, and how much memory it takes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from random import Random

import pytest

from coordinator.log.compaction.latest import Latest, name_of
from coordinator.log.compaction.reading import closed_segments
from coordinator.log.compaction.rewrite import compact
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import CHUNK_SIZE, segment_at
from protocol.records.batch import Record, encode_batch
from tests.log.compaction.closed import (
    NOW_MS,
    changed,
    compacted,
    not_swapped,
    put,
    records,
    state,
    task,
    tombstone,
    write,
)


class TestBounds:
    """The first pass ends a compaction at a limit."""

    def test_tiny_map(self, folder: Path) -> None:
        """With a map of few keys, a log takes many compactions, and each goes on where the one before ended."""
        chance = Random(1)
        batches = [[put(chance.randrange(50), b"%d" % at)] for at in range(400)]
        end = write(folder, *(batches[at : at + 20] for at in range(0, 400, 20)))
        expected = state(folder)
        dirty_offset = rounds = 0
        while dirty_offset < end:
            outcome = compacted(folder, task(end, dirty_offset=dirty_offset, keys_max=7))
            assert outcome.clean_offset > dirty_offset
            dirty_offset = outcome.clean_offset
            rounds += 1
            assert state(folder) == expected
        assert rounds > 5
        assert len(records(folder)) == len(expected)

    @pytest.mark.parametrize(("attributes", "producer_id"), [(0, -1), (0x30, 7)])
    def test_what_is_no_key_counts(self, folder: Path, attributes: int, producer_id: int) -> None:
        """Tombstones of few keys and markers take memory as keys do: they end a round as well."""
        folder.mkdir()
        batches = (encode_batch([tombstone(offset % 2, 0)], offset, 1) for offset in range(1_000))
        content = b"".join(changed(batch, attributes, producer_id) for batch in batches)
        segment_at(folder, 0).path.write_bytes(content)
        assert 50 <= compact(Disk(), folder, task(1_000, keys_max=100), not_swapped).clean_offset <= 100

    def test_memory(self, folder: Path) -> None:
        """A compaction takes some chunks of memory and the map, however large a segment is and whatever stays of it."""
        batches = [[put(number, bytes(8_000))] for number in range(4_000)]
        again = [[put(number, bytes(8_000))] for number in range(0, 4_000, 2)]
        end = write(folder, batches + again)
        tracemalloc.start()
        outcome = compact(Disk(), folder, task(end, segment_size=100_000_000), not_swapped)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert outcome.size_after > 32_000_000
        assert peak < 8 * CHUNK_SIZE

    def test_lag(self, folder: Path) -> None:
        """A compaction keeps everything from the first batch on that is younger than the lag."""
        end = write(
            folder,
            [[put(1, timestamp_ms=NOW_MS - 20)], [put(1, timestamp_ms=NOW_MS - 10)]],
            [[put(1, timestamp_ms=NOW_MS - 9)], [put(1, timestamp_ms=NOW_MS - 50)]],
        )
        outcome = compacted(folder, task(end, lag_ms=10))
        assert outcome.clean_offset == 2
        assert [offset for offset, _ in records(folder)] == [1, 2, 3]


def test_long_keys_are_digests(folder: Path) -> None:
    """The map has a key above 63 bytes by its digest; equal keys supersede each other, whatever their length."""
    keys = [b"k" * 63, b"k" * 64, b"k" * 65]
    end = write(folder, [[Record(key, b"old", NOW_MS) for key in keys]], [[Record(keys[1], b"new", NOW_MS)]])
    latest = Latest(Disk(), task(end))
    latest.read(closed_segments(Disk(), folder, end))
    assert {name_of(key): latest.offsets[name_of(key)] for key in keys} == latest.offsets
    assert [latest.offsets[name_of(key)] for key in keys] == [0, 3, 2]
    assert max(map(len, latest.offsets)) == 64
