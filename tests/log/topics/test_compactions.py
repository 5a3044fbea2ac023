"""Tests compaction of topics' logs: which log the server compacts, and between which calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from coordinator.log.compaction.cleaner import RETRY_BACKOFFS
from coordinator.log.compaction.rewrite import compact
from coordinator.log.compaction.task import Cleaned
from coordinator.log.segments.disk import Disk
from coordinator.log.topics.log import Written
from coordinator.log.topics.partition import TopicPartition
from tests.log.disks import FailingDisk
from tests.log.topics.caller import Caller
from tests.log.topics.test_log import LIMITS, NOW_MS, expected, one, values
from tests.support.batches import batch
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

BACKOFF_MS = 1_000
KEPT = TopicPartition("kept", UUID(int=9), 0, LIMITS._replace(is_compacted=True, is_deleted=False, segment_bytes=300))


class SwapDisk(Disk):
    """Calls something at the first swap of a compacted file, between two calls of the thread."""

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


def by_key(*partitions: TopicPartition) -> dict[tuple[UUID, int], TopicPartition]:
    """Return topic partitions as `compact` takes them."""
    return {partition.key: partition for partition in partitions}


def newest(caller: Caller, partition: TopicPartition = KEPT) -> dict[int, bytes]:
    """Return the newest value of each key."""
    return {int(value) % 3: value for value in caller.values(partition)}


def test_a_compacted_topic_is_compacted(caller: Caller, tmp_path: Path) -> None:
    """A process compacts a topic's log once; readers find the newest values, after a restart as well."""
    fill(caller)
    caller.logs.compact(by_key(KEPT), NOW_MS, BACKOFF_MS)
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
    again.logs.compact(by_key(KEPT), NOW_MS + 1, BACKOFF_MS)
    again.ask(lambda: None)
    assert again.logs._logs == {}
    fill(again)
    again.logs.compact(by_key(KEPT), NOW_MS + 2, BACKOFF_MS)
    assert again.compacted.get(timeout=WITHIN_S).reason == ""
    assert newest(again) == {0: b"27", 1: b"28", 2: b"29"}
    again.logs.close()
    assert (counts.compaction_failures, again.counts.compaction_failures) == (0, 0)


def test_how_dirty_logs_are(caller: Caller) -> None:
    """The server counts the ratio of the dirtiest compacted log at the last look, even if it is too low to compact."""
    rarely = KEPT._replace(limits=KEPT.limits._replace(min_cleanable_ratio=1.0))
    fill(caller, partition=rarely)
    for partitions, ratio in (([rarely], 1.0), ([], 0.0)):
        caller.logs.compact(by_key(*partitions), NOW_MS, BACKOFF_MS)
        wait_until(lambda ratio=ratio: caller.counts.dirty_ratio == ratio, "a look", WITHIN_S)  # type: ignore[misc]
    assert caller.compacted.empty()


def test_one_log_is_opened_at_a_time(tmp_path: Path) -> None:
    """After a restart, the thread opens one log at a time to look at it, so that other calls come in between."""
    partitions = {each.key: each for each in (KEPT._replace(number=number) for number in range(3))}
    caller = Caller(tmp_path)
    for each in partitions.values():
        fill(caller, partition=each)
    caller.logs.close()
    again = Caller(tmp_path)
    again.ask(lambda: again.logs._compactions.watch(partitions, NOW_MS, BACKOFF_MS))
    for count in (1, 2, 3):
        again.ask(lambda: again.logs._compactions.find(is_new_round=True))
        assert len(again.logs._logs) == count
    again.logs.close()
    again = Caller(tmp_path)
    again.logs.compact(by_key(*partitions.values()), NOW_MS, BACKOFF_MS)
    assert {again.compacted.get(timeout=WITHIN_S).folder for _ in partitions} == {"kept-0", "kept-1", "kept-2"}
    again.logs.close()


