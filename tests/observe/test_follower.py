"""The follower hands on the history first and in order, then news; only news count."""

from __future__ import annotations

import threading
from pathlib import Path

from coordinator.client.client import Cluster
from coordinator.client.errors import Unreachable
from coordinator.client.events import Placed
from coordinator.observe.follower import Follower
from coordinator.observe.observer import Heard
from coordinator.story.events import RebalanceEnded, RebalanceEvent
from coordinator.story.inference.knowledge import Told
from coordinator.testing.tenure import Tenure
from tests.observe.conftest import Written
from tests.observe.test_observer import SETTINGS
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until


class Taken:
    """The feed's side: what came, and by which call."""

    def __init__(self) -> None:
        self.begun: list[list[Placed]] = []
        self.news: list[Placed] = []

    def begin(self, topic: str, reached: dict[int, int], events: list[Placed]) -> None:
        """As News."""
        assert len(topic) == 32
        assert reached == {0: len(events)}
        self.begun.append(events)

    def put(self, events: list[Placed]) -> None:
        """As News."""
        self.news += events

    def miss(self, problem: str) -> None:
        """As News."""
        raise AssertionError(problem)


class TellsAll:
    """Told causes for the first generations of some groups."""

    def __init__(self, *groups: str) -> None:
        self._told = [Told(1, group, 0, ("member_rejoined",)) for group in groups]

    def heard(self) -> list[Told]:
        """As Hearing."""
        told, self._told = self._told, []
        return told

    def close(self) -> None:
        """As Hearing."""


LINE = (
    "[2026-11-27 16:43:12,290] INFO [GroupCoordinator 1]: Preparing to rebalance group told in state Empty "
    "with old generation 0 (__consumer_offsets-3) (reason: Adding new member m-1 with group instance id None; client "
    "reason: need to re-join) (kafka.coordinator.group.GroupCoordinator)\n"
)
"""A line of Kafka's log about the begin of a group's first rebalance, with a reason that no record has."""


def settle(cluster: Tenure, group: str) -> None:
    """Let a group have a first generation."""
    cluster.group(group).fill(1, topics=["orders"], static=False)
    cluster.group(group).wait_until_stable(members=1)


def test_history_comes_first_and_does_not_count(tmp_path: Path, written: Written) -> None:
    """Groups of before the start come as one, in the order of time; later ones as news, also to counters."""
    everything: list[RebalanceEvent] = []
    counted: list[RebalanceEvent] = []
    changed: set[str] = set()
    answered: list[None] = []
    taken = Taken()
    stopping = threading.Event()
    with Tenure(topics={"orders": 6}, settings=SETTINGS, data_dir=tmp_path) as cluster:
        for number in range(5):
            settle(cluster, f"old-{number}")
        follower = Follower(
            Cluster(cluster.bootstrap_servers).client,
            WITHIN_S,
            written.lines,
            hearing=[TellsAll("new")],
            takers=[everything.extend],
            newcomers=[counted.extend],
            changed=changed.update,
            reached=lambda: answered.append(None),
        )
        thread = threading.Thread(target=follower.follow, args=(taken, stopping))
        thread.start()
        try:
            wait_until(lambda: follower.is_caught_up.is_set() and len(taken.begun) == 1, "the history", WITHIN_S)
            settle(cluster, "new")
            wait_until(lambda: len(taken.news) == 1, "news", WITHIN_S)
        finally:
            stopping.set()
            thread.join(WITHIN_S)
    (history,) = taken.begun
    times = [each.event.at_ms for each in history]
    assert times == sorted(times)
    assert {each.event.group for each in history} == {f"old-{number}" for number in range(5)}
    assert [each.offset for each in [*history, *taken.news]] == list(range(len(history) + 1))
    assert [event.group for event in counted] == ["new"]
    assert len(everything) == len(history) + 1
    assert changed == {"new"}  # old groups have their turn: they come before no group in a rebalance
    assert taken.news[0].event.group == "new"
    assert len(answered) == 1
    assert written.events == []


def test_a_broker_s_log_tells_causes(tmp_path: Path, written: Written) -> None:
    """A line that comes while a Fetch waits is known before the record that comes with this Fetch."""
    log = tmp_path / "server.log"
    taken = Taken()
    stopping = threading.Event()
    with Tenure(topics={"orders": 6}, settings=SETTINGS, data_dir=tmp_path / "data") as cluster:
        settle(cluster, "untold")
        heard = Heard(log, written.lines)
        follower = Follower(Cluster(cluster.bootstrap_servers).client, WITHIN_S, written.lines, hearing=[heard])
        thread = threading.Thread(target=follower.follow, args=(taken, stopping))
        thread.start()
        try:
            wait_until(lambda: len(taken.begun) == 1, "the history", WITHIN_S)
            log.write_text(LINE)
            settle(cluster, "told")
            wait_until(lambda: len(taken.news) == 1, "news", WITHIN_S)
        finally:
            stopping.set()
            thread.join(WITHIN_S)
    (before,), (news,) = taken.begun[0], taken.news
    assert isinstance(before.event, RebalanceEnded)
    assert not before.event.causes[0].told
    assert isinstance(news.event, RebalanceEnded)
    cause = news.event.causes[0]
    assert (cause.kind, cause.reason, cause.told) == ("member_joined", "need to re-join", True)
    assert written.events == ["broker_log_unreadable"]


def test_one_broker_that_is_away_is_not_the_cluster(written: Written) -> None:
    """A line says that a broker is away; the cluster is, if no broker answers in two turns."""
    follower = Follower(Cluster("127.0.0.1:1").client, 1.0, written.lines)
    lost = Unreachable("127.0.0.1:1: Connection refused")
    away = []
    for problem, is_partial in (
        *((lost, True), (lost, False), (lost, True), (None, True)),
        *((lost, False), (lost, False), (None, True)),
    ):
        follower._say(problem, is_partial=is_partial)
        away.append(follower.is_away)
    # A turn in which no broker answers doesn't say that the one is back.
    assert away == [False, False, False, False, False, True, False]
    assert written.events == ["broker_away", "broker_back", "cluster_away", "cluster_back"]
