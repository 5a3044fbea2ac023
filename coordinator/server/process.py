"""A process that is a server: its event loop, its signals, its end.

SIGTERM and SIGINT end it in order (`Server.stop`); a second one at once. If the log's thread dies, the server can keep
no promise any more and ends by itself. If a thread hangs in the disk, the process ends without it.

It says that it is ready when it accepts requests; but it waits a moment for the log to be loaded, so that who starts a
server and asks at once isn't sent away: with a small log, as in tests, that is all the time a load takes.

House rule: what concerns the process as a whole is here, so that `Server` can live in any other.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import uvloop

from coordinator.server.app import Server, at_most

if TYPE_CHECKING:
    from coordinator.config import Config


LOADED_WITHIN_S = 0.25
"""How long being ready waits for the load; what isn't loaded then answers COORDINATOR_LOAD_IN_PROGRESS meanwhile."""

SWITCH_INTERVAL_S = 0.0005
"""How long the log's thread may go on, in a load, when the loop has something to do; Python's default is ten times as
long, and so would be the answers."""

GC_OBJECTS = 2_500
"""New objects between two looks for cycles. Nobody is answered meanwhile, and a look at 20,000, as many as 700 members
are while they join, took 5 to 16 ms. Fewer take no more CPU in all: of few, the processor still has most at hand."""

INCREMENTAL = (3, 14) <= sys.version_info < (3, 14, 5)
"""Whether the interpreter looks for cycles in steps of its own, of which some look at nothing that is new."""

FREED_ONCE_BYTES = 4 * 1024 * 1024
"""Of memory, so that the heap keeps what it has: glibc gives the end of the heap back to the system when more than
twice the largest piece that was ever freed lies free there (mallopt(3), M_TRIM_THRESHOLD). The records of a group of
500 that are written together are more than that else, and to get their pages anew each time took a fifth of what a
restart costs."""

LEFT = 1
"""Exit code of a process that was left while a thread hung in the disk."""

FILES_WANTED = 1_048_576
"""More open files than this are not asked for: Linux allows no more by default (fs.nr_open)."""


def run(config: Config, warnings: Sequence[str], on_ready: Callable[[Server], None]) -> bool:
    """Serve until told to end; True if that was by a signal. Raises StartFailed.

    on_ready: called once requests are accepted.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, warnings, on_ready))


def allow_files() -> int:
    """Raise this process's limit on open files as far as is sensible; how many it may have now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FILES_WANTED if soft == resource.RLIM_INFINITY else soft


async def _serve(config: Config, warnings: Sequence[str], on_ready: Callable[[Server], None]) -> bool:
    server = Server(config, warnings=warnings, on_loaded=settle, files_max=allow_files())
    return await serve(server, on_ready, asyncio.Event(), (signal.SIGTERM, signal.SIGINT))


async def serve(
    server: Server, on_ready: Callable[[Server], None], ended: asyncio.Event, signals: Iterable[signal.Signals]
) -> bool:
    """Run `server` until `ended` is set, which each of these signals does; False if it ended by itself.

    If a disk hangs in the end this doesn't return: the process ends with exit code LEFT.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    loop = asyncio.get_running_loop()

    def end(signal_number: int) -> None:
        loop.remove_signal_handler(signal_number)
        ended.set()

    for signal_number in signals:
        loop.add_signal_handler(signal_number, end, signal_number)
    await server.start()
    await at_most(server.loaded, LOADED_WITHIN_S)
    on_ready(server)
    waits = [asyncio.ensure_future(event.wait()) for event in (ended, server.failed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await server.stop()
    if server.hanging:
        _leave()
    return not server.failed.is_set()


def _leave() -> NoReturn:
    """End the process as it is: an interpreter that ends waits for each of its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(LEFT)


def settle() -> None:
    """What is there after the load stays: the garbage collector need not look at it, nor the system get it back."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_OBJECTS)
    if not INCREMENTAL and _keep not in gc.callbacks:
        gc.callbacks.append(_keep)
    bytes(FREED_ONCE_BYTES)


def _keep(phase: str, _info: dict[str, int]) -> None:
    """What a look for cycles left is not looked at again (docs/decisions/one-look-for-cycles.md)."""
    if phase == "stop":
        gc.freeze()
