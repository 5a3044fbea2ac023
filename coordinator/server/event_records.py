"""Events as records of `__rebalance_events`: one JSON object each, of a schema with a version (docs/events.md).

An event is a note of the core with its time. Here the bytes that leaders wrote are read at last: which topic partitions
went from whom to whom. That takes longer than all else about a rebalance, so it is done on the thread of the topics'
logs, when the answers are long on their way.

A record has room for so many members, moves and causes; the numbers beside them are of all. It is never larger than a
batch may be.

House rule: `version` grows when a field changes its meaning or goes; fields are added without.
"""

from __future__ import annotations

import json
from functools import lru_cache
from operator import itemgetter
from typing import Any

from coordinator.client.assignment import decode_assignment
from coordinator.group import notes
from coordinator.group.course import Outcome, Seat
from coordinator.server.events import Event, Gap
from coordinator.server.notes import event_name, plain
from protocol.record_batch import Record

VERSION = 1

MEMBERS_MAX = 100
"""Members before, and after, that a record names."""

MOVES_MAX = 100
"""Topic partitions that changed hands which a record names."""

VALUE_MAX = 256 * 1024
"""Characters of a record; one that would be larger has its names and reasons cut."""

TEXT_MAX = 500
"""Characters that are left of a name or a reason then; a client can send 32,767, and a record has some hundred."""

Move = tuple[str, int, str | None, str | None]
"""Topic and partition, from whom and to whom."""

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_place = itemgetter(0, 1)

ASSIGNMENTS_KEPT = 4_096
"""Assignments that are remembered once read: most members have the same one again."""


def record_of(event: Event | Gap, node_id: int) -> Record:
    """The record of an event; key: the group's id, empty for a gap, which may be of any group."""
    if isinstance(event, Gap):
        gap = {"version": VERSION, "type": "events_dropped", "at_ms": event.last_ms, "group": None, "node": node_id}
        return _record("", gap | event._asdict(), event.last_ms)
    note = event.note
    body: dict[str, Any] = {
        "version": VERSION,
        "type": event_name(type(note).__name__),
        "at_ms": event.at_ms,
        "group": note.group,
        "generation": note.generation,
        "node": node_id,
    }
    if isinstance(note, notes.RebalanceEnded):
        body |= _ended(note)
    else:
        body |= {name: plain(getattr(note, name)) for name in note.FIELDS[2:]}
    return _record(note.group, body | dict(event.extra), event.at_ms)


def _record(key: str, body: dict[str, Any], at_ms: int) -> Record:
    value = _ENCODE(body)
    if len(value) > VALUE_MAX:
        value = _ENCODE(_cut(body))
    return Record(key.encode(errors="replace"), value.encode(errors="replace"), at_ms)


def _cut(value: Any) -> Any:
    """The same without overlong texts."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else value[:TEXT_MAX] + "..."
    if isinstance(value, list):
        return [_cut(part) for part in value]
    if isinstance(value, dict):
        return {name: _cut(part) for name, part in value.items()}
    return value


def _ended(note: notes.RebalanceEnded) -> dict[str, Any]:
    body = {name: plain(getattr(note, name)) for name in note.FIELDS[2:-2]}
    body["members_before"], body["members_after"] = len(note.before), len(note.after)
    body["before"] = [_name(seat) for seat in note.before[:MEMBERS_MAX]]
    body["after"] = _members(note)
    moved = moves(note) if note.outcome is Outcome.COMPLETED else None
    body["moved_partitions"] = None if moved is None else len(moved)
    names = ("topic", "partition", "from", "to")
    body["moved"] = None if moved is None else [dict(zip(names, move, strict=True)) for move in moved[:MOVES_MAX]]
    return body


def _members(note: notes.RebalanceEnded) -> list[dict[str, Any]]:
    """The first members, each with the number of its topic partitions, None where only its clients can read that."""
    return [
        {
            "member_id": member_id,
            "group_instance_id": instance_id,
            "client_id": client_id,
            "client_host": client_host,
            "partitions": None if (owned := _owned(note.protocol_type, assignment)) is None else len(owned),
        }
        for member_id, instance_id, client_id, client_host, assignment in note.after[:MEMBERS_MAX]
    ]


def moves(note: notes.RebalanceEnded) -> list[Move] | None:
    """The topic partitions whose member changed, each with both (None: nobody); None if that can't be read.

    A static member is the same whatever its member id. Members whose bytes stayed the same kept what they had.
    """
    before = {_name(seat): seat.assignment for seat in note.before}
    after = {_name(seat): seat.assignment for seat in note.after}
    had: dict[tuple[str, int], str] = {}
    have: dict[tuple[str, int], str] = {}
    for seats, others, owners in ((before, after, had), (after, before, have)):
        for name, assignment in seats.items():
            if others.get(name) == assignment:
                continue
            owned = _owned(note.protocol_type, assignment)
            if owned is None:
                return None
            owners.update(dict.fromkeys(owned, name))
    moved: list[Move] = [(*key, had.get(key), name) for key, name in have.items() if had.get(key) != name]
    moved += [(*key, name, None) for key, name in had.items() if key not in have]
    return sorted(moved, key=_place)


def _name(seat: Seat) -> str:
    return seat.member_id if seat.group_instance_id is None else seat.group_instance_id


@lru_cache(ASSIGNMENTS_KEPT)
def _owned(protocol_type: str | None, assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    read = decode_assignment(protocol_type or "", assignment)
    if read is None:
        return None
    return tuple((topic, partition) for topic, partitions in read.items() for partition in partitions)
