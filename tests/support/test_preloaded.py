"""A forked program is what subprocess would have started."""

from __future__ import annotations

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
