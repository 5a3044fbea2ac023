"""What the group core wants done.

The core touches nothing: `Coordinator.handle` returns `Effects`, and the runtime carries them out in this order: append
the records, arm the timers, and let each response go once the records of its call, and earlier ones of its group, are
durable. Effects are plain values that can be compared and printed.

House rule: no closures and no futures in here.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from coordinator.group.notes import Note
    from protocol.records.batch import Record


class TimerKind(Enum):
    """What a timer waits for."""

    # Part of every key. Enum's own takes four times as long, and there is one member of each kind.
    __hash__ = object.__hash__

    SESSION = "session"
    """A member's next heartbeat, or a new member's first join to complete."""
    PENDING = "pending"
    """A member id that was given out, to join with (KIP-394)."""
    REBALANCE = "rebalance"
    """The members to rejoin, or the initial delay to pass (KIP-134)."""
    SYNC = "sync"
    """The members to sync (KAFKA-12890)."""


# As those of `state`.
SESSION, PENDING = TimerKind.SESSION, TimerKind.PENDING
REBALANCE, SYNC = TimerKind.REBALANCE, TimerKind.SYNC


class TimerKey(NamedTuple):
    """Names a timer: at most one runs for a key.

    member_id: "" for the timers of a group.
    """

    kind: TimerKind
    group_id: str
    member_id: str = ""


class Timer(NamedTuple):
    """Arm the timer of `key` for `at_ms` on the clock of `Now.ms`, replacing an earlier one; None cancels it."""

    key: TimerKey
    at_ms: int | None


class Response(NamedTuple):
    """Answer `request` (the event's) with `body`: a response message, or the part of one that its event names."""

    request: Hashable
    body: Any


@dataclass(slots=True, init=False)
class Effects:
    """The outcome of one event.

    responses: each request handed in is answered exactly once, here or by a later event.
    records: to append to the partition in this order, as one atomic batch.
    timers: in order; a later one for the same key wins.
    notes: what happened, for people.
    """

    responses: list[Response]
    records: list[Record]
    timers: list[Timer]
    notes: list[Note]

    def __init__(self) -> None:
        self.responses = []
        self.records = []
        self.timers = []
        self.notes = []
