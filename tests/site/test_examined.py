"""The findings about all groups: which groups are looked at, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.client import examination
from coordinator.client.client import Client
from coordinator.client.groups import describe_groups
from coordinator.site import examined as module
from coordinator.site.examined import examined
from coordinator.story.events import RebalanceEvent, fields_of
from schemas.errors import ErrorCode
from tests.client.scripted import Clock, served
from tests.story.test_runs import NOW_MS, replaced
from tests.support.told import but, told


def described(request: Any) -> Any:
    """Return each group as Stable, with a member; `gone` is not there, `silent` has no coordinator."""
    known = {
        "group_state": "Stable",
        "protocol_type": "consumer",
        "members": [{"member_id": "m", "client_id": "c", "client_host": "/h"}],
    }
    errors = {"gone": ErrorCode.GROUP_ID_NOT_FOUND, "silent": ErrorCode.NOT_COORDINATOR}
    of = {name: {"error_code": code} for name, code in errors.items()}
    return {"groups": [{"group_id": name, **of.get(name, known)} for name in request.groups]}


def listed(*states: tuple[str, str]) -> Any:
    """Return an answer with these groups, each with its state; `share` is of another type."""
    return {
        "groups": [
            {"group_id": name, "group_state": state, "group_type": "share" if name == "share" else ""}
            for name, state in states
        ]
    }


def ask(groups: Any, events: list[RebalanceEvent]) -> dict[str, Any]:
    """Return what is found about these groups, with these events. No pause between two tries takes time."""
    with served(ANSWERS | {"ListGroups": [groups]}, clock=Clock()) as (_, client):
        return fields_of(examined(client, events, NOW_MS))


def nothing_committed(request: Any) -> Any:
    """Return no offset of any group."""
    return {"groups": [{"group_id": each.group_id, "topics": []} for each in request.groups]}


ANSWERS: dict[str, list[Any]] = {
    "DescribeGroups": [described],
    "DescribeCluster": [{}],
    "DescribeProducers": [{}],
    "OffsetFetch": [nothing_committed],
}


def loop(group: str, before_ms: int = 0) -> list[RebalanceEvent]:
    """Return events of a static member that restarts in a loop."""
    return [but(replaced(NOW_MS - before_ms - 1_000 * number), group=group) for number in range(20, 0, -1)]


def test_the_worst_comes_first_and_every_group_is_looked_at() -> None:
    """A loop that goes on comes before one that is over; a group that went meanwhile has none."""
    events = [*loop("over", 3_600_000), *loop("gone"), *loop("goes-on")]
    states = [(name, "Stable") for name in ("gone", "goes-on", "over", "quiet")]
    found = ask(listed(*states), events)
    assert (found["groups"], found["looked_at"], found["further_findings"]) == (4, 4, 0)
    loops = [each for each in found["findings"] if each["kind"] == "restarts_in_a_loop"]
    assert [(each["severity"], each["group_id"]) for each in loops] == [("warning", "goes-on"), ("notice", "over")]
    assert all(each["advice"] for each in loops)


def test_groups_without_a_coordinator_are_findings() -> None:
    """In an outage the others are looked at all the same, and one finding says that some may be missing."""
    answer = listed(("g", "Stable"), ("silent", "Stable"))
    answer["error_code"] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    found = ask(answer, loop("g"))
    told = {each["kind"]: (each["severity"], each["group_id"], each["found"]) for each in found["findings"]}
    assert told["restarts_in_a_loop"][:2] == ("warning", "g")
    assert told["group_unavailable"] == ("error", "silent", "its coordinator doesn't answer: NOT_COORDINATOR")
    assert told["groups_not_listed"][:2] == ("error", None)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in told["groups_not_listed"][2]


def test_groups_that_are_not_at_rest_are_looked_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then come those with the newest events; the answer says how many there are."""
    monkeypatch.setattr(module, "EXAMINED_MAX", 3)
    asked: list[str] = []

    def note(client: Client, names: Any) -> Any:
        asked.extend(names)
        return describe_groups(client, names)

    monkeypatch.setattr(examination, "describe_groups", note)
    groups = listed(("a", "Stable"), ("b", "Stable"), ("c", "PreparingRebalance"), ("d", "Empty"))
    found = ask(groups, [but(replaced(NOW_MS - 2_000), group="b"), but(replaced(NOW_MS), group="d")])
    assert (found["groups"], found["looked_at"]) == (4, 3)
    assert asked == ["c", "d", "b"]


def test_findings_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has the worst ones, and says how many it leaves out."""
    monkeypatch.setattr(module, "FINDINGS_MAX", 1)
    found = ask(listed(("a", "Stable"), ("b", "Stable")), [*loop("a", 3_600_000), *loop("b")])
    assert ([each["group_id"] for each in found["findings"]], found["further_findings"]) == (["b"], 1)


def test_events_that_were_dropped_are_one_finding_of_no_group() -> None:
    """They may be of any group, and the list has them once."""
    gap = told("events_dropped", at_ms=NOW_MS - 10, events=3, first_ms=NOW_MS - 20, last_ms=NOW_MS - 10)
    found = ask(listed(("a", "Stable"), ("b", "Stable")), [gap])
    assert [(each["kind"], each["group_id"]) for each in found["findings"]] == [("events_dropped", None)]
