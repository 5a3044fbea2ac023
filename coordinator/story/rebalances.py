"""The events that `counts` speaks of: those that begin and end a rebalance, and those of returns.

House rule: no words. A start of the server imports `counts`, and has no time for the library of events.
"""

from __future__ import annotations

from msgspec import UNSET

from coordinator.story.counts import REJOIN, RESTART, RETURN
from coordinator.story.events import (
    GroupDeleted,
    GroupLoaded,
    MemberFenced,
    MemberReplaced,
    RebalanceEnded,
    RebalanceEvent,
    RebalanceStarted,
)

RETURN_EVENTS = (MemberReplaced, MemberFenced)
"""Events that a timeline needs to tell returns."""


def return_type(event: MemberReplaced) -> str:
    """The type of the entry of `member_replaced`. A fencing may show later that it was a takeover."""
    if event.inferred and event.away_ms is UNSET:  # in the consumer protocol, a seat is free only for its own program
        return RETURN
    return REJOIN if event.after_load else RESTART


def is_end_of(generation: int | None, event: RebalanceEnded) -> bool:
    """Whether `rebalance_ended` ends the open rebalance, which began at `generation`; None if none is open."""
    return generation == event.generation_before


class Rebalances:
    """Counts the rebalances of one group that began at a time or later (Unix time in ms), event by event, in order."""

    def __init__(self, since_ms: int = 0) -> None:
        self.count = 0
        self._since_ms = since_ms
        self._open: int | None = None

    def add(self, event: RebalanceEvent) -> None:
        """Take the group's next event."""
        match event:
            case RebalanceStarted():
                self._open = event.generation
                self.count += event.at_ms >= self._since_ms
            case RebalanceEnded():
                if not is_end_of(self._open, event):
                    self.count += event.began_ms >= self._since_ms
                self._open = None
            case GroupLoaded() | GroupDeleted():
                self._open = None
