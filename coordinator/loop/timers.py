"""Timers: which one fires next.

There is a heap of (time, order, key), and a dict of the armed timers by key. To cancel a key changes only the dict; to
arm it again changes the dict and adds to the heap. An item of the heap that the dict doesn't have is dropped when it
comes up. So both are cheap. A heap that consists mostly of such leftovers is rebuilt at the next arm.

House rule: pure. Times come in as arguments, and nothing is called back.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

LEFTOVERS_MIN = 64
"""With fewer leftovers the heap is not rebuilt."""


class Timers(Generic[Key]):
    """Timers of one clock, in milliseconds. At most one runs for a key."""

    __slots__ = ("_armed", "_heap", "_order")

    def __init__(self) -> None:
        self._armed: dict[Key, tuple[int, int, Key]] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._armed)

    def __contains__(self, key: Key) -> bool:
        return key in self._armed

    def arm(self, key: Key, at_ms: int) -> None:
        """Let `key` fire at `at_ms`, in place of an earlier time."""
        self._order = order = self._order + 1
        self._armed[key] = item = (at_ms, order, key)
        heappush(self._heap, item)
        if len(self._heap) > 2 * len(self._armed) + LEFTOVERS_MIN:
            self._heap = list(self._armed.values())
            heapify(self._heap)

    def cancel(self, key: Key) -> None:
        """Cancel the timer of `key`, if one is armed."""
        self._armed.pop(key, None)

    def clear(self) -> None:
        """Cancel all timers."""
        self._armed.clear()
        self._heap.clear()

    def next_at_ms(self) -> int | None:
        """When the first timer fires; None without timers."""
        while self._heap and self._armed.get(self._heap[0][2]) is not self._heap[0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Key | None:
        """Take one timer whose time has come: the earliest, of equal ones the first armed. Call it until None.

        It returns one at a time, because the caller may cancel the next while it handles this one.
        """
        at_ms = self.next_at_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._armed[key]
        return key
