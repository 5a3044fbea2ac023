"""The course of a rebalance: what is remembered of it until it ends.

A course is kept with its group from the first change that leads to PreparingRebalance until the group is Stable or
Empty again, or starts over. It remembers who was a member before, every cause in order, who came last, who never came.
`classic.course` keeps it, and makes a note of it when it ends.

House rule: plain values. No rule reads a course: what people are told must not be able to change what happens.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from coordinator.group.state import EMPTY, State

if TYPE_CHECKING:
    from coordinator.group.causes import Cause
    from coordinator.group.client import Now

CAUSES_MAX = 100
"""Causes that are kept of one rebalance: a group of thousands may all leave together. Further ones are counted."""

LATE_MAX = 100
"""Members that did not come whose ids are kept, likewise."""


class Outcome(Enum):
    """How a rebalance ended."""

    __hash__ = object.__hash__  # as CauseKind's

    COMPLETED = "completed"
    """Every member knows its assignment."""
    EMPTIED = "emptied"
    """Nobody was left."""
    SUPERSEDED = "superseded"
    """Before the assignments came, something started the next one."""
    UNLOADED = "unloaded"
    """The partition went away."""


class Phase(Enum):
    """What a group waits for in a rebalance: for members to join, then for the leader to assign."""

    __hash__ = object.__hash__  # as CauseKind's

    PREPARING = "preparing"
    COMPLETING = "completing"


class Snapshot(NamedTuple):
    """A member as it was when a rebalance began or ended.

    client_id, client_host: of the client that had its seat then. assignment: the bytes that its leader wrote.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: bytes


class Pending(NamedTuple):
    """A member id that was given out and not used yet. lapses_ms: when it will be taken back, Unix time in ms."""

    member_id: str
    client_id: str
    client_host: str
    lapses_ms: int


class Waited(NamedTuple):
    """Who a rebalance waited for longest: a member or a pending member id, in which phase, for how many ms."""

    member_id: str
    phase: Phase
    ms: int


class Course:
    """See the module.

    before: the members, as of the last generation that all knew their assignments of. last_to_join: who came last, or
    went last of those that were waited for, a pending id too; last_ms: when. late: who had not joined when the time was
    up. leader: of the generation that has started, whoever leads when it is over. began_ms, joined_ms: on the clock of
    `Now.ms`; began_wall_ms: Unix time. until_ms: when the wait that is under way ends at the latest, on the clock of
    `Now.ms`.
    """

    __slots__ = (
        "before",
        "began_ms",
        "began_wall_ms",
        "causes",
        "further_causes",
        "generation",
        "joined_ms",
        "lapsed",
        "last_ms",
        "last_to_join",
        "late",
        "leader",
        "state",
        "until_ms",
    )

    def __init__(self, before: tuple[Snapshot, ...]) -> None:
        self.before = before
        self.causes: list[Cause] = []
        self.further_causes = 0
        self.state: State = EMPTY
        self.generation = 0
        self.began_ms = self.began_wall_ms = self.until_ms = 0
        self.joined_ms: int | None = None
        self.last_to_join = ""
        self.last_ms = 0
        self.late: tuple[str, ...] = ()
        self.leader: str | None = None
        self.lapsed: list[str] = []

    def begin(self, state: State, generation: int, cause: Cause, now: Now) -> None:
        """The group is about to leave `state` and `generation` for PreparingRebalance."""
        self.state = state
        self.generation = generation
        self.causes.append(cause)
        self.began_ms, self.began_wall_ms = now

    def add(self, cause: Cause) -> None:
        """A further cause came while the group was preparing."""
        if len(self.causes) < CAUSES_MAX:
            self.causes.append(cause)
        else:
            self.further_causes += 1

    def joined(self, leader: str | None, now_ms: int) -> None:
        """The next generation has started: it waits for the assignments of `leader`."""
        self.leader = leader
        self.joined_ms = now_ms

    def waited(self, joined_ms: int, now_ms: int) -> Waited | None:
        """The last to come or go; who never came, if the time was up; or the leader, if its assignments took longer.

        Nobody where the first rebalance of a group was held open for whoever might come (KIP-134).
        """
        preparing = None
        if self.late:
            preparing = Waited(self.late[0], Phase.PREPARING, joined_ms - self.began_ms)
        elif self.state is not EMPTY and self.last_ms > self.began_ms:
            preparing = Waited(self.last_to_join, Phase.PREPARING, self.last_ms - self.began_ms)
        completing_ms = 0 if self.joined_ms is None else now_ms - joined_ms
        if self.leader is not None and completing_ms > (0 if preparing is None else preparing.ms):
            return Waited(self.leader, Phase.COMPLETING, completing_ms)
        return preparing
