"""How often a group rebalanced within an hour, and when that was too often.

Rebalances that left no record count as well: the generation tells how many they were. A storm that goes on is a finding
for each of its hours.

House rule: what is held is an hour, by seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from coordinator.audit.check.checks import Findings

HOUR_MS = 3_600_000
BURST_MS = 1_000


@dataclass
class _Burst:
    """Rebalances within BURST_MS of each other. first_ms, last_ms: by the records; causes: of those with a record."""

    now_ms: int
    first_ms: int
    last_ms: int
    count: int = 0
    causes: Counter[str] = field(default_factory=Counter)


class Storms:
    """Takes the rebalances of a group, in their order. most: the most that fell within one hour."""

    def __init__(self, findings: Findings, per_hour_max: int) -> None:
        self.most = 0
        self._findings = findings
        self._per_hour_max = per_hour_max
        self._bursts: deque[_Burst] = deque()
        self._count = 0
        self._offset = 0
        self._generation = 0

    def add(self, now_ms: int, ts: int, count: int, cause: str | None, offset: int, generation: int) -> None:
        """Rebalances that surely fell within an hour, up to `now_ms` of the group's clock.

        cause: of the last of them, None if nobody knows. offset: of the record that shows them.
        """
        bursts = self._bursts
        if bursts and now_ms - bursts[0].now_ms > HOUR_MS:
            self._end()
            while bursts and now_ms - bursts[0].now_ms > HOUR_MS:
                self._count -= bursts.popleft().count
        if not bursts or now_ms - bursts[-1].now_ms >= BURST_MS:
            bursts.append(_Burst(now_ms, ts, ts))
        bursts[-1].last_ms = ts
        bursts[-1].count += count
        if cause is not None:
            bursts[-1].causes[cause] += 1
        self._count += count
        self._offset, self._generation = offset, generation
        self.most = max(self.most, self._count)

    def _end(self) -> None:
        """An hour is over: what was a storm is told, and counts no more."""
        if self._count > self._per_hour_max:
            self.report(self._findings)
            self._bursts.clear()
            self._count = 0

    def report(self, findings: Findings) -> None:
        """Tell of the last hour, if that was a storm."""
        if self._count <= self._per_hour_max:
            return
        causes: Counter[str] = Counter()
        for burst in self._bursts:
            causes += burst.causes
        findings.add(
            "rebalance_storm", self._offset, self._generation, rebalances=self._count, seen=causes.total(),
            first_ms=self._bursts[0].first_ms, last_ms=self._bursts[-1].last_ms, causes=dict(causes),
        )  # fmt: skip


def within_an_hour(rebalances: int, over_ms: int) -> int:
    """How many of `rebalances`, spread over a time in any way, must have fallen within one hour, at least.

    A compacted log has the last record of a group and none of those before: it may have grown for a month.
    """
    hours = max(1, -(-over_ms // HOUR_MS))
    return -(-rebalances // hours)
