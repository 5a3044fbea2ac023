"""`tenure log` itself: its commands are there, and no folder makes one of them wait, or take the memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.cli.log.command import app
from coordinator.log.files import META_NAME
from tests.cli.conftest import run_app
from tests.cli.log.conftest import PARTITION_COUNT

SEGMENT = f"__consumer_offsets-1/{9:020}.log"
SEGMENT_OF_IDS = f"__transaction_state-0/{0:020}.log"
COUNTS = ("--set", f"offsets.topic.num.partitions={PARTITION_COUNT}", "--set", "transaction.state.log.num.partitions=1")
GIB = 2**30


def sparse(path: Path) -> None:
    """Make a file of 8 GB without a byte on the disk."""
    path.touch()
    os.truncate(path, 8 * GIB)


def device(path: Path) -> None:
    """Make a link to a file that never ends."""
    path.symlink_to("/dev/zero")


ODD: dict[str, Callable[[Path], None]] = {"fifo": os.mkfifo, "device": device, "folder": Path.mkdir, "sparse": sparse}
"""What may have the name of a file -> how it is made."""

READ_BY = {
    SEGMENT: {"verify", "dump", "import"},
    SEGMENT_OF_IDS: {"verify", "import"},
    ".lock": {"verify", "dump", "import"},
    ".journal-1.0": {"verify", "dump", "import"},
    ".journal-left-1.0": {"verify", "dump", "import"},
    META_NAME: {"verify", "dump", "import"},
    "__consumer_offsets-1/leader-epoch-checkpoint": {"import"},
    "orders-0/partition.metadata": {"import"},
}
"""A file of a folder -> the commands that read it."""


def test_help_names_each_command() -> None:
    """The help names every command."""
    shown = run_app(app, "--help").out
    assert all(command in shown for command in ("dump", "verify", "import", "export"))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", READ_BY)
def test_odd_file_is_refused_in_one_line(data_dir: Path, tmp_path: Path, name: str, odd: str) -> None:
    """A command ends at once with exit code 2 and the name of a file that is none, or is larger than it can be."""
    path = data_dir / name
    path.parent.mkdir(exist_ok=True)
    ODD[odd](path)
    is_read = not (odd == "sparse" and name in {SEGMENT, SEGMENT_OF_IDS, ".lock"})
    for command in ("verify", "dump", "import"):
        ran = run_app(
            app,
            command,
            str(data_dir),
            *(["--data-dir", str(tmp_path / "new"), *COUNTS] * (command == "import")),
        )
        lines = [line for line in ran.err.splitlines() if "could not be read" not in line]
        if command not in READ_BY[name]:
            assert ran.code == 0, ran.err
        elif is_read:
            assert (ran.code, len(lines)) == (2, 1), ran.err
            assert str(path) in lines[0]
        elif name in {SEGMENT, SEGMENT_OF_IDS}:
            assert ran.code == 1
            assert f"{8 * GIB} bytes" in ran.out
        else:
            assert ran.code == 0


def test_impossible_number_of_partitions_is_refused(data_dir: Path) -> None:
    """A number of partitions that no server can have is one line, also if it has thousands of digits."""
    for number in ("0", "10001", "9" * 5_000):
        (data_dir / META_NAME).write_text(f"tenure.offsets.topic.num.partitions={number}\n")
        ran = run_app(app, "verify", str(data_dir))
        assert (ran.code, len(ran.err.splitlines())) == (2, 1)
        assert "tenure.offsets.topic.num.partitions is not 1 to 10000" in ran.err
