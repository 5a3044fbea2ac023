"""The times that the answers of etcd took in the last minute.

Histograms count from the start of a node, so they don't say whether etcd is slow now. Here calls are counted in slots
of SLOT_S, and slots older than KEPT_S don't count.

House rule: one thread writes, any thread reads, without a lock.
"""

from __future__ import annotations

from coordinator.log.cluster import RecentCalls

SLOT_S, KEPT_S = 10, 60
SLOW_S = 0.1
"""etcd itself logs a request that takes longer ("apply request took too long")."""


class Recent:
    """See the module."""

    def __init__(self) -> None:
        self._slots: dict[int, RecentCalls] = {}

    def add(self, now_s: float, took_s: float, *, lost: bool = False) -> None:
        """Count a call that ended now. lost: it had no answer."""
        slot = int(now_s // SLOT_S)
        calls, slow, gone, longest_ms = self._slots.get(slot, RecentCalls())
        now = RecentCalls(calls + 1, slow + (took_s > SLOW_S), gone + lost, max(longest_ms, round(took_s * 1_000)))
        if slot not in self._slots:
            self._slots = {number: old for number, old in self._slots.items() if number > slot - KEPT_S // SLOT_S}
        self._slots[slot] = now

    def read(self, now_s: float) -> RecentCalls:
        """The calls of the last KEPT_S."""
        since = now_s // SLOT_S - KEPT_S // SLOT_S
        slots = [each for number, each in list(self._slots.items()) if number > since]
        return RecentCalls(
            sum(each.calls for each in slots),
            sum(each.slow for each in slots),
            sum(each.lost for each in slots),
            max((each.longest_ms for each in slots), default=0),
        )
