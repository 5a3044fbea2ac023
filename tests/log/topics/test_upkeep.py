"""Tests compaction of topics' logs: the remaining records, readers and producers meanwhile, and the policy.

The histories swap the files in between the calls of readers and producers, as the thread of the logs does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from coordinator.group.transactions import marker
from coordinator.log.compaction.rewrite import compact
from coordinator.log.compaction.task import Cleaned, Compaction
from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import list_segments
from coordinator.log.topics.log import CLEAN_NAME, TopicLog, Written
from coordinator.log.topics.partition import Limits
from coordinator.log.topics.upkeep import TopicUpkeep, may_need_compaction
from protocol.records.batch import CODEC_MASK
from protocol.records.walk import Batch, decode_batches
from tests.log.disks import FailingDisk, Killed
from tests.log.topics.test_log import LIMITS, NOW_MS, a_log
from tests.support.batches import Sent, batch
from tests.support.length import rounds

HISTORIES = rounds(15, 40, 2_000)
DAY_MS = 86_400_000
COMPACTED = LIMITS._replace(is_compacted=True, is_deleted=False, segment_bytes=1, min_cleanable_ratio=0.0)
"""Compaction joins no segments. Each append here has a segment of its own, so all but the last may be compacted."""


class SwapStopped(Exception):
    """The disk failed in a step of a swap."""


def nothing() -> None:
    """Do nothing between two steps."""


def cleaned(
    log: TopicLog,
    limits: Limits = COMPACTED,
    now_ms: int = NOW_MS,
    *,
    keys_max: int = 1_000,
    between: Callable[[], None] = nothing,
    disk: Disk | None = None,
) -> Compaction | None:
    """Compact a log if its policy says so, with a call between any two steps."""
    disk = disk or Disk()
    upkeep = TopicUpkeep(disk, log._folder, log, (log.topic_id, 0), keys_max)
    work = upkeep.look(limits, now_ms)
    if work is None:
        return None
    upkeep.log.begin_compaction()

    def swap(cleaned: Cleaned) -> None:
        steps = upkeep.begin_swap(cleaned)
        between()
        more, reason = True, ""
        while more:
            more, reason = upkeep.swap(work, steps)
            if reason:
                raise SwapStopped(reason)
            between()

    outcome = compact(disk, log._folder, work.task, swap)
    upkeep.finish(work, outcome)
    return outcome


def batches(log: TopicLog) -> list[Batch]:
    """Return all batches, read as a consumer reads them."""
    found, offset = [], log.view.start
    while offset < log.view.end:
        (read,) = decode_batches(log.view.read_from(offset, 1, whole=True))
        assert read.header.next_offset > offset
        offset = read.header.next_offset
        found.append(read)
    return found


def left(log: TopicLog) -> list[tuple[int, bytes, bytes | None]]:
    """Return offset, key and value of each record."""
    return [
        (offset, record.key, record.value)
        for read in batches(log)
        for offset, record in zip(read.offsets, read.records, strict=True)
    ]


def put(key: bytes, value: bytes | None, timestamp_ms: int = NOW_MS) -> bytes:
    """Return a batch of one record."""
    return batch([(key, value, timestamp_ms)])


def append(log: TopicLog, *sent: bytes, limits: Limits = COMPACTED) -> list[object]:
    """Append batches, each to a segment of its own."""
    return [
        outcome
        for data in sent
        for outcome in log.append_batches([data], limits._replace(segment_bytes=len(data)), NOW_MS)
    ]


def appended(folder: Path, *sent: bytes, limits: Limits = COMPACTED) -> TopicLog:
    """Return a log of these batches and one behind them, which is in the active segment."""
    log = a_log(folder, limits=limits)
    outcomes = append(log, *sent, put(b"end", b""), limits=limits)
    assert all(isinstance(outcome, Written) for outcome in outcomes)
    return log


class TestWhatStays:
    """A compaction keeps the newest record of each key, as Kafka's cleaner does."""

    def test_newest_of_each_key(self, tmp_path: Path) -> None:
        """The newest record of each key keeps its offset and its time; a batch keeps its range of offsets."""
        log = appended(
            tmp_path / "t-0",
            batch([(b"a", b"1", 5), (b"b", b"1", 9), (b"c", b"1", 7)]),
            put(b"a", b"2"),
            put(b"c", b"2"),
        )
        assert cleaned(log) is not None
        assert left(log) == [(1, b"b", b"1"), (3, b"a", b"2"), (4, b"c", b"2"), (5, b"end", b"")]
        first = batches(log)[0]
        assert (first.header.base_offset, first.header.last_offset_delta) == (0, 2)
        assert first.records[0].timestamp_ms == first.header.max_timestamp_ms == 9
        assert log.view.ends() == (0, 6, 6)

    def test_active_segment(self, tmp_path: Path) -> None:
        """A compaction doesn't touch the active segment."""
        log = a_log(tmp_path / "t-0")
        limits = COMPACTED._replace(segment_bytes=1_000)
        log.append_batches([put(b"a", b"1"), put(b"a", b"2")], limits, NOW_MS)
        assert cleaned(log, limits) is None
        assert len(left(log)) == 2

    def test_tombstone(self, tmp_path: Path) -> None:
        """The first compaction that sees a tombstone gives its batch a horizon; the first one after that drops it.

        The tombstone's own time doesn't matter, and all times stay the same.
        """
        limits = COMPACTED._replace(delete_retention_ms=DAY_MS)
        log = appended(
            tmp_path / "t-0",
            put(b"a", b"1"),
            batch([(b"a", None, 3), (b"b", b"1", 2), (b"c", b"1", 8)]),
            put(b"c", b"2"),
        )
        cleaned(log, limits)
        assert [each[:2] for each in left(log)] == [(1, b"a"), (2, b"b"), (4, b"c"), (5, b"end")]
        read = batches(log)[1]
        assert read.header.delete_horizon_ms == NOW_MS + DAY_MS
        assert [record.timestamp_ms for record in read.records] == [3, 2]
        assert log.view.offset_of_time(3) == (1, 3)
        for now_ms, count in ((NOW_MS + DAY_MS - 1, 2), (NOW_MS + DAY_MS, 1)):
            append(log, put(b"end", b""), limits=limits)
            cleaned(log, limits, now_ms)
            assert len(batches(log)[1].records) == count
        assert a_log(tmp_path / "t-0").view.ends() == log.view.ends()

    def test_time_of_append(self, tmp_path: Path) -> None:
        """A batch whose records have their append's time keeps it, with a horizon as well."""
        limits = COMPACTED._replace(has_append_time=True)
        log = appended(tmp_path / "t-0", batch([(b"a", None, 3), (b"b", b"1", 2)]), put(b"b", b"2"), limits=limits)
        cleaned(log, limits, NOW_MS + 5)
        assert [record.timestamp_ms for record in batches(log)[0].records] == [NOW_MS]
        assert log.view.offset_of_time(NOW_MS) == (0, NOW_MS)

    @pytest.mark.parametrize("zipped", [False, True])
    def test_codec(self, tmp_path: Path, zipped: bool) -> None:
        """A compaction compresses a batch again with the same codec."""
        records: list[Sent] = [(b"%d" % number, bytes(500), NOW_MS) for number in range(20)]
        log = appended(tmp_path / "t-0", batch(records, zipped=zipped), put(b"3", b"new"))
        cleaned(log)
        (first, *_) = batches(log)
        assert first.header.attributes & CODEC_MASK == zipped
        assert first.offsets == [number for number in range(20) if number != 3]
        assert (first.header.size < 1_000) == zipped

    def test_without_key(self, tmp_path: Path) -> None:
        """A compaction drops a record without a key, appended before the topic was compacted."""
        log = a_log(tmp_path / "t-0")
        for zipped in (False, True):
            records: list[Sent] = [(b"x", b"1", 5), (None, b"1", 9)]
            append(log, batch(records, zipped=zipped), batch(records[1:], zipped=zipped), limits=LIMITS)
        append(log, put(b"end", b""))
        cleaned(log)
        assert left(log) == [(3, b"x", b"1"), (6, b"end", b"")]

    def test_producers(self, tmp_path: Path) -> None:
        """Each producer's last batch stays, if need be empty, so that the log knows a repeat after a restart too."""
        sent = [
            batch([(b"a", b"%d" % number, NOW_MS)] * 2, producer_id=7, producer_epoch=0, sequence=2 * number)
            for number in range(3)
        ]
        limits = COMPACTED._replace(segment_bytes=10_000)
        log = appended(tmp_path / "t-0", *sent, put(b"a", b"new"), put(b"x", b"y"))
        cleaned(log, limits)
        found = [(read.header.base_offset, read.header.producer_id, len(read.records)) for read in batches(log)]
        assert found == [(4, 7, 0), (6, -1, 1), (7, -1, 1), (8, -1, 1)]
        for each in (log, a_log(tmp_path / "t-0")):
            assert append(each, sent[2]) == [Written(4, NOW_MS, 0)]
        append(log, batch([(b"b", b"", 1)], producer_id=7, producer_epoch=0, sequence=6))
        append(log, put(b"end", b""))
        cleaned(log, limits)
        assert all(read.records for read in batches(log))

    def test_transactions(self, tmp_path: Path) -> None:
        """Aborted records go, and readers hear of them as long as they are there; a marker goes once they are gone.

        What comes behind the first record of an open transaction stays as it is, and the log isn't clean from there on.
        """
        joined = COMPACTED._replace(segment_bytes=10_000, delete_retention_ms=0)

        def sent(producer_id: int, sequence: int, value: bytes) -> bytes:
            records = [(b"a", value, NOW_MS)]
            return batch(records, producer_id=producer_id, producer_epoch=0, sequence=sequence, attributes=0x10)

        def end(producer_id: int, *, commit: bool) -> None:
            ends = marker(producer_id, 0, is_commit=commit, coordinator_epoch=0, wall_ms=NOW_MS)
            assert isinstance(log.append_marker(ends, COMPACTED._replace(segment_bytes=1)), Written)

        log = appended(tmp_path / "t-0", put(b"a", b"plain"), put(b"a", b"newer"), sent(7, 0, b"aborted"))
        end(7, commit=False)
        append(log, sent(7, 1, b"committed"))
        end(7, commit=True)
        append(log, sent(8, 0, b"open"), sent(7, 2, b"later"))
        end(7, commit=True)
        append(log, put(b"end", b""))
        assert [each.first_offset for each in log.view.aborted] == [2]
        outcome = cleaned(log, joined)
        assert outcome is not None
        assert outcome.clean_offset == log.view.ends().stable == 7
        values = [(offset, value) for offset, key, value in left(log) if key == b"a"]
        assert values == [(5, b"committed"), (7, b"open"), (8, b"later")]
        assert log.view.aborted == []
        assert len([read for read in batches(log) if read.header.is_control]) == 3
        end(8, commit=False)
        for _ in range(3):  # records go, then their markers get a horizon, then these go
            append(log, put(b"end", b""))
            cleaned(log, joined)
        # The last batch of a producer stays, empty, and its marker with it.
        assert [read.header.base_offset for read in batches(log) if read.header.is_control and read.records] == [9, 11]
        again = a_log(tmp_path / "t-0")
        assert (left(again), again.view.open) == (left(log), {})

    def test_ends(self, tmp_path: Path) -> None:
        """An empty batch keeps a segment's end if its last batch is gone; the next compaction writes no file."""
        log = appended(tmp_path / "t-0", put(b"b", b"1"), put(b"a", b"1"), put(b"a", bytes(50)))
        limits = COMPACTED._replace(segment_bytes=145)
        cleaned(log, limits)
        assert [read.header.base_offset for read in batches(log)] == [0, 1, 2, 3]
        assert [len(read.records) for read in batches(log)] == [1, 0, 1, 1]
        assert [(part.segment.base_offset, part.end) for part in log.view.parts] == [(0, 2), (2, 3), (3, 4)]
        append(log, put(b"end", b""))
        outcome = cleaned(log, limits)
        assert outcome is not None
        assert outcome.files == []
        append(log, put(b"b", bytes(50)), put(b"end", b""))
        cleaned(log)
        assert (batches(log)[0].header.base_offset, batches(log)[0].header.next_offset) == (1, 2)
        assert a_log(tmp_path / "t-0").view.ends() == (0, 7, 7)
        append(log, put(b"end", b""))
        cleaned(log, COMPACTED._replace(segment_bytes=10_000))
        assert all(read.records for read in batches(log))

    def test_times(self, tmp_path: Path) -> None:
        """The largest time of a batch is one that a record has."""
        log = appended(tmp_path / "t-0", put(b"b", b"1", 500), put(b"a", b"1", NOW_MS + 5), put(b"a", b"2", 700))
        cleaned(log)
        assert log.view.latest_time() == (3, NOW_MS)
        assert log.view.offset_of_time(600) == (2, 700)
        assert log.view.offset_of_time(NOW_MS + 1) is None


