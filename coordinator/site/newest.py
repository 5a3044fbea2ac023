"""The newest events in memory, with bounds: for all groups together, for one group, and in time.

A group that rebalances all day long pushes out its own older events, and not those of quiet groups. An item that goes
because of one of the bounds is the oldest of all, or of its group.

House rule: an addition takes the same time however many items there are.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")


class Bounds(NamedTuple):
    """The most items of all groups together, and of each group; and how much older than the newest an item may be.

    None: no such bound.
    """

    total: int
    of_group: int | None = None
    age_ms: int | None = None


class Newest(Generic[Item]):
    """Items in the order in which they came, within `bounds`.

    wall_ms: Unix time. An item from the future counts as of this moment, so that it makes no other one old.
    """

    def __init__(self, bounds: Bounds, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._bounds = bounds
        self._wall_ms = wall_ms
        self._items: OrderedDict[int, tuple[str | None, int, Item]] = OrderedDict()
        self._of_group: dict[str | None, deque[int]] = {}
        self._next = 0
        self._newest_ms = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return (item for _, _, item in self._items.values())

    def clear(self) -> None:
        """Drop all items."""
        self._items.clear()
        self._of_group.clear()

    def add(self, group: str | None, at_ms: int, item: Item) -> list[Item]:
        """Keep an item of a group, with its time; returns the items that had to go for it."""
        bounds = self._bounds
        own = self._of_group.setdefault(group, deque())
        own.append(self._next)
        self._items[self._next] = group, at_ms, item
        self._next += 1
        if at_ms > self._newest_ms:
            self._newest_ms = max(self._newest_ms, min(at_ms, self._wall_ms()))
        gone: list[Item] = []
        if bounds.of_group is not None and len(own) > bounds.of_group:
            gone.append(self._drop(own[0]))
        while len(self._items) > bounds.total or self._is_too_old(bounds.age_ms):
            gone.append(self._drop(next(iter(self._items))))
        return gone

    def _is_too_old(self, age_ms: int | None) -> bool:
        """Whether the first item is. One item stays in any case: it is the newest."""
        if age_ms is None or len(self._items) == 1:
            return False
        _, at_ms, _ = next(iter(self._items.values()))
        return at_ms < self._newest_ms - age_ms

    def _drop(self, number: int) -> Item:
        group, _, item = self._items.pop(number)
        own = self._of_group[group]
        own.popleft()  # of a group, the first one goes first
        if not own:
            del self._of_group[group]
        return item
