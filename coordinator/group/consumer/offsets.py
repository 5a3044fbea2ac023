"""Commits and fetches of members of such a group (Kafka: ConsumerGroup.validateOffsetCommit).

A member commits with its epoch, a classic one with its generation, which is its epoch too. A member with an older epoch
may still commit partitions that it had at that epoch: the answer that told it the new epoch may be on its way. An epoch
from before the member got the partition is a zombie's.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
from coordinator.group.events import CommitOffsets, CommitPrepared
from coordinator.group.offsets import is_too_long
from coordinator.group.turn import Turn
from schemas.errors import ErrorCode

EPOCH_SINCE = 9
"""The first OffsetCommit version that a member of the consumer protocol may send."""


def admit(turn: Turn, group: ConsumerGroup, event: CommitOffsets | CommitPrepared) -> ErrorCode:
    """NONE if the group takes a commit. One partition that it does not take is the whole commit's error."""
    member_id, epoch = event.body.member_id, event.body.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if event.version < EPOCH_SINCE and member.classic is None:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return ErrorCode.NONE
    if epoch > member.epoch or not all(had(turn, member, each, epoch) for each in committed_by(turn, event)):
        return stale(member)
    return ErrorCode.NONE


def stale(member: ConsumerMember) -> ErrorCode:
    """The error for an epoch that is not the member's."""
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def committed_by(turn: Turn, event: CommitOffsets | CommitPrepared) -> Iterable[tuple[str, int]]:
    """The topic partitions of a commit, but for those with too much metadata: their error is their own."""
    for topic in event.body.topics:
        for each in topic.partitions:
            if not is_too_long(each.committed_metadata or "", turn.config):
                yield topic.name, each.partition_index


def had(turn: Turn, member: ConsumerMember, topic_partition: tuple[str, int], epoch: int) -> bool:
    """Whether a member had a partition at an epoch, and has it still."""
    name, partition = topic_partition
    for topic in turn.topics.find((name,)):
        for held in (member.assigned, member.revoking):
            since = held.get(topic.topic_id, {}).get(partition)
            if since is not None:
                return since <= epoch
    return False


def fetch_error(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """NONE if the group tells its offsets: to anybody from outside, to a member at its very epoch."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = None if member_id is None else group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else stale(member)
