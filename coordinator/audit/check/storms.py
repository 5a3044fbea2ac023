"""Checks how often a group rebalanced within an hour.

Rebalances without a record count too: the generation says how many there were. A group that rebalances for
hours has one finding for each hour.

House rule: one hour is in memory, summed up by second.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from coordinator.audit.check.checks import Findings

HOUR_MS = 3_600_000
BURST_MS = 1_000


@dataclass
class _Burst:
    """Rebalances within BURST_MS. first_ms, last_ms: timestamps of records. causes: of those with a known cause."""

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
        """Add rebalances that must have fallen within the hour before `now_ms` (on the group's clock).

        cause: of the last one, None if it isn't known. offset: of the record that shows them.
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
        """An hour is over: report it if it had too many, and start again."""
        if self._count > self._per_hour_max:
            self.report(self._findings)
            self._bursts.clear()
            self._count = 0

    def report(self, findings: Findings) -> None:
        """Add a finding if the last hour had too many."""
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
    """The least number of `rebalances` that fell within one hour, however they were spread over `over_ms`.

    A compacted log may have only the last record of a group, after a month of rebalances.
    """
    hours = max(1, -(-over_ms // HOUR_MS))
    return -(-rebalances // hours)
