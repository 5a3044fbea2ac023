"""Tests the cleaner's thread: one process for a round, and mistakes of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from queue import SimpleQueue

from coordinator.log.compaction.cleaner import Cleaner, Work
from coordinator.log.compaction.task import Compaction
from tests.log.embedded.compacting import Partition
from tests.support.forked import forked
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until


class TestProcess:
    """A process does the work."""

    def test_one_for_a_round(self, tmp_path: Path) -> None:
        """A process does a round's work, one log after the other, and ends with it; a refused swap ends it as well."""
        partitions = [Partition(tmp_path / name) for name in "abc"]
        works: list[Work] = []
        for partition in partitions:
            partition.append(0, 300)
            works.append(partition.due())
        partitions[1].read()
        processes: list[subprocess.Popen[bytes] | None] = []
        told: SimpleQueue[str] = SimpleQueue()

        def find(*, is_new_round: bool) -> Work | None:
            processes.append(cleaner._process)
            return works.pop(0) if works else None

        def finish(_work: Work, _compaction: Compaction | None, reason: str, _duration_s: float) -> None:
            processes.append(cleaner._process)
            told.put(reason)

        cleaner = Cleaner(None, find, finish, on_thread=lambda call: call())
        cleaner.start()
        cleaner.look()
        assert [told.get(timeout=WITHIN_S) for _ in range(3)] == ["", "the partition was closed meanwhile", ""]
        wait_until(lambda: len(processes) == 7 and cleaner._process is None, "the round is over", WITHIN_S)
        none, first, again, refused, between, second, still = processes
        assert (none, again, refused, between, still) == (None, first, None, None, second)
        assert first is not None
        assert second is not None
        assert (first.returncode, second.wait(WITHIN_S)) == (-signal.SIGKILL, -signal.SIGKILL)
        cleaner.stop()

    def test_ends_beside_a_forked_process(self) -> None:
        """It ends although a process that was forked meanwhile has a copy of its standard input."""
        cleaner = Cleaner(None, find=lambda **_: None, finish=lambda *_: None, on_thread=lambda call: call())
        process = cleaner._begin()
        assert isinstance(process, subprocess.Popen)
        with forked(os.getpid):
            ending = threading.Thread(target=cleaner._end_process)
            ending.start()
            ending.join(WITHIN_S)
            assert process.returncode == -signal.SIGKILL


class TestBackoff:
    """The time between rounds."""

    def test_changes(self) -> None:
        """Another time begins a new round at once, and is the time to the next; the same time begins none."""
        rounds: SimpleQueue[bool] = SimpleQueue()
        cleaner = Cleaner(
            3_600_000,
            find=lambda *, is_new_round: rounds.put(is_new_round),
            finish=lambda *_: None,
            on_thread=lambda call: call(),
        )
        cleaner.start()
        cleaner.set_backoff(3_600_000)
        assert not cleaner._is_due.is_set()
        cleaner.set_backoff(1)
        assert [rounds.get(timeout=WITHIN_S) for _ in range(3)] == [True] * 3
        cleaner.stop()


class TestMistakes:
    """Mistakes of ours, which no disk causes."""

    def test_on_its_own_thread(self, tmp_path: Path) -> None:
        """The thread reports a mistake, leaves no process behind, and does the next work."""
        partition = Partition(tmp_path)
        partition.append(0, 300)
        work = partition.due()
        no_json = work._replace(task=work.task._replace(now_ms=partition))  # type: ignore[arg-type]
        works = [no_json, work]
        told: SimpleQueue[tuple[Compaction | None, str]] = SimpleQueue()
        cleaner = Cleaner(
            None,
            find=lambda **_: works.pop(0) if works else None,
            finish=lambda _work, compaction, reason, _duration_s: told.put((compaction, reason)),
            on_thread=lambda call: call(),
        )
        cleaner.start()
        cleaner.look()
        compaction, reason = told.get(timeout=WITHIN_S)
        assert compaction is None
        assert "not JSON serializable" in reason
        compaction, reason = told.get(timeout=WITHIN_S)
        assert compaction is not None
        assert compaction.files
        assert reason == ""
        cleaner.stop()
