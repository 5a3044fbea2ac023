"""The OpenAPI document of HTTP, /openapi.json: for programs that make a client or a dashboard of it.

It is data: a table of schemas, made from the classes of the answers, and a table of paths. A test
(tests/site/test_openapi.py) checks that the server has exactly these paths, and its answers these fields.

House rule: fields may be added; none is removed or changes its meaning, as in docs/run/events.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, UnsetType
from msgspec.structs import fields

from coordinator import pages
from coordinator.client.groups import ListedGroup
from coordinator.client.lag import GroupLagJson, OffsetJson, TopicLagJson
from coordinator.client.topics import OwnersJson
from coordinator.group import notes
from coordinator.site.examined import FindingsJson
from coordinator.site.feed import EVENTS_KEPT
from coordinator.site.overview import Churn, LagsJson, NoLagsJson, OverviewJson, TimelineJson
from coordinator.site.sums import AllSumsJson
from coordinator.story.counts import NOUNS
from coordinator.story.described import Expects, GroupJson, HeldUp, MemberJson, Subtopology, Tasks, Waiting
from coordinator.story.diagnosis import Finding, Severity
from coordinator.story.entries import COMMON, Entry, Held, Loaded, Pending, Rebalance, Return
from coordinator.story.events import TYPES, Cause, GroupEvent, MemberReplaced, RebalanceEvent
from coordinator.story.lanes import LaneJson
from coordinator.story.runs import RunJson
from coordinator.story.words import EntryJson

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
UNIX_MS: Schema = {"type": "integer", "description": "Unix time in ms"}


# Schemas and answers, also for the control of a test (coordinator.testing.http.openapi).


def ref(name: str) -> Schema:
    """One of the document's schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


def or_null(schema: Schema) -> Schema:
    """It, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(of: Schema) -> Schema:
    """An array."""
    return {"type": "array", "items": of}


def object_of(fields: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object with these fields."""
    return {"type": "object", "properties": {**fields, **(optional or {})}, "required": list(fields)}


CLASSES: dict[str, type] = {
    "AllSums": AllSumsJson,
    "Cause": Cause,
    "Churn": Churn,
    "Expects": Expects,
    "Finding": Finding,
    "Findings": FindingsJson,
    "Group": GroupJson,
    "HeldUpBy": HeldUp,
    "Lag": GroupLagJson,
    "Lane": LaneJson,
    "Member": MemberJson,
    "Nodes": OwnersJson,
    "Offset": OffsetJson,
    "Run": RunJson,
    "Subtopology": Subtopology,
    "Tasks": Tasks,
    "Timeline": TimelineJson,
    "TopicLag": TopicLagJson,
    "Waiting": Waiting,
}
"""The classes whose schema has a name."""

PLAIN: dict[Any, Schema] = {
    str: TEXT,
    int: NUMBER,
    float: {"type": "number"},
    bool: FLAG,
    NoneType: {"type": "null"},
    Severity: {"enum": list(Severity)},
    EntryJson: ref("Entry"),
    LagsJson | NoLagsJson: ref("Lags"),
} | {kind: ref(name) for name, kind in CLASSES.items()}


def schema_of(kind: Any) -> Schema:
    """The schema of the type of a field, of those that events, entries and descriptions have."""
    parts = get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if get_origin(kind) is Annotated:
        about: Meta = parts[1]
        said = {} if about.description is None else {"description": about.description}
        return schema_of(parts[0]) | said | (about.extra_json_schema or {})
    if get_origin(kind) in {list, tuple}:
        return list_of(schema_of(parts[0]))
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    if parts:
        some = [schema_of(part) for part in parts if part is not UnsetType]
        return some[0] if len(some) == 1 else {"anyOf": some}
    return object_of(*_fields(kind, COMMON - {"at_ms"} if issubclass(kind, GroupEvent) else ()))


