"""A forked program is what subprocess would have started."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen, run

TOOL = [sys.executable, "-m", "json.tool"]
PIPE = subprocess.PIPE


def test_it_has_its_input_arguments_folder_and_output(tmp_path: Path) -> None:
    """Its files and its exit code are its own."""
    with popen([*TOOL, "--compact", "-", "out"], cwd=tmp_path, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.communicate('{"a": 1}', timeout=WITHIN_S) == ("", None)
    assert process.returncode == 0
    assert (tmp_path / "out").read_text() == '{"a":1}\n'


def test_its_errors_are_seen() -> None:
    """By their text and the exit code."""
    done = run(TOOL)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Expecting value" in done.stderr


def test_a_module_that_can_not_be_imported_fails_alone() -> None:
    """Other programs start, and it says why it doesn't."""
    done = run([sys.executable, "-m", "json.nothing"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "No module named json.nothing" in done.stderr
    assert "Expecting value" in run(TOOL).stderr


def test_it_can_be_waited_for_and_killed() -> None:
    """A wait ends after its time, and a signal ends the program."""
    with popen(TOOL, stdin=PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None
        process.kill()
        assert process.wait(WITHIN_S) == -9
        assert process.poll() == -9


def test_two_threads_may_wait_for_it() -> None:
    """Both get its exit code, and it is reaped once."""
    with popen(TOOL, stdin=PIPE) as process, ThreadPoolExecutor() as threads:
        waits = [threads.submit(process.wait, WITHIN_S) for _ in range(8)]
        process.kill()
        assert [each.result() for each in waits] == [-9] * 8


def test_it_ends_with_its_threads_and_with_what_it_leaves_for_its_end() -> None:
    """A thread still prints, a function registered for the end runs, and what only has itself is deleted."""
    done = run([sys.executable, "-m", "timeit", "-n", "1", "-r", "1", *_LEAVES_WORK.splitlines()])
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "by " in line] == ["by a thread", "by the end", "by no one"]


_LEAVES_WORK = """\
import atexit, threading
class Unfinished:
    def __del__(self): print("by no one")
own = Unfinished()
own.own = own
atexit.register(print, "by the end")
threading.Timer(0.05, print, ["by a thread"]).start()"""


def test_it_says_at_its_end_that_nobody_reads(tmp_path: Path) -> None:
    """With Python's exit code for an output that could not be written."""
    (tmp_path / "in").write_text("text")
    reads, writes = os.pipe()
    os.close(reads)
    with popen([sys.executable, "-m", "base64", "-e", "in"], cwd=tmp_path, stdout=writes, stderr=PIPE) as process:
        os.close(writes)
        assert b"BrokenPipeError" in process.communicate(timeout=WITHIN_S)[1]
    assert process.returncode == 120
