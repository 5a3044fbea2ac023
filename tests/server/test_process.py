"""A server's own process: signals, and failures that end it. tests/cli/test_serve.py runs whole processes."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from coordinator.group.client import Now
from coordinator.group.coordinator import Coordinator
from coordinator.group.effects import Effects
from coordinator.group.events import Event, Load
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.engine import Unavailable
from coordinator.log.memory import MemoryEngine
from coordinator.server import process
from coordinator.server.app import Server, StartFailed
from protocol.messages import DeleteGroupsRequest, DeleteTopicsRequest, LeaveGroupRequest
from schemas.errors import ErrorCode
from tests.server.harness import (
    Serving,
    config_of,
    heartbeat_request,
    join_request,
    seat,
    serving,
    sync_request,
)
from tests.server.requests.test_groups import commit_request
from tests.server.requests.test_records import ONE, fetch_request, is_held, produce
from tests.support.patience import WITHIN_S


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order(tmp_path: Path, signal_number: signal.Signals) -> None:
    """A signal ends a ready server in order, and that end is no failure."""
    ready: list[Server] = []

    def on_ready(server: Server) -> None:
        ready.append(server)
        os.kill(os.getpid(), signal_number)

    assert await process._serve(config_of(f"log.dirs={tmp_path}"), [], on_ready)
    assert ready[0].addresses
    assert (tmp_path / "meta.properties").exists()


async def test_it_is_ready_with_a_small_log_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is ready only after a small log is loaded: the first request gets no COORDINATOR_LOAD_IN_PROGRESS."""
    monkeypatch.setattr(process, "LOADED_WITHIN_S", WITHIN_S)
    loaded: list[bool] = []

    def on_ready(server: Server) -> None:
        loaded.append(server.loaded.is_set())
        server.failed.set()

    await process._serve(config_of(f"log.dirs={tmp_path}"), [], on_ready)
    assert loaded == [True]


async def test_it_is_ready_although_a_load_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a load takes long, the server is ready after a moment and serves the other partitions."""
    monkeypatch.setattr(EmbeddedEngine, "load", lambda *_: None)
    monkeypatch.setattr(process, "LOADED_WITHIN_S", 0.01)
    loaded: list[bool] = []

    def on_ready(server: Server) -> None:
        loaded.append(server.loaded.is_set())
        server.failed.set()

    await process._serve(config_of(f"log.dirs={tmp_path}"), [], on_ready)
    assert loaded == [False]


async def test_its_threads_take_turns_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads take turns within a millisecond (Python's default: 5 ms), so that a load doesn't hold up the loop."""
    given: list[float] = []
    monkeypatch.setattr("sys.setswitchinterval", given.append)
    await process._serve(config_of(f"log.dirs={tmp_path}"), [], lambda server: server.failed.set())
    assert given == [process.SWITCH_INTERVAL_S]
    assert given[0] < 0.001


async def test_a_dead_engine_ends_it(tmp_path: Path) -> None:
    """If the log's engine dies, the server ends, and that end is a failure."""
    loop = asyncio.get_running_loop()

    def on_ready(server: Server) -> None:
        loop.call_soon(server.failed.set)

    assert not await process._serve(config_of(f"log.dirs={tmp_path}"), [], on_ready)


