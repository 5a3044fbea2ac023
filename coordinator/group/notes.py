"""Notes: what happened, as values. Log lines, metrics, the event topic and `explain` come from them.

A note says what changed in a group. The note of a rebalance also says why: which client caused it, with which request,
and whether the client gave the reason or the coordinator inferred it. The core writes notes and reads none.

TEXTS has the text of each note's log line. Texts keep Kafka's wording, because people and scripts search for it.

House rule: a note's name is an interface of log lines and events. Fields may be added, not renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform
from uuid import UUID

from coordinator.group.causes import Cause, CauseKind, reason_of
from coordinator.group.client import ANONYMOUS, Client
from coordinator.group.course import AWAITED, OUTCOMES, Outcome, Pending, Snapshot, Waited


@dataclass_transform(frozen_default=True)
class Value(tuple[Any, ...]):
    """A tuple with names, as NamedTuple makes it. To make two dozen NamedTuple classes took a tenth of the start."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[str, ...]] = ()
    """Names of the fields, in order."""
    DEFAULTS: ClassVar[dict[str, Any]] = {}
    """Values of the fields that may be left out."""
    IS_EVENT: ClassVar[bool] = False
    """Whether each such note is an event of `__rebalance_events`, without conditions."""

    def __init_subclass__(cls, *, is_event: bool = False) -> None:
        cls.IS_EVENT = is_event
        own = tuple(cls.__annotations__)
        cls.DEFAULTS = cls.DEFAULTS | {name: vars(cls)[name] for name in own if name in vars(cls)}
        for place, name in enumerate(own, len(cls.FIELDS)):
            setattr(cls, name, property(itemgetter(place)))
        cls.FIELDS += own

    def __new__(cls, *values: Any, **named: Any) -> Self:
        """Take the fields by place or by name."""
        if named or len(values) != len(cls.FIELDS):
            given = dict(zip(cls.FIELDS, values, strict=False))
            assert len(values) == len(given), "too many values"
            assert not given.keys() & named.keys(), "a field twice"
            given = cls.DEFAULTS | given | named
            assert given.keys() == set(cls.FIELDS), "a field that is missing or unknown"
            values = tuple(map(given.__getitem__, cls.FIELDS))
        return tuple.__new__(cls, values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a note does not change: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self.FIELDS, self, strict=True))
        return f"{type(self).__name__}({fields})"


CLASSIC, CONSUMER = "classic", "consumer"
"""Types of groups, as ListGroups names them."""

NO_NAMES: Mapping[UUID, str] = {}

CHANGES_MAX = 100
"""Most members that the note of a target names."""


class TargetChange(NamedTuple):
    """A member whose target changes: how many topic partitions it gains, loses, and has then."""

    member_id: str
    group_instance_id: str | None
    gains: int
    loses: int
    partitions: int


class Note(Value):
    """Something that happened in `group` at `generation`."""

    group: str
    generation: int


class Noted(NamedTuple):
    """The notes of one event of the core. partition: of its groups. at_ms: its time (Unix time)."""

    partition: int
    at_ms: int
    notes: Sequence[Note]


class MemberNote(Note):
    """Something that happened to a member of `group`. client_id, client_host: of the client that has the seat."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class RebalanceStarted(Note):
    """The group went from `state` to PreparingRebalance; `generation` is the one that ends.

    members: the group's members, without members that left and with members that came. members_before: as in
    RebalanceEnded.

    In a group of the consumer protocol: the group epoch grew while every member was at its target. A RebalanceCause
    tells of each further epoch until all are at theirs.
    """

    state: str
    cause: Cause
    members: int = 0
    pending: tuple[Pending, ...] = ()
    members_before: int = 0
    group_type: str = CLASSIC


class RebalanceCause(Note):
    """Another cause came while the group prepared. In the consumer protocol it is another epoch."""

    cause: Cause
    group_type: str = CLASSIC


class GenerationStarted(Note):
    """The members have joined: the group has its new `generation` and waits for the assignments."""

    leader: str
    protocol_name: str
    members: int


class RebalanceCompleted(Note):
    """The leader's assignments came: the group is Stable."""

    leader: str
    members: int
    static_members: int
    without_assignment: tuple[str, ...] = ()


class RebalanceEnded(Note):
    """A rebalance ended. It began at `generation_before`. The fields come from its course (`course.Course`).

    topic_names: by topic id, where snapshots have ids.
    """

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
    group_type: str = CLASSIC
    topic_names: Mapping[UUID, str] = NO_NAMES


