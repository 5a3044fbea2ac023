"""Events as a server told them, for tests that name only the fields that matter to them."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, get_args, get_origin

from msgspec import convert
from msgspec.structs import fields

from coordinator.story import events
from coordinator.story.entries import Timeline, entry_json
from coordinator.story.events import RebalanceEvent

EMPTY: dict[str, Any] = {"str": "", "int": 0, "bool": False, "list": []}
"""A value for a field that a test doesn't name, by the name of its type; null where that is allowed."""


def cause(kind: str = "member_left", *member_ids: str, **other: Any) -> dict[str, Any]:
    """A cause of a rebalance as JSON, by these members."""
    made = {
        "kind": kind, "member_ids": list(member_ids), "group_instance_id": None, "client_id": "", "client_host": "",
        "source": "inferred", "reason": "", "meaning": None, "join_reason": None, "api_version": None,
    }  # fmt: skip
    return made | other


def cause_of(said: dict[str, Any]) -> events.Cause:
    """A cause, from its JSON."""
    return convert(cause() | said, events.Cause)


def told(kind: str, /, **said: Any) -> Any:
    """The event of this type, at time 0, of group g, in generation 3, by node 1, unless `said` has others.

    A cause may lack fields too.
    """
    of_kind = events.TYPES[kind]
    common: dict[str, Any] = {"at_ms": 0, "node": 1}
    if of_kind is not events.EventsDropped:
        common |= {"group": "g", "generation": 3}
    if "cause" in said:
        said["cause"] = _whole(said["cause"])
    if "causes" in said:
        said["causes"] = [_whole(each) for each in said["causes"]]
    event: RebalanceEvent = convert(_needed(of_kind) | common | said, of_kind)
    return event


def event(kind: str, at_ms: int, /, **fields: Any) -> Any:
    """As told, at this time."""
    return told(kind, at_ms=at_ms, **fields)


@cache
def _needed(of_kind: type[RebalanceEvent]) -> dict[str, Any]:
    """The empty values of the fields that an event of this type has to have."""
    return {each.encode_name: _empty(each.type) for each in fields(of_kind) if each.required}


def entries_of(*told: RebalanceEvent) -> list[Any]:
    """The entries of group g that these events make."""
    return Timeline("g").add_all(told).entries


def shown(timeline: Timeline) -> list[Any]:
    """A timeline as JSON."""
    return list(map(entry_json, timeline.entries))


def but(event: Any, **said: Any) -> Any:
    """The same event with other fields."""
    return told(event.type, **(events.fields_of(event) | said))


def _whole(said: Any) -> dict[str, Any]:
    return cause() | (said if isinstance(said, dict) else events.fields_of(said))


def _empty(kind: Any) -> Any:
    """A value of a type of a field."""
    if get_origin(kind) is Annotated:
        return _empty(get_args(kind)[0])
    if "None" in str(kind):
        return None
    if kind is events.Cause:
        return cause()
    if kind is events.Client:
        return {"client_id": "c", "client_host": "/h"}
    return EMPTY[kind.__name__]
