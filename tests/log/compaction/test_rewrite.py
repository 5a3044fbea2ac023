"""A compaction removes all that it can, and a replay finds the same state before and after.

The state of a log is the last value per key. Each history here compares the state before and after: with all kinds of
appends, with small maps, and with stops anywhere.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from coordinator.group.transactions import ABORT, COMMIT
from coordinator.log.compaction.rewrite import compact
from coordinator.log.compaction.task import Cleaned, Compaction, Task
from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import list_segments, segment_at
from coordinator.log.segments.swap import remove_cleaned
from protocol.messages import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetCommitKey,
    OffsetCommitResponse,
    OffsetCommitValue,
    OffsetFetchResponse,
    TxnOffsetCommitResponse,
    encode,
)
from protocol.records.batch import Batch, Record, encode_batch
from protocol.records.batch import peek_header as header_of
from protocol.records.rewrite import encode_slices, slice_records
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.log.compaction.closed import (
    DAY_MS,
    NOW_MS,
    State,
    changed,
    compacted,
    epochs,
    marker_of,
    not_swapped,
    put,
    records,
    replayed,
    sent,
    state,
    swap,
    task,
    tombstone,
    write,
)
from tests.log.disks import FailingDisk, fail_one
from tests.oracle.dumped import BATCH, RECORD
from tests.support.apache import ApacheKafka, dump_log_segments
from tests.support.length import rounds
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.requests import commit_request, group_offsets_request, request, topics_request
from tests.support.tenure import wait_until

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "protocol" / "golden" / "record_batch"
HISTORIES = rounds(20, 60, 2_000)
OFFSET_KEY = b"\0\x01"
OFFSET_VALUE = b"\0\x03"
"""The versions at the start of a committed offset's key and value."""


class TestWhatStays:
    """A compaction keeps the last record of each key unchanged, at its offset."""

    def test_last_record_per_key(self, folder: Path) -> None:
        """A compaction drops a record with a later one; the others keep offset, timestamp, bytes and batch epoch."""
        end = write(folder, [[put(1, b"old"), put(2)], [put(1, b"older")]], [[put(1, b"new", NOW_MS - 5)]])
        assert compacted(folder, task(end)).clean_offset == end
        assert records(folder) == [(1, put(2)), (3, put(1, b"new", NOW_MS - 5))]
        assert epochs(folder) == [1, 1]
        batch = next(decode_batches(segment_at(folder, 0).path.read_bytes()))
        assert (batch.header.base_offset, batch.header.last_offset_delta, batch.header.record_count) == (0, 1, 1)

    def test_long_keys(self, folder: Path) -> None:
        """Long keys that differ only at their end are different keys."""
        keys = [b"k" * size + ending for size in (62, 63, 64, 9_000) for ending in (b"", b"1", b"2")]
        end = write(folder, [[Record(key, value, NOW_MS)] for value in (b"old", b"new") for key in keys])
        compacted(folder, task(end))
        assert [record for _, record in records(folder)] == [Record(key, b"new", NOW_MS) for key in dict.fromkeys(keys)]

    def test_closed_segments_only(self, folder: Path) -> None:
        """A compaction neither changes nor reads the segments from the end offset on: the log may be writing there."""
        write(folder, [[put(1)], [put(2)]], [[put(1)]])
        active = segment_at(folder, 2).path
        active.write_bytes(active.read_bytes()[:-1])
        compacted(folder, task(2))
        assert len(list(decode_batches(segment_at(folder, 0).path.read_bytes()))) == 2
        assert active.stat().st_size > 0

    def test_unchanged_is_not_written(self, folder: Path) -> None:
        """A compaction that can drop no record writes no file."""
        end = write(folder, [[put(1)]], [[put(2)]])
        size = segment_at(folder, 0).path.stat().st_size
        outcome = compact(Disk(), folder, task(end, segment_size=size), not_swapped)
        assert outcome == Compaction(end, [], 2 * size, 2 * size)

    def test_segments_are_joined(self, folder: Path) -> None:
        """A compaction joins small segments into one that is at most as large as a segment may be."""
        end = write(folder, *([[put(key)]] for key in range(20)))
        size = segment_at(folder, 0).path.stat().st_size
        compacted(folder, task(end, segment_size=10 * size + 20))
        sizes = [segment.path.stat().st_size for segment in list_segments(Disk(), folder)]
        assert len(sizes) == 2
        assert max(sizes) <= 10 * size + 20
        assert [record for _, record in records(folder)] == [put(key) for key in range(20)]

    def test_nothing_is_left(self, folder: Path) -> None:
        """A compaction that keeps no record leaves an empty file that says where the log ended."""
        old_ms = NOW_MS - DAY_MS
        end = write(folder, [[put(1)]], [[tombstone(1, old_ms)]])
        compacted(folder, task(end))
        assert [segment.base_offset for segment in list_segments(Disk(), folder)] == [0]
        assert records(folder) == []

    def test_large_offsets(self, folder: Path) -> None:
        """A compaction doesn't join segments that are further apart than Kafka's indexes reach."""
        folder.mkdir()
        for base_offset in (0, 2**31, 2**31 + 5):
            segment_at(folder, base_offset).path.write_bytes(encode_batch([put(base_offset)], base_offset, 1))
        compacted(folder, task(2**31 + 9))
        assert [segment.base_offset for segment in list_segments(Disk(), folder)] == [0, 2**31]


