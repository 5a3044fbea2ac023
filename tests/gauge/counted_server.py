"""A server that counts its own work, for `gauge.py`.

    python -m tests.gauge.counted_server SOCKET ARGUMENTS OF `tenure serve` ...

The program runs `tenure serve` in this process. Each thread of the server has a profile function, which counts calls of
Python functions, calls of C functions, and calls of `fdatasync` or `fsync`. The kernel counts each thread's reads and
writes (proc(5), task/TID/io). A thread without a profile function listens at SOCKET and sends all counts of the moment
as a line of JSON, thread name -> COUNTS, for each byte that it receives.

Time stands still in this server. No timer rings, no turn of the loop runs out of time, and no line of the log is the
first one of a second. So a slow machine, on which a round takes a second, counts the same as a fast one.

The log writes each window to its segment at once. So each round has a write of its own, which a busy server makes once
in `journal.WRITE_S` for many windows. The topics' logs hand their results over once for each window, however slow.

House rule: the profile function allocates nothing, so that it wakes no garbage collector.
"""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from coordinator.cli.main import main
from coordinator.log.embedded import journal
from coordinator.log.topics import thread
from coordinator.loop.clock import Handle, LoopClock
from coordinator.server import app, process

COUNTS = ("python", "c", "syncs", "reads", "writes", "bytes")
"""Calls of Python functions, of C functions, of fdatasync and fsync; system calls that read, and that write; bytes."""

SYNCS = ("fdatasync", "fsync")
KERNEL = {"syscr": "reads", "syscw": "writes", "wchar": "bytes"}


class Calls:
    """The calls of one thread."""

    def __init__(self) -> None:
        self.python = self.c = self.syncs = 0

    def count(self, _frame: FrameType, event: str, argument: object) -> None:
        """Count an event: a profile function (sys.setprofile)."""
        if event == "call":
            self.python += 1
        elif event == "c_call":
            self.c += 1
            if argument.__name__ in SYNCS:  # type: ignore[attr-defined]
                self.syncs += 1


NOW_MS, WALL_MS = time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000
NEVER_S = time.monotonic() + 1_000_000


class StillClock(LoopClock):
    """A clock that shows one time, and whose calls never come."""

    def ms(self) -> int:
        """As Clock.ms."""
        return NOW_MS

    def wall_ms(self) -> int:
        """As Clock.wall_ms."""
        return WALL_MS

    def call_at(self, _at_ms: int, callback: Callable[[], None]) -> Handle:
        """As Clock.call_at."""
        return self._loop.call_at(NEVER_S, callback)


CALLS: dict[tuple[str, int], Calls] = {}
"""By the thread's name and its id in the kernel."""


def begin() -> None:
    """Count the calls of this thread from its next call on."""
    thread = threading.current_thread()
    calls = CALLS.setdefault((thread.name, thread.native_id or 0), Calls())
    sys.setprofile(calls.count)


def first_call(_frame: FrameType, _event: str, _argument: object) -> None:
    """Count the calls of a new thread (threading.setprofile)."""
    begin()


def counts() -> dict[str, dict[str, int]]:
    """Return the counts of all threads by name; threads of one name count as one."""
    found: dict[str, dict[str, int]] = {}
    for (name, number), calls in list(CALLS.items()):
        mine = found.setdefault(name, dict.fromkeys(COUNTS, 0))
        for key in ("python", "c", "syncs"):
            mine[key] += getattr(calls, key)
        try:
            lines = Path(f"/proc/self/task/{number}/io").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            key, _, value = line.partition(": ")
            if key in KERNEL:
                mine[KERNEL[key]] += int(value)
    return found


def answer(listener: socket.socket) -> None:
    """Send the counts for each byte that comes."""
    link, _ = listener.accept()
    while link.recv(1):
        link.sendall(json.dumps(counts()).encode() + b"\n")


if __name__ == "__main__":
    path, *arguments = sys.argv[1:]
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    threading.Thread(target=answer, args=(server,), name="gauge", daemon=True).start()
    threading.setprofile(first_call)
    journal.WRITE_S = 0.0
    thread.HAND_OVER_AFTER_S = math.inf
    for module in (app, process):
        vars(module)[LoopClock.__name__] = StillClock
    begin()
    sys.argv = ["tenure", *arguments]
    main()
