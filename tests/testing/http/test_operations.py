"""Operations over HTTP do what their functions in Python do, with the same words when something is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.testing.http.operations import OPERATIONS, Operation
from tests.testing.http.conftest import Control, Fill


def test_a_rolling_restart_causes_no_rebalance(control: Control, fill: Fill) -> None:
    """Three static members restart one after the other; the assertion holds, and fails once one leaves."""
    crew = fill(3)
    before = control.post("/v1/groups/workers/assert/at-rest")
    since = before["mark"]
    for index in range(3):
        control.post(f"/v1/crews/{crew}/restart", index=index)
        control.post("/v1/groups/workers/wait", restarts=index + 1, no_rebalance_since=since)
    control.post(f"/v1/crews/{crew}/wait-until-seated")
    look = control.post("/v1/groups/workers/assert/no-rebalance", since=since)
    assert (look["state"], look["generation"]) == ("Stable", 1)
    control.post("/v1/groups/workers/assert/same-seats", before=before["assignment"])
    entries = control.get(f"/v1/groups/workers/timeline?since={since}&type=static_restart")
    assert [entry["group_instance_id"] for entry in entries] == ["member-0", "member-1", "member-2"]

    control.post(f"/v1/crews/{crew}/leave", index=0)
    status, text = control.refused("/v1/groups/workers/wait", members=9, no_rebalance_since=since)
    assert status == 409
    assert text.startswith("group workers rebalanced once, expected none\n")
    assert "on LeaveGroup v5" in text
    assert control.refused("/v1/groups/workers/assert/no-rebalance", since=since)[0] == 409
    control.post("/v1/groups/workers/wait", state="Stable", members=2)
    control.post("/v1/groups/workers/assert/rebalances", since=since, exactly=1, cause="member_left")
    assert "expected 2" in control.refused("/v1/groups/workers/assert/rebalances", since=since, exactly=2)[1]
    assert "moved" in control.refused("/v1/groups/workers/assert/nothing-moved", since=since)[1]
    assert "is gone" in control.refused("/v1/groups/workers/assert/same-seats", before=before["assignment"])[1]
    control.post("/v1/groups/workers/assert/moved-at-most", since=since, most=6)
    told = control.get(f"/v1/groups/workers/explain?since={since}")
    assert told == control.tenure.group("workers").explain(since)
    assert "member-0" in told


def test_a_wait_in_vain_says_what_was_there(control: Control, fill: Fill) -> None:
    """The error of a wait is that of Python."""
    fill(2)
    status, text = control.refused("/v1/groups/workers/wait", members=3, timeout=0)
    assert status == 409
    assert text.startswith("group workers did not reach members=3 within 0 s; it had members=2\nit is Stable")
    assert "no such group" in control.refused("/v1/groups/none/wait", members=1, timeout=0)[1]


def test_groups_are_listed(control: Control, fill: Fill) -> None:
    """The list has each group, as a look at it has it; a group that nobody knows is Dead."""
    fill(1)
    assert control.get("/v1/groups") == [control.get("/v1/groups/workers")]
    assert control.get("/v1/groups/none")["state"] == "Dead"


def test_time_moves_and_stands(control: Control, fill: Fill) -> None:
    """A jump moves the clock, keeps live members and expires a member that the jump may expire."""
    control.post("/v1/clock/freeze")
    before = control.get("/v1/clock")
    assert before["is_frozen"]
    after = control.post("/v1/clock/advance", seconds=3600)
    assert after["now_ms"] - before["now_ms"] == 3_600_000
    assert not control.post("/v1/clock/thaw")["is_frozen"]
    fill(2)
    look = control.post("/v1/groups/workers/assert/at-rest")
    control.post("/v1/clock/advance", seconds=3600)
    control.post("/v1/groups/workers/assert/no-rebalance", since=look["mark"])
    unheard = [{"group": "workers", "member": "member-1"}]
    control.post("/v1/clock/advance", seconds=3600, unheard=unheard)
    control.post("/v1/groups/workers/wait", rebalances=2)
    (entry,) = control.get(f"/v1/groups/workers/timeline?since={look['mark']}&type=rebalance")
    assert entry["causes"][0]["kind"] == "member_expired"


def test_members_expire_and_fall_silent(control: Control, fill: Fill) -> None:
    """An expired member costs one rebalance, or two if it comes back late; a silenced one expires after its session."""
    fill(2)
    control.post("/v1/groups/workers/expire", member="member-0")
    control.post("/v1/groups/workers/wait", rebalances=2, state="Stable", members=2)
    control.post("/v1/groups/workers/silence", member="member-1")
    control.post("/v1/groups/workers/hear", member="member-1")
    control.post("/v1/clock/advance", seconds=3600)
    since = control.post("/v1/groups/workers/assert/rebalances", since=0, at_least=2, at_most=3)["mark"]
    control.post("/v1/groups/workers/silence", member="member-1")
    control.post("/v1/clock/advance", seconds=3600)
    control.post("/v1/groups/workers/assert/rebalances", since=since, exactly=1, cause="member_expired")
    status, text = control.refused("/v1/groups/workers/expire", member="nobody")
    assert (status, "has no member nobody" in text) == (404, True)


def test_faults_happen_and_are_counted(control: Control, fill: Fill) -> None:
    """A fault by fields and faults by text are planned, one fires, and both are listed until they are removed."""
    (one,) = control.post("/v1/faults", action="drop-response", apis=["JoinGroup"], nth=2)
    two, three = control.post("/v1/faults", text="LeaveGroup -> disconnect\nOffsetCommit -> delay 1\n")
    fill(2, request_timeout_ms=200, rebalance_timeout_ms=200)
    assert [(fault["id"], fault["fired"]) for fault in control.get("/v1/faults")] == [
        (one["id"], 1),
        (two["id"], 0),
        (three["id"], 0),
    ]
    assert [fault["id"] for fault in control.get("/v1/faults?never_fired=true")] == [two["id"], three["id"]]
    assert control.ask("DELETE", f"/v1/faults/{two['id']}") == (200, {})
    assert len(list(control.tenure.faults)) == 2
    assert control.ask("DELETE", f"/v1/faults/{two['id']}")[0] == 404
    assert control.ask("DELETE", "/v1/faults") == (200, {})
    assert control.get("/v1/faults") == []
    assert list(control.tenure.faults) == []
    drawn = control.post("/v1/faults/random", seed=7, count=3)
    again = control.post("/v1/faults/random", seed=7, count=3)
    assert [each["text"] for each in drawn] == [each["text"] for each in again]
    for fields in ({"text": "JoinGroup -> explode"}, {"text": "x", "action": "kill"}, {"action": "kill"}, {}):
        assert control.refused("/v1/faults", **fields)[0] == 400


def test_requests_are_counted(control: Control, fill: Fill) -> None:
    """The counts are by API and client, and begin at zero when they are cleared."""
    fill(2, client_id="filler")
    assert control.get("/v1/requests?api=JoinGroup&client_id=filler")["count"] == 2
    assert control.get("/v1/requests?api=JoinGroup")["by_client"]["filler"]["JoinGroup"] == 2
    assert control.ask("GET", "/v1/requests?api=Joingroup")[0] == 400
    control.ask("DELETE", "/v1/requests")
    assert control.get("/v1/requests?api=JoinGroup")["count"] == 0


def test_topics_are_made_once(control: Control) -> None:
    """A topic is there with its partitions; a second one of its name is refused."""
    assert control.post("/v1/topics", name="u", partitions=2) == {"name": "u", "partitions": 2}
    assert control.get("/v1/topics") == [{"name": "t", "partitions": 6}, {"name": "u", "partitions": 2}]
    status, text = control.refused("/v1/topics", name="u")
    assert (status, text) == (409, "topic 'u': TOPIC_ALREADY_EXISTS")


def test_reset_makes_all_as_new(control: Control, fill: Fill) -> None:
    """Groups, topics, faults, time, history and counts are gone; the address and the configured topic stay."""
    address = control.get("/v1")["bootstrap_servers"]
    fill(2)
    control.post("/v1/topics", name="u")
    control.post("/v1/faults", text="Heartbeat -> delay 1")
    control.post("/v1/clock/freeze")
    assert control.post("/v1/reset")["bootstrap_servers"] == address
    assert control.get("/v1/groups") == control.get("/v1/faults") == control.get("/v1/crews") == []
    assert control.get("/v1/topics") == [{"name": "t", "partitions": 6}]
    assert control.get("/v1/requests")["count"] == 0
    assert not control.get("/v1/clock")["is_frozen"]
    assert fill(2)
    assert control.get("/v1/groups/workers")["generation"] == 1


def test_reset_empties_a_folder(on_disk: Control) -> None:
    """With a folder, groups and topics are gone too, and a kill works before and after."""
    for _ in range(2):
        crew = on_disk.post("/v1/groups/workers/fill", count=1, topics=["t"])["id"]
        assert on_disk.post("/v1/groups/workers/wait", state="Stable", members=1)["generation"] == 1
        assert not on_disk.post("/v1/kill")["is_running"]
        status, text = on_disk.ask("GET", "/v1/groups/workers")
        assert (status, text) == (409, {"error": "the server doesn't run: start() it"})
        assert on_disk.post("/v1/start")["is_running"]
        assert on_disk.get("/v1/groups/workers")["generation"] == 1
        assert on_disk.ask("DELETE", f"/v1/crews/{crew}")[0] == 200
        on_disk.post("/v1/reset")
        assert on_disk.get("/v1/groups/workers")["state"] == "Dead"


def test_a_planned_kill_can_be_waited_for(on_disk: Control) -> None:
    """The wait ends when a fault has killed the server; the group is there after the start."""
    on_disk.post("/v1/faults", text="SyncGroup -> kill")
    on_disk.post("/v1/groups/workers/fill", count=1, request_timeout_ms=200)
    assert not on_disk.post("/v1/wait-until-killed")["is_running"]
    on_disk.post("/v1/start")
    on_disk.post("/v1/groups/workers/wait", state="Stable", members=1)
    status, text = on_disk.refused("/v1/wait-until-killed", timeout=0)
    assert (status, text.partition(";")[0]) == (409, "nothing killed the server within 0 s")


def test_a_test_ends_without_a_reset(control: Control, fill: Fill) -> None:
    """Faults, scripted members and a frozen time end; groups stay."""
    fill(1)
    control.post("/v1/faults", text="Heartbeat -> delay 1")
    control.post("/v1/clock/freeze")
    control.post("/v1/end-test")
    assert control.get("/v1/faults") == control.get("/v1/crews") == []
    assert not control.get("/v1/clock")["is_frozen"]
    assert control.get("/v1/groups/workers")["generation"] == 1


def test_members_are_named_by_crew_and_index(control: Control, fill: Fill) -> None:
    """An unknown crew and an unknown index are named; a stopped crew is gone."""
    crew = fill(2)
    for path, index in ((f"/v1/crews/{crew}/restart", 2), ("/v1/crews/99/restart", 0)):
        assert control.refused(path, index=index)[0] == 404
    control.post(f"/v1/crews/{crew}/fall-silent", index=1)
    assert [member["is_silent"] for member in control.get(f"/v1/crews/{crew}")["members"]] == [False, True]
    assert control.ask("DELETE", f"/v1/crews/{crew}") == (200, {})
    assert control.ask("GET", f"/v1/crews/{crew}")[0] == 404


@pytest.mark.parametrize("each", OPERATIONS, ids=lambda each: f"{each.method} {each.path}")
def test_an_operation_takes_no_unknown_field(control: Control, each: object) -> None:
    """A misspelled field is an error for each operation, never ignored."""
    path = each.path.format(group_id="g", crew_id=1, fault_id=1, node_id=1)  # type: ignore[attr-defined]
    if each.has_body:  # type: ignore[attr-defined]
        status, body = control.ask("POST", path, {"misspelled": 1})
    else:
        status, body = control.ask(each.method, f"{path}?misspelled=1")  # type: ignore[attr-defined]
    assert status == 400
    assert body["error"].startswith("there is no field 'misspelled'")


def test_a_coordinator_moves_and_its_node_dies(several: Control) -> None:
    """A stable group moves without a rebalance, survives its node, and its history says who coordinates it."""
    crew = several.post("/v1/groups/workers/fill", count=3, topics=["t"], heartbeat_interval_ms=50)["id"]
    several.post("/v1/groups/workers/wait", state="Stable", members=3)
    several.post(f"/v1/crews/{crew}/wait-until-seated")
    mark = several.post("/v1/groups/workers/assert/at-rest")["mark"]
    first = several.get("/v1/groups/workers/coordinator")["node"]
    second, third = sorted({0, 1, 2} - {first})
    assert several.post("/v1/groups/workers/move", to=second) == {"group_id": "workers", "node": second}
    state = several.post(f"/v1/nodes/{second}/kill")
    assert [node["is_running"] for node in state["nodes"]] == [node != second for node in range(3)]
    assert state["bootstrap_servers"] == ",".join(node["address"] for node in state["nodes"])
    taker = several.get("/v1/groups/workers/coordinator")["node"]
    assert taker in {first, third}
    assert all(node["is_running"] for node in several.post(f"/v1/nodes/{second}/start")["nodes"])
    several.post("/v1/groups/workers/assert/no-rebalance", since=mark)
    loads = several.get("/v1/groups/workers/timeline?type=loaded")
    assert [(entry["former_node"], entry["node"]) for entry in loads] == [(first, second), (second, taker)]


def test_what_nodes_can_not_do_is_said(several: Control, control: Control) -> None:
    """A node that isn't there, or doesn't run; a server that is alone; a kill of all."""
    assert several.refused("/v1/groups/g/move", to=3) == (400, "there is no node 3; there are 0, 1, 2")
    several.post("/v1/nodes/1/kill")
    assert several.refused("/v1/groups/g/move", to=1) == (400, "node 1 doesn't run")
    assert several.refused("/v1/nodes/2/start") == (400, "node 2 runs")
    alone = "there is one node: Tenure(nodes=3), or tenure.control.nodes=3, has several"
    assert control.refused("/v1/groups/g/move", to=0) == (400, alone)
    assert several.refused("/v1/kill") == (400, "there are several nodes, all in memory: kill_node() ends one of them")


def test_a_planned_kill_ends_the_node_that_met_it(several: Control) -> None:
    """The wait for it ends, and the group is at another node."""
    first = several.get("/v1/groups/workers/coordinator")["node"]
    several.post("/v1/faults", action="kill", apis=["SyncGroup"], group="workers")
    several.post("/v1/groups/workers/fill", count=1, topics=["t"])
    state = several.post("/v1/wait-until-killed")
    assert [node["is_running"] for node in state["nodes"]] == [node != first for node in range(3)]
    several.post("/v1/groups/workers/wait", state="Stable", members=1)
    assert several.get("/v1/groups/workers/coordinator")["node"] != first
    assert all(node["is_running"] for node in several.post("/v1/reset")["nodes"])


def numbers(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of all numbers in a schema."""
    parts = [schema.get("items"), schema.get("additionalProperties"), *schema.get("properties", {}).values()]
    inside = [number for part in parts if isinstance(part, dict) for number in numbers(part)]
    return inside + ([schema] if schema.get("type") in {"integer", "number"} else [])


