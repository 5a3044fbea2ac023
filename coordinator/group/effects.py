"""Effects: what the group core wants done.

`Coordinator.handle` touches nothing itself; it returns `Effects`. The runtime appends the records, arms the timers, and
sends each response once the records of its call, and earlier records of its group, are durable. Effects are plain
values: tests compare and print them.

House rule: no closures and no futures in here.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from coordinator.group.client import Client
from coordinator.group.notes import Note
from protocol.records.batch import Record
from protocol.speed import HashedById


class TimerKind(HashedById):
    """The kinds of timers."""

    SESSION = "session"
    """The next heartbeat of a member, or the end of a new member's first join."""
    PENDING = "pending"
    """The join with a member id that the coordinator gave out (KIP-394)."""
    REBALANCE = "rebalance"
    """The members that rejoin, or the end of the initial delay (KIP-134). With a member id: the partitions that this
    member of the consumer protocol gives up (KIP-848).
    """
    SYNC = "sync"
    """The members that sync (KAFKA-12890)."""
    ARRIVALS = "arrivals"
    """The joins that are held for expected members."""
    TRANSACTION = "transaction"
    """The end of a transaction: a timer of the transaction coordinator."""


# Short names: see `speed`.
SESSION, PENDING = TimerKind.SESSION, TimerKind.PENDING
REBALANCE, SYNC, ARRIVALS = TimerKind.REBALANCE, TimerKind.SYNC, TimerKind.ARRIVALS


class TimerKey(NamedTuple):
    """The name of a timer: one timer at most runs for a key.

    member_id: "" for the timers of a group.
    """

    kind: TimerKind
    group_id: str
    member_id: str = ""


class Timer(NamedTuple):
    """Arm the timer of `key` for `at_ms` on the clock of `Now.ms`, in place of an earlier one; None cancels it."""

    key: TimerKey
    at_ms: int | None


class Resolution(NamedTuple):
    """Find the topics that regular expressions match and `client` may see; an event `RegexResolved` brings them."""

    group_id: str
    regexes: frozenset[str]
    client: Client


class Response(NamedTuple):
    """Answer the `request` of an event.

    body: a response message, or the part of one that the event's docstring names.
    """

    request: Hashable
    body: Any


@dataclass(slots=True, init=False)
class Effects:
    """The effects of one event.

    responses: this event or a later one answers each request exactly once.
    records: for the partition, in this order, as one atomic batch.
    timers: in order; a later one for the same key wins.
    notes: what happened, for people.
    resolutions: regular expressions to resolve.
    assigning: the groups whose new target is to be made in steps, by `Coordinator.target_of`.
    """

    responses: list[Response]
    records: list[Record]
    timers: list[Timer]
    notes: list[Note]
    resolutions: list[Resolution]
    assigning: list[str]

    def __init__(self) -> None:
        self.responses = []
        self.records = []
        self.timers = []
        self.notes = []
        self.resolutions = []
        self.assigning = []

    def extend(self, other: Effects) -> None:
        """Add the effects of another turn behind these."""
        self.responses += other.responses
        self.records += other.records
        self.timers += other.timers
        self.notes += other.notes
        self.resolutions += other.resolutions
        self.assigning += other.assigning
