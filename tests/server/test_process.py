"""A server's own process: signals, and the end that comes by itself. Whole processes: tests/cli/test_serve.py."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.log.embedded import EmbeddedEngine
from coordinator.server import process
from coordinator.server.app import Server, StartFailed
from tests.server.harness import config_of


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order(tmp_path: Path, signal_number: signal.Signals) -> None:
    """It is ready before, and it was no failure."""
    ready: list[Server] = []

    def on_ready(server: Server) -> None:
        ready.append(server)
        os.kill(os.getpid(), signal_number)

    assert await process._serve(config_of(f"log.dirs={tmp_path}"), [], on_ready)
    assert ready[0].addresses
    assert (tmp_path / "meta.properties").exists()


async def test_it_is_ready_with_a_small_log_loaded(tmp_path: Path) -> None:
    """Who asks at once is not told to come back later."""
    loaded: list[bool] = []

    def on_ready(server: Server) -> None:
        loaded.append(server.loaded.is_set())
        server.failed.set()

    await process._serve(config_of(f"log.dirs={tmp_path}"), [], on_ready)
    assert loaded == [True]


async def test_it_is_ready_although_a_load_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment it serves what it can."""
    monkeypatch.setattr(EmbeddedEngine, "load", lambda *_: None)
    monkeypatch.setattr(process, "LOADED_WITHIN_S", 0.01)
    loaded: list[bool] = []

    def on_ready(server: Server) -> None:
        loaded.append(server.loaded.is_set())
        server.failed.set()

    await process._serve(config_of(f"log.dirs={tmp_path}"), [], on_ready)
    assert loaded == [False]


async def test_its_threads_take_turns_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load doesn't keep the loop waiting for as long as Python's default is, 5 ms."""
    given: list[float] = []
    monkeypatch.setattr("sys.setswitchinterval", given.append)
    await process._serve(config_of(f"log.dirs={tmp_path}"), [], lambda server: server.failed.set())
    assert given == [process.SWITCH_INTERVAL_S]
    assert given[0] < 0.001


async def test_a_dead_engine_ends_it(tmp_path: Path) -> None:
    """And that is a failure."""
    loop = asyncio.get_running_loop()

    def on_ready(server: Server) -> None:
        loop.call_soon(server.failed.set)

    assert not await process._serve(config_of(f"log.dirs={tmp_path}"), [], on_ready)


async def test_what_keeps_it_from_starting_is_raised(tmp_path: Path) -> None:
    """For whoever runs it to say."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StartFailed):
        await process._serve(config_of(f"log.dirs={tmp_path}/file/data"), [], lambda _: None)


def test_the_limit_on_files_is_raised_as_far_as_it_goes() -> None:
    """The hard limit is the machine's word; the soft one only a default."""
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
    """A megabyte of values is written a second time where the first was: hardly a page, of 250, is faulted in."""
    done = subprocess.run([sys.executable, "-c", WRITES_TWICE], capture_output=True, check=True)
    assert int(done.stdout) < 50
