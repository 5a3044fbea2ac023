"""The OpenAPI document describes each path and each field of a real server's answers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator
from msgspec import UNSET
from msgspec.structs import replace

from coordinator.site.body import pieces_of
from coordinator.site.openapi import PATHS, SCHEMAS, document
from coordinator.site.overview import Churn, TimelineJson
from coordinator.site.site import LAGS_MAX, Site
from coordinator.story.counts import NOUNS
from coordinator.story.described import (
    Awaited,
    ConsumerState,
    CoordinatorNode,
    Expects,
    Group,
    HeldUp,
    Waiting,
    group_json,
)
from coordinator.story.entries import Return, entry_json
from coordinator.story.events import TYPES as EVENTS
from coordinator.story.lanes import MARKS, lane_json, lanes_of
from coordinator.story.runs import run_json
from coordinator.story.words import timeline_json
from protocol.messages import OffsetCommitResponse
from protocol.primitives import STRING_SIZE_MAX
from schemas.errors import ErrorCode
from tests.story.test_runs import NOW_MS, found, replaced
from tests.support.patience import WITHIN_S
from tests.support.raw import ask
from tests.support.requests import commit_request
from tests.support.scripted import Member, hang_up, settle
from tests.support.seats import set_seats
from tests.support.tenure import Tenure, wait_until
from tests.support.told import entries_of, told

TYPES = {"rebalance", "static_restart", "takeover", "fencing", "pending"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Yield a server with a group that has an entry of each of TYPES, one of them for an unused member id.

    Another group waits for a member, and for the client that was given a member id.
    """
    settings = {"group.initial.rebalance.delay.ms": "0", "tenure.http": "127.0.0.1:0", "tenure.topics": "t:2"}
    with Tenure(settings) as server:
        (shown,) = [line["url"] for line in server.events("http_listening")]
        try:
            one = Member(server.port, "g/1", "one", 9, instance="seat")
            settle(one)
            other = Member(server.port, "g/1", "other", 9, instance="seat")
            other.send_join()
            assert other.receive_join().error_code == ErrorCode.NONE
            assert one.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
            again = Member(server.port, "g/1", "again", 9, instance="seat")
            again.send_join()
            assert again.receive_join().error_code == ErrorCode.NONE
            ghost = Member(server.port, "g/1", "ghost", 9)
            assert ghost.ask_for_id()
            here, absent = (Member(server.port, "waits", name, 9) for name in ("here", "absent"))
            settle(here)
            absent.send_join()
            settle(here, absent)
            assert Member(server.port, "waits", "ghost", 9).ask_for_id()
            commit(server.port, "commits", 0, 7)
            set_seats(server.port, "stands", 1)
            seated, standby = (Member(server.port, "stands", name, 9, instance=name) for name in ("seated", "standby"))
            settle(seated)
            standby.send_join()
            assert standby.receive_join().error_code == ErrorCode.NONE
            here.send_join()
            wait_until(lambda: asked(f"{shown}groups/waits")[1]["waiting"], "a group waits", WITHIN_S)
            wait_until(
                lambda: {each["type"] for each in asked(f"{shown}groups/g%2F1/events")[1]["timeline"]} >= TYPES,
                "the timeline is complete",
                WITHIN_S,
            )
            yield shown
        finally:
            hang_up()


def commit(port: int, group: str, partition: int, offset: int) -> None:
    """Commit an offset of topic t, as a program that is no member."""
    answer = cast("OffsetCommitResponse", ask(port, commit_request(group, {("t", partition): offset}), 8))
    assert not answer.topics[0].partitions[0].error_code


def asked(url: str) -> tuple[int, Any]:
    """Return status and JSON."""
    try:
        with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def strict(schema: Any) -> Any:
    """Return the same schema without any further fields in its objects."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(each) for name, each in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        closed["additionalProperties"] = False
    return closed


def check(value: Any, schema: dict[str, Any]) -> None:
    """Raise the validation error if the value doesn't match the schema."""
    Draft202012Validator({**strict(schema), "components": {"schemas": strict(SCHEMAS)}}).validate(value)


def schema_of(path: str, status: int) -> dict[str, Any]:
    """Return the schema of an answer of this path."""
    found: dict[str, Any] = PATHS[path]["get"]["responses"][str(status)]["content"]["application/json"]["schema"]
    return found


