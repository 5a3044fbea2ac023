"""The gate: what a call says waits until its records are durable.

Every append of a partition gets a number, from 1; the engine makes them durable in this order. What a call says, to its
client and to people, is held behind the last append that its group has under way. So it overtakes neither the records
of its own call nor earlier ones that it may rest on. Groups don't hold each other up. An append, or a call, that
concerns no single group (offsets of many groups expire; ListGroups) counts for all of them.

House rule: pure, and it decides nothing else: what the held items are, and what becomes of those that a thrown away
gate held, is the runtime's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Gate(Generic[Item]):
    """The gate of one partition.

    number: of the last append.
    """

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
        """An append starts, with records of these groups, or of any if none is named; its number, for `durable`."""
        self.number = number = self.number + 1
        self._under_way.append(group_ids)
        for group_id in group_ids:
            self._last[group_id] = number
        if not group_ids:
            self._barrier = number
        return number

    def holds(self, group_id: str | None) -> bool:
        """Whether what a call of `group_id` says has to wait."""
        if not self._under_way:
            return False
        return group_id is None or group_id in self._last or self._barrier > self._durable

    def hold(self, group_id: str | None, items: Iterable[Item]) -> None:
        """Keep items until everything that they may rest on is durable. Only where `holds` says so."""
        assert self.holds(group_id)
        number = self.number if group_id is None else max(self._last.get(group_id, 0), self._barrier)
        self._held.setdefault(number, []).extend(items)

    def hold_behind(self, number: int, item: Item) -> None:
        """Keep an item until the append of that number is durable."""
        assert self._durable < number <= self.number
        self._held.setdefault(number, []).append(item)

    def held(self) -> list[Item]:
        """All items that still wait, in order."""
        return [item for number in sorted(self._held) for item in self._held[number]]

    def durable(self, number: int) -> list[Item]:
        """All appends up to that number are durable: the items that may go now, in order."""
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