class TestTombstones:
    """The key of a deleted record stays deleted."""

    @pytest.mark.parametrize(("age_ms", "stays"), [(0, True), (DAY_MS - 1, True), (DAY_MS, False)])
    def test_retention(self, folder: Path, age_ms: int, stays: bool) -> None:
        """A compaction keeps a tombstone for its retention, by its own timestamp; its key's record goes at once."""
        end = write(folder, [[put(1)], [put(2)]], [[tombstone(1, NOW_MS - age_ms)]])
        compacted(folder, task(end))
        assert [offset for offset, _ in records(folder)] == ([1, 2] if stays else [1])

    def test_in_what_is_clean(self, folder: Path) -> None:
        """A later compaction drops a tombstone that was too young before, though it is in the clean part by then."""
        end = write(folder, [[tombstone(1, NOW_MS)], [put(2)]], [[put(3)]])
        compacted(folder, task(end, dirty_offset=2, now_ms=NOW_MS + DAY_MS - 1))
        assert [offset for offset, _ in records(folder)] == [0, 1, 2]
        compacted(folder, task(end, dirty_offset=2, now_ms=NOW_MS + DAY_MS))
        assert [offset for offset, _ in records(folder)] == [1, 2]

    def test_superseded(self, folder: Path) -> None:
        """A compaction drops a tombstone with a later record like any other."""
        end = write(folder, [[put(1)], [tombstone(1)], [put(1, b"again")]])
        compacted(folder, task(end))
        assert records(folder) == [(2, put(1, b"again"))]

    def test_behind_the_map(self, folder: Path) -> None:
        """A compaction keeps a tombstone behind the map's end, however old: its deleted record may still be there."""
        end = write(folder, [[put(1)], [put(2)]], [[put(3)], [tombstone(1, 0)]])
        compacted(folder, task(end, keys_max=2))
        assert [offset for offset, _ in records(folder)] == [0, 1, 2, 3]
        compacted(folder, task(end, dirty_offset=2))
        assert [offset for offset, _ in records(folder)] == [1, 2]

    def test_delete_horizon(self, folder: Path) -> None:
        """A delete horizon that Kafka's cleaner set on a batch holds, and stays when the batch is rewritten."""
        end = write(folder, [[tombstone(1, NOW_MS), put(2), put(3)]], [[put(2)]])
        path = segment_at(folder, 0).path
        path.write_bytes(changed(path.read_bytes(), 0x40))
        compacted(folder, task(end, now_ms=NOW_MS - 1, retention_ms=0))
        assert [offset for offset, _ in records(folder)] == [0, 2, 3]
        assert header_of(path.read_bytes()).delete_horizon_ms == NOW_MS
        compacted(folder, task(end, now_ms=NOW_MS))
        assert [offset for offset, _ in records(folder)] == [2, 3]


