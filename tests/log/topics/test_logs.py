"""The thread of the topics' logs: order, shared syncs, folders of topics that are gone, producer ids."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import UUID

import pytest

from coordinator.log.compaction.cleaner import RETRY_BACKOFFS
from coordinator.log.compaction.rewrite import Cleaned, compact
from coordinator.log.engine import Damaged, Unavailable
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.lock import Lock
from coordinator.log.topics.folders import OWNER_NAME
from coordinator.log.topics.log import Written
from coordinator.log.topics.logs import (
    FILES_MAX,
    IDS_PER_BLOCK,
    PRODUCER_IDS_NAME,
    Compacted,
    Result,
    TopicLogs,
    TopicPartition,
)
from tests.log.disks import FailingDisk
from tests.log.topics.test_log import LIMITS, NOW_MS, expected, one, values
from tests.support.batches import batch
from tests.support.tenure import wait_until

WITHIN_S = 20.0


class Caller:
    """Asks, and takes what comes back on its own thread."""

    def __init__(self, data_dir: Path, disk: Disk | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self.hops: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.failed: list[tuple[str, str]] = []
        self.strayed: list[tuple[str, str]] = []
        self.died: SimpleQueue[str] = SimpleQueue()
        self.compacted: SimpleQueue[Compacted] = SimpleQueue()
        self.counts = Counts()
        self.logs = TopicLogs(
            data_dir,
            self.hand_over,
            failed=lambda *what: self.failed.append(what),
            strayed=lambda *what: self.strayed.append(what),
            died=self.died.put,
            compacted=self.compacted.put,
            counts=self.counts,
            disk=disk,
            now_s=now_s,
        )
        self.outcomes: list[Any] = []

    def hand_over(self, outcomes: list[Result]) -> None:
        """As TopicLogs wants it."""
        self.hops.put(lambda: [done(outcome) for done, outcome in outcomes])

    def append(self, partition: TopicPartition, *numbers: int) -> None:
        """Append batches of one record each."""
        for number in numbers:
            self.logs.append(partition, one(number), NOW_MS, self.outcomes.append)

    def ask(self, function: Callable[[], Any]) -> Any:
        """What a call comes back with, behind all before it."""
        found: list[Any] = []
        self.logs.call(function, found.append)
        while not found:
            self.hops.get(timeout=WITHIN_S)()
        return found[0]

    def values(self, partition: TopicPartition) -> list[bytes]:
        """All values of a log."""
        found: list[bytes] = self.ask(lambda: values(self.logs.log(partition)))
        return found


def part(topic_id: int = 1, topic: str = "orders", number: int = 0) -> TopicPartition:
    """A partition of the topic with that number."""
    return TopicPartition(topic, UUID(int=topic_id), number, LIMITS)


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    """Works in a folder of the test's own."""
    caller = Caller(tmp_path)
    yield caller
    caller.logs.close()


def test_there_is_no_thread_before_the_first_call(tmp_path: Path) -> None:
    """Nor a file."""
    before = threading.active_count()
    caller = Caller(tmp_path)
    caller.logs.close()
    assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []


def test_calls_see_what_was_appended_before_them(caller: Caller) -> None:
    """And nothing behind."""
    caller.append(part(), 0, 1)
    found: list[Any] = []
    caller.logs.call(lambda: values(caller.logs.log(part())), found.append)
    caller.append(part(), 2)
    assert caller.values(part()) == expected(3)
    assert found == [expected(2)]
    assert caller.outcomes == [Written(number, -1, 0) for number in range(3)]


def test_appends_that_wait_together_share_a_sync(tmp_path: Path) -> None:
    """One for each log."""
    disk = FailingDisk()
    caller = Caller(tmp_path, disk)
    caller.append(part(), 0)
    caller.append(part(number=1), 0)
    caller.values(part())
    let_go, before = threading.Event(), disk.calls["fdatasync"]
    caller.logs.call(partial(let_go.wait, WITHIN_S), lambda _: None)
    for number in range(1, 4):
        caller.append(part(), number)
        caller.append(part(number=1), number)
    let_go.set()
    assert caller.values(part()) == caller.values(part(number=1)) == expected(4)
    assert disk.calls["fdatasync"] - before == 2
    caller.logs.close()