def _fields(kind: type, without: Collection[str] = ()) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """The fields of a class that its JSON always has, and those that may be missing."""
    found: tuple[dict[str, Schema], dict[str, Schema]] = {}, {}
    if not issubclass(kind, Struct):
        hints = get_type_hints(kind, include_extras=True)
        return {name: schema_of(hint) for name, hint in hints.items() if name not in without}, {}
    for field in fields(kind):
        if field.encode_name not in without:
            found[UnsetType in get_args(field.type)][field.encode_name] = schema_of(field.type)
    return found


def _entry_schema(name: str, kind: type[Entry], begun_by: Sequence[type[RebalanceEvent]]) -> Schema:
    """An entry has the fields of its events, and its own, which may have the same name."""
    own, own_maybe = _fields(kind, {"type", "event", "ended"})
    parts = [_fields(event, COMMON) for event in begun_by]
    every: dict[str, Schema] = {}
    for always, maybe in parts:
        every = always | maybe | every
    head = _fields(EntryJson)[0] | {"type": {"const": name}}
    shared = {field: every[field] for field in every if all(field in always for always, _ in parts)}
    needed = head | shared | own
    about = getattr(notes, begun_by[0].__name__, begun_by[0]) if kind is Entry else kind
    optional = {field: schema for field, schema in (every | own_maybe).items() if field not in needed}
    return object_of(needed, optional) | {"description": _about(about)}


def _about(kind: type) -> str:
    """The words about a class, as JSON has its values."""
    return (inspect.getdoc(kind) or "").replace("None", "null")


def _entry_schemas() -> dict[str, Schema]:
    """The schema of each type of entry, by its type in CamelCase."""
    kinds: dict[str, type[Entry]] = {"rebalance": Rebalance, "held": Held, "pending": Pending, "loaded": Loaded}
    begun: dict[str, list[type[RebalanceEvent]]] = {}
    for event in TYPES.values():
        if event.entry:
            begun.setdefault(event.entry, []).append(event)
    begun |= {name: [MemberReplaced] for name in NOUNS}
    return {
        name.title().replace("_", ""): _entry_schema(name, Return if name in NOUNS else kinds.get(name, Entry), events)
        for name, events in begun.items()
    }


ENTRIES = _entry_schemas()
_LISTED, _ = _fields(ListedGroup, {"node_id"})

SCHEMAS: dict[str, Schema] = {
    "Error": object_of({"error": TEXT}),
    **{name: object_of(*_fields(kind)) for name, kind in CLASSES.items()},
    "ListedGroup": object_of(_LISTED),
    "Overview": object_of(_LISTED | _fields(Churn)[0] | _fields(OverviewJson)[0]),
    "Lags": object_of({"group_id": TEXT}, _fields(NoLagsJson)[0] | _fields(LagsJson)[0]),
    "Entry": {"oneOf": [ref(name) for name in sorted(ENTRIES)]},
    **ENTRIES,
}
for _kind in (Finding, RunJson):
    SCHEMAS[_kind.__name__.removesuffix("Json")]["description"] = _about(_kind)

GROUP_ID = {
    "name": "group_id",
    "in": "path",
    "required": True,
    "description": "percent-encoded, slashes included",
    "schema": TEXT,
}


def answer(text: str, media_type: str, schema: Schema) -> Schema:
    """An answer. text: about it."""
    return {"description": text, "content": {media_type: {"schema": schema}}}


def json_answer(text: str, schema: Schema) -> Schema:
    """An answer in JSON. text: about it."""
    return answer(text, "application/json", schema)


def text_answer(text: str) -> Schema:
    """An answer in plain text. text: about it."""
    return answer(text, "text/plain", TEXT)


def error_answer(text: str) -> Schema:
    """An error. text: about it."""
    return json_answer(text, ref("Error"))


def _query(name: str, **more: Any) -> Schema:
    """A parameter of a query."""
    return {"name": name, "in": "query"} | more


BROKE = {500: error_answer("a fault of the server: its log says more")}
"""An answer that any path may give."""


def _get(summary: str, answers: dict[int, Schema], parameters: list[Schema] | None = None) -> Schema:
    operation: Schema = {
        "summary": summary,
        "responses": {str(status): answer for status, answer in (answers | BROKE).items()},
    }
    return {"get": operation | ({"parameters": parameters} if parameters else {})}