class TestTransactions:
    """Records of a transaction count by its end."""

    @pytest.mark.parametrize(("commit", "left"), [(True, [1, 2]), (False, [0, 2])])
    def test_end(self, folder: Path, commit: bool, left: list[int]) -> None:
        """A committed record supersedes an earlier one; an aborted one supersedes nothing, and goes."""
        end = write(folder, [[put(1, b"old")], sent(7, put(1, b"new")), marker_of(7, commit=commit)])
        assert compacted(folder, task(end)).clean_offset == end
        assert [offset for offset, _ in records(folder)] == left

    def test_place_counts(self, folder: Path) -> None:
        """A record that is later than a transaction's supersedes it, even if the marker is later still."""
        end = write(folder, [sent(7, put(1), put(2)), [put(1, b"later")], marker_of(7, commit=True)])
        compacted(folder, task(end))
        assert [offset for offset, _ in records(folder)] == [1, 2, 3]

    @pytest.mark.parametrize("is_topic", [False, True])
    def test_marker(self, folder: Path, is_topic: bool) -> None:
        """A marker stays beside its records; then for its retention: from its timestamp, in a topic from that time."""
        end = write(folder, [sent(7, put(1)), marker_of(7, commit=True)], [sent(7, put(2)), marker_of(7, commit=False)])
        compacted(folder, task(end, now_ms=NOW_MS + DAY_MS, is_topic=is_topic))
        assert [offset for offset, _ in records(folder)] == [0, 1, 3]
        for now_ms, left in ((NOW_MS + DAY_MS, [0, 1, 3]), (NOW_MS + 2 * DAY_MS, [0, 1])):
            compacted(folder, task(end, dirty_offset=end, now_ms=now_ms, is_topic=is_topic))
            assert [offset for offset, _ in records(folder)] == (left if is_topic else [0, 1])

    def test_open(self, folder: Path) -> None:
        """From the first batch of the oldest open transaction on, everything stays, and the log isn't clean."""
        end = write(
            folder,
            [[put(1)], sent(7, put(1, b"new")), sent(8, put(1, b"open"))],
            [[put(1, b"later")], marker_of(7, commit=True), [put(1, b"latest")]],
        )
        expected = replayed(folder)
        assert compacted(folder, task(end)).clean_offset == 2
        assert [offset for offset, _ in records(folder)] == [1, 2, 3, 4, 5]
        assert replayed(folder) == expected

    def test_many_keys(self, folder: Path) -> None:
        """A transaction with more keys than the map takes ends in several compactions, as other records do."""
        end = write(folder, [*(sent(7, put(key % 10)) for key in range(20)), marker_of(7, commit=True)])
        dirty_offset = 0
        while dirty_offset < end:
            outcome = compacted(folder, task(end, dirty_offset=dirty_offset, keys_max=4))
            assert outcome.clean_offset > dirty_offset
            dirty_offset = outcome.clean_offset
        assert [offset for offset, _ in records(folder)] == list(range(10, 21))

    def test_a_markers_key_is_no_records_key(self, folder: Path) -> None:
        """A control record supersedes nothing, and one of a kind that nobody here knows stays."""
        end = write(folder, [[put(1)], Batch([put(1)], 7, 0, 0x30)])
        compacted(folder, task(end, now_ms=NOW_MS + DAY_MS))
        assert [offset for offset, _ in records(folder)] == [0, 1]

    def test_idempotent_producers(self, folder: Path) -> None:
        """Records of a producer without a transaction are like any others."""
        end = write(folder, [Batch([put(1), put(2)], 7, 0, 0), [put(1)]])
        compacted(folder, task(end))
        assert records(folder) == [(1, put(2)), (2, put(1))]