@pytest.mark.parametrize(
    ("path", "asks", "status"),
    [
        ("/nodes", "nodes", 200),
        ("/groups", "groups", 200),
        ("/findings", "findings", 200),
        ("/lag", "lag?group=commits", 200),
        ("/lag", "lag?group=none", 404),
        ("/lags", "lags?group=commits&group=stands&group=none", 200),
        ("/lags", "lags?" + "&".join(f"group={number}" for number in range(LAGS_MAX + 1)), 400),
        ("/lags", f"lags?group={'x' * (STRING_SIZE_MAX + 1)}", 400),
        ("/sums", "sums", 200),
        ("/overview", "overview", 200),
        ("/groups/{group_id}", "groups/g%2F1", 200),
        ("/groups/{group_id}", "groups/waits", 200),
        ("/groups/{group_id}", "groups/stands", 200),
        ("/groups/{group_id}", "groups/none", 404),
        ("/groups/{group_id}/events", "groups/g%2F1/events", 200),
        ("/groups/{group_id}/events", "groups/stands/events", 200),
        ("/openapi.json", "openapi.json", 200),
    ],
)
def test_answers_are_as_described(url: str, path: str, asks: str, status: int) -> None:
    """An answer has the described fields, and no others."""
    found, body = asked(url + asks)
    assert found == status
    assert body, "an empty list would pass for anything"
    check(body, schema_of(path, status))


def test_a_group_that_waits_says_for_whom(url: str) -> None:
    """A group that waits shows for whom, in the words of `tenure explain`, for the page."""
    assert asked(f"{url}groups/g%2F1")[1]["waiting"] is None
    waiting = asked(f"{url}groups/waits")[1]["waiting"]
    assert [member["client_id"] for member in waiting["members"]] == ["absent"]
    assert [pending["client_id"] for pending in waiting["pending"]] == ["ghost"]
    assert [line.partition(" for ")[0] for line in waiting["text"][1:]] == ["it waits", "it waits"]


def test_lines_about_waits_are_described_and_the_page_has_them() -> None:
    """The command line's JSON of a group lacks these lines, and has all other fields that are described."""
    names = "m", "i", "c", "/h"
    waiting = Waiting(1, 2, is_held_open=False, leader=None, members=[Awaited(*names, 10, 5)], pending=[])
    state = ConsumerState(2, 1, 3, [HeldUp(*names, "away", 1, None, 9)], [])
    group = Group(
        "g", "Assigning", "consumer", "", CoordinatorNode(1, "h", 9), [], waiting, state, Expects(["k"], 0, None)
    )
    without = group_json(group)
    assert ["text" in without[part] for part in ("waiting", "expects")] == [False, False]
    waiting.text = group.expects.text = ["words"]  # type: ignore[union-attr]
    told = group_json(group, ["words"])
    check(told, {"$ref": "#/components/schemas/Group"})
    assert told.pop("held_up_text") == told["waiting"].pop("text") == told["expects"].pop("text") == ["words"]
    assert told == without


def test_lag_is_told_where_it_is_known(url: str) -> None:
    """The server has no record of topic t, so an offset of 7 is beyond the end, and no lag."""
    _, found = asked(f"{url}lag?group=commits")
    assert (found["lag"], found["beyond_end"], found["without_end"], found["partitions"]) == (None, 1, 0, 1)
    (topic,) = found["topics"]
    assert topic["offsets"][0]["log_end_offset"] == 0
    commits, nobody, stands = asked(f"{url}lags?group=commits&group=stands&group=none")[1]
    assert (commits["members"], commits["topics"], commits["lag"]) == (0, 1, None)
    assert (nobody["group_id"], list(nobody)) == ("none", ["group_id", "error"])
    assert (stands["members"], stands["standbys"], stands["topics"]) == (1, 1, 1)


def test_an_overview_names_coordinators_and_newest_events(url: str) -> None:
    """A group has its coordinator's node, and the time of its newest event if one is in memory."""
    by_name = {group["group_id"]: group for group in asked(f"{url}overview")[1]}
    assert {group["node_id"] for group in by_name.values()} == {1}
    newest = asked(f"{url}groups/stands/events")[1]["timeline"][-1]
    assert by_name["stands"]["last_event_ms"] >= newest["at_ms"]
    assert by_name["commits"]["last_event_ms"] is None


def test_a_standby_waits_on_its_lane(url: str) -> None:
    """The lane of a standby has no taken seat, but the time since which it waits for one."""
    seated, standby = asked(f"{url}groups/stands/events")[1]["lanes"]
    assert (seated["name"], seated["standby_since_ms"], len(seated["spans"])) == ("seated", None, 1)
    assert (standby["name"], standby["spans"]) == ("standby", [])
    # The two times come from two clocks, each rounded to a millisecond.
    assert standby["standby_since_ms"] >= seated["spans"][0]["from_ms"] - 1
    members = asked(f"{url}groups/stands")[1]["members"]
    assert ["standby_ms" in member for member in members] == [False, True]