def _file(summary: str, media_type: str) -> Schema:
    return _get(summary, {200: answer("the file", media_type, TEXT)})


REFUSED = {
    502: error_answer("the cluster refused"),
    504: error_answer("the cluster did not answer"),
}
OF_A_GROUP = {
    404: error_answer("no such group"),
    501: error_answer("a group of a kind that isn't described: share, streams"),
    **REFUSED,
}
STREAM = (
    f"server-sent events. data: one event ({pages.EVENTS}). A message with `event: gap` says that events may be "
    "missing before the next one"
)

ROOMS = {
    "address": "the address, with the group and the range of time in it",
    "dom": "elements, words and questions",
    "group": "one group",
    "lag": "lag in words and as a graph",
    "lanes": "the picture of the seats",
    "list": "all groups",
    "table": "tables that can be sorted, page by page",
    "time": "ranges of time and their ticks",
}

PATHS: dict[str, Schema] = {
    "/": _file("The page", "text/html"),
    "/page.css": _file("The page's style", "text/css"),
    "/page.js": _file("The page's script", "text/javascript"),
    **{
        f"/page_{room}.js": _file(f"A module of the page's script: {text}", "text/javascript")
        for room, text in ROOMS.items()
    },
    "/openapi.json": _get("This document", {200: json_answer("OpenAPI 3.1", {"type": "object"})}),
    "/healthz": _get(
        "Whether the process works",
        {200: text_answer("it works"), 503: text_answer("the text says what is wrong; only a restart mends it")},
    ),
    "/readyz": _get(
        "Whether groups are served", {200: text_answer("they are"), 503: text_answer("the text says why not")}
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
            200: json_answer(
                "existing groups by group id, then groups that only have events", list_of(ref("Overview"))
            ),
            **REFUSED,
        },
    ),
    "/findings": _get(
        "The findings of tenure doctor about all groups, from the events in memory",
        {200: json_answer("the worst first; some seconds old at most", ref("Findings")), **REFUSED},
    ),
    "/alive": _get(
        "Whether a static member is at work: in the group, with topic partitions that it reads or has read",
        {200: text_answer("it is"), 503: text_answer("the text says why not"), **OF_A_GROUP},
        [_query(name, required=True, schema=TEXT) for name in ("group", "instance-id")],
    ),
    "/lag": _get(
        "The topics of one group, with committed offsets and the ends of the logs",
        {200: json_answer("now, or some seconds ago", ref("Lag")), **OF_A_GROUP},
        [_query("group", required=True, schema=TEXT)],
    ),
    "/lags": _get(
        "The sums of lag of some groups",
        {
            200: json_answer("by group id", list_of(ref("Lags"))),
            400: error_answer("too many groups, or a name that is too long"),
            **REFUSED,
        },
        [_query("group", description="may be repeated", schema=list_of(TEXT))],
    ),
    "/sums": _get(
        "The sums of lag of all groups, as far as they are known; requests make the server ask about more groups",
        {200: json_answer("some of them are older than others", ref("AllSums")), **REFUSED},
    ),
    "/nodes": _get("The nodes of the cluster, and who has what", {200: json_answer("now", ref("Nodes"))} | REFUSED),
    "/groups": _get(
        "All groups of the cluster", {200: json_answer("by group id", list_of(ref("ListedGroup"))), **REFUSED}
    ),
    "/groups/{group_id}": _get(
        "A group with its members", {200: json_answer("the group as it is now", ref("Group")), **OF_A_GROUP}, [GROUP_ID]
    ),
    "/groups/{group_id}/events": _get(
        f"The timeline of a group, from the newest {EVENTS_KEPT:,} events of all groups",
        {
            200: json_answer("in the order of time", ref("Timeline")),
            **OF_A_GROUP,
            404: error_answer("neither the group nor an event of it exists, or the cluster keeps no events"),
        },
        [GROUP_ID],
    ),
    "/events": _get(
        "Events as they happen",
        {200: answer(STREAM, "text/event-stream", TEXT), 404: error_answer("the cluster keeps no events")},
        [
            _query("group", description="events of this group only", schema=TEXT),
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
