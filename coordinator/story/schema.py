"""The events of `__rebalance_events`: notes become records here, and records become events (docs/run/events.md).

A note of the core, with its time, makes a record. The record's key is the group's id; its value is one JSON object with
a schema version. Only this module decodes the bytes that leaders wrote, to see which topic partitions moved. That takes
longer than all else about a rebalance, so the server makes records on the thread of the topics' logs, after the answers
went out.

A record names a limited number of members, moves and causes; the counts beside them cover all. A record is never larger
than a batch may be.

House rule: `version` grows when a field changes its meaning or goes; new fields need no new version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from coordinator.group import notes
from coordinator.group.causes import Cause, CauseKind, Meaning, Party, Source
from coordinator.group.client import ANONYMOUS, Client
from coordinator.group.course import Outcome, Phase, Snapshot, Waited
from protocol.consumer import decode_assignment
from protocol.records.batch import Record

Item = TypeVar("Item")

EVENTS_TOPIC = "__rebalance_events"
"""Tenure's internal topic for events, with a partition for each node."""

VERSION = 1
"""The version of the schema that this module writes and reads."""

RebalanceEvent = dict[str, Any]
"""A record's value: `version`, `type`, `at_ms`, `group`, `generation`, `node`, and the type's own fields."""

NOTHING: Mapping[str, Any] = {}

CONSUMER = notes.CONSUMER
"""`group_type` of an event of the consumer protocol; events of classic groups have none."""

SELF, CONFLICT = "self", "conflict"
"""Kinds of a fencing: a client met an earlier request of its own, or two programs have one instance id."""


UNKNOWN = "unknown"
"""The kind of an inferred cause where several kinds fit; `possible` has them (coordinator.story.inference)."""


class TimedNote(NamedTuple):
    """A note, and when it happened (Unix time in ms). extra: fields that the server adds to the note's."""

    at_ms: int
    note: notes.Note
    extra: Mapping[str, Any] = NOTHING


class Gap(NamedTuple):
    """Events that could not be kept: how many, and the first and last time (Unix time in ms)."""

    events: int
    first_ms: int
    last_ms: int


USUAL = {"principal": ANONYMOUS, "group_type": notes.CLASSIC, "away_ms": None}
"""Values with which a field is left out."""

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
"""What a snapshot has (course.Snapshot)."""

Move = tuple[str, int, str | None, str | None]
"""Topic, partition, the member before and the member after; None for no member."""

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_text = json.encoder.encode_basestring
"""A string as JSON; written in C, where Python has that."""
_ENUMS = {item: _text(item.value) for kind in (Outcome, CauseKind, Source, Meaning, Phase) for item in kind}

ASSIGNMENTS_KEPT = 4_096
"""Decoded assignments in the cache. Most members have the same one again."""

KEPT_BYTES_MAX = 512
"""Longest assignment in the cache. Its decoded form takes tens of times its bytes; this keeps the cache below some 100
MB, whatever clients send.
"""


@cache
def event_name(class_name: str) -> str:
    """The stable name of a note's class: rebalance_started for RebalanceStarted."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


def plain(value: Any) -> Any:
    """A note's field as a JSON value."""
    if isinstance(value, Cause):
        return (
            {
                "kind": value.kind.value,
                "member_ids": value.member_ids,
                "group_instance_id": value.group_instance_id,
                "client_id": value.client_id,
                "client_host": value.client_host,
                "source": value.source.value,
                "reason": value.reason,
                "meaning": None if value.meaning is None else value.meaning.value,
                "join_reason": value.join_reason,
                "api_version": value.api_version,
            }
            | ({"members": plain(value.members)} if value.members else {})
            | _topics(value)
            | _known(value.principal)
        )
    if isinstance(value, Client):
        return {"client_id": value.id, "client_host": value.host} | _known(value.principal)
    if isinstance(value, Party):
        return dict(zip(Party._fields[:-1], value[:-1], strict=True)) | _known(value.principal)
    if isinstance(value, Waited):
        static = value.group_instance_id is not None
        return dict(zip(Waited._fields, map(plain, value if static else value[:-1]), strict=False))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)
        parts = [plain(part) for part in value]
        return parts if fields is None else dict(zip(fields, parts, strict=True))
    return value


def _known(principal: str) -> dict[str, str]:
    """A principal as a field; no field for a client that didn't authenticate."""
    return {} if principal == ANONYMOUS else {"principal": principal}


def _topics(cause: Cause) -> dict[str, Any]:
    """The topics of a cause as fields; no fields for a cause without any."""
    if not cause.topics:
        return {}
    return {"topics": plain(cause.topics)} | ({"further_topics": cause.further_topics} if cause.further_topics else {})


def fields_of(note: notes.Note, names: Iterable[str]) -> dict[str, Any]:
    """Fields of a note as JSON values."""
    fields = {name: plain(getattr(note, name)) for name in names if name != "topic_names"}
    for name, usual in USUAL.items():
        if name in fields and fields[name] == usual:
            del fields[name]
    return fields


def record_of(event: TimedNote | Gap, node_id: int, written_ms: int) -> Record:
    """The record of an event.

    Its key is the group's id; a gap has an empty one, because it may concern any group. Its timestamp is `written_ms`.
    """
    if isinstance(event, Gap):
        gap = {"version": VERSION, "type": "events_dropped", "at_ms": event.last_ms, "group": None, "node": node_id}
        return _record("", _ENCODE(gap | event._asdict()), written_ms)
    at_ms, note, extra = event
    if isinstance(note, notes.RebalanceEnded):
        return _record(note.group, _ended(at_ms, note, node_id), written_ms)
    body: dict[str, Any] = {
        "version": VERSION,
        "type": event_name(type(note).__name__),
        "at_ms": at_ms,
        "group": note.group,
        "generation": note.generation,
        "node": node_id,
    }
    body |= fields_of(note, note.FIELDS[2:])
    return _record(note.group, _ENCODE(body | dict(extra)), written_ms)


