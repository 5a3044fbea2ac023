"""What happened, as values: from these the log lines, the metrics, the event topic and `explain` are made.

A note says what changed in a group and, where it is a rebalance, why: who caused it, on which request, and whether the
client gave the reason or it was inferred. The core emits notes and reads none.

House rule: a note's name is an interface (design.md); add fields, never rename one.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

if TYPE_CHECKING:
    from coordinator.group.causes import Cause
    from coordinator.group.client import Client
    from coordinator.group.course import Outcome, Pending, Snapshot, Waited


@dataclass_transform(frozen_default=True)
class Value(tuple[Any, ...]):
    """A tuple with names: what NamedTuple makes, but making two dozen of those was a tenth of what a start takes."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[str, ...]] = ()
    """The names of its fields, in order."""
    DEFAULTS: ClassVar[dict[str, Any]] = {}
    """Those that may be left out."""

    def __init_subclass__(cls) -> None:
        own = tuple(cls.__annotations__)
        cls.DEFAULTS = cls.DEFAULTS | {name: vars(cls)[name] for name in own if name in vars(cls)}
        for place, name in enumerate(own, len(cls.FIELDS)):
            setattr(cls, name, property(itemgetter(place)))
        cls.FIELDS += own

    def __new__(cls, *values: Any, **named: Any) -> Self:
        """Make one of all its fields, but for those with a default, by place or by name."""
        if named or len(values) != len(cls.FIELDS):
            given = dict(zip(cls.FIELDS, values, strict=False))
            assert len(values) == len(given), "too many values"
            assert not given.keys() & named.keys(), "a field twice"
            given = cls.DEFAULTS | given | named
            assert given.keys() == set(cls.FIELDS), "a field that is missing or unknown"
            values = tuple(given[name] for name in cls.FIELDS)
        return tuple.__new__(cls, values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a note does not change: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self.FIELDS, self, strict=True))
        return f"{type(self).__name__}({fields})"


class Note(Value):
    """Something happened in `group` while it was at `generation`."""

    group: str
    generation: int


class RebalanceStarted(Note):
    """The group went to PreparingRebalance from `state`; `generation` is the one that ends.

    members: those that it has now, without who left and with who came. members_before: as of RebalanceEnded.
    """

    state: str
    cause: Cause
    members: int = 0
    pending: tuple[Pending, ...] = ()
    members_before: int = 0


class RebalanceCause(Note):
    """A further cause arrived while the group was preparing already."""

    cause: Cause


class GenerationStarted(Note):
    """Every member that counts has joined: the group is at the new `generation` and waits for its assignments."""

    leader: str
    protocol_name: str
    members: int


class RebalanceCompleted(Note):
    """The leader's assignments are there: the group is Stable."""

    leader: str
    members: int
    static_members: int
    without_assignment: tuple[str, ...] = ()


class RebalanceEnded(Note):
    """A rebalance is over (`outcome`), which began at `generation_before`: all that is known of it (`course`)."""

    outcome: Outcome
    generation_before: int
    state: str
    causes: tuple[Cause, ...]
    further_causes: int
    began_ms: int
    preparing_ms: int
    completing_ms: int | None
    waited_for: Waited | None
    late: tuple[str, ...]
    lapsed: tuple[str, ...]
    leader: str | None
    protocol_type: str | None
    protocol_name: str | None
    before: tuple[Snapshot, ...]
    after: tuple[Snapshot, ...]


class RebalanceStuck(Note):
    """The rebalance timeout passed and nobody rejoined; the group waits on."""


class GroupEmptied(Note):
    """The last member is gone."""


class GroupLoaded(Note):
    """The coordinator read the group from the log; once more, if a write of that log failed (`write_failed`).

    state: "Dead", with generation 0, if nothing of the group was durable when that write failed.
    """

    state: str
    members: int
    write_failed: bool = False


class GroupUnloaded(Note):
    """The partition went away."""


class GroupDeleted(Note):
    """Deleted on request of `client`, or dropped because it was empty and had no offsets left (`expired`)."""

    offsets: int
    expired: bool = False
    client: Client | None = None


class MemberPending(Note):
    """A member id was given out; the client must join with it (KIP-394)."""

    member_id: str
    client_id: str
    client_host: str
    lapses_ms: int = 0


class PendingExpired(Note):
    """A pending member id lapsed, or was given back (`left`)."""

    member_id: str
    left: bool = False


class MemberJoined(Note):
    """A new member was added."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class MemberReplaced(Note):
    """A static member restarted: `member_id` takes the seat of `old_member_id` (KIP-345).

    subscription_changed: it wants other topics than the group knew of it, and no rebalance starts (KAFKA-12759).
    """

    member_id: str
    old_member_id: str
    group_instance_id: str
    state: str
    client_id: str
    client_host: str
    rebalances: bool = False
    subscription_changed: bool = False


class MemberFenced(Note):
    """A request came from `member_id`, but `group_instance_id` belongs to `current_member_id`.

    waited: it had come before, and waited when the other took the seat. client, current_client: who sent it, and who
    took the seat; None if that was before the group was loaded.
    """

    member_id: str
    current_member_id: str
    group_instance_id: str
    operation: str
    client: Client | None = None
    current_client: Client | None = None
    waited: bool = False


class MemberLeft(Note):
    """Gone by request."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    reason: str


class MemberExpired(Note):
    """Gone because its session timed out."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class MembersDropped(Note):
    """Gone because they did not rejoin or sync within the rebalance timeout, or the group was full (`why`)."""

    member_ids: tuple[str, ...]
    why: str


class LeaderElected(Note):
    """The leader did not rejoin in time; another joined member took over."""

    old_leader: str
    leader: str


class OffsetsCreatedGroup(Note):
    """A commit without a generation created a simple group."""


class OffsetsRemoved(Note):
    """Committed offsets were deleted, on request of `client` or with their topic, or expired (`expired`)."""

    topic_partitions: tuple[tuple[str, int], ...]
    expired: bool
    client: Client | None = None


class GroupTooLarge(Note):
    """The group's record would be larger than message.max.bytes; what was asked was refused (KAFKA-19760)."""

    size: int
    limit: int


class UnexpectedRequest(Note):
    """A request that no correct client sends: refused."""

    member_id: str
    detail: str
