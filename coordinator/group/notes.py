"""What happened, as values: from these the log lines, the metrics, the event topic and `explain` are made.

A note says what changed in a group and, where it is a rebalance, why: who caused it, on which request, and whether the
client gave the reason or it was inferred. The core emits notes and reads none.

House rule: a note's name is an interface (design.md); add fields, never rename one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.group.causes import Cause


@dataclass(frozen=True, slots=True)
class Note:
    """Something happened in `group` while it was at `generation`."""

    group: str
    generation: int


@dataclass(frozen=True, slots=True)
class RebalanceStarted(Note):
    """The group went to PreparingRebalance from `state`; `generation` is the one that ends."""

    state: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class RebalanceCause(Note):
    """A further cause arrived while the group was preparing already."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class GenerationStarted(Note):
    """Every member that counts has joined: the group is at the new `generation` and waits for its assignments."""

    leader: str
    protocol_name: str
    members: int


@dataclass(frozen=True, slots=True)
class RebalanceCompleted(Note):
    """The leader's assignments are there: the group is Stable."""

    leader: str
    members: int
    static_members: int
    without_assignment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RebalanceStuck(Note):
    """The rebalance timeout passed and nobody rejoined; the group waits on."""


@dataclass(frozen=True, slots=True)
class GroupEmptied(Note):
    """The last member is gone."""


@dataclass(frozen=True, slots=True)
class GroupLoaded(Note):
    """Read from the log."""

    state: str
    members: int


@dataclass(frozen=True, slots=True)
class GroupUnloaded(Note):
    """The partition went away."""


@dataclass(frozen=True, slots=True)
class GroupDeleted(Note):
    """Deleted on request, or dropped because it was empty and had no offsets left (`expired`)."""

    offsets: int
    expired: bool = False


@dataclass(frozen=True, slots=True)
class MemberPending(Note):
    """A member id was given out; the client must join with it (KIP-394)."""

    member_id: str
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class PendingExpired(Note):
    """A pending member id lapsed, or was given back (`left`)."""

    member_id: str
    left: bool = False


@dataclass(frozen=True, slots=True)
class MemberJoined(Note):
    """A new member was added."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class MemberReplaced(Note):
    """A static member restarted: `member_id` takes the seat of `old_member_id` (KIP-345)."""

    member_id: str
    old_member_id: str
    group_instance_id: str
    state: str
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class MemberFenced(Note):
    """A request came from `member_id`, but `group_instance_id` belongs to `current_member_id`."""

    member_id: str
    current_member_id: str
    group_instance_id: str
    operation: str


@dataclass(frozen=True, slots=True)
class MemberLeft(Note):
    """Gone by request."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemberExpired(Note):
    """Gone because its session timed out."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class MembersDropped(Note):
    """Gone because they did not rejoin or sync within the rebalance timeout, or the group was full (`why`)."""

    member_ids: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class LeaderElected(Note):
    """The leader did not rejoin in time; another joined member took over."""

    old_leader: str
    leader: str


@dataclass(frozen=True, slots=True)
class OffsetsCreatedGroup(Note):
    """A commit without a generation created a simple group."""


@dataclass(frozen=True, slots=True)
class OffsetsRemoved(Note):
    """Committed offsets were deleted on request, or expired (`expired`)."""

    topic_partitions: tuple[tuple[str, int], ...]
    expired: bool


@dataclass(frozen=True, slots=True)
class GroupTooLarge(Note):
    """The group's record would be larger than message.max.bytes; what was asked was refused (KAFKA-19760)."""

    size: int
    limit: int


@dataclass(frozen=True, slots=True)
class UnexpectedRequest(Note):
    """A request that no correct client sends: refused."""

    member_id: str
    detail: str
