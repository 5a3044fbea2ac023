"""The calls of the last minute: old ones are forgotten, and memory is bounded."""

from __future__ import annotations

from coordinator.log.cluster import RecentCalls
from coordinator.log.etcd.recent import KEPT_S, SLOT_S, SLOW_S, Recent


def test_calls_count_for_a_minute() -> None:
    """Slow and lost calls are counted, the longest is remembered; a minute later nothing of them is left."""
    recent = Recent()
    recent.add(0, SLOW_S)
    recent.add(1, 0.25)
    recent.add(SLOT_S, 0.125, lost=True)
    assert recent.read(SLOT_S + 1) == RecentCalls(3, 2, 1, 250)
    assert recent.read(KEPT_S + 1) == RecentCalls(1, 1, 1, 125)
    assert recent.read(KEPT_S + SLOT_S + 1) == RecentCalls()


def test_few_slots_are_kept() -> None:
    """A node that runs for days keeps a minute."""
    recent = Recent()
    for second in range(1_000):
        recent.add(second, 0)
    assert recent.read(999).calls == KEPT_S
    assert len(recent._slots) <= KEPT_S // SLOT_S
