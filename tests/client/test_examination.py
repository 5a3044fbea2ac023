"""One examination of groups: what their coordinators answer, and what is found."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.client import examination
from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.examination import examine
from coordinator.client.groups import Group, describe_groups
from schemas.errors import ErrorCode
from tests.client.scripted import Clock, Scripted
from tests.site.test_examined import ANSWERS
from tests.story.test_runs import NOW_MS
from tests.support.patience import WITHIN_S
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
    clock = Clock()
    with (
        Scripted(ANSWERS) as server,
        Client(server.bootstrap, WITHIN_S, clock=clock, pause=clock.pause) as client,
    ):
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