def test_outcomes_do_not_wait_for_work_that_takes_long(tmp_path: Path) -> None:
    """What is done is told before the next call of the window; what takes no time is told together."""
    for step_s, hops in ((0.0, 1), (1.0, 3)):
        now_s = 0.0

        def tick(step_s: float = step_s) -> float:
            nonlocal now_s
            now_s += step_s
            return now_s

        caller = Caller(tmp_path, now_s=tick)
        let_go = threading.Event()
        caller.logs.call(partial(let_go.wait, WITHIN_S), lambda _: None)
        caller.append(part(), 0)
        caller.append(part(number=1), 0)
        caller.logs.call(lambda: None, lambda _: None)
        let_go.set()
        caller.logs.close()
        assert caller.hops.qsize() in {hops + 1, hops}
        shutil.rmtree(tmp_path / "orders-0")
        shutil.rmtree(tmp_path / "orders-1")


def test_retention_opens_no_log_for_nothing(tmp_path: Path) -> None:
    """Sizes and times of files say whether there may be something to give up; an open log knows itself."""
    caller = Caller(tmp_path)
    caller.append(part(), *range(20))
    caller.ask(lambda: None)
    assert caller.ask(lambda: caller.logs.may_retain(part(), 0))
    caller.logs.close()
    caller = Caller(tmp_path)
    segments = sorted((tmp_path / "orders-0").glob("*.log"))
    for segment in segments:
        os.utime(segment, (50, 50))
    size = sum(segment.stat().st_size for segment in segments)
    kept = LIMITS._replace(retention_ms=1_000, retention_bytes=size)
    for limits, now_ms, may in (
        (kept, 51_000, False),
        (kept, 51_001, True),
        (kept._replace(retention_bytes=size - 1), 0, True),
        (kept._replace(retention_ms=-1), 10**12, False),
        (kept._replace(retention_bytes=-1), 0, False),
        (kept._replace(is_deleted=False), 10**12, False),
    ):
        asked = part()._replace(limits=limits)
        assert caller.ask(partial(caller.logs.may_retain, asked, now_ms)) is may
    assert not caller.ask(lambda: caller.logs.may_retain(part(topic="absent"), 10**12))
    caller.logs.close()


def test_who_raises_hurts_nobody(caller: Caller) -> None:
    """The caller gets it."""
    error = ValueError("mine")

    def fail() -> None:
        raise error

    assert caller.ask(fail) is error
    caller.append(part(), 0)
    assert caller.values(part()) == expected(1)


def test_close_does_what_was_asked_for(tmp_path: Path) -> None:
    """Appends are durable when it returns."""
    caller = Caller(tmp_path)
    caller.append(part(), *range(10))
    caller.logs.close()
    assert Caller(tmp_path).values(part()) == expected(10)


def test_a_disk_that_fails_is_told_of_and_tried_again(tmp_path: Path) -> None:
    """Unavailable for what was in the window; the next append opens the log anew."""
    disk = FailingDisk()
    caller = Caller(tmp_path, disk)
    caller.append(part(), 0)
    assert caller.values(part()) == expected(1)
    disk.fails = lambda name, _number: OSError(28, "No space left on device") if name == "write" else None
    caller.append(part(), 1)
    caller.ask(lambda: None)
    assert isinstance(caller.outcomes[-1], Unavailable)
    assert "No space left" in str(caller.outcomes[-1])
    caller.append(part(), 1)
    caller.ask(lambda: None)
    assert isinstance(caller.outcomes[-1], Unavailable)
    disk.fails = lambda _name, _number: None
    caller.append(part(), 1)
    assert caller.values(part()) == expected(2)
    caller.logs.close()