class TargetAssigned(Note):
    """A group of the consumer protocol has a target for its epoch, `generation`, made by `assignor`.

    gained_partitions, lost_partitions: how many topic partitions members gain and lose by it, all together.
    changes: of up to CHANGES_MAX members. further_changes: how many other members gain or lose some.
    """

    assignor: str
    members: int
    gained_partitions: int
    lost_partitions: int
    changes: tuple[TargetChange, ...] = ()
    further_changes: int = 0


class MemberRevoking(MemberNote):
    """The coordinator asks a member of the consumer protocol to give up so many topic partitions within a time.

    until_ms: Unix time; later the member is removed.
    """

    partitions: int
    until_ms: int


class MemberAway(MemberNote):
    """A static member of the consumer protocol left for a while; it keeps its seat until its session ends."""


class InstanceIdUnreleased(Note):
    """A client wants to join with an instance id whose member is active: UNRELEASED_INSTANCE_ID.

    silent_ms: how long ago the last heartbeat of `current_member_id` came; None if none came since the load.
    client: the sender. current_client: of the member that has the seat.
    """

    member_id: str
    current_member_id: str
    group_instance_id: str
    silent_ms: int | None
    client: Client
    current_client: Client


class RebalanceStuck(Note, is_event=True):
    """The rebalance timeout passed and no member rejoined; the group goes on waiting."""


class GroupEmptied(Note):
    """The last member is gone."""


class GroupConverted(Note, is_event=True):
    """A group with members changed its protocol. kind: the new one, "consumer" or "classic"; `generation` stays."""

    kind: str
    members: int


class GroupLoaded(Note):
    """The coordinator read the group from the log.

    write_failed: it read the log again, because a write of that log failed.
    state: "Dead", with generation 0, if the log had nothing of the group when that write failed.
    """

    state: str
    members: int
    write_failed: bool = False


class GroupUnloaded(Note):
    """The partition was unloaded."""


class GroupDeleted(Note, is_event=True):
    """`client` deleted the group, or it expired: it was empty and its last offset was gone (`expired`)."""

    offsets: int
    expired: bool = False
    client: Client | None = None


class MemberPending(Note):
    """The coordinator gave out a member id; the client must join with it (KIP-394)."""

    member_id: str
    client_id: str
    client_host: str
    lapses_ms: int = 0
    principal: str = ANONYMOUS


class PendingExpired(Note):
    """A pending member id lapsed, or its client gave it back (`left`)."""

    member_id: str
    left: bool = False


class RebalanceHeld(Note, is_event=True):
    """The group holds the joins of new members until expected members are there.

    missing: the first of them. missing_count: how many there are. until_wall_ms: when the wait ends at the latest.
    """

    missing: tuple[str, ...]
    missing_count: int
    until_wall_ms: int


class HoldEnded(Note, is_event=True):
    """No expected member is missing, or the wait for them is over: `joins` held joins come in.

    missing, missing_count: as in RebalanceHeld; 0 if nobody is missing.
    """

    joins: int
    missing: tuple[str, ...] = ()
    missing_count: int = 0


class ClientRefused(Note):
    """A request to join was refused with `error`, which ends the client or puts off an upgrade of the group.

    error: the name of the code. why, until: the reason, and when another try may succeed, in words.
    """

    member_id: str
    group_instance_id: str | None
    error: str
    why: str
    until: str
    client: Client


class MemberJoined(MemberNote):
    """A new member joined."""

    principal: str = ANONYMOUS


class MemberReplaced(Note, is_event=True):
    """A static member restarted: `member_id` takes the seat of `old_member_id` (KIP-345).

    subscription_changed: the member wants other topics than before, and no rebalance starts (KAFKA-12759).
    after_load: nothing came from `old_member_id` since the coordinator read the group from the log, so only the client
    knows whether it restarted, or lost its session while no coordinator answered and joined again.
    api_version: of the JoinGroup.
    away_ms: in the consumer protocol, how long the member was away; None if only the time before the load knows.
    silent_ms: how long ago the last request of `old_member_id` came, as its session timeout counts; None if none came
    since the load.
    """

    member_id: str
    old_member_id: str
    group_instance_id: str
    state: str
    client_id: str
    client_host: str
    rebalances: bool = False
    subscription_changed: bool = False
    after_load: bool = False
    api_version: int | None = None
    principal: str = ANONYMOUS
    away_ms: int | None = None
    silent_ms: int | None = None


class MemberFenced(Note):
    """A request came from `member_id`, but `group_instance_id` belongs to `current_member_id`.

    waited: the request came first and waited when the other took the seat.
    client: the sender of the request. current_client: the client that took the seat, None if that was before the load.
    """

    member_id: str
    current_member_id: str
    group_instance_id: str
    operation: str
    client: Client | None = None
    current_client: Client | None = None
    waited: bool = False


