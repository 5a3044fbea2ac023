"""A server refuses changes while its disk is full, takes them when there is space, and loses nothing acknowledged.

A limit of the size of files works on every system: the system takes a part of a write, then nothing. Root can mount a
small tmpfs, which is the second disk.
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

from coordinator.log.embedded.engine import EmbeddedEngine
from protocol.messages import OffsetFetchRequest
from schemas.errors import ErrorCode
from tests.log.calls import Client, Events, numbers_of, opened
from tests.log.servers import running
from tests.server.harness import Peer, heartbeat_request, seat
from tests.support.requests import commit_request

PARTITION_COUNT = 3
RECORD_SIZE = 10_000

MakeSpace = Callable[[], None]


@contextmanager
def file_size_limit() -> Iterator[tuple[Path, MakeSpace]]:
    """Yield a folder whose files can't grow over 200 kB until the test makes space."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryDirectory() as folder:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
        try:
            yield Path(folder), lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def tmpfs(size_kb: int = 300, taken_kb: int = 100) -> Iterator[tuple[Path, MakeSpace]]:
    """Yield a file system of that size; a part of it is taken until the test makes space."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "tmpfs", folder], check=True, capture_output=True
        )
        try:
            ballast = Path(folder) / "ballast"
            ballast.write_bytes(bytes(taken_kb * 1_000))
            yield Path(folder), ballast.unlink
        finally:
            subprocess.run(["umount", folder], check=True)


def can_mount() -> bool:
    """Return whether this process may mount."""
    if os.geteuid() != 0:
        return False
    try:
        with tmpfs():
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


DISKS = [pytest.param(file_size_limit, errno.EFBIG, id="file_size_limit")]
SERVED_DISKS = [pytest.param(file_size_limit, 1_000_000, id="file_size_limit")]
if can_mount():
    DISKS.append(pytest.param(tmpfs, errno.ENOSPC, id="tmpfs"))
    SERVED_DISKS.append(pytest.param(tmpfs, 60_000, id="tmpfs"))
SPACE = 200_000
"""So many bytes of the log fit; the test sets smaller segments, so the server compacts it."""


@pytest.mark.parametrize("disk,error", DISKS)
def test_full_disk(disk: Callable[[], AbstractContextManager[tuple[Path, MakeSpace]]], error: int) -> None:
    """An engine refuses appends once the disk is full, and takes them when there is space."""
    events = Events()
    with disk() as (folder, make_space):
        data_dir = folder / "data"
        data_dir.mkdir()
        engine = EmbeddedEngine(data_dir, PARTITION_COUNT, 1, report=events)
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
        engine = EmbeddedEngine(data_dir, PARTITION_COUNT, 1)
        engine.start(lambda _partition, _node_id, _epoch: None)
        assert numbers_of(opened(engine)[1]) == client.durable
        engine.close()


@pytest.mark.parametrize("is_journaled", [False, True])
@pytest.mark.parametrize("disk,segment_size", SERVED_DISKS)
async def test_full_disk_under_a_server(
    disk: Callable[[], AbstractContextManager[tuple[Path, MakeSpace]]], segment_size: int, is_journaled: bool
) -> None:
    """A server on a full disk answers commits with Kafka's code, keeps members and offsets, and puts compaction off.

    When there is space again, it takes the next commit and compacts the log. After a restart it has all of it.
    """
    committed: dict[int, int] = {}

    async def commit(peer: Peer, number: int) -> int:
        """Commit partition 0 once more, and another for the first time if that succeeds; return the error code."""
        offsets = {0: number, number: number}
        large = {("large", partition): offset for partition, offset in offsets.items()}
        answer = await peer.ask(commit_request("simple", large, metadata="m" * 2_000), 7)
        (code,) = {partition.error_code for partition in answer.topics[0].partitions}
        if code == ErrorCode.NONE:
            committed.update(offsets)
        return int(code)

    async def found(peer: Peer) -> dict[int, int]:
        answer = await peer.ask(OffsetFetchRequest(group_id="simple", topics=None), 7)
        assert answer.error_code == ErrorCode.NONE
        return {each.partition_index: each.committed_offset for topic in answer.topics for each in topic.partitions}

    settings = [
        "tenure.topics=large:1000",
        f"offsets.topic.segment.bytes={segment_size}",
        "log.cleaner.backoff.ms=1",
        "log.cleaner.min.cleanable.ratio=0.01",
        f"tenure.journal.enable={is_journaled}".lower(),
    ]
    with disk() as (folder, make_space):
        async with running(folder / "data", *settings) as (server, peer):
            member = await server.peer()
            joined = await seat(member, "g", "i")
            number = 1
            while (code := await commit(peer, number)) == ErrorCode.NONE:
                number += 1
            assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await server.at_rest()
            if segment_size < SPACE and not is_journaled:  # the room that a journal lacks is enough to compact
                await server.until(lambda: bool(server.events("compaction_failed")))
                assert os.strerror(errno.ENOSPC) in server.events("compaction_failed")[-1]["reason"]
            assert await commit(peer, number) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await found(peer) == committed
            assert (await member.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
            make_space()
            await server.advance(5_000)
            assert await commit(peer, number) == ErrorCode.NONE
            compacted = len(server.events("compacted"))
            await server.until(lambda: segment_size > SPACE or len(server.events("compacted")) > compacted)
            assert await found(peer) == committed
            assert (await member.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
            assert server.events("partition_damaged") == []
        async with running(folder / "data", *settings) as (server, peer):
            assert await found(peer) == committed
            assert (await peer.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
