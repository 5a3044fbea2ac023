"""A day of a healthy group, second by second, under the eyes of looks: nothing is found. What is planted is found.

A seed draws the group: topics whose producers pause and burst, members that come, leave and restart, commits every few
seconds, handlers that take a while, logs that delete what was read, topics that get partitions, leaders that are away.
Time is a number, so a day takes seconds.

House rule: the group does what healthy groups do, and knows nothing of the findings' limits but for those that
docs/ask-why/stuck.md names: a batch or a restart takes less than 20 s.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from coordinator.story.described import CoordinatorNode, Group, Member
from coordinator.story.diagnosis import OVER_MS, Case
from coordinator.story.entries import Timeline
from coordinator.story.group_diagnosis import progress_findings_now
from coordinator.story.offsets import OffsetLine
from coordinator.story.progress import Progress
from tests.story.test_diagnosis import NOW_MS
from tests.support.length import rounds
from tests.support.placed import placed
from tests.support.told import told

HOURS = rounds(2.0, 24.0, 240.0)
SLOW_S = 15
"""The longest batch, restart or rebalance of a healthy group."""

NAMED_WITHIN_S = 40
"""A stall begins behind the last commit, which clients make every 12 s here at most; then 20 s and two looks pass."""

NODE = CoordinatorNode(1, "kafka", 9092)


@dataclass
class Log:
    """A topic partition. rate: records a second, while no pause is. offset: committed by the group."""

    rate: float
    end: float = 0.0
    position: float = 0.0
    offset: int | None = None
    start: int = 0
    paused_until: int = 0
    away_until: int = 0


@dataclass
class Worker:
    """A member. commit_s: between two commits. busy_until: its handler is in a batch, or the program restarts."""

    name: str
    commit_s: int
    speed: float
    busy_until: int = 0
    owned: list[tuple[str, int]] = field(default_factory=list)


class Day:
    """See the module. findings: the kinds that were found, by second."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.second = 0
        self.logs = {
            (f"t{topic}", index): self._log()
            for topic in range(self.chance.randint(1, 3))
            for index in range(self.chance.randint(2, 5))
        }
        self.workers: list[Worker] = []
        self.named = 0
        self.stuck: set[tuple[str, int]] = set()
        self.rebalancing_until = 0
        self.events: deque[Any] = deque(maxlen=100)
        self.progress = Progress()
        self.findings: dict[int, list[str]] = {}
        self.look_s = self.chance.choice([1, 2, 2, 4])
        for _ in range(2):
            self._join()
        self._settle()

    def run(self, seconds: int) -> None:
        """Let time pass."""
        for _ in range(seconds):
            self.second += 1
            self._produce()
            self._consume()
            self._churn()
            if self.second % self.look_s == 0:
                self._look()

    def _log(self) -> Log:
        return Log(self.chance.choice([0.0, 0.01, 0.2, 3.0, 40.0]))

    def _produce(self) -> None:
        for log in self.logs.values():
            if self.second < log.paused_until:
                continue
            log.end += log.rate * self.chance.uniform(0, 2)
            draw = self.chance.random()
            if draw < 1 / 3_600:
                log.paused_until = self.second + self.chance.randint(10, 7_200)
            elif draw < 2 / 3_600:
                log.end += 1_000  # a burst
            elif draw < 3 / 3_600:
                log.away_until = self.second + self.chance.randint(1, 20)
            log.start = max(log.start, int(log.position) - 5_000)

    def _consume(self) -> None:
        if self.second < self.rebalancing_until:
            return
        for worker in self.workers:
            if self.second < worker.busy_until:
                continue
            if self.chance.random() < 1 / 300:
                self._pause(worker)
            for place in worker.owned:
                log = self.logs[place]
                if place not in self.stuck:
                    log.position = min(log.position + worker.speed, log.end)
            if self.second % worker.commit_s == 0:
                self._commit(worker)

    def _pause(self, worker: Worker) -> None:
        if self.second >= worker.busy_until + SLOW_S:  # two pauses in a row would be a long one
            worker.busy_until = self.second + self.chance.randint(1, SLOW_S - worker.commit_s)

    def _commit(self, worker: Worker) -> None:
        for place in worker.owned:
            log = self.logs[place]
            if log.position > 0:
                log.offset = int(log.position)

    def _churn(self) -> None:
        draw = self.chance.random()
        if self.second < self.rebalancing_until or draw > 5 / 900:
            return
        if draw < 1 / 900 and len(self.workers) < min(3, len(self.logs)):
            self._join()
            self._rebalance("member_joined", self.workers[-1])
        elif draw < 2 / 900 and len(self.workers) > 1:
            gone = self.workers.pop(self.chance.randrange(len(self.workers)))
            self._commit(gone)
            self._rebalance("member_left", gone)
        elif draw < 4 / 900:
            back = self.chance.choice(self.workers)  # a static member restarts, and nothing moves
            self._commit(back)
            self._pause(back)
        elif draw < 4.1 / 900 and len(self.logs) < 20:
            topic = self.chance.choice(sorted(self.logs))[0]
            self.logs[topic, sum(name == topic for name, _ in self.logs)] = self._log()
            self._rebalance("metadata_changed", self.workers[0])

    def _join(self) -> None:
        self.named += 1
        self.workers.append(Worker(f"w{self.named}", self.chance.randint(1, 12), self.chance.choice([50.0, 200.0])))

    def _rebalance(self, kind: str, worker: Worker) -> None:
        self.rebalancing_until = self.second + self.chance.randint(1, 5)
        for each in self.workers:
            self._commit(each)  # as clients do when they give up partitions
        began_ms, at_ms = (NOW_MS + each * 1_000 for each in (self.second, self.rebalancing_until))
        said = {"kind": kind, "member_ids": [worker.name], "group_instance_id": None, "client_id": worker.name}
        common = {"began_ms": began_ms, "generation_before": 2, "outcome": "completed", "causes": [said]}
        self.events.append(told("rebalance_ended", at_ms=at_ms, **common))
        self._settle()

    def _settle(self) -> None:
        for worker in self.workers:
            worker.owned = []
        for number, place in enumerate(sorted(self.logs)):
            self.workers[number % len(self.workers)].owned.append(place)

    def _look(self) -> None:
        now_ms = NOW_MS + self.second * 1_000
        is_over = self.second >= self.rebalancing_until
        members = {worker.name: self._member(worker) for worker in self.workers}
        state = "Stable" if is_over else "PreparingRebalance"
        group = Group("g", state, "consumer", "range", NODE, list(members.values()))
        owners = {place: members[worker.name] for worker in self.workers for place in worker.owned if is_over}
        counts: dict[str, int] = {}
        for topic, _ in self.logs:
            counts[topic] = counts.get(topic, 0) + 1
        lines = [
            OffsetLine(
                *place,
                log.offset,
                None if self.second < log.away_until else int(log.end),
                owners.get(place),
                log.start,
            )
            for place, log in sorted(self.logs.items())
        ]
        seen = self.progress.look(group, None if self.chance.random() < 0.01 else placed(lines), counts, now_ms)
        while self.events and now_ms - self.events[0].at_ms > OVER_MS and len(self.events) > 1:
            self.events.popleft()
        past = [each for each in self.events if each.at_ms <= now_ms]
        case = Case("g", Timeline("g").add_all(past).entries, group, counts, now_ms, seen)
        found = progress_findings_now(case)
        kinds = [each.kind for each in found if each.kind != "rebalancing" or each.severity != "notice"]
        if kinds:
            self.findings[self.second] = kinds

    def _member(self, worker: Worker) -> Member:
        assignment: dict[str, list[int]] = {}
        for topic, index in worker.owned:
            assignment.setdefault(topic, []).append(index)
        return Member(
            worker.name, worker.name, worker.name, "/h", assignment, frozenset({topic for topic, _ in self.logs})
        )


@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_found_in_a_healthy_day(seed: int) -> None:
    """There is no finding, but for the notice that a rebalance is under way."""
    day = Day(seed)
    day.run(int(HOURS * 3_600))
    assert day.findings == {}
    assert max(len(day.logs), day.named) > 3  # it was no day without work


@pytest.mark.parametrize("seed", range(4))
def test_a_stall_in_such_a_day_is_found_and_ends(seed: int) -> None:
    """A partition that stands still is found, and the finding ends when the group reads on."""
    day = Day(seed)
    day.run(1_200)
    place = min(day.logs)
    log = day.logs[place]
    log.rate, log.paused_until, log.away_until = 3.0, 0, 0
    day.stuck.add(place)
    planted = day.second
    day.run(300)
    named = min((second for second in day.findings if second > planted), default=planted + 10_000)
    assert named - planted <= NAMED_WITHIN_S + 3 * SLOW_S
    assert day.findings[named] == ["partition_stuck"]
    day.stuck.clear()
    day.run(60)
    before = len(day.findings)
    day.run(600)
    assert len(day.findings) == before