class MemberLeft(MemberNote):
    """A member left by request."""

    reason: str
    principal: str = ANONYMOUS


class MemberExpired(MemberNote):
    """The session of a member timed out."""

    principal: str = ANONYMOUS


class StandbyJoined(MemberNote):
    """A client waits as a standby, because all seats of the group are taken. standbys: how many wait now."""

    standbys: int
    principal: str = ANONYMOUS


class StandbySeated(MemberNote):
    """A rebalance gives a free seat to a standby that waited for `waited_ms`."""

    waited_ms: int
    standbys: int
    principal: str = ANONYMOUS


class StandbyGone(MemberNote):
    """A standby is gone. why: it left, expired, or its assignors are not the group's."""

    why: str
    standbys: int
    principal: str = ANONYMOUS


class SeatTaken(MemberNote, is_event=True):
    """A standby takes the seat of a member that is gone, with its assignment; there is no rebalance.

    kind: why `old_member_id` is gone, as the kind of a cause. waited_ms: how long the standby waited. leads: whether it
    leads the group. standbys: how many are left.
    """

    old_member_id: str
    old_group_instance_id: str | None
    old_client_id: str
    old_client_host: str
    kind: str
    waited_ms: int
    leads: bool
    standbys: int
    principal: str = ANONYMOUS


class MembersDropped(Note):
    """Members were dropped. `why`: they did not rejoin or sync in time, or the group was full."""

    member_ids: tuple[str, ...]
    why: str


class LeaderElected(Note, is_event=True):
    """The leader did not rejoin in time; another member leads."""

    old_leader: str
    leader: str


class OffsetsCreatedGroup(Note):
    """A commit without a generation created a simple group."""


class OffsetsRemoved(Note):
    """Committed offsets were deleted: by `client`, with their topic, or because they expired (`expired`)."""

    topic_partitions: tuple[tuple[str, int], ...]
    expired: bool
    client: Client | None = None


class GroupTooLarge(Note):
    """A record of the group would be larger than message.max.bytes, or than the store of a cluster takes (KAFKA-19760).

    It isn't written. A request that needs it is refused. In the consumer protocol it may also be a member's new target,
    or the topics that a regular expression matches: then the group goes on with the former ones.
    """

    size: int
    limit: int


class UnexpectedRequest(Note):
    """A request that no correct client sends; it was refused."""

    member_id: str
    detail: str


# The texts of log lines. Where Kafka has a wording, it is Kafka's.


def _waited_text(waited: Waited | None) -> str:
    if waited is None:
        return ""
    who = waited.member_id if waited.group_instance_id is None else waited.group_instance_id
    return f"; waited longest for {who} {AWAITED[waited.phase]}, {waited.ms} ms"


def _as(principal: str) -> str:
    """The principal of a client that authenticated."""
    return "" if principal == ANONYMOUS else f", {principal}"


def _completed_text(note: RebalanceCompleted, _: str) -> str:
    text = (
        f"Assignment received from leader {note.leader} for group {note.group} for generation {note.generation}. "
        f"The group has {note.members} members, {note.static_members} of which are static."
    )
    return f"{text} Without an assignment: {', '.join(note.without_assignment)}." if note.without_assignment else text


def _joined_text(note: MemberJoined, _: str) -> str:
    client = f"(client {note.client_id}, {note.client_host}{_as(note.principal)})"
    if note.group_instance_id is None:
        return f"Dynamic member {note.member_id} joins group {note.group}. Adding to the group now {client}"
    return (
        f"Static member with groupInstanceId={note.group_instance_id} and unknown member id joins group {note.group}. "
        f"Created a new member id {note.member_id} for this member and added it to the group {client}"
    )


def _fenced_text(note: MemberFenced, _: str) -> str:
    who = f"memberId={note.member_id}" if note.member_id else "without a member id"
    return (
        f"Request {who} for static member with groupInstanceId={note.group_instance_id} "
        f"is fenced by current memberId={note.current_member_id} during operation {note.operation} "
        f"in group {note.group}"
    )


def _expired_text(note: MemberExpired, _: str) -> str:
    static = "" if note.group_instance_id is None else f" with groupInstanceId={note.group_instance_id}"
    return (
        f"Member {note.member_id}{static} in group {note.group} has been removed after session timeout expiration "
        f"(client {note.client_id}, {note.client_host}{_as(note.principal)})"
    )


