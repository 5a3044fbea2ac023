"""The OpenAPI document of HTTP, /openapi.json: for programs that make a client or a dashboard of it.

It is data: a table of schemas and a table of paths. A test (tests/server/http/test_openapi.py) checks that the server
has exactly these paths, and that its answers have exactly these fields.

House rule: fields may be added; none is removed or changes its meaning, as in docs/events.md.
"""

from __future__ import annotations

from typing import Any

from coordinator.server.http.feed import EVENTS_KEPT

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
UNIX_MS: Schema = {"type": "integer", "description": "Unix time in ms"}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _is(value: str) -> Schema:
    return {"const": value}


def _object(fields: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {"type": "object", "properties": {**fields, **(optional or {})}, "required": list(fields)}


CLIENT: dict[str, Schema] = {"client_id": TEXT, "client_host": TEXT}
LISTED: dict[str, Schema] = {"group_id": TEXT, "group_type": TEXT, "protocol_type": TEXT, "state": TEXT}
ENTRY: dict[str, Schema] = {"at_ms": UNIX_MS, "generation": _or_null(NUMBER), "text": _list(TEXT)}
SEAT: dict[str, Schema] = {"member_id": TEXT, "group_instance_id": _or_null(TEXT), **CLIENT}

REPLACED: dict[str, Schema] = {
    "member_id": TEXT,
    "old_member_id": TEXT,
    "group_instance_id": TEXT,
    "state": TEXT,
    **CLIENT,
    "rebalances": FLAG,
}
DELETED_BY: dict[str, Schema] = {"client": {**_or_null(_object(CLIENT)), "description": "null if it expired"}}
CHANGED: dict[str, Schema] = {
    "subscription_changed": {**FLAG, "description": "missing in older records"},
    "api_version": {**_or_null(NUMBER), "description": "of the JoinGroup; missing in older records"},
}

SCHEMAS: dict[str, Schema] = {
    "Error": _object({"error": TEXT}),
    "ListedGroup": _object(LISTED),
    "Overview": _object(
        {
            **LISTED,
            "rebalances": {**NUMBER, "description": "rebalances that began, the first one too, however they ended"},
            "static_restarts": NUMBER,
            "suspect_restarts": {
                **NUMBER,
                "description": "restarts that no healthy member makes; static_restarts doesn't count them",
            },
            "static_rejoins": {
                **NUMBER,
                "description": "the first returns of seats since the group was loaded: a restart, or only a rejoin",
            },
            "takeovers": {**NUMBER, "description": "seats that a second program took"},
            "state": {
                **TEXT,
                "description": "of a group that doesn't exist: deleted if that is its newest event, else unknown",
            },
        }
    ),
    "Group": _object(
        {
            "group_id": TEXT,
            "state": TEXT,
            "protocol_type": TEXT,
            "protocol_name": TEXT,
            "coordinator": _object({"node_id": NUMBER, "host": TEXT, "port": NUMBER}),
            "members": _list(_ref("Member")),
            "waiting": {**_or_null(_ref("Waiting")), "description": "null while the group waits for nobody"},
        }
    ),
    "Waiting": _object(
        {
            "since_ms": UNIX_MS,
            "until_ms": {**UNIX_MS, "description": "the latest end of the wait, Unix time in ms"},
            "is_held_open": {
                **FLAG,
                "description": "whether the group waits for further members: group.initial.rebalance.delay.ms",
            },
            "leader": {
                **_or_null(TEXT),
                "description": "the member whose assignments the group waits for; null while members join",
            },
            "members": {
                **_list(_object(SEAT)),
                "description": "members that have not joined; if there is a leader, members that have not synced",
            },
            "pending": _list(_object({"member_id": TEXT, **CLIENT, "lapses_ms": UNIX_MS})),
            "text": _list(TEXT),
        }
    ),
    "Member": _object(
        {
            **SEAT,
            "assignment": _or_null(
                {"type": "object", "additionalProperties": _list(NUMBER), "description": "partitions by topic"}
            ),
        }
    ),
    "Timeline": _object(
        {
            "group_id": TEXT,
            "timeline": _list(
                {
                    "oneOf": [
                        _ref(name)
                        for name in (
                            "Rebalance",
                            "StaticRestart",
                            "StaticRejoin",
                            "Takeover",
                            "Fencing",
                            "Pending",
                            "Loaded",
                            "Gap",
                            "Deleted",
                        )
                    ]
                }
            ),
            "runs": {**_list(_ref("Run")), "description": "restarts of the timeline to show as one"},
            "lanes": {**_list(_ref("Lane")), "description": "the seats, by name: when each was taken"},
        }
    ),
    "Lane": _object(
        {
            "name": {**TEXT, "description": "an instance id, or the member id of a member without one"},
            "spans": {
                **_list(_object({"from_ms": _or_null(UNIX_MS), "until_ms": _or_null(UNIX_MS)})),
                "description": "the times when the seat was taken; null: since before the first event, or still",
            },
            "marks": _list(
                _object(
                    {
                        "kind": {"enum": ["restart", "takeover", "fencing", "suspect"]},
                        "from_ms": UNIX_MS,
                        "until_ms": UNIX_MS,
                        "times": {**NUMBER, "description": "how many restarts or fencings the mark stands for"},
                        "rebalances": NUMBER,
                        "text": _list(TEXT),
                    }
                )
            ),
        }
    ),
    "Run": {
        **_object(
            {
                "group_instance_id": TEXT,
                "from_ms": {**UNIX_MS, "description": "time of the first restart, Unix time in ms"},
                "until_ms": {**UNIX_MS, "description": "time of the last restart, Unix time in ms"},
                "restarts": NUMBER,
                "rebalances": {**NUMBER, "description": "how many of the restarts made the group rebalance"},
                "finding": {
                    **_or_null(_ref("Finding")),
                    "description": "null if a healthy member may restart like this",
                },
                "text": _list(TEXT),
            }
        ),
        "description": "several restarts of one static member, each soon after the last",
    },
    "Finding": {
        **_object(
            {
                "severity": {"enum": ["error", "warning", "notice"]},
                "kind": TEXT,
                "group_id": TEXT,
                "found": TEXT,
                "advice": TEXT,
                "last_at_ms": _or_null(UNIX_MS),
                "times": _or_null(NUMBER),
            }
        ),
        "description": "a finding of tenure doctor",
    },
    "Cause": _object(
        {
            "kind": TEXT,
            "member_ids": _list(TEXT),
            "group_instance_id": _or_null(TEXT),
            **CLIENT,
            "source": {"enum": ["client", "inferred"]},
            "reason": {**TEXT, "description": "the client's own words (KIP-800)"},
            "meaning": _or_null(TEXT),
            "join_reason": _or_null({**NUMBER, "description": "KIP-423's number"}),
            "api_version": _or_null(NUMBER),
        },
        {"members": {**_list(_object(SEAT)), "description": "the members, if there are several"}},
    ),
    "Rebalance": _object(
        {
            **ENTRY,
            "type": _is("rebalance"),
            "state": TEXT,
            "outcome": {
                **_or_null({"enum": ["completed", "emptied", "superseded", "unloaded", "unknown", "interrupted"]}),
                "description": "null while the rebalance is under way",
            },
            "generation_before": NUMBER,
            "members_before": {**_or_null(NUMBER), "description": "null if only an older record of the start exists"},
            "cause": {**_ref("Cause"), "description": "the cause of its start"},
            "causes": _list(_ref("Cause")),
            "causes_at_ms": {
                **_list(_or_null(UNIX_MS)),
                "description": "the time of each cause; null if no record has it",
            },
            "is_stuck": FLAG,
        },
        {
            "members": NUMBER,
            "pending": _list(_object({"member_id": TEXT, **CLIENT, "lapses_ms": UNIX_MS})),
            "further_causes": NUMBER,
            "began_ms": UNIX_MS,
            "ended_ms": UNIX_MS,
            "preparing_ms": NUMBER,
            "completing_ms": _or_null(NUMBER),
            "waited_for": _or_null(
                _object({"member_id": TEXT, "phase": {"enum": ["preparing", "completing"]}, "ms": NUMBER})
            ),
            "late": _list(TEXT),
            "lapsed": _list(TEXT),
            "leader": _or_null(TEXT),
            "protocol_type": _or_null(TEXT),
            "protocol_name": _or_null(TEXT),
            "members_after": NUMBER,
            "before": _list(TEXT),
            "after": _list(_object({**SEAT, "partitions": _or_null(NUMBER)})),
            "moved_partitions": _or_null(NUMBER),
            "assigned_partitions": _or_null(NUMBER),
            "freed_partitions": _or_null(NUMBER),
            "moved": _or_null(
                _list(_object({"topic": TEXT, "partition": NUMBER, "from": _or_null(TEXT), "to": _or_null(TEXT)}))
            ),
        },
    ),
    "StaticRestart": _object({**ENTRY, "type": _is("static_restart"), **REPLACED}, CHANGED),
    "StaticRejoin": {
        **_object({**ENTRY, "type": _is("static_rejoin"), **REPLACED}, CHANGED),
        "description": "a static restart as the first return of the seat since the group was loaded",
    },
    "Takeover": {
        **_object({**ENTRY, "type": _is("takeover"), **REPLACED}, CHANGED),
        "description": "a static restart by a second program: the old member id was used again, which is a conflict",
    },
    "Fencing": _object(
        {
            **ENTRY,
            "type": _is("fencing"),
            "kind": {"enum": ["conflict", "self"]},
            "member_id": TEXT,
            "current_member_id": TEXT,
            "group_instance_id": TEXT,
            "operation": TEXT,
            "client": _or_null(_object(CLIENT)),
            "current_client": _or_null(_object(CLIENT)),
            "waited": FLAG,
        }
    ),
    "Pending": _object(
        {
            **ENTRY,
            "type": _is("pending"),
            "member_id": TEXT,
            **CLIENT,
            "lapses_ms": UNIX_MS,
            "outcome": _or_null({"enum": ["joined", "left", "lapsed", "forgotten"]}),
        }
    ),
    "Loaded": {
        **_object({**ENTRY, "type": _is("loaded"), "state": TEXT, "members": NUMBER}, {"write_failed": FLAG}),
        "description": "the coordinator read the group from its log, after a start or after a failed write",
    },
    "Gap": _object({**ENTRY, "type": _is("gap"), "events": NUMBER, "first_ms": UNIX_MS, "last_ms": UNIX_MS}),
    "Deleted": _object({**ENTRY, "type": _is("deleted"), "offsets": NUMBER, "expired": FLAG}, DELETED_BY),
}

GROUP_ID = {
    "name": "group_id",
    "in": "path",
    "required": True,
    "description": "percent-encoded, slashes included",
    "schema": TEXT,
}


def _answer(text: str, media_type: str, schema: Schema) -> Schema:
    return {"description": text, "content": {media_type: {"schema": schema}}}


def _json(text: str, schema: Schema) -> Schema:
    return _answer(text, "application/json", schema)


BROKE = {500: _json("a fault of the server: its log says more", _ref("Error"))}
"""An answer that any path may give."""


def _get(summary: str, answers: dict[int, Schema], parameters: list[Schema] | None = None) -> Schema:
    operation: Schema = {
        "summary": summary,
        "responses": {str(status): answer for status, answer in (answers | BROKE).items()},
    }
    return {"get": operation | ({"parameters": parameters} if parameters else {})}


def _file(summary: str, media_type: str) -> Schema:
    return _get(summary, {200: _answer("the file", media_type, TEXT)})


REFUSED = {
    502: _json("the cluster refused", _ref("Error")),
    504: _json("the cluster did not answer", _ref("Error")),
}
NO_EVENTS = {404: _json("the cluster keeps no events", _ref("Error"))}

STREAM = (
    "server-sent events. data: one event (docs/events.md). A message with `event: gap` says that events may be missing "
    "before the next one"
)

PATHS: dict[str, Schema] = {
    "/": _file("The page", "text/html"),
    "/page.css": _file("The page's style", "text/css"),
    "/page.js": _file("The page's script", "text/javascript"),
    "/openapi.json": _get("This document", {200: _json("OpenAPI 3.1", {"type": "object"})}),
    "/healthz": _get(
        "Whether the process works",
        {
            200: _answer("it works", "text/plain", TEXT),
            503: _answer("the text says what is wrong; only a restart mends it", "text/plain", TEXT),
        },
    ),
    "/readyz": _get(
        "Whether groups are served",
        {200: _answer("they are", "text/plain", TEXT), 503: _answer("the text says why not", "text/plain", TEXT)},
    ),
    "/metrics": _get(
        "Metrics of this process",
        {
            200: {
                "description": "in the format that the request accepts",
                "content": {"text/plain": {"schema": TEXT}, "application/openmetrics-text": {"schema": TEXT}},
            }
        },
    ),
    "/overview": _get(
        "All groups with their rebalances and restarts of the last hour",
        {
            200: _json("existing groups by group id, then groups that only have events", _list(_ref("Overview"))),
            **REFUSED,
        },
    ),
    "/groups": _get("All groups of the cluster", {200: _json("by group id", _list(_ref("ListedGroup"))), **REFUSED}),
    "/groups/{group_id}": _get(
        "A group with its members",
        {200: _json("the group as it is now", _ref("Group")), 404: _json("no such group", _ref("Error")), **REFUSED},
        [GROUP_ID],
    ),
    "/groups/{group_id}/events": _get(
        f"The timeline of a group, from the newest {EVENTS_KEPT:,} events of all groups",
        {
            200: _json("in the order of time", _ref("Timeline")),
            404: _json("neither the group nor an event of it exists, or the cluster keeps no events", _ref("Error")),
            **REFUSED,
        },
        [GROUP_ID],
    ),
    "/events": _get(
        "Events as they happen",
        {200: _answer(STREAM, "text/event-stream", TEXT), **NO_EVENTS},
        [
            {"name": "group", "in": "query", "description": "events of this group only", "schema": TEXT},
            {
                "name": "Last-Event-ID",
                "in": "header",
                "description": "go on behind the event with this id, which any run and any node may have sent",
                "schema": TEXT,
            },
        ],
    ),
}


def document(version: str) -> Schema:
    """The whole document. version: of the program."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tenure", "version": version, "description": "The groups of a coordinator, read-only."},
        "paths": PATHS,
        "components": {"schemas": SCHEMAS},
    }
