"""A process that is a server: its event loop, its signals, its end.

SIGTERM or SIGINT stops the server in order (`Server.stop`); a second one ends the process at once. If the log's thread
dies, the server stops by itself, because it can't make anything durable. If a thread hangs in the disk, the process
ends without waiting for it, be it in the start or at the end. On SIGHUP a server with TLS reads its certificates again.

The server says that it is ready when it accepts requests and the log is loaded, but waits for the load a moment only.
So a client that asks at once gets an answer if the log is small, as in tests.

House rule: all that concerns the whole process is here, so that `Server` can run inside any other process.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

import uvloop

from coordinator.config import Config
from coordinator.log.store import open_cluster, open_store
from coordinator.loop import cycles, heap
from coordinator.loop.clock import LoopClock
from coordinator.server.app import Server, at_most

LOADED_WITHIN_S = 0.25
"""How long the server waits for the load before it says ready. Later, partitions that are not loaded yet answer
COORDINATOR_LOAD_IN_PROGRESS."""

START_ENDS_WITHIN_S = 2.0
"""How long a signal waits for a start that is under way, so that the server stops in order. A start takes less, unless
the disk or etcd doesn't answer."""

SWITCH_INTERVAL_S = 0.0005
"""How long another thread may keep Python's lock when the loop wants it, as the log's thread does in a load. Python's
default is ten times as long, and would delay answers by as much."""

LEFT = 1
"""Exit code of a process that ended while a thread hung in the disk."""

FILES_WANTED = 1_048_576
"""The most open files that the process asks for: Linux allows no more by default (fs.nr_open)."""


def run(config: Config, warnings: Sequence[str], on_ready: Callable[[Server], None]) -> bool:
    """Serve until a signal comes, or the server ends by itself; True after a signal. Raises StartFailed.

    on_ready: called when the server accepts requests.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, warnings, on_ready))


def allow_files() -> int:
    """Raise this process's limit on open files, at most to FILES_WANTED; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FILES_WANTED if soft == resource.RLIM_INFINITY else soft


async def _serve(config: Config, warnings: Sequence[str], on_ready: Callable[[Server], None]) -> bool:
    opened = open_cluster if config.store else open_store
    server = Server(config, opened=opened, warnings=warnings, on_loaded=heap.settle, files_max=allow_files())
    return await serve(server, on_ready, asyncio.Event(), (signal.SIGTERM, signal.SIGINT))


async def serve(
    server: Server, on_ready: Callable[[Server], None], ended: asyncio.Event, signals: Iterable[signal.Signals]
) -> bool:
    """Run `server` until `ended` is set; each of `signals` sets it. False if the server ended by itself.

    If the disk hangs while the server stops, this doesn't return: the process ends with exit code LEFT.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    loop = asyncio.get_running_loop()

    def end(signal_number: int) -> None:
        loop.remove_signal_handler(signal_number)
        ended.set()

    for signal_number in signals:
        loop.add_signal_handler(signal_number, end, signal_number)
    await _start(server, ended)
    if server.certificates is not None:
        loop.add_signal_handler(signal.SIGHUP, partial(server.certificates.check, all_of_them=True))
    await at_most(server.loaded, LOADED_WITHIN_S)
    on_ready(server)
    clock = LoopClock(loop)
    looks, trims = cycles.Looks(clock), heap.Trims(clock)
    waits = [asyncio.ensure_future(event.wait()) for event in (ended, server.failed)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        looks.end()
        trims.end()
    for wait in waits:
        wait.cancel()
    await server.stop()
    if server.hanging:
        _leave()
    return not server.failed.is_set()


async def _start(server: Server, ended: asyncio.Event) -> None:
    """Start `server`; if it is to end meanwhile, wait START_ENDS_WITHIN_S, and end the process then."""
    starting, ending = asyncio.ensure_future(server.start()), asyncio.ensure_future(ended.wait())
    await asyncio.wait([starting, ending], return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    await asyncio.wait([starting], timeout=START_ENDS_WITHIN_S)
    if not starting.done():
        server.start_hangs()
        _leave()
    starting.result()


def _leave() -> NoReturn:
    """End the process at once: the interpreter's own end would wait for each thread."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(LEFT)
