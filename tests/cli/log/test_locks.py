"""The commands see that a server uses a folder, Tenure's or Apache Kafka's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator.cli.log.locks import FolderInUse, held, in_use

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a")
getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path, call: str) -> Iterator[None]:
    """A process that holds the folder's lock, by flock as Tenure or by lockf as the JVM."""
    command = [sys.executable, "-c", HOLDER, str(folder / ".lock"), call]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.kill()


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_lock_of_another_process_is_seen(tmp_path: Path, call: str) -> None:
    """While a server lives its folder is in use and can't be held; afterwards it can."""
    with another_process(tmp_path, call):
        assert in_use(tmp_path)
        with pytest.raises(FolderInUse, match="in use"), held(tmp_path):
            pass
    assert not in_use(tmp_path)
    with held(tmp_path):
        pass


def test_lock_file_is_left_as_it_was(tmp_path: Path) -> None:
    """A lock file that wasn't there is removed; one that was there stays, with its content."""
    assert not in_use(tmp_path)
    with held(tmp_path):
        assert (tmp_path / ".lock").exists()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".lock").write_text("0000000042\n")
    with held(tmp_path):
        pass
    assert (tmp_path / ".lock").read_text() == "0000000042\n"
