"""A group's record as the checks see it, and the differences between two records.

A coordinator writes a record of a group for one of five reasons: a new generation, a static member that came back under
a new member id (in the same generation), a standby that took the seat of a member (likewise; Tenure alone), the last
member went, or the group was deleted (a tombstone). The log has no
causes: the members that came and went, and the cause of a rebalance, are inferred from two records.

House rule: plain values; no check is made here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from coordinator.timeline.records.values import read_subscription
from protocol.messages import GroupMetadataValue

Member = GroupMetadataValue.MemberMetadata


class Seat(NamedTuple):
    """A member's seat: named by its instance id, or by its member id if it has none."""

    name: str
    is_static: bool


class Seen(NamedTuple):
    """A group's record at `offset`. ts: its timestamp. now_ms: the time on the group's `Clock`."""

    offset: int
    ts: int
    now_ms: int
    value: GroupMetadataValue
    seats: dict[Seat, Member]


class Clock:
    """A time that never goes back, made of the timestamps of several coordinators with different clocks.

    If the clock of a new owner is behind, time stands still for one record and then goes on with the new clock. A
    measured duration is too short by that one step at most.
    """

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self._now_ms = 0

    def tick(self, ts: int) -> int:
        """The time of a record with that timestamp, in ms; a record without a timestamp has a negative one."""
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


def returned(before: Seen, seen: Seen) -> dict[str, str]:
    """The seats that went to a new member id: by instance id, the new member id."""
    return {
        seat.name: member.member_id
        for seat, member in seen.seats.items()
        if seat.is_static and seat in before.seats and before.seats[seat].member_id != member.member_id
    }


def taken(before: Seen, seen: Seen) -> tuple[str, str] | None:
    """The seat that a standby took in the same generation (Tenure's target.group.size): its new and its old name.

    Exactly one member is another one. It has the assignment of the member that is gone, and leads if that one led; all
    others are as they were. None for any other change.
    """
    joined = [seat for seat in seen.seats if seat not in before.seats]
    gone = [seat for seat in before.seats if seat not in seen.seats]
    if len(joined) != 1 or len(gone) != 1 or len(before.value.members) != len(seen.value.members):
        return None
    new, old = seen.seats[joined[0]], before.seats[gone[0]]
    leader = new.member_id if before.value.leader == old.member_id else before.value.leader
    same = new.assignment == old.assignment and seen.value.leader == leader
    others = all(member == before.seats[seat] for seat, member in seen.seats.items() if seat != joined[0])
    return (joined[0].name, gone[0].name) if same and others else None


def cause(before: Seen, seen: Seen, came_back: Collection[str]) -> str:
    """The inferred cause of a new generation; came_back: the instance ids that `returned` has."""
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
        causes.append("static member returned" if came_back else "leader or member rejoined")
    return ", ".join(causes)


def _topics(member: Member) -> tuple[str, ...] | None:
    wanted = read_subscription(member.subscription)
    return None if wanted is None else wanted.topics
