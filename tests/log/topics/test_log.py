"""Tests a topic partition's log: appends, refusals, restarts, and the records that it gives up.

The disk fails as in the tests of a group's partition: the log reads back everything Written, in order, and nothing that
it refused.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import list_segments
from coordinator.log.segments.tail import LAST_CUT
from coordinator.log.segments.view import Rejected
from coordinator.log.topics.folders import OWNER_NAME, owner_of
from coordinator.log.topics.log import START_NAME, TopicLog, Written
from coordinator.log.topics.partition import Limits
from protocol.records.batch import Record
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.log.calls import record
from tests.log.disks import FailingDisk, fail_one
from tests.log.segments import test_partition
from tests.support.batches import batch, numbered
from tests.support.length import rounds

LIMITS = Limits(
    max_message_bytes=1_048_588,
    segment_bytes=600,
    segment_ms=604_800_000,
    retention_bytes=-1,
    retention_ms=604_800_000,
    is_compacted=False,
    is_deleted=True,
    has_append_time=False,
    min_cleanable_ratio=0.5,
    min_compaction_lag_ms=0,
    max_compaction_lag_ms=2**63 - 1,
    delete_retention_ms=86_400_000,
)
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def a_log(folder: Path, disk: Disk | None = None, *, limits: Limits = LIMITS) -> TopicLog:
    """Return an open log."""
    log = TopicLog(disk or Disk(), folder, UUID(int=5), limits.segment_bytes, lambda *_: None)
    log.open()
    return log


def append(log: TopicLog, *batches: bytes, limits: Limits = LIMITS) -> list[Written | Rejected | OSError]:
    """Append some batches in one window."""
    return log.append_batches(batches, limits, NOW_MS)


def one(number: int, timestamp_ms: int = 1_000) -> bytes:
    """Return a batch of one record."""
    return batch(numbered(number, 1, timestamp_ms=timestamp_ms))


def values(log: TopicLog, start: int | None = None) -> list[bytes]:
    """Return the values of all records from an offset on, read as a consumer reads them."""
    found, offset = [], log.view.start if start is None else start
    while offset < log.view.end:
        data = log.view.read_from(offset, 1, whole=True)
        (read,) = decode_batches(data)
        found += [record.value or b"" for at, record in zip(read.offsets, read.records, strict=True) if at >= offset]
        offset = read.header.next_offset
    return found


def expected(count: int) -> list[bytes]:
    """Return the values of the first records."""
    return [b"%010d" % number for number in range(count)]


class TestAppending:
    """A log takes appends on a disk that works."""

    def test_nothing_is_created_before_the_first_append(self, tmp_path: Path) -> None:
        """A partition without appends has no folder."""
        log = a_log(tmp_path / "t-0")
        assert log.view.ends() == (0, 0, 0)
        assert not (tmp_path / "t-0").exists()

    def test_batches_get_offsets_and_are_there_after_a_restart(self, tmp_path: Path) -> None:
        """Batches get offsets, in segments named for their first; a restart finds them and makes the index anew."""
        log = a_log(tmp_path / "t-0")
        outcomes = [append(log, *(batch(numbered(at + n * 3, 3)) for n in range(2))) for at in range(0, 24, 6)]
        assert [each for window in outcomes for each in window] == [Written(at, -1, 0) for at in range(0, 24, 3)]
        assert values(log) == expected(24)
        names = [each.path.name for each in list_segments(Disk(), tmp_path / "t-0")]
        assert len(names) > 1
        assert names[0] == f"{0:020}.log"
        again = a_log(tmp_path / "t-0")
        assert again.view.ends() == (0, 24, 24)
        assert values(again) == expected(24)
        assert append(again, one(24)) == [Written(24, -1, 0)]

    def test_the_time_of_the_append(self, tmp_path: Path) -> None:
        """If the topic says so, the log gives batches the append's time, and the producer's answer has it."""
        log = a_log(tmp_path / "t-0")
        assert append(log, one(0), limits=LIMITS._replace(has_append_time=True)) == [Written(0, NOW_MS, 0)]
        assert a_log(tmp_path / "t-0").view.offset_of_time(NOW_MS) == (0, NOW_MS)

    def test_an_old_segment_is_closed(self, tmp_path: Path) -> None:
        """The log closes an active segment when segment.ms have passed since its first batch."""
        log = a_log(tmp_path / "t-0")
        append(log, one(0, NOW_MS - 2 * DAY_MS), limits=LIMITS._replace(segment_ms=DAY_MS))
        append(log, one(1, NOW_MS), limits=LIMITS._replace(segment_ms=DAY_MS))
        append(log, one(2, NOW_MS), limits=LIMITS._replace(segment_ms=DAY_MS))
        assert [each.base_offset for each in list_segments(Disk(), tmp_path / "t-0")] == [0, 1]

    def test_a_producer_that_repeats_itself(self, tmp_path: Path) -> None:
        """A producer that repeats a batch gets its former offset, even after a restart; the log has it once."""
        sent = [batch(numbered(at * 2, 2), producer_id=9, producer_epoch=0, sequence=at * 2) for at in range(3)]
        log = a_log(tmp_path / "t-0")
        first = append(log, sent[0], sent[1], sent[0])
        assert first == [Written(0, -1, 0), Written(2, -1, 0), Written(0, 1_001, 0)]
        again = a_log(tmp_path / "t-0")
        assert append(again, sent[1]) == [Written(2, 1_001, 0)]
        assert append(again, sent[2]) == [Written(4, -1, 0)]
        (refused,) = append(again, batch(numbered(8, 1), producer_id=9, producer_epoch=0, sequence=8))
        assert isinstance(refused, Rejected)
        assert refused.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert values(again) == expected(6)


class TestGivingUp:
    """A log gives up old and deleted records."""

    def test_delete_records(self, tmp_path: Path) -> None:
        """A log starts where DeleteRecords says, after a restart too; it removes earlier segments but the newest."""
        log = a_log(tmp_path / "t-0")
        for number in range(20):
            append(log, one(number))
        log.delete_before(13)
        assert log.view.ends() == (13, 20, 20)
        assert values(log) == expected(20)[13:]
        assert list_segments(Disk(), tmp_path / "t-0")[0].base_offset > 0
        assert (tmp_path / "t-0" / START_NAME).read_text() == "0\n1\nt 0 13\n"
        again = a_log(tmp_path / "t-0")
        assert again.view.ends() == (13, 20, 20)
        again.delete_before(5)
        assert again.view.start == 13
        again.delete_before(-1)
        assert a_log(tmp_path / "t-0").view.ends() == (20, 20, 20)
        for offset in (21, -2):
            with pytest.raises(Rejected) as refused:
                again.delete_before(offset)
            assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_retention_by_time(self, tmp_path: Path) -> None:
        """Retention removes segments whose newest record is too old; if all are, the log goes on with a new one."""
        log = a_log(tmp_path / "t-0")
        for number in range(20):
            append(log, one(number, NOW_MS - (20 - number) * DAY_MS))
        removed = log.retain(LIMITS._replace(retention_ms=10 * DAY_MS), NOW_MS)
        assert removed
        assert 0 < log.view.start <= 11
        assert values(log) == expected(20)[log.view.start :]
        assert log.retain(LIMITS._replace(retention_ms=-1, segment_bytes=1), NOW_MS) == 0
        assert log.retain(LIMITS._replace(is_deleted=False, retention_ms=0), NOW_MS) == 0
        assert log.retain(LIMITS._replace(retention_ms=0), NOW_MS)
        assert log.view.ends() == (20, 20, 20)
        assert log.retain(LIMITS._replace(retention_ms=0), NOW_MS) == 0
        assert append(log, one(20)) == [Written(20, -1, 20)]
        again = a_log(tmp_path / "t-0")
        assert again.view.ends() == (20, 21, 21)

    def test_records_without_a_time_are_as_old_as_their_file(self, tmp_path: Path) -> None:
        """Records without a time are as old as their file; else they would stay for ever."""
        log = a_log(tmp_path / "t-0")
        for number in range(20):
            append(log, one(number, -20_000))
        newest = int(max(part.segment.path.stat().st_mtime for part in log.view.parts) * 1_000)
        assert log.retain(LIMITS._replace(retention_ms=1_000), newest - 60_000) == 0
        assert log.retain(LIMITS._replace(retention_ms=1_000), newest + 1_001)
        assert log.view.ends() == (20, 20, 20)

    def test_a_segment_that_can_not_be_removed_is_tried_again(self, tmp_path: Path, disk: FailingDisk) -> None:
        """A log tries a failed removal again; readers can't read its records, after a restart either."""
        log = a_log(tmp_path / "t-0", disk)
        for number in range(20):
            append(log, one(number, NOW_MS))
        disk.fails = fail_one("remove", 2)
        kept = LIMITS._replace(retention_bytes=sum(part.size for part in log.view.parts[3:]))
        with pytest.raises(OSError, match="Input/output error"):
            log.retain(kept, NOW_MS)
        start = log.view.start
        disk.fails = lambda _name, _number: None
        assert log.retain(kept, NOW_MS) == 2
        assert log.view.start == start == list_segments(Disk(), tmp_path / "t-0")[0].base_offset
        assert a_log(tmp_path / "t-0").view.ends() == (start, 20, 20)

    def test_retention_by_size(self, tmp_path: Path) -> None:
        """Retention removes as many of the oldest segments as the log has too many bytes."""
        log = a_log(tmp_path / "t-0")
        for number in range(40):
            append(log, one(number, NOW_MS))
        sizes = [part.size for part in log.view.parts]
        assert log.retain(LIMITS._replace(retention_bytes=sum(sizes[2:]) + 1), NOW_MS) == 1
        assert log.retain(LIMITS._replace(retention_bytes=sum(sizes[2:])), NOW_MS) == 1
        assert log.view.start == log.view.parts[0].segment.base_offset > 0
        assert values(log) == expected(40)[log.view.start :]

    def test_whose_folder_it_is(self, tmp_path: Path) -> None:
        """The folder has the topic's id in Kafka's file."""
        log = a_log(tmp_path / "t-0")
        assert owner_of(tmp_path / "t-0") is None
        log.claim()
        append(log, one(0))
        assert (tmp_path / "t-0" / OWNER_NAME).read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ\n"
        assert owner_of(tmp_path / "t-0") == "AAAAAAAAAAAAAAAAAAAABQ"


