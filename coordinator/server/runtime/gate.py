"""The gate: the notes and answers of a call wait here until its records are durable, and then go out.

Every append of a partition has a number, from 1; the engine makes appends durable in this order. The gate holds a call
behind the last append under way for its group. So the call overtakes neither its own records nor earlier records that
it may rest on. Groups don't hold each other up. An append or a call that concerns many groups (expired offsets,
ListGroups) counts for all of them.

Delivery hands notes to log lines, counts and events, then answers to clients. A call that waits for no append goes out
at the end of its turn of the loop. There the notes of all calls are taken at once, with one write for their lines; then
their answers follow, so no line comes later than the answer that it is about. A call that the gate held goes out as
soon as the gate releases it, in the same order. A mistake of one that takes notes is reported by the loop; the others
get the notes, and clients their answers.

A rebalance of a thousand members has a thousand answers. After each ANSWERED_AT_ONCE the pace says whether this turn
has time for more; the others go first in the next turns.

House rule: this module decides nothing but order and pace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from coordinator.group.effects import Response
from coordinator.group.notes import Note, Noted
from coordinator.loop.pace import Pace
from coordinator.server.runtime.replies import RepeatedCommit
from protocol.speed import new
from schemas.errors import ErrorCode

Item = TypeVar("Item")

TakeNotes = Callable[[Sequence[Noted]], None]
"""Takes durable notes, in order."""

ANSWERED_AT_ONCE = 8
"""Answers between two looks at the clock."""


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


class Answering(Protocol):
    """The methods of a partition that delivery calls."""

    @property
    def index(self) -> int:
        """Its number."""

    @property
    def is_sure(self) -> bool:
        """Whether an answer may say yes."""

    def answer(self, reply: Hashable, body: Any) -> None:
        """Answer a request."""


class Held(NamedTuple):
    """The notes and answers of one call, or of commits that were stored together.

    wall_ms: the time of the call (Unix time in ms). commits: repeated commits; each is answered with NONE.
    """

    partition: Answering
    wall_ms: int
    notes: Sequence[Note]
    responses: Sequence[Response]
    commits: Sequence[RepeatedCommit] = ()


class Delivery:
    """See the module.

    take_notes: called in this order. soon: has the loop call back in its next turn. on_done: called after answers went
    out.
    """

    def __init__(
        self,
        take_notes: Sequence[TakeNotes],
        pace: Pace,
        soon: Callable[[Callable[[], None]], object],
        on_done: Callable[[], None],
    ) -> None:
        self._take_notes = take_notes
        self._pace = pace
        self._soon = soon
        self._on_done = on_done
        self._waiting: list[Held] = []
        self._noted = 0
        self._put_off = 0

    @property
    def busy(self) -> bool:
        """Whether an answer still has to go out."""
        return bool(self._put_off or self._waiting)

    def at_end_of_turn(self, held: Held) -> None:
        """Deliver a call at the end of this turn of the loop."""
        self._waiting.append(held)
        if len(self._waiting) == 1:
            self._soon(self._end_turn)

    def release(self, held: Sequence[Held]) -> None:
        """Deliver calls now; their notes go behind those of calls that wait for the end of this turn."""
        if len(held) == 1:
            partition, _, _, responses, commits = held[0]
            if len(commits) == 1 and partition.is_sure:
                commits[0].done()  # commits have no notes
                return
            if len(responses) == 1 and not commits:
                self.write(held)
                partition.answer(*responses[0])
                return
        self.write(held)
        self._go_on(_answers(held))

    def write(self, held: Sequence[Held] = ()) -> None:
        """Hand on the notes of calls that wait for the end of this turn, then those of `held`."""
        noted = []
        for partition, wall_ms, notes, _, _ in (*self._waiting[self._noted :], *held):
            if notes:
                noted.append(new(Noted, (partition.index, wall_ms, notes)))
        self._noted = len(self._waiting)
        if noted:
            for take in self._take_notes:
                try:
                    take(noted)
                except Exception as error:  # noqa: BLE001 - a mistake of ours costs notes, and no answer
                    self._soon(partial(_fail, error))

    def answer(self, held: Sequence[Held]) -> None:
        """Send the answers of these calls, some perhaps in the next turns."""
        self._go_on(_answers(held))

    def _end_turn(self) -> None:
        self.write()
        waiting, self._waiting = self._waiting, []
        self._noted = 0
        self.answer(waiting)
        self._on_done()

    def _go_on(self, answers: Iterator[None]) -> None:
        for _ in answers:
            if not self._pace.has_time():
                self._put_off += 1
                self._pace.first(partial(self._next_turn, answers))
                return

    def _next_turn(self, answers: Iterator[None]) -> None:
        self._put_off -= 1
        self._go_on(answers)
        self._on_done()


def _fail(error: Exception) -> None:
    """Have the loop report a mistake."""
    raise error


def _answers(calls: Sequence[Held]) -> Iterator[None]:
    """Send all answers. Yields where the caller may look at the clock, while answers remain."""
    for place, (partition, _, _, responses, commits) in enumerate(calls, 1):
        for number, (reply, body) in enumerate(responses, 1):
            partition.answer(reply, body)
            # After the first one too: a call with many answers may come late in a turn.
            if number % ANSWERED_AT_ONCE == 1 and number < len(responses):
                yield
        is_sure = bool(commits) and partition.is_sure
        for number, commit in enumerate(commits, 1):
            if is_sure:
                commit.done()
            else:
                commit.refuse(ErrorCode.NOT_COORDINATOR)
            if number % ANSWERED_AT_ONCE == 0 and number < len(commits):
                yield
                is_sure = partition.is_sure
        if place % ANSWERED_AT_ONCE == 0 and place < len(calls):
            yield
