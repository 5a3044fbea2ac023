"""A server's own process: signals, and failures that end it. tests/cli/test_serve.py runs whole processes."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path

import pytest

from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.server import process
from coordinator.server.app import Server, StartFailed
from tests.server.harness import (
    config_of,
)
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