class TestPolicy:
    """The policy decides when a log is compacted."""

    def test_ratio(self, tmp_path: Path) -> None:
        """A log is due when its dirty part is above the ratio; a compacted part isn't dirty, after a restart either."""
        limits = COMPACTED._replace(min_cleanable_ratio=0.5)
        log = appended(tmp_path / "t-0", *(put(b"%d" % number, b"") for number in range(4)))
        assert cleaned(log, limits) is not None
        assert cleaned(log, limits) is None
        log = a_log(tmp_path / "t-0")
        assert log.clean_offset == 4
        assert cleaned(log, limits) is None
        for number in range(4, 8):
            assert not may_need_compaction(Disk(), log._folder, limits)
            assert cleaned(log, limits) is None
            append(log, put(b"%d" % number, b""), limits=limits)
        append(log, put(b"end", b"is larger than the others"), limits=limits)
        assert may_need_compaction(Disk(), log._folder, limits)
        assert cleaned(log, limits) is not None

    def test_min_lag(self, tmp_path: Path) -> None:
        """A compaction ends before the first segment that has a record younger than the lag."""
        limits = COMPACTED._replace(min_compaction_lag_ms=100)
        log = appended(tmp_path / "t-0", *(put(b"a", b"", NOW_MS + at) for at in (0, 1, 7, 2)))
        assert cleaned(log, limits, NOW_MS + 99) is None
        cleaned(log, limits, NOW_MS + 105)
        assert [offset for offset, *_ in left(log)] == [1, 2, 3, 4]
        cleaned(log, limits, NOW_MS + 108)
        assert [offset for offset, *_ in left(log)] == [3, 4]

    def test_max_lag(self, tmp_path: Path) -> None:
        """A log is due when its dirty part is older than the maximal lag, however small it is."""
        limits = COMPACTED._replace(min_cleanable_ratio=1.0, max_compaction_lag_ms=100)
        log = appended(tmp_path / "t-0", put(b"a", b""), put(b"a", b""))
        assert cleaned(log, limits, NOW_MS + 100) is None
        assert cleaned(log, limits, NOW_MS + 101) is not None
        assert cleaned(log, limits, NOW_MS + 1_000) is None

    def test_one_at_a_time(self, tmp_path: Path) -> None:
        """A log has one compaction at a time."""
        log = appended(tmp_path / "t-0", put(b"a", b""), put(b"a", b""))
        beside: list[Compaction | None] = []
        assert cleaned(log, between=lambda: beside.append(cleaned(log))) is not None
        assert set(beside) == {None}


