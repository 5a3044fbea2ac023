"""The gate: a response waits until its records are durable.

Every append of a partition gets a number; the engine makes them durable in this order. A response is held behind the
last append that its group has under way, so it overtakes neither the records of its own call nor earlier ones that what
it says may rest on. Groups don't hold each other up. An append, or a response, that concerns no single group (offsets
of many groups expire; ListGroups) counts for all of them.

House rule: pure, and it decides nothing else: what a response is, and what becomes of those that a thrown away gate
held, is the runtime's business.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

Held = TypeVar("Held")


class _Append(NamedTuple):
    number: int
    group_id: str | None


class Gate(Generic[Held]):
    """The gate of one partition."""

    __slots__ = ("_barrier", "_held", "_last", "_number", "_under_way")

    def __init__(self) -> None:
        self._number = 0
        self._under_way: deque[_Append] = deque()
        self._last: dict[str, int] = {}
        self._barrier = 0
        self._held: dict[int, list[Held]] = {}

    @property
    def busy(self) -> bool:
        """Whether an append is under way."""
        return bool(self._under_way)

    def appended(self, group_id: str | None) -> int:
        """An append starts, with records of `group_id`, or of any group if None; its number, for `durable`."""
        self._number += 1
        self._under_way.append(_Append(self._number, group_id))
        if group_id is None:
            self._barrier = self._number
        else:
            self._last[group_id] = self._number
        return self._number

    def holds(self, group_id: str | None) -> bool:
        """Whether a response of `group_id` would have to wait."""
        if not self._under_way:
            return False
        return group_id is None or group_id in self._last or self._barrier >= self._under_way[0].number

    def hold(self, group_id: str | None, response: Held) -> None:
        """Keep a response until everything that it may rest on is durable. Only where `holds` says so."""
        assert self.holds(group_id)
        number = self._number if group_id is None else max(self._last.get(group_id, 0), self._barrier)
        self._held.setdefault(number, []).append(response)

    def durable(self, number: int) -> list[Held]:
        """The append of that number is durable: the responses that may go now, in order."""
        append = self._under_way.popleft()
        assert append.number == number
        if append.group_id is not None and self._last[append.group_id] == number:
            del self._last[append.group_id]
        return self._held.pop(number, [])
