"""The sums of all groups: a sweep asks about a hundred at a time, and only while somebody wants them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from coordinator.client.client import Client
from coordinator.client.errors import Refused, Unreachable
from coordinator.client.groups import ListedGroup, list_groups
from coordinator.site.sums import AT_ONCE, EVERY_MS, PAUSE_MS, WANTED_MS, Sums
from coordinator.story.events import fields_of
from coordinator.testing.clock import take_turns
from schemas.errors import ErrorCode
from tests.server.harness import ManualClock


class Cluster:
    """Answers in place of a cluster. lag: of each group. asked: the groups of each question. error: the next answer."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.groups = 250
        self.lag = 1
        self.asked: list[list[str]] = []
        self.error: Exception | None = None
        self.has_spare = True
        self.sums = Sums(self.ask, cast("Any", lambda names, _: names), self.clock, lambda: self.has_spare)

    async def ask(self, question: Callable[[Client], Any]) -> Any:
        """As Sums wants it. The sums of groups are their names."""
        error, self.error = self.error, None
        if error is not None:
            raise error
        if question is list_groups:
            names = [f"g-{number:03}" for number in range(self.groups)]
            return [ListedGroup(name, "classic", "consumer", "Stable") for name in names]
        names = question(None)  # type: ignore[arg-type]
        self.asked.append(names)
        return [
            {"group_id": name, "error": "moved"} if name == "g-007" else {"group_id": name, "lag": self.lag}
            for name in names
        ]

    async def now(self, later_ms: int = 0) -> tuple[int, int, bool]:
        """The groups, how many sums are known, and whether that is all, after some time and after one more answer."""
        self.sums.now()
        await self.pass_time(later_ms)
        told = self.sums.now()
        return told.groups, len(told.sums), told.is_complete

    async def pass_time(self, ms: int) -> None:
        """Let time pass without a request, in the steps of a sweep."""
        for step in (0, *[PAUSE_MS] * (ms // PAUSE_MS), ms % PAUSE_MS):
            self.clock.advance(step)
            await take_turns()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster of 250 groups; the sums of one of them are refused."""
    made = Cluster()
    yield made
    await made.sums.stop()


async def test_a_sweep_asks_about_some_groups_at_a_time(cluster: Cluster) -> None:
    """The first answer is empty; after each pause a hundred groups more are known, until all are."""
    assert fields_of(cluster.sums.now()) == {"groups": 0, "is_complete": False, "sums": []}
    assert await cluster.now() == (250, AT_ONCE - 1, False)
    assert await cluster.now(PAUSE_MS - 1) == (250, AT_ONCE - 1, False)
    assert await cluster.now(1) == (250, 2 * AT_ONCE - 1, False)
    assert await cluster.now(PAUSE_MS) == (250, 249, True)
    assert [len(names) for names in cluster.asked] == [100, 100, 50]
    for _ in range(10):  # further pages
        assert await cluster.now() == (250, 249, True)
    assert len(cluster.asked) == 3


async def test_sums_are_found_out_anew(cluster: Cluster) -> None:
    """The next sweep comes after a pause, brings newer sums, and drops groups that are gone."""
    assert await cluster.now(2 * PAUSE_MS) == (250, 249, True)
    cluster.groups, cluster.lag = 120, 2
    assert await cluster.now(EVERY_MS) == (120, 119, True)
    assert await cluster.now(PAUSE_MS) == (120, 119, True)
    assert {each.get("lag") for each in cluster.sums.now().sums} == {2}


async def test_a_sweep_ends_without_requests(cluster: Cluster) -> None:
    """A minute after the last request a sweep ends, and the memory is free; a request begins a new one."""
    assert await cluster.now(2 * PAUSE_MS) == (250, 249, True)
    await cluster.pass_time(WANTED_MS + EVERY_MS)
    asked = len(cluster.asked)
    await cluster.pass_time(10 * EVERY_MS)
    assert len(cluster.asked) == asked
    assert fields_of(cluster.sums.now()) == {"groups": 0, "is_complete": False, "sums": []}
    assert await cluster.now(2 * PAUSE_MS) == (250, 249, True)


async def test_a_sweep_waits_until_the_cluster_may_be_asked(cluster: Cluster) -> None:
    """An observer has a budget of requests, of which a part is for the page's other questions."""
    cluster.has_spare = False
    assert await cluster.now(10 * PAUSE_MS) == (250, 0, False)
    cluster.has_spare = True
    assert await cluster.now(PAUSE_MS) == (250, AT_ONCE - 1, False)
    cluster.has_spare = False
    await cluster.pass_time(2 * WANTED_MS)
    assert cluster.sums.now().groups == 0, "a sweep that waits ends too"


@pytest.mark.parametrize(
    ("error", "known"), [(Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups"), 149), (Unreachable("away"), 99)]
)
async def test_a_question_without_an_answer(cluster: Cluster, error: Exception, known: int) -> None:
    """Groups whose question is refused have no sums until the next sweep; if the cluster is away, this sweep ends."""
    assert await cluster.now() == (250, 99, False)
    cluster.error = error
    assert (await cluster.now(2 * PAUSE_MS))[1] == known
    assert await cluster.now(EVERY_MS + 2 * PAUSE_MS) == (250, 249, True)
