"""The overview: the counts of each group, and groups that don't exist."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import pytest
from msgspec.structs import astuple, replace

from coordinator.client.groups import ListedGroup
from coordinator.site.overview import HOUR_MS, Churn, churn, counted, gone, lags, overview
from coordinator.story.entries import Timeline
from coordinator.story.lag_time import LagTimes
from coordinator.story.runs import runs
from schemas.errors import ErrorCode
from tests.client.scripted import served
from tests.story.test_runs import NOW_MS, replaced
from tests.support.length import rounds
from tests.support.told import cause, told

NEW = {"member_id": "new", "client_id": "c", "client_host": "/h", "group_instance_id": "i"}


def began_at(event: Any, began_ms: int) -> dict[str, int]:
    """The begin of a rebalance whose end this is."""
    return {"began_ms": began_ms} if event.type == "rebalance_ended" else {}


IN_A_ROW = rounds(3, 4, 4)
"""Events, in each order."""


@pytest.mark.rounds
def test_what_is_counted_is_what_timelines_tell() -> None:
    """The overview counts what the timelines show, with starts and ends in any order, or with one of them missing."""
    kinds = [
        told("rebalance_started", generation=1),
        told("rebalance_started", generation=2),
        told("rebalance_ended", generation=2, generation_before=1, causes=[cause()], outcome="completed"),
        told("group_loaded", generation=1),
        told("group_deleted", generation=1),
        told("member_replaced", generation=1, old_member_id="old", **NEW),
        told("member_replaced", generation=1, old_member_id="former", after_load=True, **NEW),
        told("member_replaced", generation=1, old_member_id="only-logged", inferred=True, **NEW),
        told("member_fenced", generation=1, member_id="old", kind="conflict", group_instance_id="i"),
        told("member_fenced", generation=1, member_id="old", kind="self", group_instance_id="i"),
    ]
    for order in product(kinds, repeat=IN_A_ROW):
        events = [
            replace(event, group=group, at_ms=at_ms, **began_at(event, at_ms - 15))
            for at_ms, event in zip(range(10, 10 + 10 * IN_A_ROW, 10), order, strict=True)
            for group in ("one", "two")
        ]
        entries = Timeline("one").add_all(events).entries
        for since_ms in (0, 26):
            types = [entry.type for entry in entries if entry.at_ms >= since_ms]
            found = churn(events, since_ms, 50).get("one", Churn())
            names = "static_restart", "static_rejoin", "takeover", "static_return"
            restarts, *others = (types.count(name) for name in names)
            assert astuple(found) == (types.count("rebalance"), restarts, 0, *others)


def test_restarts_that_no_healthy_member_makes_are_counted_by_themselves() -> None:
    """Restarts within the last hour that no healthy member makes have a count of their own."""
    swaps = [replaced(NOW_MS - 90_000 + 3_000 * number, "xy"[number % 2]) for number in range(20)]
    before = [replace(each, at_ms=each.at_ms - HOUR_MS) for each in swaps]
    rolled = replaced(NOW_MS - 1_000, seat="other")
    events = [*before, *swaps, rolled, replace(rolled, group="two")]
    assert churn(events, NOW_MS - HOUR_MS, NOW_MS) == {"g": Churn(0, 1, 20), "two": Churn(0, 1, 0)}
    listed = [ListedGroup("g", "classic", "consumer", "Stable")]
    group, _ = overview(listed, events, NOW_MS)
    entries = Timeline("g").add_all(events).entries
    assert counted(entries, runs("g", entries, NOW_MS)) == Churn(0, 1, 40), "all that the timeline has"
    assert (group["group_id"], group["static_restarts"], group["suspect_restarts"]) == ("g", 1, 20)


def test_one_group_whose_offsets_are_refused_costs_the_others_nothing() -> None:
    """Its error is in its place, and all others have their sums."""

    def committed(request: Any) -> Any:
        codes = {"b": ErrorCode.GROUP_AUTHORIZATION_FAILED}
        names = [each.group_id for each in request.groups]
        return {"groups": [{"group_id": name, "error_code": codes.get(name, ErrorCode.NONE)} for name in names]}

    def described(request: Any) -> Any:
        return {"groups": [{"group_id": name, "group_state": "Empty"} for name in request.groups]}

    with served({"DescribeGroups": [described], "OffsetFetch": [committed]}) as (_, client):
        a, b, c = cast("list[Any]", lags(LagTimes(), ["a", "b", "c"], client))
    assert [each["group_id"] for each in (a, b, c)] == ["a", "b", "c"]
    assert "GROUP_AUTHORIZATION_FAILED" in b["error"]
    assert (a["members"], a["partitions"], a["lag"]) == (c["members"], c["partitions"], c["lag"]) == (0, 0, None)


def test_a_group_that_is_not_listed_stays_while_there_are_events_of_it() -> None:
    """A group that isn't listed stays in the overview while it has events, with its purpose.

    It is shown as deleted only if its last event says that.
    """
    ended, deleted = told("rebalance_ended", protocol_type="connect"), told("group_deleted")
    events = [
        told("events_dropped"),
        *(replace(event, group="was") for event in (ended, deleted)),
        *(replace(event, group="came again") for event in (deleted, ended)),
        replace(deleted, group="listed"),
        replace(ended, group="with heartbeats", group_type="consumer"),
    ]
    assert gone([ListedGroup("listed", "classic", "consumer", "Empty")], events) == [
        ListedGroup("came again", "classic", "connect", "unknown"),
        ListedGroup("was", "classic", "connect", "deleted"),
        ListedGroup("with heartbeats", "consumer", "connect", "unknown"),
    ]