class SmallDisk(Disk):
    """Has room for `capacity` bytes in a folder. least_free: the smallest free space so far."""

    def __init__(self, folder: Path, capacity: int) -> None:
        self._folder = folder
        self._capacity = capacity
        self.least_free = capacity

    def free(self, descriptor: int) -> int:
        del descriptor
        return self._capacity - folder_size(self._folder)

    def write(self, descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> int:
        written = super().write(descriptor, parts, position)
        self.least_free = min(self.least_free, self.free(descriptor))
        return written


def folder_size(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.iterdir())


class TestFullDisk:
    """A disk with little room beside the log."""

    SIZE = 8_000
    """The records of a segment have so many bytes, some fewer than the segment."""

    def compacted(self, folder: Path, room: int, task: Task) -> Compaction:
        """Compact with so many bytes of room, and swap each file in."""
        disk = SmallDisk(folder, folder_size(folder) + room)
        outcome = compact(disk, folder, task, lambda cleaned: swap(folder, cleaned))
        assert not list(folder.glob("*.cleaned"))
        assert disk.least_free >= task.segment_size // 8
        return outcome

    def halves(self, folder: Path) -> int:
        """Write twenty segments whose ends supersede half of each; return the offset behind them."""
        halves = [[[put(at, bytes(self.SIZE // 2))], [put(100 + at, bytes(self.SIZE // 2))]] for at in range(20)]
        return write(folder, *halves, [[put(100 + at)] for at in range(20)])

    @pytest.mark.parametrize("room", [20_000, 8_000])
    def test_room_for_a_segment(self, folder: Path, room: int) -> None:
        """Room for one segment, or for a segment's remaining half, is enough to compact the whole log.

        Each swap makes more room. An eighth of a segment stays free all the time.
        """
        end = self.halves(folder)
        size, expected = folder_size(folder), state(folder)
        outcome = self.compacted(folder, room, task(end, segment_size=20_000))
        assert (outcome.clean_offset, outcome.reason) == (end, "")
        assert (outcome.size_before, outcome.size_after) == (size, folder_size(folder))
        assert folder_size(folder) < 0.6 * size
        assert len(list_segments(Disk(), folder)) < 12
        assert state(folder) == expected

    def test_no_room(self, folder: Path) -> None:
        """If no new file fits the disk, the log stays unchanged, and the outcome says what was left out."""
        end = self.halves(folder)
        size, expected = folder_size(folder), state(folder)
        outcome = self.compacted(folder, 6_000, task(end, segment_size=20_000))
        assert (outcome.clean_offset, outcome.files) == (0, [])
        assert (outcome.size_before, outcome.size_after) == (size, size)
        assert os.strerror(errno.ENOSPC) in outcome.reason
        assert state(folder) == expected

    def test_one_does_not_fit(self, folder: Path) -> None:
        """If one segment doesn't fit, the others are compacted, tombstones behind it stay, and the next one retries."""
        end = write(
            folder,
            [[put(1, bytes(2_000))], [put(1, b"new")]],
            [[put(2, b"deleted")], [put(3, bytes(9_000))], [put(4, bytes(2_000))]],
            [[put(4, b"new")], [put(5, bytes(2_000))], [put(5, b"new")]],
            [[tombstone(2, 0)], [tombstone(6, 0)]],
        )
        task_ = task(end, segment_size=10_000)
        outcome = self.compacted(folder, 5_000, task_)
        assert outcome.clean_offset == 2
        assert [cleaned.base_offset for cleaned in outcome.files] == [0, 5]
        assert os.strerror(errno.ENOSPC) in outcome.reason
        assert [offset for offset, _ in records(folder)] == [1, 2, 3, 4, 5, 7, 8, 9]
        assert self.compacted(folder, 5_000, task_._replace(dirty_offset=7)).clean_offset == 7
        assert b"key-2" not in state(folder)
        outcome = self.compacted(folder, 20_000, task_._replace(dirty_offset=2))
        assert (outcome.clean_offset, outcome.reason) == (end, "")
        assert [offset for offset, _ in records(folder)] == [1, 3, 5, 7]

    def test_broken_off(self, folder: Path) -> None:
        """An error or damage that ends a compaction leaves no new file behind; the files swapped in before it count."""
        end = self.halves(folder)
        expected = state(folder)
        disk = FailingDisk(fail_one("fdatasync", 4))
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            compact(disk, folder, task(end, segment_size=20_000), lambda cleaned: swap(folder, cleaned))
        assert not disk.descriptors
        assert all(path.suffix == ".log" for path in folder.iterdir())
        assert not segment_at(folder, 2).path.exists()
        assert state(folder) == expected
        content = bytearray(segment_at(folder, 38).path.read_bytes())
        content[-1] ^= 1
        segment_at(folder, 38).path.write_bytes(content)
        with pytest.raises(Damaged):
            compact(Disk(), folder, task(end, dirty_offset=40), lambda cleaned: swap(folder, cleaned))
        assert not list(folder.glob("*.cleaned"))

    def test_a_marker_on_the_second_try(self, folder: Path) -> None:
        """A segment whose first file doesn't fit is read twice; its marker still ends what lies in earlier segments."""
        end = write(folder, [sent(7, put(1))], [marker_of(7, commit=True), [put(2)], [put(2)]])
        disk = FailingDisk(fail_one("write", 1, errno.ENOSPC))
        compact(disk, folder, task(end, segment_size=1, retention_ms=0), lambda cleaned: swap(folder, cleaned))
        assert [offset for offset, _ in records(folder)] == [0, 1, 3]


class Ended(Exception):
    """The process was killed."""


class Model:
    """What a log says, by the rule that the place of a record counts. open: by producer, then by key."""

    def __init__(self) -> None:
        self.open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        self._last: dict[bytes, tuple[int, bytes | None]] = {}

    def add(self, producer_id: int, base_offset: int, batch: Sequence[Record]) -> None:
        """A batch comes, in a transaction if it has a producer."""
        found = {record.key: (offset, record.value) for offset, record in enumerate(batch, base_offset)}
        if producer_id < 0:
            self._last |= found
        else:
            self.open.setdefault(producer_id, {}).update(found)

    def end(self, producer_id: int, *, commit: bool) -> None:
        """A marker comes."""
        found = self.open.pop(producer_id)
        if commit:
            self._last |= {key: max(it, self._last.get(key, it), key=itemgetter(0)) for key, it in found.items()}

    def state(self) -> tuple[State, dict[tuple[int, bytes], bytes]]:
        """As `replayed`."""
        pending = {
            (producer_id, key): value
            for producer_id, found in self.open.items()
            for key, (offset, value) in found.items()
            if value is not None and offset > self._last.get(key, (-1,))[0]
        }
        return {key: value for key, (_, value) in self._last.items() if value is not None}, pending


@pytest.mark.rounds
def test_any_history(tmp_path: Path) -> None:
    """After appends, compactions with maps of any size, and restarts in any order, a replay finds the same state.

    What is pending is the same as well. It does so too where segments don't fit the disk, and where a compaction ends
    after one of its files.
    """
    fewest = []
    left_out = ended = 0
    for seed in range(HISTORIES):
        chance = Random(seed)
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        model = Model()
        next_offset = dirty_offset = written = 0
        now_ms = 0
        for _ in range(chance.randint(1, 25)):
            now_ms += chance.randrange(20)
            if chance.random() < 0.6:
                base_offset = next_offset
                parts = []
                for _ in range(chance.randint(0, 4)):
                    batch = [
                        Record(
                            b"%d" % chance.randrange(6) * chance.choice([1, 1, 1, 64]),
                            None if chance.random() < 0.3 else chance.randbytes(chance.randrange(5)),
                            now_ms,
                        )
                        for _ in range(chance.randint(1, 3))
                    ]
                    producer_id = chance.choice([-1, -1, -1, -1, 7, 8])
                    if producer_id in model.open and chance.random() < 0.8:
                        commit = chance.random() < 0.5
                        model.end(producer_id, commit=commit)
                        parts.append(
                            encode_batch(marker_of(producer_id, commit=commit, timestamp_ms=now_ms), next_offset, 1)
                        )
                        next_offset += 1
                        continue
                    if producer_id >= 0:
                        batch = sent(producer_id, *batch)
                    written_batch = encode_batch(batch, next_offset, 1)
                    parts.append(changed(written_batch, 0x08, producer_id) if chance.random() < 0.2 else written_batch)
                    model.add(producer_id, next_offset, batch)
                    next_offset += len(batch)
                    written += len(batch)
                if parts:
                    segment_at(folder, base_offset).path.write_bytes(b"".join(parts))
            else:
                if chance.random() < 0.3:
                    dirty_offset = 0  # a restart: the new process doesn't know which part is clean
                disk = FailingDisk()
                if chance.random() < 0.5:
                    disk.fails = lambda name, _number, chance=chance: (  # type: ignore[misc]
                        OSError(errno.ENOSPC, "full") if name == "write" and chance.random() < 0.8 else None
                    )
                left = chance.choice([0, 1, 2, 99, 99, 99])

                def swap_some(cleaned: Cleaned, folder: Path = folder) -> None:
                    nonlocal left
                    left -= 1
                    if left < 0:
                        raise Ended
                    swap(folder, cleaned)

                with suppress(Ended):
                    outcome = compact(
                        disk,
                        folder,
                        task(
                            next_offset,
                            dirty_offset=dirty_offset,
                            now_ms=now_ms,
                            retention_ms=chance.choice([0, 10, DAY_MS]),
                            lag_ms=chance.choice([0, 0, 15]),
                            keys_max=chance.choice([1, 3, 1000]),
                            segment_size=chance.choice([1, 200, 1000]),
                        ),
                        swap_some,
                    )
                    dirty_offset = outcome.clean_offset
                    left_out += outcome.reason != ""
                ended += left < 0
                remove_cleaned(Disk(), folder)
            assert replayed(folder) == model.state(), seed
        batches = [marker_of(producer_id, commit=True, timestamp_ms=now_ms) for producer_id in model.open]
        for producer_id in list(model.open):
            model.end(producer_id, commit=True)
        if batches:
            segment_at(folder, next_offset).path.write_bytes(
                b"".join(encode_batch(batch, offset, 1) for offset, batch in enumerate(batches, next_offset))
            )
        for dirty_offset in (0, next_offset):  # the second one finds markers whose records are gone
            compacted(
                folder, task(next_offset + len(batches), dirty_offset=dirty_offset, now_ms=now_ms + 1, retention_ms=0)
            )
        assert replayed(folder) == model.state(), seed
        keys = [record.key for _, record in records(folder)]
        assert sorted(set(keys) - {ABORT, COMMIT}) == sorted(model.state()[0])
        left = len(keys) - keys.count(ABORT) - keys.count(COMMIT)
        assert left == len(model.state()[0])
        assert not keys.count(ABORT)
        assert keys.count(COMMIT) <= left
        fewest.append(written - left)
    assert max(fewest) > 20
    assert left_out > HISTORIES // 10
    assert ended > HISTORIES // 10


class TestBatches:
    """A compaction rewrites single batches."""

    @pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.bin")), ids=lambda path: path.stem)
    def test_what_kafka_wrote(self, path: Path) -> None:
        """Any records of a batch that Kafka wrote may stay, whatever its codec, and they read the same."""
        content = path.read_bytes()
        position = 0
        for batch in decode_batches(content):
            slices = slice_records(content, position, batch.header)
            position += batch.header.size
            for step in (1, 2, 3):
                kept = slices[::step]
                if not kept:
                    continue
                (written,) = decode_batches(encode_slices(batch.header, kept))
                assert written.records == batch.records[::step]
                assert written.offsets == batch.offsets[::step]
                assert written.header.next_offset == batch.header.next_offset
                assert written.header.partition_leader_epoch == batch.header.partition_leader_epoch
                assert written.header.record_count == len(kept)


@pytest.mark.oracle
def test_kafkas_tool_reads_what_is_left(tmp_path: Path) -> None:
    """kafka-dump-log finds every batch valid and the same last records and tombstones, before and after.

    The tool reports gaps between offsets, in logs that Kafka compacted as well; it may report nothing else.
    """
    chance = Random(7)
    batches = [
        [
            Record(
                OFFSET_KEY + encode(OffsetCommitKey(group="g", topic="t", partition=chance.randrange(9)), 1),
                None
                if chance.random() < 0.2
                else OFFSET_VALUE + encode(OffsetCommitValue(offset=at, metadata="", commit_timestamp=NOW_MS), 3),
                NOW_MS,
            )
            for _ in range(3)
        ]
        for at in range(200)
    ]
    folder = tmp_path / "__consumer_offsets-0"
    end = write(folder, *(batches[at : at + 20] for at in range(0, 200, 20)))

    def dumped() -> list[tuple[str, str]]:
        done = dump_log_segments(*(segment.path for segment in list_segments(Disk(), folder)))
        assert done.returncode == 0
        remarks = re.sub(r"Non-consecutive offsets in .*|  \d+ is followed by \d+", "", done.stderr)
        assert not remarks.strip(), done.stderr
        assert all(match["valid"] == "true" for match in map(BATCH.match, done.stdout.splitlines()) if match)
        return [(match["key"], match["payload"]) for match in map(RECORD.match, done.stdout.splitlines()) if match]

    before = dumped()
    assert len(before) == 600
    compacted(folder, task(end, segment_size=2_000))
    after = dumped()
    assert len(after) == len(dict(before)) == 9
    assert dict(after) == dict(before)


@pytest.mark.oracle
def test_kafkas_own_cleaner_leaves_the_same(tmp_path: Path) -> None:
    """Kafka's cleaner and ours leave the same records of a log, in the same batches.

    So Kafka's tool reports the same on both, to the letter: it counts each gap between offsets. A broker that starts on
    our log has the same offsets, and the same ones are pending.
    """
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "4000",
        "log.cleaner.enable": "false",
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    theirs, ours = tmp_path / "theirs" / "__consumer_offsets-0", tmp_path / "ours" / "__consumer_offsets-0"
    with ApacheKafka(settings) as kafka:
        log = kafka.log_dir / "__consumer_offsets-0"
        _commit_and_delete(kafka.port, Random(11))
        offsets = _offsets(kafka.port)
        assert {each.error_code for each in offsets} == {0, ErrorCode.UNSTABLE_OFFSET_COMMIT}
        kafka.stop()
        ours.mkdir(parents=True)
        for segment in list_segments(Disk(), log):
            shutil.copy(segment.path, ours)
        end = list_segments(Disk(), ours)[-1].base_offset
        kafka.settings["log.cleaner.enable"] = "true"
        kafka.start()
        checkpoint = kafka.log_dir / "cleaner-offset-checkpoint"
        is_clean = f"__consumer_offsets 0 {end}\n"
        wait_until(lambda: checkpoint.exists() and is_clean in checkpoint.read_text(), is_clean, WITHIN_S)
        kafka.stop()
        shutil.copytree(log, theirs)
        before = len(records(ours))
        compacted(ours, task(end, now_ms=time.time_ns() // 1_000_000))
        for path in log.iterdir():
            if path.name[:20].isdigit():
                path.unlink()
        shutil.copytree(ours, log, dirs_exist_ok=True)
        kafka.start()
        assert _offsets(kafka.port) == offsets
    assert 20 < len(records(ours)) < before // 2
    assert [offset for offset, _ in records(ours)] == [offset for offset, _ in records(theirs)]
    said = [_dumped_as_one(folder) for folder in (theirs, ours)]
    assert said[0] == said[1]
    assert " is followed by " in said[0][1]


def _commit_and_delete(port: int, chance: Random) -> None:
    """Commit offsets without a membership in the group, some in transactions, and delete some."""
    with Connection(port) as connection:
        connection.ask(topics_request({"orders": 30}), 5)
        producers = [Transactional(connection, f"t-{number}") for number in range(2)]
        for number in range(300):
            chosen = chance.sample(range(30), chance.randint(1, 4))
            # The last segment has no marker: Kafka knows from the active one too how a transaction ended.
            if number % 3 == 1 and number < 200:
                chance.choice(producers).commit("g", chosen, number)
            if number % 7 == 1 or number == 200:
                for each in producers if number == 200 else [chance.choice(producers)]:
                    each.end(commit=chance.random() < 0.6)
            if number % 20 == 7:
                gone = {"name": "orders", "partitions": [{"partition_index": index} for index in chosen]}
                connection.ask(request("OffsetDelete", group_id="g", topics=[gone]), 0)
                continue
            answer = connection.ask(commit_request("g", {("orders", at): number for at in chosen}), 7)
            assert cast("OffsetCommitResponse", answer).topics[0].partitions[0].error_code == 0
        producers[0].commit("g", [3, 4], 1_000)


def _offsets(port: int) -> list[OffsetFetchResponse.OffsetFetchResponsePartitions]:
    """The group's stable offsets by partition, once it is loaded."""
    asked = group_offsets_request("g", partitions={"orders": range(30)}, stable=True)
    with Connection(port) as connection:

        def loaded() -> list[OffsetFetchResponse.OffsetFetchResponsePartitions] | None:
            (group,) = cast("OffsetFetchResponse", connection.ask(asked, 8)).groups
            return None if group.error_code else group.topics[0].partitions

        return wait_until(loaded, "the group is loaded", WITHIN_S)


class Transactional:
    """Commits offsets in transactions."""

    def __init__(self, connection: Connection, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._connection = connection
        granted = self._ask(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=900_000), 3)
        self._producer = {
            "transactional_id": transactional_id,
            "producer_id": granted.producer_id,
            "producer_epoch": granted.producer_epoch,
        }
        self._is_open = False

    def commit(self, group: str, partitions: Sequence[int], offset: int) -> None:
        """Commit an offset for some partitions of the topic `orders`."""
        self._ask(AddOffsetsToTxnRequest(**self._producer, group_id=group), 3)
        topic = {
            "name": "orders",
            "partitions": [{"partition_index": at, "committed_offset": offset} for at in partitions],
        }
        answer = self._connection.ask(request("TxnOffsetCommit", **self._producer, group_id=group, topics=[topic]), 3)
        assert cast("TxnOffsetCommitResponse", answer).topics[0].partitions[0].error_code == 0
        self._is_open = True

    def end(self, *, commit: bool) -> None:
        """End the transaction, if one is open."""
        if self._is_open:
            self._ask(EndTxnRequest(**self._producer, committed=commit), 3)
            self._is_open = False

    def _ask(self, request: Any, version: int) -> Any:
        """Ask until the markers of the former transaction are written, and the coordinator is loaded."""
        again = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
        answer: Any = self._connection.ask(request, version)
        while answer.error_code in again | {ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            find = FindCoordinatorRequest(key=self.transactional_id, key_type=1)  # Kafka makes the log for it
            self._connection.ask(find, 3)
            answer = self._connection.ask(request, version)
        assert answer.error_code == 0
        return answer


def _dumped_as_one(folder: Path) -> tuple[list[tuple[str, ...]], str]:
    """Return the report of Kafka's tool on all segments together: the batches, with their records, and its remarks."""
    whole = folder.parent / "00000000000000000000.log"
    whole.write_bytes(b"".join(segment.path.read_bytes() for segment in list_segments(Disk(), folder)))
    done = dump_log_segments(whole)
    assert done.returncode == 0
    assert " isvalid: false" not in done.stdout
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) count: ([1-9]\d*)", done.stdout, re.MULTILINE)
    found = re.findall(r"^\| offset: (\d+) .* key: (.*) payload: (.*)$", done.stdout, re.MULTILINE)
    return [*batches, *found], done.stderr.replace(str(whole), "")
