"""A group's record, read: who is in it, and how it differs from the one before.

A record of a group is one of four things: a new generation, a static member that came back under a new member id (in
the same generation), the group emptied, or its end (a tombstone). Who joined and who went is the difference of two
records, and why is inferred from it: the log knows no reasons.

House rule: nothing is found here; these are plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coordinator.audit.read.records import read_subscription
from protocol.messages import GroupMetadataValue

Member = GroupMetadataValue.MemberMetadata


class Seat(NamedTuple):
    """What a member is followed by: its instance id, or its member id if it has none."""

    name: str
    is_static: bool


class Seen(NamedTuple):
    """A group's record at `offset`; ts: its time, now_ms: on the group's `Clock`."""

    offset: int
    ts: int
    now_ms: int
    value: GroupMetadataValue
    seats: dict[Seat, Member]


class Clock:
    """A time that never falls, from timestamps of several coordinators, each with a clock of its own.

    Where a new owner's clock is behind, time stands still for one record and then goes on at the new one's pace: what
    is measured may be too short by that one step, and by no more.
    """

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self._now_ms = 0

    def tick(self, ts: int) -> int:
        """The time of a record with that timestamp, in ms; a negative timestamp stands for none."""
        if ts >= 0:
            if self._last_ms is not None:
                self._now_ms += max(0, ts - self._last_ms)
            self._last_ms = ts
        return self._now_ms


def seat_of(member: Member) -> Seat:
    """The seat of a member."""
    if member.group_instance_id is None:
        return Seat(member.member_id, is_static=False)
    return Seat(member.group_instance_id, is_static=True)


def restarted(before: Seen, seen: Seen) -> list[str]:
    """The instance ids whose member id is another one than before."""
    return [
        seat.name
        for seat, member in seen.seats.items()
        if seat.is_static and seat in before.seats and before.seats[seat].member_id != member.member_id
    ]


def cause(before: Seen, seen: Seen, came_back: Sequence[str]) -> str:
    """Why there is a new generation, as far as two records tell; came_back: who restarted."""
    causes = []
    if any(seat not in before.seats for seat in seen.seats):
        causes.append("joined")
    if any(seat not in seen.seats for seat in before.seats):
        causes.append("left or expired")
    if seen.value.members and before.value.members:
        both = [(member, before.seats[seat]) for seat, member in seen.seats.items() if seat in before.seats]
        if before.value.protocol != seen.value.protocol:
            causes.append("protocol changed")
        elif any(_topics(now) != _topics(was) for now, was in both):
            causes.append("subscription changed")
    if not causes:
        causes.append("static member restarted" if came_back else "leader or member rejoined")
    return ", ".join(causes)


def _topics(member: Member) -> tuple[str, ...] | None:
    wanted = read_subscription(member.subscription)
    return None if wanted is None else wanted.topics
