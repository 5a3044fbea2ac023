"""Tests the process that compacts: one log after the other, one process at a log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from coordinator.log.compaction.process import lock_path
from coordinator.log.compaction.task import Task
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.lock import Lock
from coordinator.log.segments.swap import cleaned_path
from tests.log.compaction.closed import (
    put,
    task,
    write,
)
from tests.support.patience import WITHIN_S

ROOT = Path(__file__).parents[3]


class TestProcess:
    """The program that the cleaner starts."""

    def run(self, folder: Path, task: Task) -> subprocess.Popen[bytes]:
        """Start it."""
        command = [sys.executable, "-m", "coordinator.log.compaction.process"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        self.ask(process, folder, task)
        return process

    def ask(self, process: subprocess.Popen[bytes], folder: Path, task: Task) -> None:
        """Send it the task to compact a log."""
        assert process.stdin is not None
        process.stdin.write(json.dumps({"folder": str(folder), "task": task._asdict()}).encode() + b"\n")
        process.stdin.flush()

    def test_outcome(self, folder: Path) -> None:
        """The process writes a line for each new file, waits for a byte, and writes the outcome."""
        end = write(folder, [[put(1)], [put(1)]])
        with self.run(folder, task(end)) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert json.loads(process.stdout.readline()) == {"cleaned": [0, 2, []]}
            process.stdin.write(b"\n")
            process.stdin.flush()
            outcome = json.loads(process.stdout.readline())
        assert process.returncode == 0
        assert (outcome["clean_offset"], outcome["files"], outcome["reason"]) == (2, [[0, 2, []]], "")
        assert cleaned_path(folder, 0).stat().st_size == outcome["size_after"] < outcome["size_before"]

    def test_one_at_a_time(self, tmp_path: Path) -> None:
        """A process refuses a partition that another works on; a busy partition of another worker doesn't hinder it."""
        end = write(tmp_path / "p", [[put(1)], [put(1)]])
        (tmp_path / "q").mkdir()
        other = Lock(Disk(), lock_path(tmp_path / "q"))
        lock = Lock(Disk(), lock_path(tmp_path / "p"))
        with self.run(tmp_path / "p", task(end)) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline()) == {"error": "another compaction is at work"}
            assert not cleaned_path(tmp_path / "p", 0).exists()
            lock.release()
            self.ask(process, tmp_path / "p", task(end))
            assert "error" not in json.loads(process.stdout.readline())
            process.kill()
        other.release()

    def test_one_after_the_other(self, tmp_path: Path) -> None:
        """The process lets go of each log that it has finished, whatever the outcome."""
        end = write(tmp_path / "p", [[put(1)], [put(1)]])
        with self.run(tmp_path / "none", task(end)) as process:
            assert process.stdout is not None
            assert "none" in json.loads(process.stdout.readline())["error"]
            for folder in ("p", "p", "q", "p"):
                if folder == "q":
                    write(tmp_path / "q", [[put(1)], [put(1)]])
                self.ask(process, tmp_path / folder, task(end))
                assert json.loads(process.stdout.readline()) == {"cleaned": [0, 2, []]}
                assert process.stdin is not None
                process.stdin.write(b"\n")
                process.stdin.flush()
                assert json.loads(process.stdout.readline())["reason"] == ""
                Lock(Disk(), lock_path(tmp_path / folder)).release()

    def test_ends_with_its_parent(self, folder: Path) -> None:
        """The process ends when its standard input ends, even in the middle of its work."""
        write(folder, *([[[put(key, bytes(20_000)) for key in range(50)]]] * 40))
        with self.run(folder, task(2_000)) as process:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(WITHIN_S) == 0
