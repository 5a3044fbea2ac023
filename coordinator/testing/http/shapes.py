"""The shapes of answers and fields: JSON of groups, members, faults and time, each with its schema.

House rule: a value and its schema stand in one module, and a test compares them. Each number that a request may bring
has a lower and an upper bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coordinator import pages
from coordinator.config import INT32_MAX, TOPIC_PARTITIONS_MAX
from coordinator.group.causes import CauseKind
from coordinator.site.openapi import FLAG, NUMBER, TEXT, UNIX_MS, Schema, list_of, object_of, or_null, ref
from coordinator.story.described import member_json
from coordinator.testing.faults import FAULTS_MAX, Action, Fault
from coordinator.testing.members import MEMBERS_MAX, Members
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.testing.clock import KitClock
    from coordinator.testing.values import Look

WAIT_S_MAX = 3_600
"""The longest wait, in seconds. A client whose machine is gone closes no connection: its wait goes on until then."""

JUMP_S_MAX = 1_000_000_000
"""The longest jump of the clock, in seconds: more than 30 years."""

TEXTS = list_of(TEXT)
COUNT: Schema = {**NUMBER, "minimum": 0, "maximum": INT32_MAX}
FIRST: Schema = {**COUNT, "minimum": 1}
SECONDS: Schema = {"type": "number", "minimum": 0, "maximum": WAIT_S_MAX}
TIMEOUT: Schema = {**SECONDS, "description": "seconds; 30 by default"}
JUMP: Schema = {**SECONDS, "maximum": JUMP_S_MAX}
TOPIC_PARTITIONS: Schema = {**FIRST, "maximum": TOPIC_PARTITIONS_MAX}
FAULTS_COUNT: Schema = {**FIRST, "maximum": FAULTS_MAX}
SINCE: Schema = {**COUNT, "description": "the mark of an earlier moment; events from then on count"}
MEMBER: Schema = {**TEXT, "description": "an instance id, or a member id"}
PARTITIONS: Schema = {"type": "object", "additionalProperties": list_of(COUNT), "description": "partitions by topic"}
ASSIGNMENT: Schema = {
    "type": "object",
    "additionalProperties": PARTITIONS,
    "description": "by member: its instance id, or a dynamic member's id",
}

SCHEMAS: dict[str, Schema] = {
    "State": object_of(
        {
            "version": TEXT,
            "is_running": FLAG,
            "bootstrap_servers": {**TEXT, "description": "HOST:PORT for clients, of all nodes with commas"},
            "nodes": list_of(object_of({"id": NUMBER, "address": TEXT, "is_running": FLAG})),
            "data_dir": {**or_null(TEXT), "description": "null: groups are in memory, and nothing can be killed"},
        }
    ),
    "Coordinator": object_of({"group_id": TEXT, "node": {**NUMBER, "description": "its id"}}),
    "Topic": object_of({"name": TEXT, "partitions": NUMBER}),
    "Requests": object_of(
        {
            "count": NUMBER,
            "by_client": {
                "type": "object",
                "additionalProperties": {"type": "object", "additionalProperties": NUMBER},
                "description": "by client id, then by API, whatever the query asks for",
            },
        }
    ),
    "Look": object_of(
        {
            "group_id": TEXT,
            "state": {**TEXT, "description": "as Kafka names it; Dead if there is no such group"},
            "generation": NUMBER,
            "members": list_of(ref("Member")),
            "assignment": ASSIGNMENT,
            "committed": list_of(object_of({"topic": TEXT, "partition": NUMBER, "offset": NUMBER})),
            "waiting": {**TEXTS, "description": "the members that it waits for, in words"},
            "mark": {**NUMBER, "description": "this moment, for `since`"},
        }
    ),
    "Crew": object_of(
        {
            "id": NUMBER,
            "group_id": TEXT,
            "members": list_of(
                object_of(
                    {
                        "index": NUMBER,
                        "group_instance_id": or_null(TEXT),
                        "member_id": TEXT,
                        "generation": NUMBER,
                        "assignment": PARTITIONS,
                        "doing": {"enum": ["joining", "seated", "left", "ended"]},
                        "is_silent": FLAG,
                        "trouble": TEXT,
                    }
                )
            ),
        }
    ),
    "Clock": object_of({"now_ms": UNIX_MS, "is_frozen": FLAG}),
    "Fault": object_of(
        {
            "id": NUMBER,
            "text": TEXT,
            "seen": {**NUMBER, "description": "requests that met its conditions"},
            "fired": {**NUMBER, "description": "requests that it happened to"},
        }
    ),
}

CAUSE: Schema = {"type": "string", "enum": sorted(kind.value for kind in CauseKind)}
UNHEARD: Schema = {
    **list_of(object_of({"group": TEXT, "member": MEMBER})),
    "description": "members that the jump may expire although their clients live",
}

WAITS: dict[str, Schema] = {
    "state": TEXT,
    "members": {**COUNT, "description": "exactly so many"},
    **{
        name: {**COUNT, "description": "so many or more"}
        for name in ("generation", "rebalances", "restarts", "rejoins", "takeovers", "fencings")
    },
    "timeout": TIMEOUT,
}

FAULT: dict[str, Schema] = {
    "text": {**TEXT, "description": f"one fault a line, in place of all other fields: {pages.FAULTS}"},
    "action": {"type": "string", "enum": [action.value for action in Action]},
    "error": {**TEXT, "description": "of the action error: Kafka's name"},
    "delay_ms": {**COUNT, "description": "of the action delay"},
    "apis": {**TEXTS, "description": "all by default"},
    "group": TEXT,
    "member_id": TEXT,
    "instance_id": TEXT,
    "transactional_id": TEXT,
    "topic": TEXT,
    "partition": COUNT,
    "client_id": TEXT,
    "version": COUNT,
    "nth": {**FIRST, "description": "the first request that gets it; 1 by default"},
    "times": {**FIRST, "description": "how many requests get it; 1 by default"},
    "always": {**FLAG, "description": "all requests get it"},
}
FILL: dict[str, Schema] = {
    "count": {**FIRST, "maximum": MEMBERS_MAX},
    "static": {**FLAG, "description": "whether they have instance ids; true by default"},
    "topics": TEXTS,
    "client_id": {**TEXT, "description": "with a number behind it, their instance id; `member` by default"},
    "protocol": {**TEXT, "description": "`classic` (the default) or `consumer`"},
    **{
        f"{name}_ms": FIRST
        for name in ("session_timeout", "heartbeat_interval", "rebalance_timeout", "request_timeout")
    },
}


def look_json(group_id: str, look: Look) -> dict[str, Any]:
    """A group at one moment."""
    return {
        "group_id": group_id,
        "state": look.state,
        "generation": look.generation,
        "members": [member_json(member) for member in look.members],
        "assignment": look.assignment,
        "committed": [
            {"topic": topic, "partition": index, "offset": offset}
            for (topic, index), offset in sorted(look.committed.items())
        ],
        "waiting": look.waiting,
        "mark": look.mark,
    }


def crew_json(number: int, group_id: str, members: Members) -> dict[str, Any]:
    """Scripted members. number: their crew's id."""
    return {
        "id": number,
        "group_id": group_id,
        "members": [
            {"index": index, "group_instance_id": seen.instance_id}
            | {name: value for name, value in seen._asdict().items() if name != "instance_id"}
            for index, seen in enumerate(members)
        ],
    }


