"""Makes events of notes, and records of events, for `__rebalance_events`.

A record's key is the group's id; its value is the event's JSON. Only this module decodes the bytes that leaders wrote,
to see which topic partitions moved. That takes longer than all else about a rebalance, so the server makes records on
the thread of the topics' logs, after the answers went out.

A record names a limited number of members, moves and causes; the counts beside them cover all. A record is never larger
than a batch may be.

House rule: a value of the core becomes a value of an event in one place, `plain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from msgspec import UNSET, UnsetType, to_builtins
from msgspec.json import decode, encode

from coordinator.group import notes
from coordinator.group.causes import Cause, CauseKind, Change, Meaning, Origin, Party
from coordinator.group.client import ANONYMOUS, Client
from coordinator.group.course import Outcome, Pending, Phase, Snapshot, Waited
from coordinator.story import events
from coordinator.story.schema import Gap, TimedNote, event_name
from protocol.consumer import decode_assignment
from protocol.records.batch import Record

MEMBERS_MAX = 100
"""Most members before, and after, that a record names."""

MOVES_MAX = 100
"""Most moved topic partitions that a record names."""

VALUE_MAX = 256 * 1024
"""Most characters of a record. A longer record has its names and reasons cut."""

TEXT_MAX = 500
"""Length of a name or reason after the cut. A client can send 32,767 characters, and a record has some hundred texts.
"""

Assignment = bytes | Mapping[UUID, Mapping[int, int]]
"""The assignment of a member in a snapshot (course.Snapshot)."""

Move = tuple[str, int, str | None, str | None]
"""Topic, partition, the member before and the member after; None for no member."""

ASSIGNMENTS_KEPT = 4_096
"""Decoded assignments in the cache. Most members have the same one again."""

KEPT_BYTES_MAX = 512
"""Longest assignment in the cache. Its decoded form takes tens of times its bytes; this keeps the cache below some 100
MB, whatever clients send.
"""

_VALUES = {item: item.value for kind in (Outcome, CauseKind, Change, Origin, Meaning, Phase) for item in kind}


# A field of a note becomes a field of an event.


def _principal(principal: str) -> str | UnsetType:
    return UNSET if principal == ANONYMOUS else principal


def _client(client: Client) -> events.Client:
    return events.Client(client.id, client.host, _principal(client.principal))


def _party(party: Party) -> events.Party:
    return events.Party(*party[:-1], _principal(party.principal))


def _waited(waited: Waited) -> events.Waited:
    member_id, phase, ms, name = waited
    return events.Waited(member_id, _VALUES[phase], ms, UNSET if name is None else name)


def _cause(cause: Cause) -> events.Cause:
    (
        kind, member_ids, instance_id, client_id, client_host, reason, join_reason, api_version, members, who, topics,
        further_topics,
    ) = cause  # fmt: skip
    meaning = cause.meaning if reason else None
    return events.Cause(
        _VALUES[kind],
        list(member_ids),
        instance_id,
        client_id,
        client_host,
        _VALUES[cause.source],
        reason,
        None if meaning is None else _VALUES[meaning],
        join_reason,
        api_version,
        [_party(each) for each in members] if members else UNSET,
        UNSET if who == ANONYMOUS else who,
        [events.TopicChange(each.topic, _VALUES[each.change]) for each in topics] if topics else UNSET,
        further_topics or UNSET,
    )


_PLAIN: Mapping[type, Callable[[Any], Any]] = {
    Cause: _cause,
    Client: _client,
    Waited: _waited,
    Pending: lambda pending: events.Pending(*pending),
    notes.TargetChange: lambda change: events.TargetChange(*change),
    tuple: lambda values: [plain(value) for value in values],
    **dict.fromkeys((Outcome, CauseKind, Change, Origin, Meaning, Phase), _VALUES.__getitem__),
}

USUAL = {"principal": ANONYMOUS, "group_type": notes.CLASSIC, "away_ms": None}
"""Values with which a field is left out."""


def plain(value: Any) -> Any:
    """A field of a note as a field of an event."""
    convert = _PLAIN.get(type(value))
    return value if convert is None else convert(value)


def fields_of(note: notes.Note, names: Iterable[str]) -> dict[str, Any]:
    """Fields of a note as fields of an event; without those that have their usual value."""
    fields = ((name, getattr(note, name)) for name in names if name != "topic_names")
    return {name: plain(value) for name, value in fields if name not in USUAL or value != USUAL[name]}


def json_fields(note: notes.Note, names: Iterable[str]) -> dict[str, Any]:
    """Fields of a note as JSON values."""
    fields: dict[str, Any] = to_builtins(fields_of(note, names))
    return fields


def event_of(happened: TimedNote | Gap, node: int | UnsetType = UNSET) -> events.RebalanceEvent:
    """The event of a note, or of events that could not be kept."""
    if isinstance(happened, Gap):
        return events.EventsDropped(at_ms=happened.last_ms, node=node, **happened._asdict())
    at_ms, note, extra = happened
    if isinstance(note, notes.RebalanceEnded):
        return ended_of(at_ms, note, node)
    kind = events.TYPES[event_name(type(note).__name__)]
    return kind(at_ms=at_ms, node=node, **fields_of(note, note.FIELDS), **extra)


def record_of(happened: TimedNote | Gap, node_id: int, written_ms: int) -> Record:
    """The record of an event.

    Its key is the group's id; a gap has an empty one, because it may concern any group. Its timestamp is `written_ms`.
    """
    event = event_of(happened, node_id)
    value = events.event_json(event)
    if len(value) > VALUE_MAX and len(value.decode()) > VALUE_MAX:
        value = encode(_cut(decode(value)))
    return Record((event.group or "").encode(), value, written_ms)


def _cut(value: Any) -> Any:
    """A JSON value with its long texts cut."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else value[:TEXT_MAX] + "..."
    if isinstance(value, list):
        return [_cut(part) for part in value]
    if isinstance(value, dict):
        return {name: _cut(part) for name, part in value.items()}
    return value


