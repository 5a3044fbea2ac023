"""The rules that hold of the records of a group of the consumer protocol, between two appends.

A group has many records: its epochs, and up to three for each member. `broken_rules` checks the last value of each
beside one another. `tenure log verify` and `tenure audit` call it.

House rule: each rule stands here once.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from coordinator.group.consumer.group import AWAY
from coordinator.group.consumer.records import LastRecords
from protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupTargetAssignmentMemberValue,
)


class ConsumerRule(StrEnum):
    """A rule for the records of a group. The value says how they break it."""

    NO_MEMBER = "an assignment of a member that isn't there"
    INSTANCE_TWICE = "an instance id twice"
    TARGET_EPOCH = "the target's epoch is above the group's"
    MEMBER_EPOCH = "a member's epoch is above the target's"
    OWNED_TWICE = "a partition that two members have, or one has twice"
    TARGET_TWICE = "a partition that two members shall have, or one twice"


class Broken(NamedTuple):
    """A broken rule. reason: in words, with names. member_id: the member whose record breaks it; None for the group's.

    partition: topic id and number, of a rule about partitions.
    """

    rule: ConsumerRule
    reason: str
    member_id: str | None = None
    partition: tuple[UUID, int] | None = None


def broken_rules(records: LastRecords) -> Iterator[Broken]:
    """Every rule that the records of a group break."""
    if records.target_epoch > records.epoch >= 0:  # behind the last epoch comes a negative one (bounds.py)
        reason = f"the target's epoch {records.target_epoch} is above the group's {records.epoch}"
        yield Broken(ConsumerRule.TARGET_EPOCH, reason)
    yield from _members(records)
    yield from _partitions(
        ConsumerRule.OWNED_TWICE,
        "is held by",
        (
            (member_id, each)
            for member_id, has in records.current.items()
            for each in (*has.assigned_partitions, *has.partitions_pending_revocation)
        ),
    )
    yield from _partitions(
        ConsumerRule.TARGET_TWICE,
        "shall go to",
        ((member_id, each) for member_id, target in records.targets.items() for each in target.topic_partitions),
    )


def _members(records: LastRecords) -> Iterator[Broken]:
    seats: dict[str, str] = {}
    for member_id, said in records.members.items():
        if said.instance_id is None:
            continue
        other = seats.setdefault(said.instance_id, member_id)
        if other != member_id:
            reason = f"the instance id {said.instance_id!r} is held by {other!r} and {member_id!r}"
            yield Broken(ConsumerRule.INSTANCE_TWICE, reason, member_id)
    for member_id in dict.fromkeys((*records.current, *records.targets)):
        if member_id not in records.members:
            reason = f"an assignment of member {member_id!r}, which isn't there"
            yield Broken(ConsumerRule.NO_MEMBER, reason, member_id)
    for member_id, has in records.current.items():
        if not (has.member_epoch == AWAY or 0 <= has.member_epoch <= records.target_epoch):
            reason = f"member {member_id!r} is at epoch {has.member_epoch}, the target at {records.target_epoch}"
            yield Broken(ConsumerRule.MEMBER_EPOCH, reason, member_id)


def _partitions(
    rule: ConsumerRule,
    words: str,
    given: Iterator[
        tuple[
            str,
            ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
            | ConsumerGroupTargetAssignmentMemberValue.TopicPartition,
        ]
    ],
) -> Iterator[Broken]:
    """The partitions that are there twice, of one member or of two."""
    owners: dict[tuple[UUID, int], str] = {}
    for member_id, topic in given:
        for partition in topic.partitions:
            named = topic.topic_id, partition
            if named in owners:
                reason = f"partition {partition} of topic {topic.topic_id} {words} {owners[named]!r} and {member_id!r}"
                yield Broken(rule, reason, member_id, named)
            owners[named] = member_id
