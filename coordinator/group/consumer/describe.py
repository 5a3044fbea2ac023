"""ConsumerGroupDescribe, and the deletion of a group (Kafka: ConsumerGroup.asDescribedGroup).

A group of ten thousand members takes 0.1 s to describe. So `describe` keeps what there is at that moment, members being
values, and `described` turns it into a message, member by member.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import NamedTuple
from uuid import UUID

from coordinator.group.consumer import records
from coordinator.group.consumer.group import (
    AWAY,
    NO_TARGET,
    UNRELEASED,
    UNREVOKED,
    ConsumerGroup,
    ConsumerMember,
    Target,
)
from coordinator.group.course import Phase
from coordinator.group.describe import silent_ms
from coordinator.group.group import NEVER
from coordinator.group.state import DEAD
from coordinator.group.topics import Topics
from coordinator.group.turn import Turn
from protocol.messages import ConsumerGroupDescribeResponse

Described = ConsumerGroupDescribeResponse.DescribedGroup
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""The type of a member: which protocol it speaks (KIP-1099)."""

AWAITED_AWAY = "away"
"""Beside the phases that a member is waited for in: a static member left for a while."""

NOT_KNOWN = -1
"""A time that nobody noted."""

AWAITED_MAX, BLOCKED_MAX, REGEXES_MAX = 1_000, 100, 100
"""The most that an answer names of members that hold others up, the most members that it looks at to see whether they
wait for others, and the most expressions without topics. A few are enough for a person; more would stop the loop.
"""


class Description(NamedTuple):
    """A group at one moment.

    head: its description, without members. targets: by member id. sessions: session timeout and silence by member id,
    both in ms; empty if nobody asked.
    """

    head: ConsumerGroupDescribeResponse.DescribedGroup
    members: tuple[ConsumerMember, ...]
    targets: Mapping[str, Target]
    sessions: Mapping[str, tuple[int, int]]


def describe(turn: Turn, group: ConsumerGroup, *, sessions: bool = False) -> Description:
    """A group as it is now. sessions: with those of its members."""
    head = Described(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.generation,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor() or turn.config.group_consumer_assignors[0],
    )
    told = {
        member_id: (session.session_timeout_ms, silent_ms(session, turn.now.ms))
        for member_id, session in (group.sessions.items() if sessions else ())
        if session.deadline_ms != NEVER
    }
    return Description(head, tuple(group.members.values()), dict(group.targets), told)


def described(
    topics: Topics, description: Description
) -> Generator[None, None, ConsumerGroupDescribeResponse.DescribedGroup]:
    """The message of a description. Yields behind each member. A topic that is gone is left out, as in Kafka."""
    head, members, targets, sessions = description
    shown = []
    for member in members:
        described = describe_member(topics, member, targets.get(member.member_id, NO_TARGET))
        if member.member_id in sessions:
            described.session_timeout_ms, described.silent_ms = sessions[member.member_id]
        shown.append(described)
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


def describe_waiting(turn: Turn, group: ConsumerGroup) -> ConsumerGroupDescribeResponse.ConsumerGroupWaiting:
    """The members that hold the others up: each has not done what the coordinator waits for.

    A member that only waits for partitions of others is not among them, until these are free: then its heartbeat is
    waited for.
    """
    awaited = []
    looks = BLOCKED_MAX
    for member in map(group.members.__getitem__, group.unsettled):
        if member.state is UNRELEASED and member.epoch == group.target_epoch:  # it waits for partitions
            looks -= 1
            if looks < 0 or group.is_blocked(member):
                continue
        awaited.append(describe_awaited(turn, group, member))
        if len(awaited) == AWAITED_MAX:
            break
    return ConsumerGroupDescribeResponse.ConsumerGroupWaiting(
        since_ms=turn.now.wall_ms if group.state_since_ms is None else group.state_since_ms,
        members=sorted(awaited, key=lambda each: each.member_id),
        regexes_without_topics=sorted(
            regex for regex, resolved in group.regexes.items() if not resolved.topics and group.regex_members[regex]
        )[:REGEXES_MAX],
    )


def describe_awaited(
    turn: Turn, group: ConsumerGroup, member: ConsumerMember
) -> ConsumerGroupDescribeResponse.AwaitedMember:
    """The step of a member that the group waits for."""
    wall_ms = turn.now.wall_ms
    since_ms = group.waits_since.get(member.member_id, NOT_KNOWN)
    until_ms = wall_ms + group.sessions[member.member_id].deadline_ms - turn.now.ms
    partitions = 0
    phase = Phase.ACKNOWLEDGING.value
    if member.epoch == AWAY:
        phase = AWAITED_AWAY
        partitions = sum(map(len, member.assigned.values()))
    elif member.state is UNREVOKED:
        phase = Phase.REVOKING.value
        partitions = sum(map(len, member.revoking.values()))
        if since_ms != NOT_KNOWN:
            until_ms = since_ms + member.rebalance_timeout_ms
    elif member.epoch < group.target_epoch:
        since_ms = group.target_ms
    return ConsumerGroupDescribeResponse.AwaitedMember(
        member_id=member.member_id, phase=phase, partitions=partitions, since_ms=since_ms, until_ms=until_ms
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


def bury(turn: Turn, group: ConsumerGroup) -> None:
    """Make an empty group Dead."""
    assert not group.members
    turn.append(*records.group_tombstones(group, turn.now.wall_ms))
    group.state = DEAD
