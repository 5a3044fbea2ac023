"""A disk that is full: refused while it is, taken again when there is space, and nothing acknowledged lost.

A limit of the size of files shows it everywhere: the system takes a part of a write, then nothing. Where a small tmpfs
can be mounted (by root), that is the second disk.
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from coordinator.log.embedded import EmbeddedEngine
from tests.log.calls import Client, Events, numbers_of, opened

PARTITION_COUNT = 3
RECORD_SIZE = 10_000

MakeSpace = Callable[[], None]


@contextmanager
def file_size_limit() -> Iterator[tuple[Path, MakeSpace]]:
    """A folder whose files can't grow over 200 kB, until there is space."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryDirectory() as folder:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
        try:
            yield Path(folder), lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def tmpfs() -> Iterator[tuple[Path, MakeSpace]]:
    """A file system of 300 kB, of which 100 kB are taken until there is space."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", folder], check=True, capture_output=True)
        try:
            ballast = Path(folder) / "ballast"
            ballast.write_bytes(bytes(100_000))
            yield Path(folder), ballast.unlink
        finally:
            subprocess.run(["umount", folder], check=True)


def can_mount() -> bool:
    """Whether this process may mount."""
    if os.geteuid() != 0:
        return False
    try:
        with tmpfs():
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


DISKS = [pytest.param(file_size_limit, errno.EFBIG, id="file_size_limit")]
if can_mount():
    DISKS.append(pytest.param(tmpfs, errno.ENOSPC, id="tmpfs"))


@pytest.mark.parametrize("disk,error", DISKS)
def test_full_disk(disk: Callable[[], AbstractContextManager[tuple[Path, MakeSpace]]], error: int) -> None:
    """Appends until it is full, and a few in vain; then there is space."""
    events = Events()
    with disk() as (folder, make_space):
        engine = EmbeddedEngine(folder / "data", PARTITION_COUNT, 1, report=events)
        engine.start(lambda _partition, _node_id, _epoch: None)
        client = Client(engine)
        while client.append(len(client.durable), RECORD_SIZE):
            pass
        assert len(client.durable) > 5
        assert events == [("partition_unavailable", {"partition": 0, "reason": os.strerror(error)})]
        for _ in range(3):
            assert not client.append(len(client.durable), RECORD_SIZE)
        make_space()
        for _ in range(5):
            assert client.append(len(client.durable), RECORD_SIZE)
        assert events.names()[-1] == "partition_available"
        engine.close()
        engine = EmbeddedEngine(folder / "data", PARTITION_COUNT, 1)
        engine.start(lambda _partition, _node_id, _epoch: None)
        assert numbers_of(opened(engine)[1]) == client.durable
        engine.close()
