"""The clock: the one place where time enters the server.

Everything above the event loop asks a `Clock`: deadlines, waits, the sweep of idle connections, timestamps of records
and log lines. A test passes in a clock of its own and moves it.

House rule: no other module of the server reads a clock or asks the loop to call it later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from math import floor
from typing import Generic, Protocol, TypeVar, TypeVarTuple

from coordinator.group.client import Now
from coordinator.loop.timers import Timers

Key = TypeVar("Key", bound=Hashable)
Arguments = TypeVarTuple("Arguments")

NEVER = 2**63 - 1
"""A time that never comes."""

STALL_MS = 100
"""A call that comes later than this shows that the process stood still: it was stopped, or had no processor."""

CATCH_UP_MS = 100
"""After a stall the loop has this time to read what came meanwhile, before any timer rings."""

CATCH_UP_MAX_MS = 5_000
"""The longest time that timers wait if the loop stays behind."""

RING_MAX_MS = 5
"""Timers ring for so long in one turn of the loop. The sessions of a whole group may end in the same moment."""


class Handle(Protocol):
    """A call that the clock will make."""

    def cancel(self) -> None:
        """Don't make the call."""


class Times(Protocol):
    """Two times in milliseconds."""

    def ms(self) -> int:
        """Milliseconds from any origin, on a clock that never jumps."""

    def wall_ms(self) -> int:
        """Unix time in ms."""


class Clock(Times, Protocol):
    """Two times, and calls at a time."""

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Handle:
        """Call back when `ms` reaches `at_ms`, or a little later."""


class Hop(Protocol):
    """Takes calls from another thread to the loop's. asyncio's `call_soon_threadsafe` is one.

    The arguments come apart from the function, because mypy compares them with it. It doesn't look into a partial: so a
    callback that hops is a lambda.
    """

    def __call__(self, function: Callable[[*Arguments], object], /, *arguments: *Arguments) -> object:
        """Have the loop's thread call `function`. Any thread may call this."""


def now(clock: Clock) -> Now:
    """Both times, for the core."""
    return Now(clock.ms(), clock.wall_ms())


def busy_ns() -> int:
    """The time that the processor has worked for the calling thread, in ns."""
    return time.thread_time_ns()


class SystemClock:
    """The system's time, without an event loop."""

    def ms(self) -> int:
        """As Times.ms."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """As Times.wall_ms."""
        return time.time_ns() // 1_000_000


class LoopClock(SystemClock):
    """The event loop's time, which its timers use; Unix time is the system's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._time = loop.time

    def ms(self) -> int:
        """As Clock.ms. uvloop counts whole milliseconds; a float may fall just below one."""
        # `int` takes twice as long.
        return floor(self._time() * 1000 + 0.5)

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Handle:
        """As Clock.call_at."""
        return self._loop.call_at(at_ms / 1000, callback)


class Alarm(Generic[Key]):
    """Timers that call `ring` by themselves. However many are armed, the clock is asked for one call.

    After a stall of the process the loop first reads what clients sent meanwhile, as a heartbeat that came in time must
    not lose against the session timer of its member.

    ring: called on the loop's thread with each key whose time has come.
    """

    def __init__(self, clock: Clock, ring: Callable[[Key], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._timers: Timers[Key] = Timers()
        # Doesn't ring with a key. The clock's call comes all the same and finds nothing to do.
        self.cancel = self._timers.cancel
        self._handle: Handle | None = None
        self._handle_at_ms = NEVER
        # When the clock's call was due at the earliest, and since when the loop is behind.
        self._due_ms = 0
        self._behind_since_ms: int | None = None

    def __contains__(self, key: Key) -> bool:
        return key in self._timers

    def ms(self) -> int:
        """The time of its clock."""
        return self._clock.ms()

    def arm(self, key: Key, at_ms: int) -> None:
        """Ring with `key` at `at_ms`, in place of an earlier time."""
        self._timers.arm(key, at_ms)
        if at_ms < self._handle_at_ms:
            self._expect(at_ms)

    def stop(self) -> None:
        """Ring with none of the keys armed so far."""
        self._timers.clear()
        self._handle_at_ms = NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expect(self, at_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle_at_ms = at_ms
        self._due_ms = max(at_ms, self._clock.ms())
        self._handle = self._clock.call_at(at_ms, self._wake)

    def _wake(self) -> None:
        self._handle = None
        now_ms = self._clock.ms()
        if now_ms - self._due_ms > STALL_MS:
            if self._behind_since_ms is None:
                self._behind_since_ms = now_ms
            if now_ms - self._behind_since_ms < CATCH_UP_MAX_MS:
                self._expect(now_ms + CATCH_UP_MS)
                return
        self._behind_since_ms = None
        self._handle_at_ms = NEVER
        try:
            # Once for each timer that was armed when this began. A timer that is armed again for a past time rings
            # again, but after the loop had a turn; so do those for which this turn has no time.
            for _ in range(len(self._timers)):
                key = self._timers.due(self._clock.ms())
                if key is None:
                    break
                self._ring(key)
                if self._clock.ms() - now_ms >= RING_MAX_MS:
                    break
        finally:
            next_at_ms = self._timers.next_at_ms()
            if next_at_ms is not None and next_at_ms < self._handle_at_ms:
                self._expect(next_at_ms)
