"""Committed offsets: commit, fetch, delete, expire (Kafka: GroupCoordinator, GroupMetadataManager).

A commit is checked against the group only if it claims to be a member's: with a generation, a member id or an instance
id. Without any, it is a simple consumer's or an administrator's, and counts while the group is Empty.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from coordinator.config import INT64_MAX
from coordinator.group import notes, records
from coordinator.group.group import CONSUMER, CommittedOffset, Group
from coordinator.group.state import State
from coordinator.group.turn import UNKNOWN_MEMBER_ID, Turn
from protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.group.events import CommitOffsets, DeleteOffsets, FetchOffsets

BROKER_RETENTION = -1
"""retention_time_ms of a commit that asks for no retention of its own."""
NO_COMMIT_TIME = -1
"""commit_timestamp of a commit that gives none (all but v1)."""
NO_OFFSET = -1
"""What OffsetFetch answers where nothing is committed."""
NO_LEADER_EPOCH = -1

# Before Python 3.12, naming an enum's member is a call; a commit would make ten of them.
NONE = ErrorCode.NONE
EMPTY, COMPLETING_REBALANCE, DEAD = State.EMPTY, State.COMPLETING_REBALANCE, State.DEAD


def commit(turn: Turn, group: Group, event: CommitOffsets) -> None:
    """Handle an OffsetCommit."""
    error = validate_commit(turn, group, event)
    if error is NONE and group.state is COMPLETING_REBALANCE:
        # It has the new generation from its JoinGroup answer, but no assignment yet (KAFKA-8487).
        error = ErrorCode.REBALANCE_IN_PROGRESS
    if error is not NONE:
        turn.answer(event.request, commit_answer(event.body, error))
        return
    member = group.members.get(event.body.member_id)
    if member is not None:
        turn.hear_of(group, member)
    offsets, too_large = committed_offsets(turn, event)
    written = [records.offset_record(group.group_id, *key, each, turn.now.wall_ms) for key, each in offsets.items()]
    if records.batch_size(written) > turn.config.message_max_bytes:
        # All or nothing is what one batch is for.
        turn.answer(event.request, commit_answer(event.body, ErrorCode.INVALID_COMMIT_OFFSET_SIZE))
        return
    for (topic, partition), committed in offsets.items():
        group.offsets.setdefault(topic, {})[partition] = committed
    turn.append(*written)
    turn.answer(event.request, commit_answer(event.body, NONE, too_large))


def validate_commit(turn: Turn, group: Group, event: CommitOffsets) -> ErrorCode:
    """Whether the group takes a commit (Kafka: validateOffsetCommit; KAFKA-14201)."""
    body = event.body
    generation = body.generation_id_or_member_epoch
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is EMPTY:
        return NONE
    if generation < 0 and body.member_id == UNKNOWN_MEMBER_ID and body.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = turn.validate_member(group, body.member_id, body.group_instance_id, "offset-commit", event.client)
    if error is NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def committed_offsets(
    turn: Turn, event: CommitOffsets
) -> tuple[dict[tuple[str, int], CommittedOffset], set[tuple[str, int]]]:
    """What a commit stores, by topic and partition, and the topic partitions whose metadata is too large."""
    offsets: dict[tuple[str, int], CommittedOffset] = {}
    too_large: set[tuple[str, int]] = set()
    retention_ms, wall_ms = event.body.retention_time_ms, turn.now.wall_ms
    for topic in event.body.topics:
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            if java_length(metadata) > turn.config.offset_metadata_max_bytes:
                too_large.add((topic.name, partition.partition_index))
                continue
            offsets[topic.name, partition.partition_index] = CommittedOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                metadata,
                wall_ms if partition.commit_timestamp == NO_COMMIT_TIME else partition.commit_timestamp,
                None if retention_ms == BROKER_RETENTION else min(wall_ms + retention_ms, INT64_MAX),
            )
    return offsets, too_large


def java_length(text: str) -> int:
    """The length of a string as Java counts it, in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def commit_answer(
    body: OffsetCommitRequest, error: ErrorCode, too_large: Collection[tuple[str, int]] = ()
) -> OffsetCommitResponse:
    """The same answer for every partition of a commit, but for those whose metadata is too large."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE
                        if too_large and (topic.name, partition.partition_index) in too_large
                        else error,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def fetch(turn: Turn, group: Group, event: FetchOffsets) -> None:
    """Handle one group of an OffsetFetch; who asks does not matter.

    Whatever is not durable yet is held back by the runtime with this answer, so nothing is ever unstable here (KIP-447
    is about transactions).
    """
    if event.topics is None:
        wanted = [(topic, list(partitions)) for topic, partitions in group.offsets.items()]
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in event.topics if topic.partition_indexes]
    answer = OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=topic, partitions=[fetched(group, topic, partition) for partition in partitions]
            )
            for topic, partitions in wanted
        ],
    )
    turn.answer(event.request, answer)


def fetched(group: Group, topic: str, partition: int) -> OffsetFetchResponse.OffsetFetchResponsePartitions:
    """What is committed for a topic partition."""
    committed = group.offsets.get(topic, {}).get(partition)
    if committed is None:
        return OffsetFetchResponse.OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=NO_OFFSET, committed_leader_epoch=NO_LEADER_EPOCH, metadata=""
        )
    return OffsetFetchResponse.OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def delete(turn: Turn, group: Group, event: DeleteOffsets) -> None:
    """Handle an OffsetDelete (KIP-496): of an Empty group any, of a group of consumers what it is not subscribed to."""
    if group.state is State.DEAD:
        turn.answer(event.request, OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
        return
    empty = group.state is State.EMPTY
    if not empty and group.protocol_type != CONSUMER:
        turn.answer(event.request, OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
        return
    topics, removed = [], []
    for topic in event.body.topics:
        allowed = empty or not group.is_subscribed(topic.name)
        indexes = [partition.partition_index for partition in topic.partitions]
        if allowed:
            removed += [(topic.name, index) for index in indexes if index in group.offsets.get(topic.name, {})]
        error = ErrorCode.NONE if allowed else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        topics.append(
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                    for index in indexes
                ],
            )
        )
    remove(turn, group, list(dict.fromkeys(removed)), expired=False)
    turn.answer(event.request, OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics))


def remove(turn: Turn, group: Group, topic_partitions: list[tuple[str, int]], *, expired: bool) -> None:
    """Remove committed offsets, each with a tombstone."""
    if not topic_partitions:
        return
    for topic, partition in topic_partitions:
        partitions = group.offsets[topic]
        del partitions[partition]
        if not partitions:
            del group.offsets[topic]
        turn.append(records.offset_tombstone(group.group_id, topic, partition, turn.now.wall_ms))
    turn.note(notes.OffsetsRemoved(group.group_id, group.generation, tuple(topic_partitions), expired))


def expired(turn: Turn, group: Group) -> list[tuple[str, int]]:
    """The offsets whose time is over (KIP-211; Kafka: GroupMetadata.removeExpiredOffsets).

    An Empty group's count from when it became empty, a Stable group of consumers' from their commit unless it is
    subscribed to the topic, a simple group's from their commit. A group that rebalances loses none (KAFKA-13636).
    """
    spared: frozenset[str] = frozenset()
    since_ms: int | None = None
    if group.protocol_type is not None and group.state is State.EMPTY:
        since_ms = group.state_since_ms
    elif group.protocol_type == CONSUMER and group.state is State.STABLE and group.subscribed_topics is not None:
        spared = group.subscribed_topics
    elif group.protocol_type is not None:
        return []
    return [
        (topic, partition)
        for topic, partitions in group.offsets.items()
        if topic not in spared
        for partition, committed in partitions.items()
        if is_expired(turn, committed, since_ms)
    ]


def is_expired(turn: Turn, committed: CommittedOffset, since_ms: int | None) -> bool:
    """Whether an offset's own time is over, or the broker's retention from `since_ms`, from its commit if None."""
    if committed.expire_ms is not None:
        return turn.now.wall_ms >= committed.expire_ms
    base_ms = committed.commit_ms if since_ms is None else since_ms
    return turn.now.wall_ms - base_ms >= turn.config.offsets_retention_ms