def test_a_disk_that_fills_meanwhile(caller: Caller) -> None:
    """If the disk fills meanwhile, the server reports the finished part of the compaction, and puts off the rest."""
    for number in range(60):
        data = batch([(b"%d" % (number * (number % 2)), b"%d" % number, NOW_MS)])
        caller.logs.append(KEPT, data, NOW_MS, caller.outcomes.append)
    disk = FailingDisk()

    def compact_a_part() -> None:
        compactions = caller.logs._compactions
        compactions.watch({KEPT.key: KEPT}, NOW_MS, BACKOFF_MS)
        work = compactions.find(is_new_round=True)
        assert work is not None

        def swap(cleaned: Cleaned) -> None:
            steps = work.upkeep.begin_swap(cleaned)
            while work.upkeep.swap(work, steps)[0]:
                pass
            disk.fails = lambda name, _number: OSError(28, "No space left") if name == "free" else None

        compaction = compact(disk, work.upkeep.folder, work.task, swap)
        assert len(compaction.files) == 1
        compactions.finish(work, compaction, compaction.reason, 2.0)

    assert caller.ask(compact_a_part) is None
    done, put_off = caller.compacted.get(timeout=WITHIN_S), caller.compacted.get(timeout=WITHIN_S)
    assert (done.size_after < done.size_before, done.reason, put_off.reason) == (True, "", "No space left")
    assert (sum(caller.counts.compactions.counts), caller.counts.compaction_failures) == (1, 1)
    assert {b"58", *(b"%d" % number for number in range(1, 60, 2))} < set(caller.values(KEPT))


def test_who_needs_no_compaction_has_no_thread_for_it(caller: Caller) -> None:
    """A server without logs to compact has no thread for it, and doesn't open a log that is too small."""
    before = threading.active_count()
    caller.logs.compact(by_key(), NOW_MS, BACKOFF_MS)
    assert threading.active_count() == before
    caller.logs.compact(by_key(KEPT), NOW_MS, BACKOFF_MS)
    caller.ask(lambda: None)
    assert caller.logs._logs == {}


def test_appends_and_reads_between_the_steps_of_a_swap(tmp_path: Path) -> None:
    """Appends and reads between the steps of a swap see all remaining records."""
    disk = SwapDisk()
    caller = Caller(tmp_path, disk)
    fill(caller)
    found: list[Any] = []

    def between() -> None:
        caller.logs.append(KEPT, one(30), NOW_MS, found.append)
        caller.logs.call(lambda: values(caller.logs.log(KEPT)), found.append)

    disk.at_swap = between
    caller.logs.compact(by_key(KEPT), NOW_MS, BACKOFF_MS)
    assert caller.compacted.get(timeout=WITHIN_S).reason == ""
    caller.ask(lambda: None)
    assert found[0] == Written(30, -1, 0)
    assert found[1][-4:] == [b"27", b"28", b"29", b"%010d" % 30]
    caller.logs.close()


def test_a_topic_is_deleted_while_it_is_compacted(tmp_path: Path) -> None:
    """A deletion of the topic ends its compaction without a report; the name's next topic has no old records."""
    disk = SwapDisk()
    caller = Caller(tmp_path, disk)
    fill(caller)
    deleted = threading.Event()

    def delete() -> None:
        caller.logs.call(partial(caller.logs.delete, [KEPT]), lambda _: deleted.set())

    disk.at_swap = delete
    caller.logs.compact(by_key(KEPT), NOW_MS, BACKOFF_MS)
    while not deleted.is_set():
        caller.hops.get(timeout=WITHIN_S)()
    other = KEPT._replace(topic_id=UUID(int=10))
    caller.append(other, 0)
    assert caller.values(other) == expected(1)
    caller.logs.compact(by_key(other), NOW_MS, BACKOFF_MS)
    caller.logs.close()
    assert caller.compacted.empty()
    assert not list((tmp_path / "kept-0").glob("*.cleaned"))


def test_a_compaction_that_can_not_begin(caller: Caller, disk: FailingDisk) -> None:
    """If the disk is too full to note that offsets may have gaps, the server reports it once, and the log serves."""
    fill(caller)
    disk.fails = lambda name, _number: OSError(28, "No space left on device") if name == "write" else None
    for at_ms in (0, 1):
        caller.logs.compact(by_key(KEPT), NOW_MS + at_ms, BACKOFF_MS)
        caller.logs._thread.call_and_wait(lambda: None)
    assert "No space left on device" in caller.compacted.get(timeout=WITHIN_S).reason
    assert caller.counts.compaction_failures == 1
    disk.fails = lambda _name, _number: None
    assert len(caller.values(KEPT)) == 30
    caller.logs.close()
    assert caller.compacted.empty()