class TestDamage:
    """A log keeps its promises when disks fail and bytes change."""

    def test_a_torn_tail_is_cut(self, tmp_path: Path) -> None:
        """If the last batch is torn at any byte, the log keeps all before it, and a copy of the bytes it cuts."""
        log = a_log(tmp_path / "t-0")
        append(log, one(0), one(1))
        (segment,) = list_segments(Disk(), tmp_path / "t-0")
        whole = segment.path.read_bytes()
        for size in range(len(whole) // 2, len(whole)):
            segment.path.write_bytes(whole[:size])
            (tmp_path / "t-0" / LAST_CUT).unlink(missing_ok=True)
            again = a_log(tmp_path / "t-0")
            assert values(again) == expected(1)
            assert segment.path.stat().st_size == len(whole) // 2
            if size > len(whole) // 2:
                assert (tmp_path / "t-0" / LAST_CUT).read_bytes() == whole[len(whole) // 2 : size]

    def test_damage_before_the_end_is_not_guessed_at(self, tmp_path: Path) -> None:
        """A log refuses to open with damage before the end, and changes nothing."""
        log = a_log(tmp_path / "t-0")
        append(log, one(0), one(1))
        (segment,) = list_segments(Disk(), tmp_path / "t-0")
        whole = bytearray(segment.path.read_bytes())
        whole[70] ^= 1
        segment.path.write_bytes(whole)
        with pytest.raises(Damaged):
            a_log(tmp_path / "t-0")
        assert segment.path.read_bytes() == whole

    @pytest.mark.parametrize("in_the_middle", [False, True])
    def test_a_gap_is_damage(self, tmp_path: Path, *, in_the_middle: bool) -> None:
        """A log with a missing segment or batch is damaged; only the oldest segments may be missing."""
        log = a_log(tmp_path / "t-0")
        for number in range(20):
            append(log, one(number))
        first, second, *_ = list_segments(Disk(), tmp_path / "t-0")
        if in_the_middle:
            size = len(one(0))
            second.path.write_bytes(second.path.read_bytes()[:size] + second.path.read_bytes()[2 * size :])
        else:
            second.path.unlink()
        with pytest.raises(Damaged):
            a_log(tmp_path / "t-0")
        second.path.unlink(missing_ok=True)
        first.path.unlink()
        assert a_log(tmp_path / "t-0").view.ends().end == 20

    @pytest.mark.rounds
    def test_each_call_of_the_disk_may_fail(self, tmp_path: Path) -> None:
        """If any call of the disk fails, the log reads back everything Written, in order, no more, and opens again."""
        for name in ("write", "fdatasync", "open", "sync_folder", "truncate", "read"):
            for number in range(1, 40, rounds(2, 1, 1)):
                folder = tmp_path / f"{name}{number}-0"
                disk = FailingDisk(fail_one(name, number, errno.ENOSPC))
                chance, sent = Random(number), 0
                written: list[bytes] = []
                log = TopicLog(disk, folder, UUID(int=1), 300, lambda *_: None)
                while sent < 30:
                    if not log.is_open():
                        try:
                            log.open()
                        except OSError:
                            continue
                    window = [one(sent + at) for at in range(chance.randint(1, 4))]
                    outcomes = append(log, *window, limits=LIMITS._replace(segment_bytes=300))
                    for at, outcome in enumerate(outcomes):
                        if isinstance(outcome, Written):
                            assert outcome.base_offset == len(written)
                            written.append(b"%010d" % (sent + at))
                    sent += len(window)
                assert values(a_log(folder)) == written
                assert len(written) >= 26


class TopicMachine(test_partition.Machine):
    """A machine with a log of batches as producers send them; the log refuses some of them."""

    log: TopicLog

    def start(self) -> None:
        """Start a process."""
        self.log = TopicLog(self.disk, self._folder / "p-0", UUID(int=1), 9_000, lambda *_: None)

    def append(self) -> None:
        """Append a few batches of many sizes."""
        sent: list[list[Record]] = []
        batches = []
        for _ in range(self.chance.randint(1, 4)):
            count = self.chance.randint(1, 3)
            sent.append([record(self._next + at, self.chance.choice([5, 300, 2_900])) for at in range(count)])
            batches.append(batch([(each.key, each.value, each.timestamp_ms) for each in sent[-1]]))
            self._next += count
        spoilt = self.chance.randint(0, 12)
        if spoilt < len(batches):
            batches[spoilt] = batches[spoilt][:-1] + b"?"
        self.attempted = [each for number, records in enumerate(sent) if number != spoilt for each in records]
        outcomes = append(self.log, *batches, limits=LIMITS._replace(segment_bytes=9_000, segment_ms=2**62))
        done = [records for records, outcome in zip(sent, outcomes, strict=True) if isinstance(outcome, Written)]
        self.durable += [each for records in done for each in records]
        self.attempted = self.attempted[sum(map(len, done)) :]

    def read(self) -> None:
        """Read the log."""
        self.log.open()
        found = []
        for part in self.log.view.parts:
            found += [each for read in decode_batches(part.segment.path.read_bytes()) for each in read.records]
        extra = found[len(self.durable) :]
        assert found[: len(self.durable)] == self.durable
        assert extra == self.attempted[: len(extra)]
        self.durable, self.attempted = found, []


class TestTopicCrashes(test_partition.TestCrashes):
    """A topic's log keeps its promises in the same histories as a group's partition."""

    machine_class = TopicMachine
