"""Servers in turn do the same works, and one of them may have ACLs; how fast is not judged."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import drawing, frames, servers, turns
from benchmarks.members import UnexpectedAnswer
from benchmarks.stage import cpus
from benchmarks.turns import AUTHORIZER, BARE, ECHO, TENURE, WORKS, Side, compared, ratios, rules, table

PROGRAM = f"other={Path(sys.executable).with_name('tenure')}"
SMALL = [work for work in WORKS if "500" not in work and "16" not in work and "crowd" not in work]
"""Works whose sizes a test can make small; `consumer-restart` has 500 members, too."""


@pytest.fixture(autouse=True)
def _is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few members, few groups."""
    for name in ("STORM_SIZE", "CONNECTIONS", "MANY", "LARGE"):
        monkeypatch.setattr(turns, name, 4)


@pytest.mark.long
def test_each_work_has_a_turn_of_each_server_that_can_do_it() -> None:
    """As many turns of all servers; an echo answers heartbeats alone, and a record is written for restarts."""
    names = [TENURE, PROGRAM, ECHO, BARE]
    found = compared(SMALL, names, turns=2, restarts=1, seconds=0.02)
    assert list(found) == SMALL
    for work, took in found.items():
        able = (
            {TENURE, "other"} | ({ECHO} if work == "heartbeat" else set()) | ({BARE} if WORKS[work].record else set())
        )
        assert set(took) == able
        assert all(len(each) == 2 and min(each) > 0 for each in took.values())
    assert len(table(found, [TENURE, "other", ECHO, BARE]).splitlines()) == 2 + len(SMALL)


@pytest.mark.long
def test_growth_has_a_point_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members and groups become more, and each size is measured."""
    sizes = {title: ((2, 3), work) for title, (_, work) in turns.GROWTH.items()}
    monkeypatch.setattr(turns, "GROWTH", sizes)
    curves = turns.grown(turns=1, seconds=0.02)
    assert {title: list(points) for title, points in curves.items()} == {title: [2, 3] for title in sizes}


@pytest.mark.long
def test_the_works_run_with_acls() -> None:
    """The rules let the clients do all works."""
    found = compared(["metadata"], ["acls-10", TENURE], turns=1, restarts=2, seconds=0.02)
    assert {name: len(took) for name, took in found["metadata"].items()} == {"acls-10": 2, TENURE: 2}


def test_rules_decide() -> None:
    """A client that the rules leave out is refused: what is measured with ACLs is their cost."""
    with ExitStack() as stack:
        server = stack.enter_context(servers.tenure(AUTHORIZER, cpus()[0]))
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(turns, "USER", "User:somebody-else")
        side = Side(server, stack, acls=10)
        with pytest.raises(UnexpectedAnswer, match="GROUP_AUTHORIZATION_FAILED"):
            side.formed("steady", 1)


def test_there_are_as_many_rules_as_asked_for() -> None:
    """All differ, and those that are used are among them."""
    found = rules(100)
    assert len(set(found)) == 100
    assert {frames.TOPIC, turns.GROUP_ID} <= {rule.name for rule in found}


def test_a_ratio_is_made_of_neighbours() -> None:
    """The median of the turns' ratios, not the ratio of the medians."""
    assert ratios([2.0, 20.0, 9.0], [1.0, 10.0, 1.0]).startswith("2.00 ")


def test_a_drawing_has_all_figures() -> None:
    """A bar for each server of each work, a point for each size; it is XML."""
    text = drawing.svg({"a < b": {"tenure": 1.0, "kafka": 2_000.0}}, {"members": {1: 10.0, 100: 20.0}})
    found = [element.tag.rpartition("}")[2] for element in ET.fromstring(text).iter()]
    assert found.count("rect") == found.count("circle") == 2
    assert "2,000 us" in text
