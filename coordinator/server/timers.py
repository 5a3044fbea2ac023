"""Timers: which one goes off next.

A heap of (time, order, key) beside a dict of those that are armed, by key. Cancelling a key only changes the dict, and
so does arming it again but for one more item; an item of the heap that is no longer the dict's is dropped when it comes
up. So both are cheap, and a heap that consists mostly of such leftovers is built anew when something is armed.

House rule: pure. Times come in as arguments, and nobody is called.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

LEFTOVERS_MIN = 64
"""Fewer leftovers than this are not worth building the heap anew."""


class Timers(Generic[Key]):
    """Timers of one clock, in milliseconds; at most one runs for a key."""

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
        """Let `key` go off at `at_ms`; replaces an earlier time."""
        self._order = order = self._order + 1
        self._armed[key] = item = (at_ms, order, key)
        heappush(self._heap, item)
        if len(self._heap) > 2 * len(self._armed) + LEFTOVERS_MIN:
            self._heap = list(self._armed.values())
            heapify(self._heap)

    def cancel(self, key: Key) -> None:
        """Let `key` not go off; nothing happens if it isn't armed."""
        self._armed.pop(key, None)

    def next_at_ms(self) -> int | None:
        """When the first one goes off; None if none is armed."""
        while self._heap and self._armed.get(self._heap[0][2]) is not self._heap[0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Key | None:
        """Take the first one whose time has come; of one time the one that was armed first. Call it until None.

        One at a time, because what the caller does about it may cancel the next.
        """
        at_ms = self.next_at_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._armed[key]
        return key
