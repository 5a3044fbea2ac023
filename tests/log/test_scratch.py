"""A temporary folder: who removes it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from coordinator.log.scratch import Scratch

FORKS = """
import os, sys
from coordinator.log.scratch import Scratch
scratch = Scratch()
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
print(scratch.path, scratch.path.exists())
"""


def test_a_folder_goes_when_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that is in it; a second time does nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch = Scratch()
    (scratch.path / "file").write_text("x")
    for _ in range(2):
        scratch.remove()
        assert list(tmp_path.iterdir()) == []


def test_a_folder_goes_with_its_process_and_not_with_a_forked_one() -> None:
    """A process that was forked ends and leaves it there; the one that made it ends and takes it along."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    path, was_there = done.stdout.split()
    assert was_there == "True"
    assert not Path(path).exists()
