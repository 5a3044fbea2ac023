"""Tests topics' logs together: shared syncs, failing disks, deleted topics' folders, and open files."""

from __future__ import annotations

import os
import re
import shutil
import threading
from functools import partial
from pathlib import Path

from coordinator.log.engine import Damaged, Unavailable
from coordinator.log.topics.folders import OWNER_NAME
from coordinator.log.topics.log import Written
from coordinator.log.topics.logs import FILES_MAX
from tests.log.disks import FailingDisk
from tests.log.topics.caller import Caller, part
from tests.log.topics.test_log import LIMITS, NOW_MS, expected
from tests.support.patience import WITHIN_S


def test_appends_that_wait_together_share_a_sync(caller: Caller, disk: FailingDisk) -> None:
    """Appends to a log that wait together share one sync."""
    caller.append(part(), 0)
    caller.append(part(number=1), 0)
    caller.values(part())
    resume, before = threading.Event(), disk.calls["fdatasync"]
    caller.logs.call(partial(resume.wait, WITHIN_S), lambda _: None)
    for number in range(1, 4):
        caller.append(part(), number)
        caller.append(part(number=1), number)
    resume.set()
    assert caller.values(part()) == caller.values(part(number=1)) == expected(4)
    assert disk.calls["fdatasync"] - before == 2


def test_retention_opens_no_log_for_nothing(caller: Caller, tmp_path: Path) -> None:
    """Retention opens a log only if the sizes and times of its files say that a segment may be due."""
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


def test_a_disk_that_fails_is_told_of_and_tried_again(caller: Caller, disk: FailingDisk) -> None:
    """Appends get Unavailable while the disk fails; the next append opens the log anew."""
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


def test_a_damaged_log_is_refused_and_the_others_serve(caller: Caller, tmp_path: Path) -> None:
    """A damaged log is refused and reported once; other logs serve."""
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
    """After a mistake of ours, its callers get the exception; the log opens anew and loses nothing durable."""
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
    assert caller.ask(lambda: caller.logs.log(part()).reads) == 2
    caller.logs.close()


def test_a_folder_that_does_not_say_whose_it_is(caller: Caller, tmp_path: Path) -> None:
    """A log whose folder has a damaged topic id is refused; other logs serve."""
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


def test_a_failed_sync_of_an_opening_is_not_forgotten(caller: Caller, tmp_path: Path) -> None:
    """After a failed sync, the next opening writes the segment again first, and no file stays open meanwhile."""
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


def test_a_log_that_can_not_be_written_is_reported_once(caller: Caller, disk: FailingDisk) -> None:
    """The first failed write makes a report, and each one counts; the first write that works again makes one more."""
    caller.append(part(), 0)
    caller.ask(lambda: None)
    disk.fails = lambda name, _number: OSError(28, "No space left on device") if name == "write" else None
    for number in range(1, 4):
        caller.append(part(), number)
        caller.ask(lambda: None)
        assert (len(caller.failed), caller.counts.failures) == (1, number)
    assert caller.failed[0][1] == "No space left on device"
    assert caller.works == []
    disk.fails = lambda _name, _number: None
    for number in (4, 5):
        caller.append(part(), number)
        caller.ask(lambda: None)
    assert caller.works == [caller.failed[0][0]]


def test_a_topic_that_is_deleted_leaves_nothing(caller: Caller, tmp_path: Path) -> None:
    """A deleted topic leaves no file, and a new topic of its name starts empty."""
    caller.append(part(), 0, 1)
    assert caller.ask(lambda: caller.logs.delete([part(), part(number=1)])) is None
    assert caller.values(part(2)) == []
    caller.logs.close()
    assert not list(tmp_path.iterdir())


def test_who_deletes_a_topic_leaves_its_successor_alone(tmp_path: Path) -> None:
    """A deletion of a topic leaves the folder of a newer one, which another leader may have written meanwhile."""
    former, successor = Caller(tmp_path), Caller(tmp_path)
    former.append(part(1), 0)
    former.ask(lambda: None)
    successor.append(part(2), 0, 1)
    successor.ask(lambda: None)
    assert former.ask(lambda: former.logs.delete([part(1)])) is None
    for caller in (former, successor):
        caller.logs.close()
    assert Caller(tmp_path).values(part(2)) == expected(2)


def test_a_folder_of_a_former_topic_is_not_taken_over(caller: Caller, tmp_path: Path) -> None:
    """A new topic doesn't take over a former topic's folder, as a crash may leave it; the server keeps it aside."""
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


def test_few_files_are_open_however_many_logs_there_are(caller: Caller, disk: FailingDisk) -> None:
    """However many logs there are, few files are open, and each log takes its appends in any order."""
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


def test_logs_are_measured(caller: Caller, tmp_path: Path) -> None:
    """By their segments alone, open or not; a log without files, or that was never there, has none."""
    caller.append(part(), *range(20))
    caller.ask(lambda: None)
    size = sum(segment.stat().st_size for segment in (tmp_path / "orders-0").glob("*.log"))
    (tmp_path / "orders-0" / "other").write_bytes(b"x" * 100)
    (tmp_path / "orders-1").mkdir()
    asked = [part(), part(number=1), part(topic="absent")]
    assert size > 0
    volume = shutil.disk_usage(tmp_path)
    for _ in range(2):
        measured = caller.ask(partial(caller.logs.measure, asked))
        assert measured.sizes == [size, 0, 0]
        assert measured.total == volume.total
        assert 0 < measured.usable <= volume.total
        caller.logs.close()
        caller = Caller(tmp_path)
    caller.logs.close()