@pytest.mark.parametrize("each", OPERATIONS, ids=lambda each: f"{each.method} {each.path}")
def test_every_number_has_bounds(each: Operation) -> None:
    """No number of a request is without a lower and an upper bound."""
    for name, schema in {**each.parameters, **each.fields}.items():
        for number in numbers(schema):
            assert number["minimum"] in {0, 1}, name
            assert number["maximum"] <= 2**31 - 1, name


def test_a_number_out_of_its_bounds_is_named(control: Control) -> None:
    """The error names the number and its bound, and nothing has happened."""
    for path, content, words in (
        ("/v1/clock/advance", b'{"seconds": Infinity}', "seconds: Infinity is not a number"),
        ("/v1/clock/advance", b'{"seconds": 1e300}', "seconds: 1e+300 is more than 1000000000"),
        ("/v1/groups/g/wait", b'{"timeout": 1e9}', "timeout: 1000000000.0 is more than 3600"),
        ("/v1/groups/g/fill", b'{"count": 1000000000}', "count: 1000000000 is more than 10000"),
        ("/v1/faults", b'{"text": "* -> delay 9999999999"}', "delay: 9999999999 is not a number from 0"),
        ("/v1/crews/" + 5_000 * "9" + "/leave", b'{"index": 0}', '9" is not a whole number'),
        ("/v1/nodes/2147483648/kill", b"", "node_id: 2147483648 is more than 2147483647"),
    ):
        status, body = control.ask("POST", path, content)
        assert status == 400
        assert words in body["error"]
    assert control.get("/v1/crews") == control.get("/v1/faults") == []


def test_the_clock_stops_before_dates_do(control: Control) -> None:
    """However often the time jumps, it stays in a year that has four digits, and the server goes on."""
    jumps = iter(range(400))
    while (answer := control.ask("POST", "/v1/clock/advance", {"seconds": 10**9}))[0] == 200:
        next(jumps)
    assert answer == (400, {"error": "time ends with the year 9998: dates have four digits"})
    control.post("/v1/groups/g/fill", count=1)
    control.post("/v1/groups/g/wait", state="Stable")


def test_all_crews_have_a_limit_together(control: Control, fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of all crews count together, and so do the crews: each of them is a thread."""
    monkeypatch.setattr("coordinator.testing.http.operations.MEMBERS_MAX", 3)
    monkeypatch.setattr("coordinator.testing.http.operations.CREWS_MAX", 2)
    first = fill(2)
    refused = control.refused("/v1/groups/g/fill", count=2)
    assert refused == (400, "count: 2 members beside 2 are more than 3; DELETE a crew first")
    control.ask("DELETE", f"/v1/crews/{first}")
    for _ in range(2):
        control.post("/v1/groups/g/fill", count=1)
    assert control.refused("/v1/groups/g/fill", count=1) == (400, "there are 2 crews already; DELETE one first")
