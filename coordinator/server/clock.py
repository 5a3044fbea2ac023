"""The clock, the one place where time enters.

Everything above the event loop asks a `Clock`: deadlines, waits, the sweep of idle connections, timestamps of records
and log lines. A test hands in a clock of its own and moves it.

House rule: no other module of the server reads a clock or asks the loop to call it later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from math import floor
from typing import Generic, Protocol, TypeVar

from coordinator.group.client import Now
from coordinator.server.timers import Timers

Key = TypeVar("Key", bound=Hashable)

NEVER = 2**63 - 1
"""A time that does not come."""


class Handle(Protocol):
    """A call to come."""

    def cancel(self) -> None:
        """Let it not come."""


class Times(Protocol):
    """Two times in milliseconds."""

    def ms(self) -> int:
        """Of a clock that never jumps, from any origin."""

    def wall_ms(self) -> int:
        """Unix time."""


class Clock(Times, Protocol):
    """Two times, and a call at a time."""

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Handle:
        """Call back once `ms` has reached `at_ms`, or a little later."""


def now(clock: Clock) -> Now:
    """Both times, for the core."""
    return Now(clock.ms(), clock.wall_ms())


class SystemClock:
    """The system's time, where there is no event loop."""

    def ms(self) -> int:
        """As Times.ms."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """As Times.wall_ms."""
        return time.time_ns() // 1_000_000


class LoopClock:
    """The event loop's time, in which timers are told when to go off."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._time = loop.time

    def ms(self) -> int:
        """As Clock.ms; uvloop counts whole milliseconds, which a float just misses at times."""
        # To call `int` takes twice as long.
        return floor(self._time() * 1000 + 0.5)

    def wall_ms(self) -> int:
        """As Clock.wall_ms."""
        return time.time_ns() // 1_000_000

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Handle:
        """As Clock.call_at."""
        return self._loop.call_at(at_ms / 1000, callback)


class Alarm(Generic[Key]):
    """Timers that go off by themselves: however many are armed, the clock is asked for one call.

    ring: called with each key whose time has come, on the loop's thread.
    """

    def __init__(self, clock: Clock, ring: Callable[[Key], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._timers: Timers[Key] = Timers()
        self._handle: Handle | None = None
        self._handle_at_ms = NEVER

    def __contains__(self, key: Key) -> bool:
        return key in self._timers

    def arm(self, key: Key, at_ms: int) -> None:
        """Let `key` ring at `at_ms`; replaces an earlier time."""
        self._timers.arm(key, at_ms)
        if at_ms < self._handle_at_ms:
            self._expect(at_ms)

    def cancel(self, key: Key) -> None:
        """Let `key` not ring. The call that was asked for comes all the same and finds nothing to do."""
        self._timers.cancel(key)

    def stop(self) -> None:
        """Let nothing ring that was armed so far."""
        self._timers = Timers()
        self._handle_at_ms = NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expect(self, at_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle_at_ms = at_ms
        self._handle = self._clock.call_at(at_ms, self._wake)

    def _wake(self) -> None:
        self._handle = None
        self._handle_at_ms = NEVER
        try:
            # As often as there were timers when this began: one that is armed anew for a time that has come already
            # rings again, but the loop gets its turn in between.
            for _ in range(len(self._timers)):
                key = self._timers.due(self._clock.ms())
                if key is None:
                    break
                self._ring(key)
        finally:
            next_at_ms = self._timers.next_at_ms()
            if next_at_ms is not None and next_at_ms < self._handle_at_ms:
                self._expect(next_at_ms)