class TestBeside:
    """Other changes of the log go on beside its compaction."""

    def test_records_are_deleted_meanwhile(self, tmp_path: Path) -> None:
        """Readers can't read deleted records; the next look at old records removes their files."""
        log = appended(tmp_path / "t-0", *(put(b"%d" % number, b"") for number in range(6)), put(b"0", b"new"))

        def between() -> None:
            if log.view.start == 0:
                log.delete_before(5)
                assert log.retain(COMPACTED, NOW_MS) == 0

        cleaned(log, between=between)
        assert [offset for offset, *_ in left(log)] == [5, 6, 7]
        append(log, put(b"end", b""))
        log.retain(COMPACTED._replace(is_deleted=True, retention_bytes=1), NOW_MS)
        assert a_log(tmp_path / "t-0").view.ends() == log.view.ends()

    @pytest.mark.parametrize("zipped", [False, True])
    def test_records_are_deleted_up_to_inside_a_batch(self, tmp_path: Path, zipped: bool) -> None:
        """If DeleteRecords ends inside a batch, its readable records stay unless newer ones are there."""
        sent: list[Sent] = [(b"a", b"1", NOW_MS), (b"b", b"1", NOW_MS), (b"c", b"1", NOW_MS)]
        log = appended(tmp_path / "t-0", batch(sent, zipped=zipped), put(b"c", b"2"))
        log.delete_before(1)
        assert cleaned(log) is not None
        assert left(log) == [(0, b"a", b"1"), (1, b"b", b"1"), (3, b"c", b"2"), (4, b"end", b"")]

    def test_what_nobody_may_read_goes(self, tmp_path: Path) -> None:
        """Upkeep removes whole segments before the start, though the topic deletes nothing by itself."""
        log = appended(tmp_path / "t-0", *(put(b"%d" % number, b"") for number in range(6)))
        log.begin_compaction()
        log.delete_before(3)
        log.end_compaction(0)
        assert log.retain(COMPACTED, NOW_MS) == 3
        assert list_segments(Disk(), log._folder)[0].base_offset == 3

    def test_compact_and_delete(self, tmp_path: Path) -> None:
        """Retention removes old segments of a topic that is compacted and deleted."""
        limits = COMPACTED._replace(is_deleted=True, retention_ms=DAY_MS)
        log = appended(tmp_path / "t-0", *(put(b"%d" % (at % 2), b"", NOW_MS + at * DAY_MS) for at in range(6)))
        limits = limits._replace(segment_bytes=100)
        cleaned(log, limits, NOW_MS + 5 * DAY_MS)
        assert [offset for offset, *_ in left(log)] == [4, 5, 6]
        log.retain(limits, NOW_MS + 5 * DAY_MS + 5)
        assert [offset for offset, *_ in left(log)] == [5, 6]

    def test_a_lost_segment_is_damage(self, tmp_path: Path) -> None:
        """A lost segment is damage: compaction leaves gaps inside segments only."""
        log = appended(tmp_path / "t-0", *(put(b"%d" % (at % 3), b"") for at in range(9)))
        cleaned(log, COMPACTED._replace(segment_bytes=200))
        segments = list_segments(Disk(), log._folder)
        assert len(segments) > 2
        segments[1].path.unlink()
        with pytest.raises(Damaged, match="the segment before it ends at"):
            a_log(tmp_path / "t-0")

    def test_gaps_where_nothing_was_compacted(self, tmp_path: Path) -> None:
        """A gap in a log without a compaction is damage."""
        log = a_log(tmp_path / "t-0")
        log.append_batches([put(b"a", b""), put(b"b", b"")], LIMITS, NOW_MS)
        path = list_segments(Disk(), log._folder)[0].path
        content = path.read_bytes()
        second = content[len(content) // 2 :]
        path.write_bytes(content[: len(content) // 2] + (9).to_bytes(8, "big") + second[8:])
        with pytest.raises(Damaged, match="offset 9, expected 1"):
            a_log(tmp_path / "t-0")
        (log._folder / CLEAN_NAME).write_text("0\n1\nt 0 0\n")
        assert a_log(tmp_path / "t-0").view.ends() == (0, 10, 10)

    def test_offset_that_the_log_lost(self, tmp_path: Path) -> None:
        """A note of an offset behind the log's end doesn't count; a malformed note is damage."""
        log = appended(tmp_path / "t-0", put(b"a", b""))
        (log._folder / CLEAN_NAME).write_text("0\n1\nt 0 9\n")
        assert a_log(tmp_path / "t-0").clean_offset == 0
        (log._folder / CLEAN_NAME).write_text("0\n")
        with pytest.raises(Damaged, match=re.escape(CLEAN_NAME)):
            a_log(tmp_path / "t-0")


@pytest.mark.parametrize("name", ["rename", "sync_folder", "remove", "fdatasync", "write", "open", "list_folder"])
@pytest.mark.parametrize("ends", [OSError(5, "Input/output error"), Killed()])
def test_stopped_anywhere(tmp_path: Path, name: str, ends: BaseException) -> None:
    """After a stop at any call of the disk, the log and every reader have the newest record of each key."""
    number = 0
    while True:
        number += 1
        folder = tmp_path / f"{number}-0"
        appended(folder, *(put(b"%d" % (at % 3), b"%d" % at) for at in range(12)))
        disk = FailingDisk(lambda called, at, number=number: ends if (called, at) == (name, number) else None)  # type: ignore[misc]
        log = None
        with suppress(OSError, Killed, SwapStopped):
            log = a_log(folder, disk)
            cleaned(log, COMPACTED._replace(segment_bytes=300), disk=disk)
        again = a_log(folder)
        assert {key: value for _, key, value in left(again)} == {b"0": b"9", b"1": b"10", b"2": b"11", b"end": b""}
        assert again.view.ends() == (0, 13, 13)
        assert not [path.name for path in folder.iterdir() if path.suffix in {".cleaned", ".swap"}]
        if log is not None:
            log.close("the test ends")
        again.close("the test ends")
        if disk.calls[name] < number:
            break
    assert number > 1


class _Producer(NamedTuple):
    number: int
    sequences: list[int]
    last: list[tuple[bytes, int]]


class _Reader:
    """A consumer that reads a batch now and then, and keeps the newest value of each key."""

    def __init__(self, log: TopicLog) -> None:
        self.log = log
        self.offset = 0
        self.state: dict[bytes, bytes | None] = {}

    def read(self) -> None:
        """Read one batch more, if there is one; its records come in the order of their offsets."""
        self.offset = max(self.offset, self.log.view.start)
        if self.offset == self.log.view.end:
            return
        (read,) = decode_batches(self.log.view.read_from(self.offset, 1, whole=True))
        for offset, record in zip(read.offsets, read.records, strict=True):
            if offset >= self.offset:
                self.state[record.key] = record.value
        self.offset = read.header.next_offset


class _History:
    """A log with random appends, compactions and restarts."""

    def __init__(self, folder: Path, chance: Random) -> None:
        self.chance = chance
        self.folder = folder
        self.log = a_log(folder)
        self.sent: dict[int, tuple[bytes, bytes | None, int]] = {}
        self.producers = [_Producer(number, [0], []) for number in range(3)]
        self.now_ms = NOW_MS
        self.compactions = 0
        self.reader = _Reader(self.log)
        self.limits = COMPACTED._replace(
            segment_bytes=chance.choice([1, 150, 400, 3_000]),
            delete_retention_ms=chance.choice([0, 20, DAY_MS]),
            min_compaction_lag_ms=chance.choice([0, 0, 10]),
            has_append_time=chance.random() < 0.2,
        )

    def append(self) -> None:
        """Append a batch, with or without a producer."""
        chance = self.chance
        records: list[Sent] = [
            (
                b"%d" % chance.randrange(8) * chance.choice([1, 1, 64]),
                None if chance.random() < 0.25 else chance.randbytes(chance.randrange(6)),
                self.now_ms - chance.randrange(9),
            )
            for _ in range(chance.randint(1, 4))
        ]
        zipped = chance.random() < 0.3
        if chance.random() < 0.5:
            data = batch(records, zipped=zipped)
            self._append(data, records)
            return
        producer = chance.choice(self.producers)
        (sequence,) = producer.sequences
        data = batch(records, zipped=zipped, producer_id=producer.number, producer_epoch=0, sequence=sequence)
        producer.last[:] = [(data, self._append(data, records))]
        producer.sequences[0] += len(records)

    def _append(self, data: bytes, records: list[Sent]) -> int:
        limits = self.limits._replace(segment_bytes=max(self.limits.segment_bytes, len(data)))
        (outcome,) = self.log.append_batches([data], limits, self.now_ms)
        assert isinstance(outcome, Written)
        for number, (key, value, timestamp_ms) in enumerate(records):
            assert key is not None
            self.sent[outcome.base_offset + number] = (
                key,
                value,
                self.now_ms if self.limits.has_append_time else timestamp_ms,
            )
        return outcome.base_offset

    def clean(self) -> None:
        """Compact, with a reader and appends between the steps."""

        def between() -> None:
            if self.chance.random() < 0.3:
                self.append()
            self.reader.read()
            self.check()

        keys_max = self.chance.choice([1, 3, 1_000])
        self.compactions += cleaned(self.log, self.limits, self.now_ms, keys_max=keys_max, between=between) is not None

    def delete(self) -> None:
        """Delete records up to any offset, even inside a batch; a producer may go with its last batch."""
        start = self.chance.randint(self.log.view.start, self.log.view.end)
        self.log.delete_before(start)
        for producer in self.producers:
            producer.last[:] = [sent for sent in producer.last if sent[1] >= start]

    def open(self) -> None:
        """Restart: the new log knows from its files what the old one knew."""
        before = [part.fields() for part in self.log.view.parts]
        self.log.close("a restart")
        self.log = a_log(self.folder)
        self.reader.log = self.log
        assert [part.fields()[:4] for part in self.log.view.parts] == [fields[:4] for fields in before]

    def check(self) -> None:
        """Check that the log has the newest sent record of each key, and knows each producer's last batch."""
        start = self.log.view.start
        found = batches(self.log)
        assert all(before.header.next_offset <= behind.header.base_offset for before, behind in pairwise(found))
        newest: dict[bytes, int] = {}
        for offset, (key, _, _) in self.sent.items():
            newest[key] = offset
        kept = {}
        for read in found:
            for offset, record in zip(read.offsets, read.records, strict=True):
                assert (record.key, record.value, record.timestamp_ms) == self.sent[offset]
                kept[offset] = record
        for key, offset in newest.items():
            if offset >= start and offset not in kept:
                assert self.sent[offset][1] is None
                assert all(record.key != key for at, record in kept.items() if at >= start)
        for producer in self.producers:
            for data, base_offset in producer.last:
                (outcome,) = append(self.log, data)
                assert isinstance(outcome, Written)
                assert outcome.base_offset == base_offset

    def check_reader(self) -> None:
        """Check that the reader has the newest of each key, except deleted records and tombstones that were due."""
        while self.reader.offset < self.log.view.end:
            self.reader.read()
        newest = {key: (offset, value) for offset, (key, value, _) in self.sent.items()}
        for key, (offset, value) in newest.items():
            if offset < self.log.view.start:
                continue
            if value is not None or self.limits.delete_retention_ms == DAY_MS:
                assert self.reader.state.get(key) == value

    def check_times(self) -> None:
        """Check that a search by time finds the same record as a scan of the whole log."""
        times = [
            (offset, record.timestamp_ms)
            for read in batches(self.log)
            for offset, record in zip(read.offsets, read.records, strict=True)
            if offset >= self.log.view.start
        ]
        for timestamp_ms in range(NOW_MS, self.now_ms, 7):
            expected = next((found for found in times if found[1] >= timestamp_ms), None)
            assert self.log.view.offset_of_time(timestamp_ms) == expected


@pytest.mark.rounds
def test_any_history(tmp_path: Path) -> None:
    """After appends, compactions, deletions and restarts by chance, log and consumer have the newest records."""
    compactions = lost = 0
    for seed in range(HISTORIES):
        chance = Random(seed)
        history = _History(tmp_path / f"{seed}-0", chance)
        for _ in range(chance.randint(5, 30)):
            history.now_ms += chance.randrange(20)
            does = chance.random()
            if does < 0.6:
                history.append()
            elif does < 0.8:
                history.clean()
            elif does < 0.88:
                history.delete()
            elif does < 0.96:
                history.open()
            else:
                history.reader.read()
            history.check()
        history.open()
        history.check()
        history.check_reader()
        history.check_times()
        compactions += history.compactions
        lost += len(history.sent) - len(left(history.log))
        history.log.close("the test ends")
    assert compactions > HISTORIES
    assert lost > HISTORIES