def test_every_kind_of_mark_is_described() -> None:
    """The document has each kind of mark that a lane can have."""
    kinds = SCHEMAS["Lane"]["properties"]["marks"]["items"]["properties"]["kind"]["enum"]
    assert set(kinds) == {"restart", "fencing", "suspect", *MARKS.values()}


def test_a_takeover_is_not_counted_as_a_restart(url: str) -> None:
    """Of two replacements that look like restarts, the takeover doesn't count as one."""
    (counted,) = [group for group in asked(f"{url}overview")[1] if group["group_id"] == "g/1"]
    assert counted["static_restarts"] == 1


SAID: dict[str, dict[str, Any]] = {
    "group_converted": {"kind": "consumer"},
    "member_fenced": {"kind": "self"},
    "rebalance_ended": {"causes": [{}], "outcome": "emptied"},
    "seat_taken": {"kind": "unknown"},
}
"""The fields of events that need more than an empty value."""


def with_all(name: str, **said: Any) -> Any:
    """An event of this type that has each field which may be missing."""
    event = told(name, **SAID.get(name, {}), **said)
    return replace(event, **{each: 1 for each in event.__struct_fields__ if getattr(event, each) is UNSET})


def test_an_entry_has_the_fields_that_are_described_and_no_others() -> None:
    """Both ways, for each type of entry: its schema is made from the classes of its events and its own."""
    back = with_all("member_replaced")
    begun, loaded = with_all("rebalance_started", generation=0, group_type="consumer"), with_all("group_loaded")
    entries = [
        *(Return(back, kind) for kind in NOUNS),
        *entries_of(*(with_all(name) for name, kind in EVENTS.items() if kind.entry)),
        *entries_of(begun, told("target_assigned"), told("member_revoking"), with_all("rebalance_ended")),
        *entries_of(loaded, replace(loaded, node=2), told("rebalance_held"), told("hold_ended")),
    ]
    found: dict[str, set[str]] = {}
    for entry in entries:
        found.setdefault(entry.type, {"text"}).update(entry_json(entry))
    schemas = [SCHEMAS[each["$ref"].rpartition("/")[2]] for each in SCHEMAS["Entry"]["oneOf"]]
    assert found == {each["properties"]["type"]["const"]: {*each["properties"]} for each in schemas}


def test_every_kind_of_entry_is_described() -> None:
    """Every kind of entry is described, also the kinds that a real server hardly produces."""
    events = [told(name, **SAID.get(name, {})) for name, kind in EVENTS.items() if kind.entry]
    timeline_entries = entries_of(*events)
    shown = [run_json(run) for run in found([replaced(at_ms) for at_ms in range(NOW_MS - 10, NOW_MS)])]
    assert all(run.finding for run in shown)
    drawn = [lane_json(name, lane) for name, lane in lanes_of(timeline_entries, [], ["m-1"]).items()]
    assert drawn
    body = TimelineJson("g", timeline_json(timeline_entries), Churn(), [], shown, drawn)
    check(json.loads(b"".join(pieces_of(body))), schema_of("/groups/{group_id}/events", 200))


def test_the_document_has_the_paths_that_are_served() -> None:
    """The document has each path that the server serves, and no other."""
    server: Any = SimpleNamespace(http_hosts=(), http_max_connections=1, http_idle_timeout_ms=1, http_token="")
    routes = Site(server, server, server, server, server, server, server).routes()
    assert {route.path.replace(":path}", "}") for route in routes} == set(PATHS)


def test_a_mistake_of_ours_is_described_for_every_path() -> None:
    """Every path describes status 500, because any of them may fail (test_site.py makes one fail)."""
    for path in PATHS:
        check({"error": "the server's own fault"}, schema_of(path, 500))


def test_the_document_is_in_order(url: str) -> None:
    """Its schemas are valid JSON Schema, its references have targets, and its version is the program's."""
    found = asked(f"{url}openapi.json")[1]
    assert found == json.loads(json.dumps(document(version("tenure"))))
    assert found["openapi"].startswith("3.1")
    text = json.dumps(found)
    for name, schema in found["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert f'"#/components/schemas/{name}"' in text, f"nothing refers to {name}"
    references = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert references <= set(found["components"]["schemas"])