def _pending_expired_text(note: PendingExpired, _: str) -> str:
    if note.left:
        return f"Pending member {note.member_id} has left group {note.group} through explicit `LeaveGroup`"
    return f"Pending member {note.member_id} in group {note.group} has been removed after session timeout expiration."


def _missing_text(names: Sequence[str], count: int) -> str:
    return ", ".join(names) + ("" if count == len(names) else f" and {count - len(names)} more")


def _held_text(note: RebalanceHeld, _: str) -> str:
    missing = _missing_text(note.missing, note.missing_count)
    return f"Group {note.group} holds new members until expected ones are there; missing: {missing}"


def _hold_ended_text(note: HoldEnded, _: str) -> str:
    if not note.missing_count:
        return f"Group {note.group} lets {note.joins} held members in: no expected member is missing"
    missing = _missing_text(note.missing, note.missing_count)
    return f"Group {note.group} lets {note.joins} held members in and waits no longer; missing: {missing}"


def _refused_text(note: ClientRefused, _: str) -> str:
    who = f"member {note.member_id}" if note.member_id else "a client"
    if note.group_instance_id is not None:
        who += f" with groupInstanceId={note.group_instance_id}"
    by = note.client
    return (
        f"Group {note.group} refuses {who} with {note.error}: {note.why.removesuffix('.')}, until {note.until} "
        f"(client {by.id}, {by.host}{_as(by.principal)})"
    )


def _deleted_text(note: GroupDeleted, _: str) -> str:
    if note.expired:
        return f"Group {note.group} transitioned to Dead in generation {note.generation}"
    return f"Group {note.group} was deleted. A total of {note.offsets} offsets were removed."


def _removed_text(note: OffsetsRemoved, _: str) -> str:
    what = ", ".join(f"{topic}-{index}" for topic, index in note.topic_partitions)
    return f"Group {note.group}: {'expired' if note.expired else 'deleted'} committed offsets of {what}"


def _started_text(note: RebalanceStarted, place: str) -> str:
    if note.group_type == CONSUMER:
        return (
            f"[GroupId {note.group}] Bumped group epoch to {note.generation + 1} {place} "
            f"(reason: {reason_of(note.cause)}; from state {note.state})"
        )
    return (
        f"Preparing to rebalance group {note.group} in state PreparingRebalance with old generation "
        f"{note.generation} {place} (reason: {reason_of(note.cause)}; from state {note.state})"
    )


def _cause_text(note: RebalanceCause, place: str) -> str:
    if note.group_type == CONSUMER:
        return (
            f"[GroupId {note.group}] Bumped group epoch to {note.generation + 1} {place} "
            f"(reason: {reason_of(note.cause)}; while it rebalances)"
        )
    return f"Group {note.group} is preparing to rebalance already; another reason: {reason_of(note.cause)}"


def _target_text(note: TargetAssigned, _: str) -> str:
    return (
        f"[GroupId {note.group}] Computed a new target assignment for epoch {note.generation} with '{note.assignor}' "
        f"assignor: {note.members} members, {note.gained_partitions} topic partitions given, "
        f"{note.lost_partitions} taken away"
    )


def named(member_id: str, instance_id: str | None) -> str:
    """A member with its instance id, if it has one."""
    return member_id if instance_id is None else f"{member_id} with groupInstanceId={instance_id}"


def _revoking_text(note: MemberRevoking, _: str) -> str:
    return (
        f"[GroupId {note.group}] Member {named(note.member_id, note.group_instance_id)} is asked to give up "
        f"{note.partitions} topic partitions (client {note.client_id}, {note.client_host})"
    )


def _away_text(note: MemberAway, _: str) -> str:
    return (
        f"[GroupId {note.group}] Static member {note.member_id} with instance id {note.group_instance_id} temporarily "
        f"left the group; its seat is kept until its session ends (client {note.client_id}, {note.client_host})"
    )


def _unreleased_text(note: InstanceIdUnreleased, _: str) -> str:
    heard = "" if note.silent_ms is None else f", heard of {note.silent_ms} ms ago"
    return (
        f"[GroupId {note.group}] Static member {note.member_id} with instance id {note.group_instance_id} cannot join "
        f"the group because the instance id is owned by member {note.current_member_id} "
        f"({note.client.id}, {note.client.host}; the owner is {note.current_client.id}, "
        f"{note.current_client.host}{heard})"
    )