async def test_what_keeps_it_from_starting_is_raised(tmp_path: Path) -> None:
    """The server raises the reason for which it can't start, and its caller reports it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StartFailed):
        await process._serve(config_of(f"log.dirs={tmp_path}/file/data"), [], lambda _: None)


def test_the_limit_on_files_is_raised_as_far_as_it_goes() -> None:
    """The server raises the soft limit of files to the hard limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 512), before[1]))
        assert process.allow_files() == min(before[1], process.FILES_WANTED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


WRITES_TWICE = """
import resource
from coordinator.server.process import settle
settle()
def write():
    values = [b"x" * 100_000 for _ in range(10)]
    del values
write()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
write()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_memory_of_records_that_are_written_together_is_not_got_anew_each_time() -> None:
    """A second write of a megabyte reuses the memory of the first: hardly one of 250 pages is faulted in."""
    done = subprocess.run([sys.executable, "-c", WRITES_TWICE], capture_output=True, check=True)
    assert int(done.stdout) < 50


GROWS = """
import resource
from coordinator.server.process import settle
from protocol.connection import FrameReader
settle()
freed = bytearray(b"x" * 30_000_000)  # once, for another request
del freed
reader, piece, most, kept = FrameReader(100_000_000), b"x" * 65_536, 0, []
for part in [(50_000_000).to_bytes(4), *[piece] * 700]:
    kept.append(bytearray(100_000))  # others use the heap meanwhile
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    reader.receive_data(part)
    reader.next_frame()
    most = max(most, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(most * resource.getpagesize())
"""


def test_a_large_frame_grows_without_a_move_of_all_of_it() -> None:
    """A piece of a frame takes pages for a few MB at most, also if the process freed a large piece of memory before."""
    done = subprocess.run([sys.executable, "-c", GROWS], capture_output=True, check=True)
    assert int(done.stdout) <= 3 * process.HEAP_BYTES


# Python's garbage collector.


async def restarts(server: Serving, _engine: MemoryEngine) -> None:
    """A static member joins, commits, restarts and leaves; its former process is fenced."""
    peer, other = await server.peer(), await server.peer()
    former = await seat(peer, "g", "a")
    for offset in range(3):
        assert not (await peer.ask(heartbeat_request("g", former, "a"), 3)).error_code
        await peer.ask(commit_request("simple", {("orders", 0): offset}), 8)
    joined = await seat(other, "g", "a")
    assert (await peer.ask(heartbeat_request("g", former, "a"), 3)).error_code == ErrorCode.FENCED_INSTANCE_ID
    identity = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id, group_instance_id="a")
    assert not (await other.ask(LeaveGroupRequest(group_id="g", members=[identity]), 4)).error_code


async def rebalances(server: Serving, _engine: MemoryEngine) -> None:
    """A second member joins a group; both sync, and then both expire."""
    one, two = await server.peer(), await server.peer()
    first = await one.join("g", version=3)
    await one.ask(sync_request("g", first), 5)
    await two.send(join_request("g"), 3)
    await server.barrier()
    assert (await one.ask(heartbeat_request("g", first), 3)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    first = await one.join("g", first.member_id, version=3)
    second = await two.receive()
    await two.send(sync_request("g", second), 5)
    await one.ask(sync_request("g", first), 5)
    await two.receive()
    await server.advance(20_000)
    assert len(server.events("member_expired")) == 2


async def waits_for_records(server: Serving, _engine: MemoryEngine) -> None:
    """One Fetch waits until its time is up, one until there is a record, one until its client is gone."""
    peer, gone, producer = [await server.peer() for _ in range(3)]
    assert await is_held(server, peer, fetch_request(("orders", 0, 0)), 12)
    await peer.receive()
    await peer.send(fetch_request(("orders", 0, 0)), 12)
    await server.barrier()
    await produce(producer, ("orders", 0, ONE))
    await peer.receive()
    await gone.send(fetch_request(("orders", 1, 0)), 12)
    await server.barrier()
    gone.close()
    await server.until(lambda: len(server.connections()) == 2)


async def hangs_up(server: Serving, _engine: MemoryEngine) -> None:
    """Clients close their connections while one waits in JoinGroup, and after unreadable bytes."""
    one, two, broken = [await server.peer() for _ in range(3)]
    await seat(one, "g", "a")
    await two.send(join_request("g", instance="b"), 5)
    await server.barrier()
    two.close()
    await broken.send_bytes(b"\0\0\0\x0c\0\x0b\0\5\0\0\0\1\xff\xff\xff\xff")
    assert await broken.is_closed()
    broken.close()
    await server.until(lambda: len(server.connections()) == 1)


async def deletes(server: Serving, _engine: MemoryEngine) -> None:
    """A client deletes a group with an offset, and a topic with a record."""
    peer = await server.peer()
    await peer.ask(commit_request("simple", {("orders", 0): 5}), 8)
    await produce(peer, ("orders", 0, ONE))
    assert not (await peer.ask(DeleteGroupsRequest(groups_names=["simple"]), 2)).results[0].error_code
    assert not (await peer.ask(DeleteTopicsRequest(topic_names=["orders"]), 3)).responses[0].error_code


async def fails_to_write(server: Serving, engine: MemoryEngine) -> None:
    """A member's restart can't be written, the partition loads again, and the member keeps its seat."""
    peer, other = await server.peer(), await server.peer()
    await seat(peer, "g", "a")
    engine.fail_next(Unavailable("No space left on device"))
    assert (await other.join("g", instance="a")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await server.until(lambda: bool(server.events("group_loaded")))


async def breaks_at_the_end_of_a_load(server: Serving, engine: MemoryEngine) -> None:
    """Our own code fails at the end of a load, and the partition's groups are dropped."""
    handle = Coordinator.handle

    def break_down(self: Coordinator, event: Event, now: Now) -> Effects:
        assert not isinstance(event, Load) or not event.is_last, "it cannot be"
        return handle(self, event, now)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Coordinator, "handle", break_down)
        await fails_to_write(server, engine)


def is_ours(each: object) -> bool:
    """Return whether it is an object, a function or a method of the server."""
    return str(getattr(each, "__module__", None) or type(each).__module__).startswith("coordinator.")


@pytest.mark.parametrize(
    "happens", [restarts, rebalances, waits_for_records, hangs_up, deletes, fails_to_write, breaks_at_the_end_of_a_load]
)
async def test_what_is_over_is_freed_without_the_collector(
    happens: Callable[[Serving, MemoryEngine], Awaitable[None]],
) -> None:
    """No work leaves reference cycles, because the frozen collector would never free them."""
    engine = MemoryEngine(4, 1)
    async with serving("group.initial.rebalance.delay.ms=0", engine=engine) as server:
        await server.barrier()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await happens(server, engine)
            await server.barrier()
            gc.collect()
            found = [repr(each) for each in gc.garbage if is_ours(each)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert found == []


KEEPS_MUCH = """
import gc
from coordinator.server.process import GC_OBJECTS, settle
settle()
before = gc.get_freeze_count()
kept = [[] for _ in range(3 * GC_OBJECTS)]
print(gc.get_freeze_count() - before, len(gc.get_objects()))
"""


def test_what_a_look_for_cycles_left_is_not_looked_at_again() -> None:
    """A collection doesn't visit the objects of a load again: ten thousand groups would hold up every request."""
    done = subprocess.run([sys.executable, "-c", KEEPS_MUCH], capture_output=True, check=True)
    kept, left = map(int, done.stdout.split())
    if process.INCREMENTAL:
        assert kept <= 0
    else:
        assert kept >= 2 * process.GC_OBJECTS
        assert left <= process.GC_OBJECTS


LEAVES_CYCLES = """
import gc
from coordinator.server.process import GC_OBJECTS, settle
settle()
class Cycle:
    def __init__(self):
        self.itself = self
for _ in range(20 * GC_OBJECTS):
    Cycle()
gc.unfreeze()
print(sum(isinstance(each, Cycle) for each in gc.get_objects()))
"""


def test_what_is_new_and_over_is_found() -> None:
    """Objects that refer to themselves, and that nothing else uses, are freed at the next collection."""
    done = subprocess.run([sys.executable, "-c", LEAVES_CYCLES], capture_output=True, check=True)
    assert process.INCREMENTAL or int(done.stdout) <= 2 * process.GC_OBJECTS
