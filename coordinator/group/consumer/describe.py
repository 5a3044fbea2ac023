"""ConsumerGroupDescribe, and the deletion of a group (Kafka: ConsumerGroup.asDescribedGroup).

A group of ten thousand members takes 0.1 s to describe. So `describe` keeps what there is at that moment, members being
values, and `described` turns it into a message, member by member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from coordinator.group.consumer import records
from coordinator.group.consumer.group import NO_TARGET, ConsumerGroup, ConsumerMember, Target
from coordinator.group.state import DEAD
from protocol.messages import ConsumerGroupDescribeResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Generator
    from uuid import UUID

    from coordinator.group.topics import Topics
    from coordinator.group.turn import Turn

Described = ConsumerGroupDescribeResponse.DescribedGroup
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""The type of a member: which protocol it speaks (KIP-1099)."""


class Description(NamedTuple):
    """A group at one moment. head: its description, without members. targets: by member id."""

    head: ConsumerGroupDescribeResponse.DescribedGroup
    members: tuple[ConsumerMember, ...]
    targets: Mapping[str, Target]


def describe(turn: Turn, group: ConsumerGroup) -> Description:
    """A group as it is now."""
    head = Described(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.generation,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor() or turn.config.group_consumer_assignors[0],
    )
    return Description(head, tuple(group.members.values()), dict(group.targets))


def described(
    topics: Topics, description: Description
) -> Generator[None, None, ConsumerGroupDescribeResponse.DescribedGroup]:
    """The message of a description. Yields behind each member. A topic that is gone is left out, as in Kafka."""
    head, members, targets = description
    shown = []
    for member in members:
        shown.append(describe_member(topics, member, targets.get(member.member_id, NO_TARGET)))
        yield
    head.members = shown
    return head


def describe_member(topics: Topics, member: ConsumerMember, target: Target) -> ConsumerGroupDescribeResponse.Member:
    """A member; what it must give up counts as its own until it has done so."""
    held: dict[UUID, list[int]] = {}
    for each in (member.assigned, member.revoking):
        for topic_id, partitions in each.items():
            held.setdefault(topic_id, []).extend(partitions)
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=assignment(topics, held),
        target_assignment=assignment(topics, target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def assignment(topics: Topics, held: Mapping[UUID, Collection[int]]) -> ConsumerGroupDescribeResponse.Assignment:
    """Partitions with the names of their topics."""
    named = [(topics.by_id(topic_id), partitions) for topic_id, partitions in held.items()]
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(partitions)
            )
            for topic, partitions in named
            if topic is not None
        ]
    )


def not_found(group_id: str, *, is_classic: bool) -> ConsumerGroupDescribeResponse.DescribedGroup:
    """The answer for a group that isn't there, or that is of another kind."""
    words = f"Group {group_id[:100]} is not a consumer group." if is_classic else f"Group {group_id[:100]} not found."
    return Described(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=words)


def bury(turn: Turn, group: ConsumerGroup) -> None:
    """Make an empty group Dead."""
    assert not group.members
    turn.append(*records.group_tombstones(group, turn.now.wall_ms))
    group.state = DEAD
