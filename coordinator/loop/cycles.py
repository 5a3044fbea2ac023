"""Python's garbage collector in a server: it frees reference cycles, and holds up requests as little as it can.

The collector has three generations, and a look at one of them has the younger ones too:

    new    up to GC_OBJECTS objects: the collector looks at them, and what is in use becomes young
    young  every YOUNG_LOOKS-th look has these too, and what is in use becomes old
    old    Python looks at all of these when a quarter has come in addition, which takes half a second with 60,000
           groups; here `Looks` says when

So a cycle that is in use during its first looks, such as that of a request under way, costs memory until the next look
at the old objects. Why it is so: docs/contribute/decisions.md.
"""

from __future__ import annotations

import gc
import sys
import time

from coordinator.loop.clock import Clock, Handle

GC_OBJECTS = 2_500
"""New objects between two looks of the garbage collector. A look stops all answers: with 20,000 new objects, which 700
joining members make, it takes 5 to 16 ms. More frequent looks cost no more CPU in total, as few objects stay in the
processor's cache."""

YOUNG_LOOKS = 4
"""So many looks at new objects alone come before one at the young ones too, of at most some 12,500 objects."""

NEVER = 2**31 - 1
"""So many looks at young objects come before Python looks at old ones by itself."""

CHECK_MS = 1_000
"""The time until a server asks again whether a look at the old objects is due: it is if objects became old."""

REST_MS, REST_FACTOR = 60_000, 10_000
"""The time between two looks at the old objects: a minute, or so many times as long as the last one took."""

GROWN_FACTOR, GROWN_BLOCKS = 3, 1_000_000
"""A look at the old objects is due at once if Python's memory has this many times the blocks that it had behind the
last one, and so many more (some 80 MB).
"""


def settle() -> None:
    """The load is over: the collector skips what there is, for good, and leaves old objects to `Looks`."""
    gc.collect()
    gc.freeze()
    _leave_old_objects()


def _leave_old_objects() -> None:
    """Let Python look at new and young objects alone."""
    gc.set_threshold(GC_OBJECTS, YOUNG_LOOKS, NEVER)


def drop_trace(error: BaseException | None) -> None:
    """Forget where an error was raised, once it is reported: a function there often refers to it, and so to itself."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


class Looks:
    """Has the collector look at the old objects from time to time."""

    def __init__(self, clock: Clock) -> None:
        _leave_old_objects()  # a load of many groups would let Python look at all of them again and again
        self._clock = clock
        self._due_ms = clock.ms() + REST_MS
        self._seen, self._blocks = _looks_at_young(), sys.getallocatedblocks()
        self._handle: Handle = clock.call_at(clock.ms() + CHECK_MS, self._check)

    def end(self) -> None:
        """Ask no more."""
        self._handle.cancel()

    def _check(self) -> None:
        is_urgent = sys.getallocatedblocks() > max(GROWN_FACTOR * self._blocks, self._blocks + GROWN_BLOCKS)
        if (is_urgent or self._clock.ms() >= self._due_ms) and _looks_at_young() > self._seen:
            took_ms = _look()
            self._due_ms = self._clock.ms() + max(REST_MS, int(took_ms * REST_FACTOR))
            self._seen, self._blocks = _looks_at_young(), sys.getallocatedblocks()
        self._handle = self._clock.call_at(self._clock.ms() + CHECK_MS, self._check)


def _look() -> float:
    """Have the collector look at all objects since `settle`; returns for how many ms."""
    began_s = time.perf_counter()  # a loop's clock stands still meanwhile
    gc.collect()
    return (time.perf_counter() - began_s) * 1_000


def _looks_at_young() -> int:
    """The number of looks at young objects so far."""
    return int(gc.get_stats()[1]["collections"])