def _record(key: str, value: str, timestamp_ms: int) -> Record:
    if len(value) > VALUE_MAX:
        value = _ENCODE(_cut(json.loads(value)))
    return Record(key.encode("utf-8", "replace"), value.encode("utf-8", "replace"), timestamp_ms)


def _cut(value: Any) -> Any:
    """A JSON value with its long texts cut."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else value[:TEXT_MAX] + "..."
    if isinstance(value, list):
        return [_cut(part) for part in value]
    if isinstance(value, dict):
        return {name: _cut(part) for name, part in value.items()}
    return value


# Most records tell the end of a rebalance. Their JSON is made without a dictionary, in a quarter of the time.


def _ended(at_ms: int, note: notes.RebalanceEnded, node_id: int) -> str:
    (
        group, generation, outcome, generation_before, state, causes, further_causes, began_ms, preparing_ms,
        completing_ms, waited_for, late, lapsed, leader, protocol_type, protocol_name, before, after, group_type, _,
    ) = note  # fmt: skip
    moved = moves(note) if outcome is Outcome.COMPLETED else None
    assigned, freed = (sum([move[side] is None for move in moved or ()]) for side in (2, 3))
    kind = "" if group_type == notes.CLASSIC else f',"group_type":{_text(group_type)}'
    return (
        f'{{"version":{VERSION},"type":"rebalance_ended","at_ms":{at_ms},"group":{_text(group)}'
        f',"generation":{generation},"node":{node_id}{kind},"outcome":{_ENUMS[outcome]}'
        f',"generation_before":{generation_before},"state":{_text(state)},"causes":{_array(causes, _cause)}'
        f',"further_causes":{further_causes},"began_ms":{began_ms},"preparing_ms":{preparing_ms}'
        f',"completing_ms":{_number(completing_ms)},"waited_for":{_waited(waited_for)},"late":{_array(late, _text)}'
        f',"lapsed":{_array(lapsed, _text)},"leader":{_name(leader)},"protocol_type":{_name(protocol_type)}'
        f',"protocol_name":{_name(protocol_name)},"members_before":{len(before)},"members_after":{len(after)}'
        f',"before":{_array(_names(before[:MEMBERS_MAX]), _text)},"after":{_after(note)}'
        f',"moved_partitions":{"null" if moved is None else len(moved) - assigned - freed}'
        f',"assigned_partitions":{"null" if moved is None else assigned}'
        f',"freed_partitions":{"null" if moved is None else freed}'
        f',"moved":{"null" if moved is None else _array(moved[:MOVES_MAX], _move)}}}'
    )


def _cause(cause: Cause) -> str:
    (
        kind, member_ids, instance_id, client_id, client_host, reason, join_reason, api_version, members, who, topics, _
    ) = cause  # fmt: skip
    meaning = cause.meaning if reason else None
    named = f',"members":{_ENCODE(plain(members))}' if members else ""
    if who != ANONYMOUS:
        named += f',"principal":{_text(who)}'
    if topics:
        named += f",{_ENCODE(_topics(cause))[1:-1]}"
    return (
        f'{{"kind":{_ENUMS[kind]},"member_ids":{_array(member_ids, _text)},"group_instance_id":{_name(instance_id)}'
        f',"client_id":{_text(client_id)},"client_host":{_text(client_host)},"source":{_ENUMS[cause.source]}'
        f',"reason":{_text(reason)},"meaning":{"null" if meaning is None else _ENUMS[meaning]}'
        f',"join_reason":{_number(join_reason)},"api_version":{_number(api_version)}{named}}}'
    )


def _waited(waited: Waited | None) -> str:
    if waited is None:
        return "null"
    name = waited.group_instance_id
    static = "" if name is None else f',"group_instance_id":{_text(name)}'
    return f'{{"member_id":{_text(waited.member_id)},"phase":{_ENUMS[waited.phase]},"ms":{waited.ms}{static}}}'


def _after(note: notes.RebalanceEnded) -> str:
    """The first members, each with the number of its topic partitions; null where only its clients can read them."""
    members = [
        f'{{"member_id":{_text(member_id)},"group_instance_id":{"null" if name is None else _text(name)}'
        f',"client_id":{_text(client_id)},"client_host":{_text(client_host)}'
        f',"partitions":{"null" if (owned := _owned(note, assignment)) is None else len(owned)}}}'
        for member_id, name, client_id, client_host, assignment in note.after[:MEMBERS_MAX]
    ]
    return f"[{','.join(members)}]"


def _move(move: Move) -> str:
    topic, partition, before, after = move
    return f'{{"topic":{_text(topic)},"partition":{partition},"from":{_name(before)},"to":{_name(after)}}}'


def _array(items: Sequence[Item], encoded: Callable[[Item], str]) -> str:
    return f"[{','.join([encoded(item) for item in items])}]" if items else "[]"


def _name(text: str | None) -> str:
    return "null" if text is None else _text(text)


def _number(number: int | None) -> str:
    return "null" if number is None else str(number)


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
    return sorted(changed, key=_kind_of_move) if had else changed


def _kind_of_move(move: Move) -> tuple[bool, bool]:
    return move[3] is None, move[2] is None


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


def read_event(value: bytes | None) -> RebalanceEvent | None:
    """The event in a record's value; None if it can't be read, or is of a later version."""
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    understood = isinstance(event, dict) and event.get("version") == VERSION and isinstance(event.get("at_ms"), int)
    return event if understood else None
