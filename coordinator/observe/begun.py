"""Begins of rebalances, as far as live state shows them: the log has only their ends.

A look (live.py) that finds a group in PreparingRebalance or CompletingRebalance makes an event `rebalance_started`,
once for each generation. Its cause is unknown: the cluster doesn't say it, and a member that is new or gone may have
come after the cause. `rebalance_ended` of the same generation, made of the log, has the cause and takes the place of
the begin in the timeline. In the consumer protocol the log has the begins too, so looks at such groups make no events.

If a later look finds the group outside of a rebalance, and the log has no end of it, the coordinator read the group
anew, as brokers do when a coordinator moves: an event `group_loaded` says so.

A look may be older than the log: its answer was on the way while the record came that ended the rebalance. So a look
counts only if no event of its group came since its question was sent, until a read of the log that began after its
answer has ended.

House rule: pure; a rebalance that is shorter than the pace of the looks has no begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.observe.live import Look
from coordinator.story.entries import REBALANCING
from coordinator.story.events import (
    GroupDeleted,
    GroupEvent,
    GroupLoaded,
    RebalanceEnded,
    RebalanceEvent,
    RebalanceStarted,
)
from coordinator.story.inference.told import unknown

STATES_MAX = 100_000
"""Groups whose state is remembered. The log has no end of a group that only had committed offsets."""

CLOSING = (RebalanceEnded, GroupLoaded, GroupDeleted)
"""Events after which no rebalance is open."""


class Begun:
    """See the module."""

    def __init__(self) -> None:
        self._generations: dict[str, int] = {}
        self._seen_s: dict[str, float] = {}
        """By group, when its newest event was read."""
        self._open: dict[str, int] = {}
        """By group, the generation that its open rebalance ends."""
        self._states: dict[str, str] = {}
        """By group that was seen outside of a rebalance, its state."""

    def is_current(self, look: Look) -> bool:
        """Whether no event of the group came since the look's question was sent."""
        return self._seen_s.get(look.group.group_id, -1.0) < look.sent_s

    def add(self, events: Iterable[RebalanceEvent], now_s: float) -> None:
        """Take events that were made of the log, read at a time of the looks' clock."""
        for event in events:
            if not isinstance(event, GroupEvent):
                continue
            group = event.group
            self._seen_s[group] = now_s
            if isinstance(event, GroupDeleted):
                for known in (self._generations, self._seen_s, self._open, self._states):
                    known.pop(group, None)
                continue
            self._generations[group] = event.generation
            if isinstance(event, CLOSING):
                self._open.pop(group, None)

    def begins(self, looks: Iterable[Look]) -> list[RebalanceEvent]:
        """The begins that these looks show. They were taken before the newest read of the log began."""
        events: list[RebalanceEvent] = []
        for look in looks:
            group_id, state = look.group.group_id, look.group.state
            if not self.is_current(look) or look.group.consumer is not None:
                continue
            if state not in REBALANCING:
                generation = self._open.pop(group_id, None)
                self._states.pop(group_id, None)
                self._states[group_id] = state
                if len(self._states) > STATES_MAX:
                    del self._states[next(iter(self._states))]
                if generation is not None:
                    events.append(GroupLoaded(state=state, **_common(look, generation)))
                continue
            generation = self._generations.get(group_id, 0)  # 0: a first rebalance, of which the log knows nothing
            if self._open.get(group_id) == generation:
                continue
            self._open[group_id] = generation
            events.append(
                RebalanceStarted(
                    state=self._states.get(group_id, "Stable" if generation else "Empty"),
                    cause=unknown(()),
                    pending=[],
                    members_before=None,
                    **_common(look, generation),
                )
            )
        return events


def _common(look: Look, generation: int) -> dict[str, Any]:
    return {
        "at_ms": look.at_ms,
        "group": look.group.group_id,
        "generation": generation,
        "members": len(look.group.members),
        "inferred": True,
    }
