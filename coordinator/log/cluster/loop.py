"""The engine's thread: it runs calls one after the other, and timers when they are due.

Other threads hand calls over; `later` belongs to the thread itself. Time is CLOCK_BOOTTIME, which counts on while the
machine sleeps and knows no steps of the wall clock; elsewhere than on Linux it is the monotonic clock.

House rule: a call that raises is a mistake of ours. It is reported, and the thread goes on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from traceback import format_exc
from typing import TypeVarTuple

Call = Callable[[], object]
Arguments = TypeVarTuple("Arguments")

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_ms() -> int:
    """Milliseconds; see the module."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


class Loop:
    """See the module. on_broken: called on the thread with the trace of a call that raised."""

    def __init__(self, name: str, on_broken: Callable[[str], object] = sys.stderr.write) -> None:
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._timers: list[tuple[int, int, list[Call]]] = []
        self._numbers = count()
        self._on_broken = on_broken
        self._ends = False
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def call(self, call: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Have the thread make a call, from any thread.

        The arguments come apart from the function, because mypy compares them with it; it doesn't look into a partial.
        """
        self._calls.put(partial(call, *arguments))

    def calling(self, call: Callable[[*Arguments], object]) -> Callable[[*Arguments], None]:
        """Return a function that has the thread make a call, from any thread."""
        return lambda *arguments: self.call(call, *arguments)

    def later(self, delay_ms: int, call: Call) -> Callable[[], None]:
        """Make a call after a delay; returns a function that prevents it."""
        holder = [call]
        heappush(self._timers, (now_ms() + delay_ms, next(self._numbers), holder))
        return holder.clear

    def end(self, within_s: float) -> bool:
        """End the thread after the calls so far; returns whether it ended in time."""
        self.call(self._end)
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _end(self) -> None:
        self._ends = True

    def _run(self) -> None:
        while not self._ends:
            try:
                self._take()()
            except Empty:
                pass
            except Exception:  # noqa: BLE001 - see the house rule
                self._on_broken(format_exc())

    def _take(self) -> Call:
        """The next call or due timer; raises Empty if a timer was prevented, or is not due yet."""
        if not self._timers:
            return self._calls.get()
        wait_ms = self._timers[0][0] - now_ms()
        if wait_ms > 0:
            return self._calls.get(timeout=wait_ms / 1000)
        holder = heappop(self._timers)[2]
        if not holder:
            raise Empty
        return holder[0]
