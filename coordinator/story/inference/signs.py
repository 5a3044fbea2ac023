"""Signs of life: when each member of a generation committed last, and whether it commits steadily.

A coordinator takes a commit of a topic partition only from a member of the current generation, and a commit starts the
member's session timeout anew (Kafka: OffsetCommit in the states Stable and PreparingRebalance). So a member whose
session ended committed nothing for that long before. A commit in a transaction doesn't start it anew, but comes from a
client whose last heartbeat is a heartbeat interval old at most.

House rule: a sign belongs to the seat that has the topic partition in the record of the generation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.story.inference.seen import Seat, Seen, TopicPartition

STEADY_TIMES = 3
"""Commits of a member in one generation from which on its pauses say how often it commits."""

SLACK = 3
"""Clients send a heartbeat at least three times in a session timeout (heartbeat.interval.ms)."""


@dataclass(slots=True, eq=False, repr=False)
class Sign:
    """The commits of one member in one generation.

    last_ms: the last one, or the join (Unix time in ms). times: how many commits at different times. longest_ms: the
    longest pause between two of them. is_weak: the last one was in a transaction. was_steady: in an earlier generation.
    has_partitions: without any, it has nothing to commit.
    """

    last_ms: int
    times: int = 0
    longest_ms: int = 0
    is_weak: bool = False
    was_steady: bool = False
    has_partitions: bool = True

    def note(self, at_ms: int, *, is_weak: bool) -> None:
        """A commit came."""
        if at_ms > self.last_ms:
            if self.times:
                self.longest_ms = max(self.longest_ms, at_ms - self.last_ms)
            self.times += 1
            self.last_ms = at_ms
            self.is_weak = is_weak

    def is_steady(self, session_ms: int) -> bool:
        """Whether a silence as long as half a session timeout is unusual for this member."""
        if self.times < STEADY_TIMES:
            return self.was_steady and self.has_partitions and self.longest_ms * 2 <= session_ms
        return self.longest_ms * 2 <= session_ms


class Signs:
    """The signs of all members of a generation."""

    def __init__(self) -> None:
        self.of: dict[Seat, Sign] = {}
        self._owners: dict[TopicPartition, Sign] = {}

    def begin(self, seen: Seen, *, is_new: bool) -> None:
        """A record has the members from now on. is_new: a generation; else members came back, or were replaced."""
        former = self.of
        self.of = {}
        owning = set(seen.owners.values())
        for seat, member in seen.seats.items():
            known = former.get(seat)
            if known is None or is_new:
                steady = known is not None and known.is_steady(member.session_timeout)
                self.of[seat] = Sign(
                    seen.joined_ms if is_new else seen.ts, was_steady=steady, has_partitions=seat in owning
                )
            else:
                self.of[seat] = known
        self._owners = {place: self.of[seat] for place, seat in seen.owners.items()}

    def committed(self, topic: str, partition: int, at_ms: int, *, is_weak: bool = False) -> None:
        """A committed offset was written."""
        sign = self._owners.get((topic, partition))
        if sign is not None:
            sign.note(at_ms, is_weak=is_weak)

    def returned(self, seats: Iterable[Seat], at_ms: int) -> None:
        """These static members came back."""
        for seat in seats:
            sign = self.of[seat]
            sign.last_ms = max(sign.last_ms, at_ms)

    def latest(self, seats: Iterable[Seat]) -> int:
        """The last commit of any of these seats; -1 if there was none."""
        return max((self.of[seat].last_ms for seat in seats if seat in self.of and self.of[seat].times), default=-1)
