"""Tests compaction in a running engine: it compacts dirty logs beside all other work, and loses nothing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue

import pytest

from coordinator.log.compaction.cleaner import PRIORITY, Cleaner, Work
from coordinator.log.compaction.process import lock_path
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.embedded.upkeep import Cleaning, Upkeep
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.lock import Lock
from coordinator.log.segments.segment import list_segments, partition_folder
from protocol.records.batch import Record
from schemas.errors import ErrorCode
from tests.log.calls import append, begin_append, load, opened, owned, release
from tests.log.disks import FailingDisk
from tests.log.embedded.compacting import (
    BUSY,
    NOW_MS,
    SEGMENT_SIZE,
    Partition,
    Reports,
    fill,
    folder_size,
    numbered,
    running,
    state,
)
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until

PARTITION_OF_WORKERS = 41
"""The partition of the group "workers", of 50."""


class SwapDisk(Disk):
    """Keeps the names of swaps in order, counts the files that wait for one, and calls something at the second."""

    def __init__(self) -> None:
        self.swapped: list[str] = []
        self.waiting: set[int] = set()
        self.at_second_swap: Callable[[], None] = lambda: None

    def rename(self, old: Path, new: Path) -> None:
        if new.suffix == ".swap":
            self.swapped.append(new.name)
            self.waiting.add(len(list(new.parent.glob("*.cleaned"))))
            if len(self.swapped) == 2:
                self.at_second_swap()
        super().rename(old, new)


class StepDisk(Disk):
    """Calls something at the first swap, says when that is done, and counts the segments that it removes after it."""

    def __init__(self) -> None:
        self.swapped = threading.Event()
        self.removed = 0
        self.at_swap: Callable[[], None] = lambda: None

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        if new.suffix == ".swap":
            self.at_swap()
            self.swapped.set()

    def remove(self, path: Path) -> None:
        self.removed += self.swapped.is_set() and path.suffix == ".log"
        super().remove(path)


def first_stopped(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[subprocess.Popen[bytes]]:
    """The queue gets the first process that compacts. It stands still, so its compaction lasts until the test acts."""
    stopped: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
    begin = Cleaner._begin

    def begin_and_stop(cleaner: Cleaner) -> subprocess.Popen[bytes] | OSError | None:
        process = begin(cleaner)
        if isinstance(process, subprocess.Popen):
            process.send_signal(signal.SIGSTOP)
            stopped.put(process)
            monkeypatch.undo()
        return process

    monkeypatch.setattr(Cleaner, "_begin", begin_and_stop)
    return stopped


class TestEngine:
    """A running engine compacts its partitions."""

    def test_folder_stays_small(self, tmp_path: Path) -> None:
        """However often a group's members restart, its folder keeps a few segments; a replay finds the same state."""
        reports = Reports()
        value = bytes(20_000)
        with running(tmp_path, reports, segment_size=200_000) as engine:
            own, _ = opened(engine)
            for at in range(10):
                appending = [
                    begin_append(engine, own, [Record(b"group", value + b"%d" % (at * 100 + number), NOW_MS)])
                    for number in range(100)
                ]
                assert {outcome.get(timeout=WITHIN_S) for outcome in appending} == {None}
            while folder_size(tmp_path) > 400_000:
                reports.wait_for("compacted")
            assert state(opened(engine)[1]) == {b"group": value + b"999"}
        with running(tmp_path, reports) as engine:
            assert state(opened(engine)[1]) == {b"group": value + b"999"}

    def test_told(self, tmp_path: Path) -> None:
        """The engine reports a compaction with its partition, the bytes before and after, and its duration."""
        reports = Reports()
        with running(tmp_path, reports) as engine:
            expected = fill(engine, 300, partition=2)
            told = reports.wait_for("compacted")
            assert told["partition"] == 2
            assert isinstance(told["size_after"], int)
            assert isinstance(told["size_before"], int)
            assert isinstance(told["duration_s"], float)
            assert told["size_after"] < told["size_before"]
            counts = engine._counts
            assert sum(counts.compactions.counts) >= 1
            assert counts.bytes_before >= told["size_before"]
            assert counts.bytes_before > counts.bytes_after >= told["size_after"]
            assert state(opened(engine, 2)[1]) == expected

    def test_other_lines(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The engine ignores lines of the interpreter or the system on standard error before the outcome."""
        monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
        reports = Reports()
        with running(tmp_path, reports) as engine:
            fill(engine, 200)
            assert reports.get(timeout=WITHIN_S)[0] == "compacted"

    def test_a_roll_that_fails_refuses_the_partition(self, tmp_path: Path) -> None:
        """A roll that fails is reported with its reason, and the next load finds all that was acknowledged."""
        reports, disk = Reports(), FailingDisk()
        engine = EmbeddedEngine(tmp_path, 3, 1, disk=disk, report=reports, cleaning=Cleaning(backoff_ms=1, roll_ms=0))
        engine.start(lambda *_change: None)
        own, _ = opened(engine)
        old = [Record(b"key-%d" % number, b"", 0) for number in range(2)]
        assert append(engine, own, old[0]) is None
        disk.fails = lambda name, _: OSError(errno.ENOSPC, "no space left") if name == "sync_folder" else None
        taken = append(engine, own, old[1]) is None
        assert reports.wait_for("partition_unavailable") == {"partition": 0, "reason": "no space left"}
        disk.fails = lambda _name, _number: None
        records, error = load(engine, own)
        engine.close()
        assert (state(records), error) == (state(old[: 1 + taken]), None)  # a compaction may have been first

    def test_beside_appends_and_loads(self, tmp_path: Path) -> None:
        """Every load finds the last values, while the engine appends and compacts all the time."""
        reports = Reports()
        expected: dict[bytes, bytes | None] = {}
        number = 0
        with running(tmp_path, reports) as engine:
            for round_ in range(6):
                own, records = opened(engine)
                assert state(records) == expected
                # In every other round the next load doesn't wait, and may overtake a compaction.
                waits = round_ % 2 == 1
                for appended in count():
                    if appended >= 150 and (not waits or reports.comes_soon()):
                        break
                    record = numbered(number)
                    assert append(engine, own, record) is None
                    expected[record.key] = record.value
                    number += 1
                while not reports.empty():
                    assert reports.get()[0] == "compacted"

    def test_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The engine reports a killed process, changes nothing, and lets another do the work later."""
        reports, stopped = Reports(), first_stopped(monkeypatch)
        with running(tmp_path, reports) as engine:
            expected = fill(engine, 300)
            os.kill(stopped.get(timeout=WITHIN_S).pid, signal.SIGKILL)
            assert reports.wait_for("compaction_failed")["reason"] == "the process ended with -9"
            assert state(opened(engine)[1]) == expected
            reports.wait_for("compacted")
            assert state(opened(engine)[1]) == expected

    def test_by_other_settings(self, tmp_path: Path) -> None:
        """Settings that change while the engine runs are in effect at once: a partition is clean enough until then."""
        reports = Reports()
        with running(tmp_path, reports, Cleaning(backoff_ms=3_600_000, min_cleanable_ratio=1)) as engine:
            expected = fill(engine, 300)
            engine.clean_by(Cleaning(backoff_ms=3_600_001))
            reports.wait_for("compacted")
            assert state(opened(engine)[1]) == expected

    @pytest.mark.parametrize("then", ["killed", "loaded"])
    def test_ends_after_one_of_its_files(self, tmp_path: Path, then: str) -> None:
        """After a kill or a load at the second swap, the first new file counts, and no other new file stays."""
        reports = Reports()
        with running(tmp_path, reports, Cleaning(backoff_ms=3_600_000)) as engine:
            own, _ = opened(engine)
            # Half of each segment stays, so that there are several files.
            records = [numbered(number % 300 if number % 2 else 0, 300) for number in range(600)]
            appending = [begin_append(engine, own, [record]) for record in records]
            assert {outcome.get(timeout=WITHIN_S) for outcome in appending} == {None}
        disk = SwapDisk()
        engine = EmbeddedEngine(
            tmp_path, 3, 1, segment_size=SEGMENT_SIZE, report=reports, cleaning=Cleaning(backoff_ms=1), disk=disk
        )
        processes: list[subprocess.Popen[bytes]] = []
        priorities: list[int] = []

        def at_second_swap() -> None:
            assert engine._cleaner is not None
            assert engine._cleaner._process is not None
            priorities.append(os.getpriority(os.PRIO_PROCESS, engine._cleaner._process.pid))
            processes.append(engine._cleaner._process)
            if then == "killed":
                processes[0].kill()
            else:
                engine.load(own, lambda _page: None, lambda _outcome: None)

        disk.at_second_swap = at_second_swap
        engine.start(lambda *_change: None)
        own = owned(engine)
        assert load(engine, own)[1] is None
        while not processes:
            threading.Event().wait(0)
        assert priorities == [PRIORITY]
        if then == "killed":
            assert reports.wait_for("compaction_failed")["reason"] == "the process ended with -9"
            assert not list(partition_folder(tmp_path, 0).glob("*.cleaned"))
        assert processes[0].wait(WITHIN_S) == -9
        assert state(opened(engine)[1]) == state(records)
        reports.wait_for("compacted")
        assert state(opened(engine)[1]) == state(records)
        engine.close()
        assert disk.swapped[:2] == sorted(disk.swapped[:2])
        assert disk.waiting == {1}

    def test_closed_in_a_swap(self, tmp_path: Path) -> None:
        """A close waits for one step of a swap, not for all the files it replaces; the next load finishes the swap."""
        with running(tmp_path, Reports(), Cleaning(backoff_ms=3_600_000)) as engine:
            expected = fill(engine, 600)
        segments = len(list_segments(Disk(), partition_folder(tmp_path, 0)))
        disk = StepDisk()
        engine = EmbeddedEngine(tmp_path, 3, 1, segment_size=SEGMENT_SIZE * 100, cleaning=BUSY, disk=disk)
        closing = threading.Thread(target=engine.close)

        def at_swap() -> None:
            assert engine._cleaner is not None
            closing.start()
            assert engine._cleaner._stopping.wait(WITHIN_S)

        disk.at_swap = at_swap
        engine.start(lambda *_change: None)
        own = owned(engine)
        assert load(engine, own)[1] is None
        assert disk.swapped.wait(WITHIN_S)
        closing.join(WITHIN_S)
        assert not closing.is_alive()
        assert disk.removed <= 1 < segments
        with running(tmp_path, Reports(), Cleaning(backoff_ms=3_600_000)) as engine:
            assert state(opened(engine)[1]) == expected
        left = {path.suffix for path in partition_folder(tmp_path, 0).glob("0*")}
        assert left == {".log"}

    def test_round(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A round compacts all partitions that are dirty when it begins, the dirtiest first, and looks at no others."""
        with running(tmp_path, Reports(), Cleaning(backoff_ms=3_600_000)) as engine:
            fill(engine, 300, partition=0)
            fill(engine, 1, partition=1)
            fill(engine, 300, partition=2)
        looks: list[tuple[int, bool]] = []
        look = Upkeep.look

        def noted(upkeep: Upkeep, now_ms: int, *, is_new_round: bool) -> Work | None:
            looks.append((upkeep.partition, is_new_round))
            return look(upkeep, now_ms, is_new_round=is_new_round)

        monkeypatch.setattr(Upkeep, "look", noted)
        reports = Reports()
        with running(tmp_path, reports, Cleaning(backoff_ms=3_600_000)) as engine:
            for partition in range(3):
                opened(engine, partition)
            assert engine._cleaner is not None
            engine._cleaner.look()
            assert {reports.wait_for("compacted")["partition"] for _ in range(2)} == {0, 2}
            wait_until(lambda: len(looks) == 7, "the round is over", WITHIN_S)
        assert looks[:3] == [(0, True), (1, True), (2, True)]
        assert sorted(looks[3:]) == [(0, False)] * 2 + [(2, False)] * 2

    def test_given_up(self, tmp_path: Path) -> None:
        """Once the partition was given up, the engine doesn't touch its new file: it may be the next owner's."""
        folder = partition_folder(tmp_path, 0)
        with running(tmp_path, Reports(), Cleaning(backoff_ms=3_600_000)) as engine:
            own, _ = opened(engine)
            assert release(engine, own) is None
            partition = Partition(folder)
            partition.append(0, 100)
            work = partition.due()
            files = partition.write(work)
            assert engine._cleaner is not None
            engine._call_and_wait(partial(engine._cleaner._finish, work, None, "it was killed", 1.0))
            assert len(list(folder.glob("*.cleaned"))) == len(files) > 0

    def test_two_on_one_partition(self, tmp_path: Path) -> None:
        """The engine begins no compaction of a partition while a former owner's is still at work."""
        reports = Reports()
        partition_folder(tmp_path, 0).mkdir()
        lock = Lock(Disk(), lock_path(partition_folder(tmp_path, 0)))
        with running(tmp_path, reports) as engine:
            fill(engine, 300)
            assert reports.wait_for("compaction_failed")["reason"] == "another compaction is at work"
            lock.release()
            reports.wait_for("compacted")

    def test_damage(self, tmp_path: Path) -> None:
        """The engine reports damage that a compaction meets, with file and position, and changes nothing."""
        reports = Reports()
        with running(tmp_path, reports, Cleaning(backoff_ms=3_600_000)) as engine:
            fill(engine, 300)
        path = list_segments(Disk(), partition_folder(tmp_path, 0))[1].path
        with running(tmp_path, reports) as engine:
            lock = Lock(Disk(), lock_path(partition_folder(tmp_path, 0)))
            opened(engine)
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)
            lock.release()
            while str(path) not in str(reports.wait_for("compaction_failed")["reason"]):
                pass
            assert path.read_bytes() == content

    def test_close_ends_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An engine that closes in the middle of a compaction leaves no process behind and reports nothing about it."""
        reports, stopped = Reports(), first_stopped(monkeypatch)
        with running(tmp_path, reports) as engine:
            expected = fill(engine, 300)
            process = stopped.get(timeout=WITHIN_S)
        assert process.returncode is not None
        assert reports.empty()
        with running(tmp_path, reports, Cleaning(backoff_ms=3_600_000)) as engine:
            assert state(opened(engine)[1]) == expected
            assert not list(partition_folder(tmp_path, 0).glob("*.cleaned"))


class TestServer:
    """A server compacts the group that makes the largest records."""

    MEMBERS = 60

    def test_static_members_restart(self, tmp_path: Path) -> None:
        """After every member restarts three times, the folder has a few records and all members, over a start too."""
        settings = {
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.backoff.ms": 50,
            "offsets.topic.segment.bytes": 100_000,
        }
        with Tenure(settings, directory=tmp_path) as server:
            names = [f"instance-{at}" for at in range(self.MEMBERS)]
            members = [Member(server.port, "workers", name, 5, instance=name) for name in names]
            settle(*members)
            record_size = folder_size(server.data_dir, PARTITION_OF_WORKERS)
            for member in members * 3:
                member.member_id = ""
                member.send_join()
                assert member.receive_join().error_code == ErrorCode.NONE
            limit = 100_000 + 10 * record_size
            assert 3 * self.MEMBERS * record_size > 5 * limit
            wait_until(lambda: folder_size(server.data_dir, PARTITION_OF_WORKERS) < limit, "a small folder", WITHIN_S)
            assert {member.heartbeat() for member in members} == {ErrorCode.NONE}
            hang_up()
            server.restart()
            for member in members:
                with Connection(server.port) as member.connection:
                    assert member.heartbeat() == ErrorCode.NONE
            assert not server.events("compaction_failed")
