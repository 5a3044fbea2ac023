"""The course of a rebalance: what there is to tell of it when it has ended.

A course is kept with its group from the first change that leads to PreparingRebalance until the group is Stable or
Empty again, or starts over. It remembers who was a member before, every cause in order, who came last, who never came.
When it ends it becomes a note (`notes.RebalanceEnded`); what members were assigned stays bytes in there, to be read by
whoever tells people, never on the way of a request.

    opened    before anything changes, so that who leaves is still among those that were there
    begun     the group goes to PreparingRebalance
    joined    the next generation has started
    ended     completed, emptied, superseded by the next rebalance, or unloaded

House rule: no rule reads a course. What people are told must not be able to change what happens.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from coordinator.group import notes
from coordinator.group.classic.state import EMPTY, PREPARING_REBALANCE
from coordinator.group.tuples import new

if TYPE_CHECKING:
    from coordinator.group.causes import Cause
    from coordinator.group.events import Now
    from coordinator.group.group import Group
    from coordinator.group.turn import Turn

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


class Seat(NamedTuple):
    """A member as it was when a rebalance began or ended.

    client_id, client_host: of who had its seat then. assignment: the bytes that its leader wrote.
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

    def __init__(self, before: tuple[Seat, ...]) -> None:
        self.before = before
        self.causes: list[Cause] = []
        self.further_causes = 0
        self.state = EMPTY
        self.generation = 0
        self.began_ms = self.began_wall_ms = self.until_ms = 0
        self.joined_ms: int | None = None
        self.last_to_join = ""
        self.last_ms = 0
        self.late: tuple[str, ...] = ()
        self.leader: str | None = None
        self.lapsed: list[str] = []

    def begin(self, group: Group, cause: Cause, now: Now) -> None:
        """`group` is about to leave its state for PreparingRebalance."""
        self.state = group.state
        self.generation = group.generation
        self.causes.append(cause)
        self.began_ms, self.began_wall_ms = now

    def add(self, cause: Cause) -> None:
        """A further cause came while the group was preparing."""
        if len(self.causes) < CAUSES_MAX:
            self.causes.append(cause)
        else:
            self.further_causes += 1

    def joined(self, group: Group, now_ms: int) -> None:
        """The next generation of `group` has started: it waits for its leader's assignments."""
        self.leader = group.leader
        self.joined_ms = now_ms

    def ended(self, group: Group, outcome: Outcome, now_ms: int) -> notes.RebalanceEnded:
        """What there is to tell; `group` is as the rebalance leaves it."""
        joined_ms = now_ms if self.joined_ms is None else self.joined_ms
        return notes.RebalanceEnded(
            group.group_id,
            group.generation,
            outcome,
            self.generation,
            self.state.value,
            tuple(self.causes),
            self.further_causes,
            self.began_wall_ms,
            joined_ms - self.began_ms,
            None if self.joined_ms is None else now_ms - joined_ms,
            self._waited(joined_ms, now_ms),
            self.late[:LATE_MAX],
            tuple(self.lapsed),
            group.leader if self.joined_ms is None else self.leader,
            group.protocol_type,
            group.protocol_name,
            self.before,
            seats(group) if outcome is Outcome.COMPLETED else (),
        )

    def _waited(self, joined_ms: int, now_ms: int) -> Waited | None:
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


def seats(group: Group) -> tuple[Seat, ...]:
    """The members as they are."""
    # As `Member.client` does, in place: each rebalance does it twice for all of them.
    return tuple(
        [
            new(
                Seat,
                (
                    member.member_id,
                    member.group_instance_id,
                    member.client_id if (client := member.joined_by) is None else client[0],
                    member.client_host if client is None else client[1],
                    member.assignment,
                ),
            )
            for member in group.members.values()
        ]
    )


def opened(group: Group) -> Course:
    """The course of the rebalance that is open, or of one that is about to begin."""
    course = group.course
    if course is None:
        course = group.course = Course(seats(group))
    return course


def arrived(turn: Turn, group: Group, member_id: str) -> None:
    """Somebody came, or went, whom a rebalance waits for, or who starts one."""
    course = opened(group)
    if group.state is PREPARING_REBALANCE:
        course.last_to_join = member_id
        course.last_ms = turn.now.ms


def end(turn: Turn, group: Group, outcome: Outcome) -> None:
    """Tell the course of the rebalance that ends here."""
    assert group.course is not None
    turn.note(group.course.ended(group, outcome, turn.now.ms))
    group.course = None
