"""Fixtures that all tests of the log share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.log.disks import FailingDisk

OPEN_FILES = Path("/proc/self/fd")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a partition of the test is, once something is written there."""
    return tmp_path / "p"


@pytest.fixture
def disk() -> FailingDisk:
    """Return a disk that works until the test says otherwise."""
    return FailingDisk()


@pytest.fixture(autouse=True)
def abandoned_files_are_closed() -> Iterator[None]:
    """Close files that a test leaves open to play a killed process; the system closes those of a real one."""
    before = open_segments()
    yield
    for descriptor in open_segments() - before:
        os.close(descriptor)


def open_segments() -> set[int]:
    """Return the descriptors of all segments that this process has open; an empty set without /proc."""
    found = set()
    with suppress(FileNotFoundError):
        for name in os.listdir(OPEN_FILES):  # noqa: PTH208 - the listing's own descriptor is gone when it is looked at
            with suppress(FileNotFoundError):
                if ".log" in os.readlink(OPEN_FILES / name):  # noqa: PTH115 - what is deleted has a name, too
                    found.add(int(name))
    return found
