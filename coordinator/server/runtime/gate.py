"""The gate: the notes and answers of a call wait here until its records are durable.

Every append of a partition has a number, from 1; the engine makes appends durable in this order. The gate holds a call
behind the last append under way for its group. So the call overtakes neither its own records nor earlier records that
it may rest on. Groups don't hold each other up. An append or a call that concerns many groups (expired offsets,
ListGroups) counts for all of them.

House rule: pure. The runtime decides what the held items are, and what happens to them if the gate is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Gate(Generic[Item]):
    """The gate of one partition. number: of the last append."""

    __slots__ = ("_barrier", "_durable", "_held", "_last", "_under_way", "number")

    def __init__(self) -> None:
        self.number = 0
        self._durable = 0
        # The groups of the appends from `_durable` up to `number`.
        self._under_way: deque[tuple[str, ...]] = deque()
        self._last: dict[str, int] = {}
        self._barrier = 0
        self._held: dict[int, list[Item]] = {}

    @property
    def busy(self) -> bool:
        """Whether an append is under way."""
        return bool(self._under_way)

    def appended(self, *group_ids: str) -> int:
        """An append starts: returns its number. group_ids: of its records; without any it counts for all groups."""
        self.number = number = self.number + 1
        self._under_way.append(group_ids)
        for group_id in group_ids:
            self._last[group_id] = number
        if not group_ids:
            self._barrier = number
        return number

    def behind(self, group_id: str | None) -> int:
        """The number of the last append that a call of `group_id` may rest on; 0 if all of them are durable."""
        if not self._under_way:
            return 0
        number = self.number if group_id is None else max(self._last.get(group_id, 0), self._barrier)
        return number if number > self._durable else 0

    def hold(self, number: int, item: Item) -> None:
        """Hold an item until the append of that number is durable."""
        assert self._durable < number <= self.number
        self._held.setdefault(number, []).append(item)

    def held(self) -> list[Item]:
        """All held items, in order."""
        return [item for number in sorted(self._held) for item in self._held[number]]

    def change(self, change: Callable[[Item], Item]) -> None:
        """Put another item in place of each held one."""
        for items in self._held.values():
            items[:] = map(change, items)

    def durable(self, number: int) -> list[Item]:
        """All appends up to that number are durable: release the items that waited for them, in order."""
        assert self._durable <= number <= self.number
        under_way, last, held = self._under_way, self._last, self._held
        free: list[Item] = []
        for each in range(self._durable + 1, number + 1):
            for group_id in under_way.popleft():
                if last[group_id] == each:
                    del last[group_id]
            if each in held:
                free += held.pop(each)
        self._durable = number
        return free