def clock_json(clock: KitClock) -> dict[str, Any]:
    """The server's time."""
    return {"now_ms": clock.wall_ms(), "is_frozen": clock.is_frozen}


def fault_json(number: int, fault: Fault) -> dict[str, Any]:
    """A planned fault. number: its id."""
    return {"id": number, "text": str(fault), "seen": fault.seen, "fired": fault.fired}


def fault_of(fields: Mapping[str, Any]) -> Fault:
    """The fault that the fields of FAULT describe, except `text`. Raises ValueError."""
    told = dict(fields)
    if "action" not in told:
        raise ValueError("a fault has an 'action', or a 'text' in place of all")
    action = Action(told.pop("action"))
    argument = 0
    for name, its in (("error", Action.ERROR), ("delay_ms", Action.DELAY)):
        if (name in told) != (action is its):
            raise ValueError(f"the field {name!r} belongs to the action {its.value!r}, and to it alone")
    if action is Action.ERROR:
        name = told.pop("error")
        if name not in ErrorCode.__members__:
            raise ValueError(f"there is no error {name!r}")
        argument = ErrorCode[name]
    elif action is Action.DELAY:
        argument = told.pop("delay_ms")
    if told.pop("always", False):
        told["times"] = None
    return Fault(action, int(argument), tuple(told.pop("apis", ())), **told)