# A table, because `match` would try one class after the other.
TEXTS: Mapping[type[Note], Callable[[Any, str], str]] = {
    RebalanceStarted: _started_text,
    RebalanceCause: _cause_text,
    TargetAssigned: _target_text,
    MemberRevoking: _revoking_text,
    MemberAway: _away_text,
    InstanceIdUnreleased: _unreleased_text,
    GenerationStarted: lambda note, place: (
        f"Stabilized group {note.group} generation {note.generation} {place} with {note.members} members"
    ),
    RebalanceCompleted: _completed_text,
    RebalanceEnded: lambda note, place: (
        f"Rebalance of group {note.group} from {'generation' if note.group_type == CLASSIC else 'epoch'} "
        f"{note.generation_before} {place} is over: "
        f"{OUTCOMES[note.outcome]}{_waited_text(note.waited_for)}"
    ),
    RebalanceStuck: lambda note, _: f"Group {note.group} could not complete rebalance because no members rejoined",
    GroupEmptied: lambda note, place: f"Group {note.group} with generation {note.generation} is now empty {place}",
    GroupConverted: lambda note, _: (
        f"Converted group {note.group} to a {note.kind} group in generation {note.generation} with {note.members} "
        f"members"
    ),
    GroupLoaded: lambda note, place: (
        f"Loading group metadata for {note.group} with generation {note.generation} {place}: {note.state}, "
        f"{note.members} members"
    ),
    GroupUnloaded: lambda note, place: (
        f"Unloading group metadata for {note.group} with generation {note.generation} {place}"
    ),
    GroupDeleted: _deleted_text,
    MemberPending: lambda note, _: (
        f"Dynamic member with unknown member id joins group {note.group}. Created a new member id "
        f"{note.member_id}, with which the member has to join again (client {note.client_id}, "
        f"{note.client_host}{_as(note.principal)})"
    ),
    PendingExpired: _pending_expired_text,
    RebalanceHeld: _held_text,
    HoldEnded: _hold_ended_text,
    ClientRefused: _refused_text,
    MemberJoined: _joined_text,
    MemberReplaced: lambda note, _: (
        f"Static member with groupInstanceId={note.group_instance_id} and unknown member id joins group "
        f"{note.group} in {note.state} state. Replacing previously mapped member {note.old_member_id} with "
        f"{note.member_id} (client {note.client_id}, {note.client_host}{_as(note.principal)})"
    ),
    MemberFenced: _fenced_text,
    MemberLeft: lambda note, _: (
        f"Member {note.member_id} has left group {note.group} through explicit `LeaveGroup`; client reason: "
        f"{note.reason or 'not provided'}"
    ),
    MemberExpired: _expired_text,
    StandbyJoined: lambda note, _: (
        f"Member {note.member_id} waits as a standby of group {note.group}, whose seats are taken: standby number "
        f"{note.standbys} (client {note.client_id}, {note.client_host}{_as(note.principal)})"
    ),
    StandbySeated: lambda note, _: (
        f"Standby {note.member_id} gets a seat in the rebalance of group {note.group} after {note.waited_ms} ms "
        f"(client {note.client_id}, {note.client_host}{_as(note.principal)}); {note.standbys} left"
    ),
    StandbyGone: lambda note, _: (
        f"Standby {note.member_id} of group {note.group} is gone: {note.why} (client {note.client_id}, "
        f"{note.client_host}{_as(note.principal)}); {note.standbys} left"
    ),
    SeatTaken: lambda note, _: (
        f"Standby {note.member_id} takes the seat of {note.old_member_id} in group {note.group} at generation "
        f"{note.generation}, without a rebalance: {CauseKind(note.kind).words.possible} (client {note.client_id}, "
        f"{note.client_host}{_as(note.principal)}); {note.standbys} left"
    ),
    MembersDropped: lambda note, _: f"Group {note.group} removed members {', '.join(note.member_ids)}: {note.why}",
    LeaderElected: lambda note, _: (
        f"Group {note.group}: leader {note.old_leader} did not rejoin in time, {note.leader} leads now"
    ),
    OffsetsCreatedGroup: lambda note, _: f"Creating simple consumer group {note.group} via manual offset commit.",
    OffsetsRemoved: _removed_text,
    GroupTooLarge: lambda note, _: (
        f"Group {note.group} would need a record of {note.size} bytes, the limit (message.max.bytes, or that of the "
        f"cluster's store) is {note.limit}: not written, the group stays as it was"
    ),
    UnexpectedRequest: lambda note, _: (
        f"Group {note.group} refused a request of member {note.member_id}: {note.detail}"
    ),
}
"""A function for each note: takes the note, and its group's partition in words."""
assert set(TEXTS) == {*Note.__subclasses__(), *MemberNote.__subclasses__()} - {MemberNote}


@cache
def place_text(partition: int) -> str:
    """A partition of the metadata log, as Kafka's lines name it."""
    return f"(__consumer_offsets-{partition})"
