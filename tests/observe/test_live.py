"""Looks at live state: groups with news and groups in a rebalance first, others in turn, within the budget."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import pytest

from coordinator.client.client import Cluster
from coordinator.client.errors import Unreachable
from coordinator.client.groups import ListedGroup
from coordinator.observe import live as lives
from coordinator.observe.asking import Asking, Budget
from coordinator.observe.live import Live, Look
from schemas.errors import ErrorCode
from tests.client.scripted import HANG_UP, Clock, Scripted
from tests.observe.conftest import Written
from tests.support.patience import WITHIN_S

GROUPS = {"busy": "PreparingRebalance"} | {f"quiet-{number}": "Stable" for number in range(4)}


def listed(request: Any) -> Any:
    """The groups in the wanted states."""
    return {
        "groups": [
            {"group_id": group, "protocol_type": "consumer", "group_state": state, "group_type": "classic"}
            for group, state in GROUPS.items()
            if not request.states_filter or state in request.states_filter
        ]
    }


def described(request: Any) -> Any:
    """Each group, without members; one that isn't known is not there."""
    return {
        "groups": [
            {"group_id": name, "group_state": GROUPS[name], "protocol_type": "consumer"}
            if name in GROUPS
            else {"group_id": name, "group_state": "Dead", "error_code": ErrorCode.GROUP_ID_NOT_FOUND}
            for name in request.groups
        ]
    }


class Looking:
    """A `Live` on a scripted server."""

    def __init__(self, server: Scripted, written: Written, *, at_once: int = 1_000) -> None:
        self.clock = Clock()
        self.looks: list[Look] = []
        self._asking = Asking(
            Cluster(server.bootstrap), Budget(1, at_once, clock=self.clock, pause=self.clock.pause), timeout=WITHIN_S
        )
        self.live = Live(self._asking, written.lines, self.looks.extend, clock=self.clock, wall_ms=lambda: 7)

    def look(self) -> list[str]:
        """Look once; the groups that were described."""
        self.looks.clear()
        with self._asking.open(anew=True) as client:
            self.live.look(client)
        return [look.group.group_id for look in self.looks]

    def close(self) -> None:
        """Close the connections."""
        self._asking.close()