@pytest.mark.parametrize("name", ["rename", "remove"])
def test_a_swap_that_fails(caller: Caller, disk: FailingDisk, name: str) -> None:
    """After a failed swap, the server reports it, keeps all records, and compacts later, but not at once."""
    fill(caller)
    caller.logs.compact(by_key(), NOW_MS, BACKOFF_MS)
    with_name = disk.calls["rename"]

    def fails(called: str, number: int) -> OSError | None:
        # The first rename writes the note that there may be gaps, the second is the swap's.
        is_it = called == name and (name == "remove" or number == with_name + 2)
        return OSError(5, "Input/output error") if is_it else None

    disk.fails = fails
    caller.logs.compact(by_key(KEPT), NOW_MS, BACKOFF_MS)
    assert caller.compacted.get(timeout=WITHIN_S).reason == "Input/output error"
    disk.fails = lambda _name, _number: None
    assert newest(caller) == {0: b"27", 1: b"28", 2: b"29"}

    def clean_offset() -> int:
        found: int = caller.ask(lambda: caller.logs.log(KEPT).clean_offset)
        return found

    caller.logs.compact(by_key(KEPT), NOW_MS + 1, BACKOFF_MS)
    assert clean_offset() == 0
    caller.logs.compact(by_key(KEPT), NOW_MS + RETRY_BACKOFFS * BACKOFF_MS, BACKOFF_MS)
    wait_until(lambda: clean_offset() > 0, "compaction", WITHIN_S)
    assert newest(caller) == {0: b"27", 1: b"28", 2: b"29"}
    caller.logs.close()
    assert disk.descriptors == set()


@pytest.mark.parametrize("name", ["list_folder", "rename", "remove"])
def test_a_mistake_of_ours(tmp_path: Path, disk: FailingDisk, name: str) -> None:
    """After a mistake of ours in a look or a swap, the server reports it, compacts other logs, and can end."""
    other = KEPT._replace(number=1)
    caller = Caller(tmp_path)
    fill(caller)
    fill(caller, partition=other)
    caller.logs.close()
    caller = Caller(tmp_path, disk)
    caller.ask(lambda: None)
    at = disk.calls[name] + 1
    disk.fails = lambda called, number: ZeroDivisionError("1/0") if (called, number) == (name, at) else None
    caller.logs.compact(by_key(KEPT, other), NOW_MS, BACKOFF_MS)
    told = {each.folder: each.reason for each in (caller.compacted.get(timeout=WITHIN_S) for _ in range(2))}
    assert told == {"kept-0": "ZeroDivisionError('1/0')", "kept-1": ""}
    disk.fails = lambda _name, _number: None
    for each in (KEPT, other):
        assert newest(caller, each) == {0: b"27", 1: b"28", 2: b"29"}
    caller.logs.compact(by_key(KEPT, other), NOW_MS + RETRY_BACKOFFS * BACKOFF_MS, BACKOFF_MS)
    wait_until(lambda: caller.ask(lambda: caller.logs.log(KEPT).clean_offset) > 0, "compaction", WITHIN_S)
    assert newest(caller) == {0: b"27", 1: b"28", 2: b"29"}
    caller.logs.close()
    assert disk.descriptors == set()


def test_a_damaged_log_is_not_compacted(caller: Caller, tmp_path: Path) -> None:
    """The server reports a damaged log once, and doesn't read it again and again."""
    fill(caller)
    caller.logs.close()
    segment = min((tmp_path / "kept-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    disk = FailingDisk()
    caller = Caller(tmp_path, disk)
    for at_ms in (0, 1, 2):
        caller.logs.compact(by_key(KEPT), NOW_MS + at_ms, BACKOFF_MS)
        caller.logs._thread.call_and_wait(lambda: None)
        while not caller.failed:  # another process may find it
            threading.Event().wait(0.001)
    caller.logs.close()
    assert [Path(folder).name for folder, _ in caller.failed] == ["kept-0"]
    assert caller.compacted.empty()


def test_a_server_that_ends_ends_a_compaction(tmp_path: Path) -> None:
    """A server that ends in the middle of a swap leaves it to the next one, which finishes it."""
    disk = SwapDisk()
    caller = Caller(tmp_path, disk)
    fill(caller)
    swapping, resume = threading.Event(), threading.Event()

    def wait() -> None:
        swapping.set()
        resume.wait(WITHIN_S)

    disk.at_swap = wait
    caller.logs.compact(by_key(KEPT), NOW_MS, BACKOFF_MS)
    assert swapping.wait(WITHIN_S)
    closing = threading.Thread(target=caller.logs.close)
    closing.start()
    cleaner = caller.logs._compactions._cleaner
    assert cleaner is not None
    assert cleaner._stopping.wait(WITHIN_S)
    resume.set()
    closing.join()
    again = Caller(tmp_path)
    assert newest(again) == {0: b"27", 1: b"28", 2: b"29"}
    assert {path.suffix for path in (tmp_path / "kept-0").glob("0*")} == {".log"}
    again.logs.close()