def test_a_damaged_log_is_refused_and_the_others_serve(tmp_path: Path) -> None:
    """It is told once."""
    caller = Caller(tmp_path)
    caller.append(part(), 0, 1)
    caller.append(part(number=1), 0)
    caller.ask(lambda: None)
    caller.logs.close()
    (segment,) = (tmp_path / "orders-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    caller = Caller(tmp_path)
    for _ in range(2):
        assert isinstance(caller.ask(lambda: caller.logs.log(part())), Damaged)
    caller.append(part(), 2)
    assert caller.values(part(number=1)) == expected(1)
    assert isinstance(caller.outcomes[-1], Damaged)
    assert [Path(folder).name for folder, _ in caller.failed] == ["orders-0"]
    caller.logs.close()


def test_a_mistake_of_ours_costs_its_callers_only(tmp_path: Path) -> None:
    """Who appended gets what was raised; the log is read anew, and nothing that was durable is lost."""
    error = MemoryError("no more of it")
    disk = FailingDisk(lambda name, number: error if (name, number) == ("write", 3) else None)
    caller = Caller(tmp_path, disk)
    caller.append(part(), 0)
    caller.ask(lambda: None)
    caller.append(part(), 1)
    caller.ask(lambda: None)
    assert caller.outcomes[-1] is error
    caller.append(part(), 1)
    assert caller.values(part()) == expected(2)
    caller.logs.close()


def test_a_folder_that_does_not_say_whose_it_is(tmp_path: Path) -> None:
    """It is refused as damaged, and the others serve."""
    caller = Caller(tmp_path)
    caller.append(part(), 0)
    caller.ask(lambda: None)
    caller.logs.close()
    (tmp_path / "orders-0" / OWNER_NAME).write_bytes(b"version: 0\ntopic_id: \xff\n")
    caller = Caller(tmp_path)
    caller.append(part(), 1)
    caller.append(part(number=1), 0)
    assert caller.values(part(number=1)) == expected(1)
    assert isinstance(caller.outcomes[0], Damaged)
    caller.logs.close()


def test_the_end_of_the_thread_is_reported(tmp_path: Path) -> None:
    """Whatever it ends of: nobody would get an answer any more."""

    def end() -> None:
        raise SystemExit("of a bug")

    caller = Caller(tmp_path)
    caller.logs.call(end, lambda _: None)
    assert "of a bug" in caller.died.get(timeout=WITHIN_S)
    caller.logs.close()


def test_a_failed_sync_of_an_opening_is_not_forgotten(tmp_path: Path) -> None:
    """The next opening writes the segment again first, and no file stays open meanwhile."""
    caller = Caller(tmp_path)
    caller.append(part(), 0)
    caller.ask(lambda: None)
    caller.logs.close()
    disk = FailingDisk(lambda name, _number: OSError(5, "Input/output error") if name == "fdatasync" else None)
    caller = Caller(tmp_path, disk)
    for _ in range(3):
        assert isinstance(caller.ask(lambda: caller.logs.log(part())), Unavailable)
    assert disk.descriptors == set()
    disk.fails, disk.calls["write"] = lambda _name, _number: None, 0
    assert caller.values(part()) == expected(1)
    assert disk.calls["write"] == 1
    caller.logs.close()


def test_a_topic_that_is_deleted_leaves_nothing(tmp_path: Path) -> None:
    """One of the same name begins anew."""
    caller = Caller(tmp_path)
    caller.append(part(), 0, 1)
    assert caller.ask(lambda: caller.logs.delete([part(), part(number=1)])) is None
    assert caller.values(part(2)) == []
    caller.logs.close()
    assert not list(tmp_path.iterdir())


def test_who_deletes_a_topic_leaves_its_successor_alone(tmp_path: Path) -> None:
    """It may have another leader, on the same folder, which has written there meanwhile."""
    former, successor = Caller(tmp_path), Caller(tmp_path)
    former.append(part(1), 0)
    former.ask(lambda: None)
    successor.append(part(2), 0, 1)
    successor.ask(lambda: None)
    assert former.ask(lambda: former.logs.delete([part(1)])) is None
    for caller in (former, successor):
        caller.logs.close()
    assert Caller(tmp_path).values(part(2)) == expected(2)


def test_a_folder_of_a_former_topic_is_not_taken_over(tmp_path: Path) -> None:
    """As a crash may leave it, between the list of topics and the folders; but kept, for who lost the list."""
    caller = Caller(tmp_path)
    caller.append(part(1), 0, 1)
    caller.ask(lambda: None)
    caller.logs.close()
    caller = Caller(tmp_path)
    assert caller.values(part(2)) == []
    caller.append(part(2), 0)
    assert caller.values(part(2)) == expected(1)
    caller.logs.close()
    ours, stray = sorted(tmp_path.iterdir())
    assert ours.name == "orders-0"
    assert re.fullmatch(r"orders-0\.[0-9a-f]{16}-stray", stray.name)
    assert caller.strayed == [(str(ours), str(stray))]
    stray.rename(tmp_path / "former-0")
    assert Caller(tmp_path).values(part(1, "former")) == expected(2)


def producer_id(caller: Caller, now_ms: int = NOW_MS) -> Callable[[], int]:
    """A call for one."""
    return partial(caller.logs.producer_id, now_ms)


def test_ids_of_a_folder_that_lost_them_are_not_given_out_again(tmp_path: Path) -> None:
    """Nor those of an older copy: a new producer's first records would be taken for a repetition."""
    caller = Caller(tmp_path)
    first = caller.ask(producer_id(caller))
    caller.append(part(), 0)
    older = (tmp_path / PRODUCER_IDS_NAME).read_bytes()
    caller.logs.close()
    for content in (older, b"", b"damage", None):
        (tmp_path / PRODUCER_IDS_NAME).unlink()
        if content is not None:
            (tmp_path / PRODUCER_IDS_NAME).write_bytes(content)
        caller = Caller(tmp_path)
        assert caller.ask(producer_id(caller, NOW_MS + IDS_PER_BLOCK)) >= first + IDS_PER_BLOCK
        caller.logs.close()


def test_what_was_noted_in_ten_digits_counts(tmp_path: Path) -> None:
    """As it once was."""
    (tmp_path / PRODUCER_IDS_NAME).write_bytes(b"9999999000\n")
    caller = Caller(tmp_path)
    assert caller.ask(producer_id(caller, 5)) == 9_999_999_000
    caller.logs.close()
    caller = Caller(tmp_path)
    assert caller.ask(producer_id(caller, 5)) == 10_000_000_000
    caller.logs.close()


def test_producer_ids_are_given_out_once(tmp_path: Path) -> None:
    """Within a server, after a restart, and by two workers of one folder."""
    ids: list[int] = []
    for _ in range(3):
        caller, other = Caller(tmp_path), Caller(tmp_path)
        for _ in range(IDS_PER_BLOCK + 2):
            ids.append(caller.ask(producer_id(caller)))
        ids.append(other.ask(producer_id(other)))
        caller.logs.close()
        other.logs.close()
    assert len(set(ids)) == len(ids)


def test_a_producer_id_that_is_not_durable_is_not_given_out(tmp_path: Path) -> None:
    """Nor one while another worker takes some."""
    disk = FailingDisk(lambda name, _number: OSError(5, "Input/output error") if name == "fdatasync" else None)
    caller = Caller(tmp_path, disk)
    assert isinstance(caller.ask(producer_id(caller)), Unavailable)
    disk.fails = lambda _name, _number: None
    lock = Lock(Disk(), tmp_path / PRODUCER_IDS_NAME)
    assert isinstance(caller.ask(producer_id(caller)), Unavailable)
    lock.release()
    assert isinstance(caller.ask(producer_id(caller)), int)
    caller.logs.close()


def test_few_files_are_open_however_many_logs_there_are(tmp_path: Path) -> None:
    """Whichever is used, in whatever order: each takes its appends."""
    disk = FailingDisk()
    caller = Caller(tmp_path, disk)
    partitions = [part(number=number) for number in range(FILES_MAX + 10)]
    for number in range(3):
        for each in (*partitions, *reversed(partitions[::3])) if number % 2 else partitions:
            caller.append(each, number)
        caller.ask(lambda: None)
        assert len(disk.descriptors) <= FILES_MAX
    assert not [each for each in caller.outcomes if not isinstance(each, Written)]
    for each in partitions[1::3]:
        assert caller.values(each) == [b"%010d" % number for number in (0, 1, 2)]
    parked = partitions[1]
    caller.values(partitions[-1])
    for each in partitions[2:]:
        caller.ask(partial(caller.logs.log, each))
    caller.ask(lambda: caller.logs.log(parked).retain(LIMITS._replace(retention_ms=0), NOW_MS))
    caller.append(parked, 3)
    assert caller.values(parked) == [b"%010d" % 3]
    caller.logs.close()
    assert not disk.descriptors


BACKOFF_MS = 1_000
KEPT = TopicPartition("kept", UUID(int=9), 0, LIMITS._replace(is_compacted=True, is_deleted=False, segment_bytes=300))


class SwapDisk(Disk):
    """Calls something when the first compacted file begins to count, between two calls of the thread."""

    def __init__(self) -> None:
        self.at_swap: Callable[[], None] | None = None

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        if new.suffix == ".swap" and self.at_swap is not None:
            self.at_swap()
            self.at_swap = None


def fill(caller: Caller, count: int = 30, partition: TopicPartition = KEPT) -> None:
    """Append so many batches, of three keys."""
    for number in range(count):
        data = batch([(b"%d" % (number % 3), b"%d" % number, NOW_MS)])
        caller.logs.append(partition, data, NOW_MS, caller.outcomes.append)
    caller.ask(lambda: None)


def newest(caller: Caller, partition: TopicPartition = KEPT) -> dict[int, bytes]:
    """The newest value of each key."""
    return {int(value) % 3: value for value in caller.values(partition)}


def test_a_compacted_topic_is_compacted(caller: Caller, tmp_path: Path) -> None:
    """In a process of its own; what is left is found by who reads now and after a restart, and it isn't done again."""
    fill(caller)
    caller.logs.compact([KEPT], NOW_MS, BACKOFF_MS)
    told = caller.compacted.get(timeout=WITHIN_S)
    assert (told.folder, told.reason) == ("kept-0", "")
    assert told.size_after < told.size_before
    counts = caller.counts
    assert (sum(counts.compactions.counts), counts.compactions.total) == (1, told.duration_s)
    assert (counts.bytes_before, counts.bytes_after) == (told.size_before, told.size_after)
    assert newest(caller) == {0: b"27", 1: b"28", 2: b"29"}
    assert len(caller.values(KEPT)) < 10
    caller.logs.close()
    again = Caller(tmp_path)
    again.logs.compact([KEPT], NOW_MS + 1, BACKOFF_MS)
    again.ask(lambda: None)
    assert again.logs._logs == {}
    fill(again)
    again.logs.compact([KEPT], NOW_MS + 2, BACKOFF_MS)
    assert again.compacted.get(timeout=WITHIN_S).reason == ""
    assert newest(again) == {0: b"27", 1: b"28", 2: b"29"}
    again.logs.close()
    assert (counts.compaction_failures, again.counts.compaction_failures) == (0, 0)


def test_how_dirty_logs_are(caller: Caller) -> None:
    """The dirtiest of those that are compacted, whether that is worth it or not, as of the last look."""
    rarely = KEPT._replace(limits=KEPT.limits._replace(min_cleanable_ratio=1.0))
    fill(caller, partition=rarely)
    for partitions, ratio in (([rarely], 1.0), ([], 0.0)):
        caller.logs.compact(partitions, NOW_MS, BACKOFF_MS)
        wait_until(lambda ratio=ratio: caller.counts.dirty_ratio == ratio, "a look", WITHIN_S)  # type: ignore[misc]
    assert caller.compacted.empty()


def test_one_log_is_opened_at_a_time(tmp_path: Path) -> None:
    """After a restart, to see whether they are to be compacted: who calls meanwhile has a turn between them."""
    partitions = {each.key: each for each in (KEPT._replace(number=number) for number in range(3))}
    caller = Caller(tmp_path)
    for each in partitions.values():
        fill(caller, partition=each)
    caller.logs.close()
    again = Caller(tmp_path)
    again.ask(lambda: again.logs._watch(partitions, NOW_MS, BACKOFF_MS))
    for count in (1, 2, 3):
        again.ask(lambda: again.logs._find_work(is_new_round=True))
        assert len(again.logs._logs) == count
    again.logs.close()
    again = Caller(tmp_path)
    again.logs.compact(list(partitions.values()), NOW_MS, BACKOFF_MS)
    assert {again.compacted.get(timeout=WITHIN_S).folder for _ in partitions} == {"kept-0", "kept-1", "kept-2"}
    again.logs.close()


def test_a_disk_that_fills_meanwhile(caller: Caller) -> None:
    """What was done is told, and that the rest was put off."""
    for number in range(60):
        data = batch([(b"%d" % (number * (number % 2)), b"%d" % number, NOW_MS)])
        caller.logs.append(KEPT, data, NOW_MS, caller.outcomes.append)
    disk = FailingDisk()

    def compact_a_part() -> None:
        logs = caller.logs
        logs._watch({KEPT.key: KEPT}, NOW_MS, BACKOFF_MS)
        work = logs._find_work(is_new_round=True)
        assert work is not None

        def swap(cleaned: Cleaned) -> None:
            steps = work.upkeep.begin_swap(cleaned)
            while work.upkeep.swap(work, steps)[0]:
                pass
            disk.fails = lambda name, _number: OSError(28, "No space left") if name == "free" else None

        compaction = compact(disk, work.upkeep.folder, work.task, swap)
        assert len(compaction.files) == 1
        logs._finish_work(work, compaction, compaction.reason, 2.0)

    assert caller.ask(compact_a_part) is None
    done, put_off = caller.compacted.get(timeout=WITHIN_S), caller.compacted.get(timeout=WITHIN_S)
    assert (done.size_after < done.size_before, done.reason, put_off.reason) == (True, "", "[Errno 28] No space left")
    assert (sum(caller.counts.compactions.counts), caller.counts.compaction_failures) == (1, 1)
    assert {b"58", *(b"%d" % number for number in range(1, 60, 2))} < set(caller.values(KEPT))


def test_who_needs_no_compaction_has_no_thread_for_it(caller: Caller) -> None:
    """Nor is a log opened that is too small."""
    before = threading.active_count()
    caller.logs.compact([], NOW_MS, BACKOFF_MS)
    assert threading.active_count() == before
    caller.logs.compact([KEPT], NOW_MS, BACKOFF_MS)
    caller.ask(lambda: None)
    assert caller.logs._logs == {}


def test_appends_and_reads_between_the_steps_of_a_swap(tmp_path: Path) -> None:
    """They see all that is left."""
    disk = SwapDisk()
    caller = Caller(tmp_path, disk)
    fill(caller)
    found: list[Any] = []

    def between() -> None:
        caller.logs.append(KEPT, one(30), NOW_MS, found.append)
        caller.logs.call(lambda: values(caller.logs.log(KEPT)), found.append)

    disk.at_swap = between
    caller.logs.compact([KEPT], NOW_MS, BACKOFF_MS)
    assert caller.compacted.get(timeout=WITHIN_S).reason == ""
    caller.ask(lambda: None)
    assert found[0] == Written(30, -1, 0)
    assert found[1][-4:] == [b"27", b"28", b"29", b"%010d" % 30]
    caller.logs.close()


def test_a_topic_is_deleted_while_it_is_compacted(tmp_path: Path) -> None:
    """That ends it, without a word; the next topic of the name has nothing of it."""
    disk = SwapDisk()
    caller = Caller(tmp_path, disk)
    fill(caller)
    deleted = threading.Event()

    def delete() -> None:
        caller.logs.call(partial(caller.logs.delete, [KEPT]), lambda _: deleted.set())

    disk.at_swap = delete
    caller.logs.compact([KEPT], NOW_MS, BACKOFF_MS)
    while not deleted.is_set():
        caller.hops.get(timeout=WITHIN_S)()
    other = KEPT._replace(topic_id=UUID(int=10))
    caller.append(other, 0)
    assert caller.values(other) == expected(1)
    caller.logs.compact([other], NOW_MS, BACKOFF_MS)
    caller.logs.close()
    assert caller.compacted.empty()
    assert not list((tmp_path / "kept-0").glob("*.cleaned"))


def test_a_compaction_that_can_not_begin(tmp_path: Path) -> None:
    """Where there is no room for the note that offsets may have gaps: it is told, once, and the log serves."""
    disk = FailingDisk()
    caller = Caller(tmp_path, disk)
    fill(caller)
    disk.fails = lambda name, _number: OSError(28, "No space left on device") if name == "write" else None
    for at_ms in (0, 1):
        caller.logs.compact([KEPT], NOW_MS + at_ms, BACKOFF_MS)
        caller.logs._on_thread(lambda: None)
    assert "No space left on device" in caller.compacted.get(timeout=WITHIN_S).reason
    assert caller.counts.compaction_failures == 1
    disk.fails = lambda _name, _number: None
    assert len(caller.values(KEPT)) == 30
    caller.logs.close()
    assert caller.compacted.empty()


@pytest.mark.parametrize("name", ["rename", "remove"])
def test_a_swap_that_fails(tmp_path: Path, name: str) -> None:
    """It is told; all is there, and it is done later, but not at once."""
    disk = FailingDisk()
    caller = Caller(tmp_path, disk)
    fill(caller)
    caller.logs.compact([], NOW_MS, BACKOFF_MS)
    with_name = disk.calls["rename"]

    def fails(called: str, number: int) -> OSError | None:
        # The first rename is that of the note that there may be gaps, the second is the swap's.
        is_it = called == name and (name == "remove" or number == with_name + 2)
        return OSError(5, "Input/output error") if is_it else None

    disk.fails = fails
    caller.logs.compact([KEPT], NOW_MS, BACKOFF_MS)
    assert caller.compacted.get(timeout=WITHIN_S).reason == "Input/output error"
    disk.fails = lambda _name, _number: None
    assert newest(caller) == {0: b"27", 1: b"28", 2: b"29"}

    def clean_offset() -> int:
        found: int = caller.ask(lambda: caller.logs.log(KEPT).clean_offset)
        return found

    caller.logs.compact([KEPT], NOW_MS + 1, BACKOFF_MS)
    assert clean_offset() == 0
    caller.logs.compact([KEPT], NOW_MS + RETRY_BACKOFFS * BACKOFF_MS, BACKOFF_MS)
    wait_until(lambda: clean_offset() > 0, "compaction", WITHIN_S)
    assert newest(caller) == {0: b"27", 1: b"28", 2: b"29"}
    caller.logs.close()
    assert disk.descriptors == set()


@pytest.mark.parametrize("name", ["list_folder", "rename", "remove"])
def test_a_mistake_of_ours(tmp_path: Path, name: str) -> None:
    """Wherever it is, while logs are looked at or swapped in: it is told, other logs are compacted, the server ends."""
    other = KEPT._replace(number=1)
    caller = Caller(tmp_path)
    fill(caller)
    fill(caller, partition=other)
    caller.logs.close()
    disk = FailingDisk()
    caller = Caller(tmp_path, disk)
    caller.ask(lambda: None)
    at = disk.calls[name] + 1
    disk.fails = lambda called, number: ZeroDivisionError("1/0") if (called, number) == (name, at) else None
    caller.logs.compact([KEPT, other], NOW_MS, BACKOFF_MS)
    told = {each.folder: each.reason for each in (caller.compacted.get(timeout=WITHIN_S) for _ in range(2))}
    assert told == {"kept-0": "ZeroDivisionError('1/0')", "kept-1": ""}
    disk.fails = lambda _name, _number: None
    for each in (KEPT, other):
        assert newest(caller, each) == {0: b"27", 1: b"28", 2: b"29"}
    caller.logs.compact([KEPT, other], NOW_MS + RETRY_BACKOFFS * BACKOFF_MS, BACKOFF_MS)
    wait_until(lambda: caller.ask(lambda: caller.logs.log(KEPT).clean_offset) > 0, "compaction", WITHIN_S)
    assert newest(caller) == {0: b"27", 1: b"28", 2: b"29"}
    caller.logs.close()
    assert disk.descriptors == set()


def test_a_damaged_log_is_not_compacted(tmp_path: Path) -> None:
    """It is told once, and not read again and again."""
    caller = Caller(tmp_path)
    fill(caller)
    caller.logs.close()
    segment = min((tmp_path / "kept-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    disk = FailingDisk()
    caller = Caller(tmp_path, disk)
    for at_ms in (0, 1, 2):
        caller.logs.compact([KEPT], NOW_MS + at_ms, BACKOFF_MS)
        caller.logs._on_thread(lambda: None)
    caller.logs.close()
    assert [Path(folder).name for folder, _ in caller.failed] == ["kept-0"]
    assert caller.compacted.empty()


def test_a_server_that_ends_ends_a_compaction(tmp_path: Path) -> None:
    """In the middle of a swap: the next one finishes it."""
    disk = SwapDisk()
    caller = Caller(tmp_path, disk)
    fill(caller)
    swapping, let_go = threading.Event(), threading.Event()

    def wait() -> None:
        swapping.set()
        let_go.wait(WITHIN_S)

    disk.at_swap = wait
    caller.logs.compact([KEPT], NOW_MS, BACKOFF_MS)
    assert swapping.wait(WITHIN_S)
    closing = threading.Thread(target=caller.logs.close)
    closing.start()
    cleaner = caller.logs._cleaner
    assert cleaner is not None
    assert cleaner._stopping.wait(WITHIN_S)
    let_go.set()
    closing.join()
    again = Caller(tmp_path)
    assert newest(again) == {0: b"27", 1: b"28", 2: b"29"}
    assert {path.suffix for path in (tmp_path / "kept-0").glob("0*")} == {".log"}
    again.logs.close()