def test_news_come_first_and_quiet_groups_in_turn(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look has at most so many groups; a quiet group has its turn again after all others."""
    monkeypatch.setattr(lives, "DESCRIBED_AT_ONCE", 3)
    with Scripted({"ListGroups": [listed], "DescribeGroups": [described]}) as server:
        looking = Looking(server, written)
        looking.live.changed(["quiet-3"])
        looks = [looking.look() for _ in range(4)]
        looking.close()
    assert looks[0][:2] == ["quiet-3", "busy"]
    assert all(len(look) <= 3 for look in looks)
    assert all(look[0] == "busy" for look in looks[1:])
    assert {group for look in looks for group in look} == GROUPS.keys()
    assert looking.live.states == {("classic", "PreparingRebalance"): 1, ("classic", "Stable"): 4}


def test_groups_of_other_kinds_have_their_turn_alone(written: Written) -> None:
    """In a rebalance the log tells as much of them; in their turn, a look shows whether they stand still."""
    of_share = {f"share-{state}": state for state in set(GROUPS.values())}

    def all_listed(request: Any) -> Any:
        answer = listed(request)
        answer["groups"] += [
            {"group_id": name, "group_state": state, "group_type": "share"}
            for name, state in of_share.items()
            if not request.states_filter or state in request.states_filter
        ]
        return answer

    def share(request: Any) -> Any:
        return {"groups": [{"group_id": name, "group_state": of_share[name]} for name in request.group_ids]}

    scripts = {"ListGroups": [all_listed], "DescribeGroups": [described], "ShareGroupDescribe": [share]}
    with Scripted(scripts) as server:
        looking = Looking(server, written, at_once=10)
        first, second = looking.look(), looking.look()
        looking.close()
    assert set(first) == GROUPS.keys() | of_share.keys()
    assert second == ["busy"], "half of the budget is left for the page"
    assert looking.live.states["share", "Stable"] == 1


def test_quiet_groups_leave_half_of_the_budget(written: Written) -> None:
    """With little left, only groups in a rebalance are described."""
    with Scripted({"ListGroups": [listed], "DescribeGroups": [described]}) as server:
        looking = Looking(server, written, at_once=10)
        assert len(looking.look()) == 5
        assert looking.look() == ["busy"]
        looking.close()


def test_the_list_of_many_groups_comes_less_often(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pause grows with the number of groups, up to a limit."""

    def lists(server: Scripted) -> int:
        return sum(not request.states_filter for request in server.asked("ListGroups"))

    with Scripted({"ListGroups": [listed], "DescribeGroups": [described]}) as server:
        looking = Looking(server, written)
        looking.look()
        for listed_a_s, pause_s in ((len(GROUPS) / 20, 20.0), (0.01, lives.LIST_MAX_S)):
            monkeypatch.setattr(lives, "LISTED_A_S", listed_a_s)
            before = lists(server)
            looking.clock.now += pause_s - 1.0
            looking.look()
            assert lists(server) == before
            looking.clock.now += 1.0
            looking.look()
            assert lists(server) == before + 1
        looking.close()


def test_an_old_cluster_has_no_filter_of_states(written: Written) -> None:
    """A server that can't filter lists all groups, at the slow pace."""
    versions = {"ListGroups": (0, 3)}
    with Scripted({"ListGroups": [listed], "DescribeGroups": [described]}, versions) as server:
        looking = Looking(server, written)
        looking.look()
        looking.look()
        assert len(server.asked("ListGroups")) == 1
        looking.clock.now += lives.LIST_S
        looking.look()
        assert len(server.asked("ListGroups")) == 2
        looking.close()


def test_news_are_not_lost_with_an_answer(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the cluster doesn't answer, the next look asks for the same groups."""
    with Scripted({"ListGroups": [listed], "DescribeGroups": [HANG_UP]}) as server:
        looking = Looking(server, written, at_once=10)
        looking.live.changed(["quiet-2"])
        with monkeypatch.context() as patched:
            patched.setattr(looking._asking, "_timeout", 0.2)
            with pytest.raises(Unreachable):
                looking.look()
        server.answers("DescribeGroups", described)
        assert "quiet-2" in looking.look()[:1]
        looking.close()


def test_a_refusal_is_said_once(written: Written) -> None:
    """Without the right to list groups, one line says so, and looking goes on."""
    stopping = threading.Event()
    count = 0

    def answer(_request: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            stopping.set()
        return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

    with Scripted({"ListGroups": [answer]}) as server:
        shared = Asking(Cluster(server.bootstrap), Budget())
        Live(shared, written.lines, lambda _: None).run(stopping)
        shared.close()
    assert written.events == ["state_unknown"]


def test_metrics_may_be_read_while_the_list_grows(written: Written) -> None:
    """A scrape is another thread's: a group that comes meanwhile doesn't stop it."""

    class Growing(NamedTuple):
        group_type: str = "classic"

        @property
        def state(self) -> str:
            """Stable; and another group comes."""
            live.listed["new"] = ListedGroup("new", "classic", "consumer", "Stable")
            return "Stable"

    live = Live(Asking(Cluster("127.0.0.1:1"), Budget()), written.lines, lambda _: None)
    live.listed |= {"old": Growing(), "older": Growing()}  # type: ignore[dict-item]
    assert live.states.total() == 2


def test_news_that_wait_are_bounded(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many groups come and go in a second."""
    monkeypatch.setattr(lives, "NEWS_MAX", 2)
    with Scripted() as server:
        live = Looking(server, written).live
        live.changed(["a", "b"])
        live.changed(["c"])
    assert list(live._news) == ["b", "c"]
