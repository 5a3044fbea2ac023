"""Two servers in turn do the same works, and one of them may have ACLs; how fast is not judged."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks import frames, servers, versions
from benchmarks.members import UnexpectedAnswer
from benchmarks.stage import cpus
from benchmarks.versions import AUTHORIZER, WORKS, Compared, Side, compared, rules

PROGRAM = Path(sys.executable).with_name("tenure")


@pytest.fixture(autouse=True)
def _is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few members, few storms."""
    monkeypatch.setattr(versions, "STORM_SIZE", 4)
    monkeypatch.setattr(versions, "STORMS_PER_TURN", 1)
    monkeypatch.setattr(versions, "CONNECTIONS", 4)


def test_each_work_has_a_turn_of_each_server() -> None:
    """As many turns of both servers."""
    found = compared(list(WORKS), PROGRAM, 0, pairs=2, restarts=1, seconds=0.02)
    assert [each.work for each in found] == list(WORKS)
    for each in found:
        assert len(each.first) == len(each.second) == 2
        assert min(each.first + each.second) > 0
        assert re.search(r"ratio -?\d+\.\d{3} \(.*\), 2 pairs", str(each))


@pytest.mark.long
def test_the_works_run_with_acls() -> None:
    """The rules let the clients do all works."""
    (found,) = compared(["metadata"], None, 10, pairs=1, restarts=2, seconds=0.02)
    assert len(found.first) == 2


def test_rules_decide() -> None:
    """A client that the rules leave out is refused: what is measured with ACLs is their cost."""
    with ExitStack() as stack:
        server = stack.enter_context(servers.tenure(AUTHORIZER, cpus()[0]))
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(versions, "USER", "User:somebody-else")
        with pytest.raises(UnexpectedAnswer, match="GROUP_AUTHORIZATION_FAILED"):
            Side(server, stack, acls=10)


def test_there_are_as_many_rules_as_asked_for() -> None:
    """All differ, and those that are used are among them."""
    found = rules(100)
    assert len(set(found)) == 100
    assert {frames.TOPIC, versions.GROUP_ID} <= {rule.name for rule in found}


def test_a_ratio_is_made_of_neighbours() -> None:
    """The median of the turns' ratios, not the ratio of the medians."""
    assert "ratio 2.000" in str(Compared("storm", [2.0, 20.0, 9.0], [1.0, 10.0, 1.0]))
