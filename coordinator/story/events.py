"""The events of `__rebalance_events`: a class for each type, from which their JSON comes (docs/run/events.md).

An event of a group has the fields of the core's note of that name (coordinator.group.notes); `making` makes it. Where a
field is UNSET, the JSON lacks it. A field that older records lack has a default. A null stands where nobody knows the
value: the inference makes events of records that don't tell everything (coordinator.story.inference).

A record of a later version, of an unknown type, or with a field of another kind can't be read.

House rule: `version` grows when a field changes its meaning or goes; new fields have a default and need no new version.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType, field, to_builtins
from msgspec.json import Decoder, Encoder

from coordinator.group.causes import CauseKind, Change, Origin
from coordinator.group.course import Outcome, Phase
from coordinator.group.notes import CLASSIC, CONSUMER
from coordinator.story.schema import CONFLICT, SELF, STREAMS, UNKNOWN, event_name
from coordinator.text import client_text, duration_text, several, short, time_text


def one_of(values: type[Enum] | tuple[str, ...], text: str | None = None) -> Meta:
    """About a field that has one of these values. A reader takes others too: a later version may have more."""
    known = [each if isinstance(each, str) else each.value for each in values]
    return Meta(description=text, extra_json_schema={"enum": known})


def says(text: str) -> Meta:
    """About a field."""
    return Meta(description=text)


Flag = bool | UnsetType
UnixMs = Annotated[int, says("Unix time in ms")]
GroupType = Annotated[str, one_of((CONSUMER, STREAMS), "the protocol; missing in classic groups")] | UnsetType


class Client(Struct, frozen=True):
    """A client. principal: only of one that authenticated, here and below."""

    client_id: str
    client_host: str
    principal: str | UnsetType = UNSET


class Party(Struct, frozen=True):
    """One of several members that caused a rebalance together."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    principal: str | UnsetType = UNSET


class TopicChange(Struct, frozen=True):
    """A topic that is part of a cause. change: a value of coordinator.group.causes.Change."""

    topic: str
    change: Annotated[str, one_of(Change)]


class Cause(Struct, frozen=True):
    """A cause of a rebalance (coordinator.group.causes.Cause).

    kind: of CauseKind; UNKNOWN if the log of groups allows several, which `possible` has. told: somebody told it, such
    as a line of a broker's log.
    """

    kind: str
    member_ids: list[str]
    group_instance_id: str | None
    client_id: str
    client_host: str
    source: Annotated[str, one_of(Origin)]
    reason: Annotated[str, says("the client's own words (KIP-800)")]
    meaning: str | None
    join_reason: Annotated[int | None, says("KIP-423's number")]
    api_version: int | None
    members: Annotated[list[Party], says("the members, if there are several")] | UnsetType = UNSET
    principal: str | UnsetType = UNSET
    topics: list[TopicChange] | UnsetType = UNSET
    further_topics: int | UnsetType = UNSET
    possible: list[str] | UnsetType = UNSET
    told: Flag = UNSET


class Waited(Struct, frozen=True):
    """The longest wait of a rebalance (coordinator.group.course.Waited)."""

    member_id: str
    phase: Annotated[str, one_of(Phase)]
    ms: int
    group_instance_id: str | UnsetType = UNSET


class Pending(Struct, frozen=True):
    """A member id that no client has used yet. lapses_ms: when the coordinator takes it back."""

    member_id: str
    client_id: str
    client_host: str
    lapses_ms: UnixMs