def ended_of(at_ms: int, note: notes.RebalanceEnded, node: int | UnsetType = UNSET) -> events.RebalanceEnded:
    """The event of the end of a rebalance. Most events are one, so it is made field by field."""
    (
        group, generation, outcome, generation_before, state, causes, further_causes, began_ms, preparing_ms,
        completing_ms, waited_for, late, lapsed, leader, protocol_type, protocol_name, before, after, group_type, _,
    ) = note  # fmt: skip
    moved = moves(note) if outcome is Outcome.COMPLETED else None
    assigned, freed = (sum([move[side] is None for move in moved or ()]) for side in (2, 3))
    return events.RebalanceEnded(
        at_ms=at_ms,
        group=group,
        generation=generation,
        node=node,
        group_type=UNSET if group_type == notes.CLASSIC else group_type,
        outcome=_VALUES[outcome],
        generation_before=generation_before,
        state=state,
        causes=[_cause(cause) for cause in causes],
        further_causes=further_causes,
        began_ms=began_ms,
        preparing_ms=preparing_ms,
        completing_ms=completing_ms,
        waited_for=None if waited_for is None else _waited(waited_for),
        late=list(late),
        lapsed=list(lapsed),
        leader=leader,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        members_before=len(before),
        members_after=len(after),
        before=_names(before[:MEMBERS_MAX]),
        after=[
            events.After(
                member_id,
                name,
                client_id,
                client_host,
                None if (owned := _owned(note, assignment)) is None else len(owned),
            )
            for member_id, name, client_id, client_host, assignment in after[:MEMBERS_MAX]
        ],
        moved_partitions=None if moved is None else len(moved) - assigned - freed,
        assigned_partitions=None if moved is None else assigned,
        freed_partitions=None if moved is None else freed,
        moved=None if moved is None else [events.Move(*move) for move in moved[:MOVES_MAX]],
    )


def moves(note: notes.RebalanceEnded) -> list[Move] | None:
    """The topic partitions that have another member than before; None if the assignments can't be read.

    Those that moved from a member to another come first, then those that had none, at last those that have none now. A
    static member stays the same with another member id. Members with the same bytes before and after kept what they
    had.
    """
    before = _assignments(note.before)
    after = _assignments(note.after)
    if before == after:
        return []
    had = _owners(note, before, after)
    have = _owners(note, after, before)
    if had is None or have is None:
        return None
    changed = [
        (*place, had.get(place), have.get(place))
        for place in sorted(had.keys() | have.keys() if had else have)
        if had.get(place) != have.get(place)
    ]
    return sorted(changed, key=lambda move: (move[3] is None, move[2] is None)) if had else changed


def _owners(
    note: notes.RebalanceEnded, seats: Mapping[str, Assignment], others: Mapping[str, Assignment]
) -> dict[tuple[str, int], str] | None:
    """The member of each topic partition, for members whose assignment is another one in `others`.

    None if an assignment can't be read.
    """
    owners: dict[tuple[str, int], str] = {}
    for name, assignment in seats.items():
        if others.get(name) != assignment:
            owned = _owned(note, assignment)
            if owned is None:
                return None
            for place in owned:
                owners[place] = name
    return owners


def _names(seats: Sequence[Snapshot]) -> list[str]:
    return [member_id if name is None else name for member_id, name, _, _, _ in seats]


def _assignments(seats: Sequence[Snapshot]) -> dict[str, Assignment]:
    """Assignments by the name that a member keeps: a static member's instance id, another's member id."""
    return {member_id if name is None else name: assignment for member_id, name, _, _, assignment in seats}


def _owned(note: notes.RebalanceEnded, assignment: Assignment) -> tuple[tuple[str, int], ...] | None:
    """The topic partitions of an assignment. Those of a topic whose name nobody knows any more are left out."""
    if isinstance(assignment, bytes):
        return (_read if len(assignment) > KEPT_BYTES_MAX else _read_once)(note.protocol_type, assignment)
    names = note.topic_names
    return tuple(
        (names[topic_id], partition)
        for topic_id, partitions in assignment.items()
        if topic_id in names
        for partition in partitions
    )


def _read(protocol_type: str | None, assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    read = decode_assignment(protocol_type or "", assignment)
    if read is None:
        return None
    return tuple((topic, partition) for topic, partitions in read.items() for partition in partitions)


_read_once = lru_cache(ASSIGNMENTS_KEPT)(_read)
