"""A classic group's record, and the plain differences between two records.

A coordinator writes a record of a group for one of five reasons: a new generation, a static member that came back under
a new member id (in the same generation), a standby that took the seat of a member (likewise; Tenure alone), the last
member went, or the group was deleted (a tombstone).

House rule: plain values; no cause is inferred here.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from coordinator.story.records.values import read_assignment, read_subscription
from protocol.consumer import CONSUMER
from protocol.messages import GroupMetadataValue

Member = GroupMetadataValue.MemberMetadata

TopicPartition = tuple[str, int]


class Seat(NamedTuple):
    """A member's seat: named by its instance id, or by its member id if it has none."""

    name: str
    is_static: bool


def seat_of(member: Member) -> Seat:
    """The seat of a member."""
    if member.group_instance_id is None:
        return Seat(member.member_id, is_static=False)
    return Seat(member.group_instance_id, is_static=True)


class Seen:
    """A group's record at `offset`. ts: its timestamp. now_ms: the time on the group's clock."""

    def __init__(self, offset: int, ts: int, now_ms: int, value: GroupMetadataValue) -> None:
        self.offset = offset
        self.ts = ts
        self.now_ms = now_ms
        self.value = value
        self.seats: dict[Seat, Member] = {seat_of(member): member for member in value.members}

    @property
    def joined_ms(self) -> int:
        """When the join phase of the generation ended, Unix time in ms: the group's last change of its state.

        A record of an old Kafka has no such time; then the time of the record.
        """
        changed_ms: int = self.value.current_state_timestamp
        return changed_ms if 0 <= changed_ms <= self.ts else self.ts

    @cached_property
    def owners(self) -> dict[TopicPartition, Seat]:
        """The seat of each assigned topic partition; empty where only the group's own clients can read them."""
        if self.value.protocol_type != CONSUMER:
            return {}
        return {
            (topic, number): seat
            for seat, member in self.seats.items()
            for topic, numbers in read_assignment(member.assignment) or ()
            for number in numbers
        }

    @property
    def leader(self) -> Seat | None:
        """The leader's seat."""
        led_by = self.value.leader
        return next((seat for seat, member in self.seats.items() if member.member_id == led_by), None)


def returned(before: Seen, seen: Seen) -> dict[str, str]:
    """The seats that went to a new member id: by instance id, the new member id."""
    return {
        seat.name: member.member_id
        for seat, member in seen.seats.items()
        if seat.is_static and seat in before.seats and before.seats[seat].member_id != member.member_id
    }


def taken(before: Seen, seen: Seen) -> tuple[Seat, Seat] | None:
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
    return (joined[0], gone[0]) if same and others else None


def topics_of(member: Member) -> frozenset[str] | None:
    """The topics that a member subscribes to; None if they can't be read."""
    wanted = read_subscription(member.subscription)
    return None if wanted is None else frozenset(wanted.topics)
