"""One examination of groups: what their coordinators answer, and what is found."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.client import examination
from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.examination import examine, look_at_lag
from coordinator.client.groups import describe_groups
from coordinator.client.topics import LATEST
from coordinator.story.described import Group
from coordinator.story.lag_time import LagTimes
from coordinator.story.progress import Progress
from schemas.errors import ErrorCode
from tests.client.scripted import Clock, served
from tests.site.test_examined import ANSWERS
from tests.story.test_runs import NOW_MS
from tests.support.told import entries_of, told


def test_each_group_is_described_and_found_out_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request asks for some of them; a group without a coordinator has findings, a group that is not there none."""
    monkeypatch.setattr(examination, "DESCRIBED_AT_ONCE", 2)
    asked: list[list[str]] = []

    def note(client: Client, names: Any) -> Any:
        asked.append(list(names))
        return describe_groups(client, names)

    monkeypatch.setattr(examination, "describe_groups", note)
    gap = entries_of(told("events_dropped", at_ms=NOW_MS, events=1, last_ms=NOW_MS))
    with served(ANSWERS, clock=Clock()) as (_, client):
        problem = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "list of groups")
        answers, found = examine(client, dict.fromkeys(("gone", "here", "silent"), gap), [problem], NOW_MS, [7])
    assert asked == [["gone", "here"], ["silent"]]
    assert {name for name, answer in answers.items() if isinstance(answer, Group)} == {"here"}
    assert [(each.kind, each.group_id) for each in found] == [
        ("groups_not_listed", None),
        ("events_dropped", "here"),
        ("group_unavailable", "silent"),
        ("events_dropped", "silent"),
        ("nodes_away", None),
    ]


def test_a_look_asks_for_the_leaders_once() -> None:
    """The offsets, and each question about the ages of records, go to the leaders that the first answer named."""

    def committed(request: Any) -> Any:
        topic = {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 5}]}
        return {"groups": [{"group_id": each.group_id, "topics": [topic]} for each in request.groups]}

    def offsets(request: Any) -> Any:
        is_end = request.topics[0].partitions[0].timestamp == LATEST
        partition = {"partition_index": 0, "offset": 100 if is_end else 0}
        return {"topics": [{"name": "orders", "partitions": [partition]}]}

    with served(ANSWERS | {"OffsetFetch": [committed], "ListOffsets": [offsets]}) as (server, client):
        (group,) = describe_groups(client, ["here"]).values()
        assert isinstance(group, Group)
        times = LagTimes()
        look_at_lag(client, [group], Progress(), times, NOW_MS, 3)
        assert times.of("here").partitions["orders", 0].lag == 95
        asked_for_ages = [each for each in server.asked("ListOffsets") if each.topics[0].partitions[0].timestamp > 0]
        assert len(asked_for_ages) == 3
        assert len(server.asked("Metadata")) == 1
