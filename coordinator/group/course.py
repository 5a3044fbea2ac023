"""The course of a rebalance: facts that the group collects while the rebalance runs.

A group keeps a course from the first change that leads to PreparingRebalance until it is Stable or Empty again, or the
next rebalance begins. The course holds the members before, every cause in order, the member that came last, and the
members that did not come. `classic.course` fills it and turns it into a note at the end.

House rule: plain values. No rule reads a course, so a fact for people can't change what happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from coordinator.group.causes import Cause
from coordinator.group.client import Now
from coordinator.group.state import EMPTY, State
from protocol.speed import HashedById

CAUSES_MAX = 100
"""Most causes that a course keeps: thousands of members may leave together. The course counts the others."""

LATE_MAX = 100
"""Most ids of late members that a course keeps, for the same reason."""


class Outcome(HashedById):
    """How a rebalance ended."""

    COMPLETED = "completed"
    EMPTIED = "emptied"
    SUPERSEDED = "superseded"
    UNLOADED = "unloaded"


OUTCOMES = {
    Outcome.COMPLETED: "every member has its assignment",
    Outcome.EMPTIED: "nobody is left",
    Outcome.SUPERSEDED: "another one starts before the assignments are known",
    Outcome.UNLOADED: "the partition goes away",
}
"""How a rebalance ended, in words."""


class Phase(HashedById):
    """The phase of a rebalance: it waits for members that join, then for the leader's assignments.

    In the consumer protocol: members that give up partitions, and the heartbeats with which members take their new
    assignment.
    """

    PREPARING = "preparing"
    COMPLETING = "completing"
    REVOKING = "revoking"
    ACKNOWLEDGING = "acknowledging"


AWAITED = {
    Phase.PREPARING: "to join",
    Phase.COMPLETING: "to assign",
    Phase.REVOKING: "to give up partitions",
    Phase.ACKNOWLEDGING: "to take its new assignment",
}
"""The steps of a member that a group waits for, in words."""


class Snapshot(NamedTuple):
    """A member at the begin or at the end of a rebalance.

    client_id, client_host: of the client that held the seat at that time.
    assignment: the bytes that the leader wrote; in the consumer protocol, partitions by the id of their topic.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: bytes | Mapping[UUID, Mapping[int, int]]


class Pending(NamedTuple):
    """A member id that the coordinator gave out and no client has used yet.

    lapses_ms: when the coordinator takes it back, Unix time in ms.
    """

    member_id: str
    client_id: str
    client_host: str
    lapses_ms: int


class Waited(NamedTuple):
    """The longest wait of a rebalance: for a member or a pending member id, in which phase, for how many ms.

    group_instance_id: of a static member of the consumer protocol.
    """

    member_id: str
    phase: Phase
    ms: int
    group_instance_id: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class Course:
    """See the module.

    before: the members as of the last completed generation.
    last_to_join, last_ms: the last member or pending id that came, or went, while the group waited for it; and when.
    late: ids of the members that had not joined when the time was up.
    leader: of the generation that has started, even if another member leads at the end.
    began_ms, joined_ms: on the clock of `Now.ms`.
    began_wall_ms: Unix time in ms.
    until_ms: when the current wait ends at the latest, on the clock of `Now.ms`.
    """

    before: tuple[Snapshot, ...] = ()
    causes: list[Cause] = field(default_factory=list)
    further_causes: int = 0
    state: State = EMPTY
    generation: int = 0
    began_ms: int = 0
    began_wall_ms: int = 0
    until_ms: int = 0
    joined_ms: int | None = None
    last_to_join: str = ""
    last_ms: int = 0
    late: tuple[str, ...] = ()
    leader: str | None = None
    lapsed: list[str] = field(default_factory=list)

    def begin(self, state: State, generation: int, cause: Cause, now: Now) -> None:
        """The group leaves `state` and `generation` for PreparingRebalance."""
        self.state = state
        self.generation = generation
        self.causes.append(cause)
        self.began_ms, self.began_wall_ms = now

    def add(self, cause: Cause) -> None:
        """Another cause came while the group prepares."""
        if len(self.causes) < CAUSES_MAX:
            self.causes.append(cause)
        else:
            self.further_causes += 1

    def joined(self, leader: str | None, now_ms: int) -> None:
        """The next generation has started and waits for the assignments of `leader`."""
        self.leader = leader
        self.joined_ms = now_ms

    def waited(self, joined_ms: int, now_ms: int) -> Waited | None:
        """The longest wait of the rebalance, None if it waited for nobody.

        That is the wait for a member that never came, else for the last one to come; or for the leader's assignments,
        if they took longer. A group that holds its first rebalance open waits for nobody in particular (KIP-134).
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