class After(Struct, frozen=True):
    """A member after a rebalance. partitions: null where only its clients can read assignments."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: int | None


class Move(Struct, frozen=True):
    """A topic partition, the member before and the member after; None for no member."""

    topic: str
    partition: int
    before: str | None = field(name="from")
    after: str | None = field(name="to")


class TargetChange(Struct, frozen=True):
    """A member whose target changes."""

    member_id: str
    group_instance_id: str | None
    gains: int
    loses: int
    partitions: int


class _Told(Struct, frozen=True):
    """An event.

    entry: the type of the entry of a timeline that it may begin; empty if it only adds to one (`entries`).
    """

    entry: ClassVar[str] = ""

    def lines(self) -> Iterator[str]:
        """Its entry in words, if it tells all of it: a line, and lines below. Without an entry, the event in words."""
        return self._lines()

    def _lines(self) -> Iterator[str]:
        return iter(())


class EventsDropped(_Told, frozen=True, kw_only=True):
    """Events that could not be kept. They may be of any group."""

    version: Literal[1] = 1
    type: Literal["events_dropped"] = "events_dropped"
    entry: ClassVar[str] = "gap"
    at_ms: UnixMs
    group: None = None
    node: int | UnsetType = UNSET
    events: int
    first_ms: UnixMs
    last_ms: UnixMs
    inferred: Flag = UNSET

    def _lines(self) -> Iterator[str]:
        first, last = time_text(self.first_ms), time_text(self.last_ms)
        when = f"at {first}" if first == last else f"between {first} and {last}"
        yield f"gap: {several(self.events, 'event')} could not be kept {when}"


class GroupEvent(_Told, frozen=True, kw_only=True):
    """Something that happened to a group. node: of a server that told it. inferred: made of the log of groups."""

    version: Literal[1] = 1
    type: str
    at_ms: UnixMs
    group: str
    generation: int
    node: int | UnsetType = UNSET
    inferred: Flag = UNSET


class RebalanceStarted(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["rebalance_started"] = "rebalance_started"
    entry: ClassVar[str] = "rebalance"
    state: str
    cause: Cause
    members: int
    pending: list[Pending]
    members_before: Annotated[int | None, says("null if only an older record of the start exists")]
    group_type: GroupType = UNSET


class RebalanceCause(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["rebalance_cause"] = "rebalance_cause"
    cause: Cause
    group_type: GroupType = UNSET


class RebalanceEnded(GroupEvent, frozen=True, kw_only=True):
    """See the note. generations_unseen: how many the log has no trace of."""

    type: Literal["rebalance_ended"] = "rebalance_ended"
    entry: ClassVar[str] = "rebalance"
    group_type: GroupType = UNSET
    outcome: Annotated[str, one_of(Outcome)]
    generation_before: int
    state: str
    causes: list[Cause]
    further_causes: int
    began_ms: UnixMs
    preparing_ms: int | None
    completing_ms: int | None
    waited_for: Waited | None
    late: list[str]
    lapsed: list[str]
    leader: str | None
    protocol_type: str | None
    protocol_name: str | None
    members_before: int
    members_after: int
    before: list[str]
    after: list[After]
    moved_partitions: int | None
    assigned_partitions: int | None
    freed_partitions: int | None
    moved: list[Move] | None
    causes_in_order: Flag = UNSET
    generations_unseen: int | UnsetType = UNSET


class RebalanceStuck(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["rebalance_stuck"] = "rebalance_stuck"

    def _lines(self) -> Iterator[str]:
        yield "nobody has rejoined within the rebalance timeout, the group waits on"


class RebalanceHeld(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["rebalance_held"] = "rebalance_held"
    entry: ClassVar[str] = "held"
    missing: list[str]
    missing_count: int
    until_wall_ms: UnixMs


class HoldEnded(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["hold_ended"] = "hold_ended"
    entry: ClassVar[str] = "held"
    joins: int
    missing: list[str]
    missing_count: int


class TargetAssigned(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["target_assigned"] = "target_assigned"
    assignor: str | None
    members: int
    gained_partitions: int
    lost_partitions: int
    changes: list[TargetChange]
    further_changes: int


class MemberRevoking(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["member_revoking"] = "member_revoking"
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: int
    until_ms: UnixMs


class MemberAway(GroupEvent, frozen=True, kw_only=True):
    """See the note. Only an observer makes it."""

    type: Literal["member_away"] = "member_away"
    member_id: str
    group_instance_id: str
    client_id: str
    client_host: str


class ClientRefused(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["client_refused"] = "client_refused"
    entry: ClassVar[str] = "refused"
    member_id: str
    group_instance_id: str | None
    error: Annotated[str, says("the name of the error code")]
    why: str
    until: str
    client: Client

    def _lines(self) -> Iterator[str]:
        seat = "" if self.group_instance_id is None else f" with the instance id {self.group_instance_id}"
        yield f"refused: a client{seat} ({client_text(self.client)}) got {self.error}: {self.why}"
        yield f"this lasts until {self.until}"


class InstanceIdUnreleased(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["instance_id_unreleased"] = "instance_id_unreleased"
    entry: ClassVar[str] = "unreleased"
    member_id: str
    current_member_id: str
    group_instance_id: str
    silent_ms: int | None
    client: Client
    current_client: Client

    def _lines(self) -> Iterator[str]:
        one, other = client_text(self.client), client_text(self.current_client)
        heard = "" if self.silent_ms is None else f" and was heard of {duration_text(self.silent_ms)} before"
        yield (
            f"refused: {short(self.member_id)} ({one}) wants the seat of {self.group_instance_id}, which "
            f"{short(self.current_member_id)} ({other}) has{heard}"
        )
        yield "a seat is free once its member leaves or its session ends (UNRELEASED_INSTANCE_ID)"


class GroupConverted(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["group_converted"] = "group_converted"
    entry: ClassVar[str] = "converted"
    kind: Annotated[str, one_of((CLASSIC, CONSUMER, STREAMS), "the group's protocol from then on")]
    members: int

    def _lines(self) -> Iterator[str]:
        members = several(self.members, "member")
        if self.kind != CLASSIC:
            stay = "stays" if self.members == 1 else "stay"
            yield (
                f"upgrade: the group has the {self.kind} protocol, from epoch {self.generation} on; "
                f"{members} of the classic protocol {stay}"
            )
        else:
            yield (
                f"downgrade: the group has the classic protocol again, from generation {self.generation} on, with "
                f"{members}"
            )


class GroupLoaded(GroupEvent, frozen=True, kw_only=True):
    """See the note. in_cluster: a node of a cluster loaded it; no node need have started for that."""

    type: Literal["group_loaded"] = "group_loaded"
    entry: ClassVar[str] = "loaded"
    state: str
    members: int
    write_failed: Flag = UNSET
    in_cluster: Flag = UNSET
    group_type: GroupType = UNSET


class GroupDeleted(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["group_deleted"] = "group_deleted"
    entry: ClassVar[str] = "deleted"
    offsets: int | None
    expired: bool
    client: Annotated[Client | None, says("null if it expired")] = None

    def _lines(self) -> Iterator[str]:  # without a client where the group expired
        yield "the group was deleted" + (f" by {client_text(self.client)}" if self.client else "")


class MemberPending(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["member_pending"] = "member_pending"
    entry: ClassVar[str] = "pending"
    member_id: str
    client_id: str
    client_host: str
    lapses_ms: UnixMs
    principal: str | UnsetType = UNSET


class PendingExpired(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["pending_expired"] = "pending_expired"
    member_id: str
    left: bool

    def _lines(self) -> Iterator[str]:
        yield f"member id {short(self.member_id)} is {'given back' if self.left else 'taken back unused'}"


class MemberReplaced(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["member_replaced"] = "member_replaced"
    member_id: str
    old_member_id: str
    group_instance_id: str
    state: str
    client_id: str
    client_host: str
    rebalances: bool
    subscription_changed: Annotated[bool, says("missing in older records")] | UnsetType = UNSET
    after_load: Flag = UNSET
    api_version: Annotated[int | None, says("of the JoinGroup; missing in older records")] | UnsetType = UNSET
    principal: str | UnsetType = UNSET
    away_ms: Annotated[int, says("in the consumer protocol, how long the member was away")] | UnsetType = UNSET
    silent_ms: (
        Annotated[int | None, says("since the last request of old_member_id; null if none came since the load")]
        | UnsetType
    ) = UNSET


class MemberFenced(GroupEvent, frozen=True, kw_only=True):
    """See the note. kind: SELF or CONFLICT."""

    type: Literal["member_fenced"] = "member_fenced"
    entry: ClassVar[str] = "fencing"
    member_id: str
    current_member_id: str
    group_instance_id: str
    operation: str
    client: Client | None
    current_client: Client | None
    waited: bool
    kind: Annotated[str, one_of((CONFLICT, SELF))]

    @property
    def is_conflict(self) -> bool:
        """Whether two programs have one instance id."""
        return self.kind == CONFLICT

    def _lines(self) -> Iterator[str]:
        one, other = ("unknown" if each is None else client_text(each) for each in (self.client, self.current_client))
        fenced, current = short(self.member_id), short(self.current_member_id)
        if not fenced:
            yield (
                f"refused: a request had the instance id {self.group_instance_id} and no member id "
                f"({self.operation}, {one}), and {current} ({other}) has the seat"
            )
        elif self.is_conflict:
            parties = f"{fenced} ({one}) is fenced by {current} ({other})"
            yield f"conflict: two programs are {self.group_instance_id}: {parties}"
        else:
            came = "which came after it from the same client"
            yield f"fenced: {fenced} of {self.group_instance_id} ({one}) by {current}, {came}"


class SeatTaken(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["seat_taken"] = "seat_taken"
    entry: ClassVar[str] = "seat_taken"
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    old_member_id: str
    old_group_instance_id: str | None
    old_client_id: str
    old_client_host: str
    kind: Annotated[str, says("why the old member is gone, as the kind of a cause")]
    waited_ms: int | None
    leads: bool
    standbys: int | None
    principal: str | UnsetType = UNSET

    def _lines(self) -> Iterator[str]:
        new = self.group_instance_id or short(self.member_id)
        old = self.old_group_instance_id or short(self.old_member_id)
        lost = client_text(Client(self.old_client_id, self.old_client_host))
        lead = " and leads" if self.leads else ""
        why = "it is gone" if self.kind == UNKNOWN else CauseKind(self.kind).words.possible
        waited = ""
        if self.waited_ms is not None:  # the log of groups alone doesn't tell
            waited = f"; it waited {duration_text(self.waited_ms)}, {several(self.standbys or 0, 'standby')} left"
        yield (
            f"seat taken: standby {new} ({client_text(self)}) has the seat of {old} ({lost}){lead}, because {why}; "
            f"no rebalance{waited}"
        )


class LeaderElected(GroupEvent, frozen=True, kw_only=True):
    """See the note."""

    type: Literal["leader_elected"] = "leader_elected"
    old_leader: str
    leader: str


class FindingBegan(GroupEvent, frozen=True, kw_only=True):
    """A finding about progress began, or got worse (coordinator.story.diagnosis). Only an observer makes it.

    member_id: of the member that it is about; None if it isn't about one. generation: -1 if no record has it.
    """

    type: Literal["finding_began"] = "finding_began"
    kind: str
    severity: str
    found: str
    advice: str
    since_ms: Annotated[int | None, says("Unix time in ms of the first look that showed it")]
    member_id: str | None


class FindingEnded(GroupEvent, frozen=True, kw_only=True):
    """The cause of a finding about progress is gone. Only an observer makes it. began_ms: `at_ms` of its begin."""

    type: Literal["finding_ended"] = "finding_ended"
    kind: str
    member_id: str | None
    began_ms: UnixMs


RebalanceEvent = GroupEvent | EventsDropped

_CLASSES: list[type[RebalanceEvent]] = [*GroupEvent.__subclasses__(), EventsDropped]
TYPES = {event_name(kind.__name__): kind for kind in _CLASSES}
"""The class of each type of events."""


class _Head(Struct):
    """The part of a record that says which class reads it."""

    version: Literal[1]
    type: str


_HEAD = Decoder(_Head)
_READERS = {name: Decoder(kind) for name, kind in TYPES.items()}
_WRITER = Encoder()


def read_event(value: bytes | None) -> RebalanceEvent | None:
    """The event in a record's value; None if it can't be read."""
    try:
        reader = _READERS.get(_HEAD.decode(value or b"").type)
        return None if reader is None else reader.decode(value or b"")
    except (DecodeError, UnicodeDecodeError):
        return None


def event_json(event: RebalanceEvent) -> bytes:
    """An event as JSON, in one line."""
    return _WRITER.encode(event)


def fields_of(event: Struct) -> dict[str, Any]:
    """An event, or a part of one, as a JSON object."""
    fields: dict[str, Any] = to_builtins(event)
    return fields
