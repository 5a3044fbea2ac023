"""Commits inside transactions: TxnOffsetCommit and the markers that end them (KIP-98, KIP-447).

Such a commit is no heartbeat. It is taken in any state of a group, also between the end of a rebalance and the sync.
A commit without any claim (no generation, member id or instance id) is always taken: before KIP-447 none had a claim.

House rule: whether the transaction is open is decided before this module gets the event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group import offsets, pending, records
from coordinator.group.any_group import AnyGroup, CommittedOffset
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.offsets import had
from coordinator.group.group import Group
from coordinator.group.turn import UNKNOWN_MEMBER_ID, Turn, member_error
from protocol.messages import TxnOffsetCommitResponse
from protocol.records.batch import CONTROL, TRANSACTIONAL, Batch, Record
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.group.events import CommitInTransaction
    from protocol.messages import TxnOffsetCommitRequest

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
"""The keys of markers: version 0, and the type."""


def commit(turn: Turn, group: AnyGroup | None, event: CommitInTransaction, place: int) -> bool:
    """Handle a TxnOffsetCommit; returns whether something is pending. group: None if there is none of this id."""
    body, config, wall_ms = event.body, turn.config, turn.now.wall_ms
    error = admit(turn, group, event)
    too_large: set[tuple[str, int]] = set()
    found: dict[tuple[str, int], CommittedOffset] = {}
    if group is not None and error is ErrorCode.NONE:
        for topic in body.topics:
            for each in topic.partitions:
                key, metadata = (topic.name, each.partition_index), each.committed_metadata or ""
                if offsets.is_too_long(metadata, config):
                    too_large.add(key)
                else:
                    epoch = each.committed_leader_epoch
                    found[key] = CommittedOffset(each.committed_offset, epoch, metadata, wall_ms, None)
        written = [records.offset_record(body.group_id, *key, each, wall_ms) for key, each in found.items()]
        if records.batch_size(written) > config.message_max_bytes:
            error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        elif written:
            turn.effects.records = Batch(written, body.producer_id, body.producer_epoch)
            pending.add(group, body.producer_id, place, found.items())
    turn.answer(event.request, answer(body, error, too_large if error is ErrorCode.NONE else set()))
    return bool(turn.effects.records)


def admit(turn: Turn, group: AnyGroup | None, event: CommitInTransaction) -> ErrorCode:
    """NONE if the group takes the commit."""
    body = event.body
    generation, member_id, instance_id = body.generation_id, body.member_id, body.group_instance_id
    if generation < 0 and member_id == UNKNOWN_MEMBER_ID and instance_id is None:
        return ErrorCode.NONE
    if group is None:
        return ErrorCode.ILLEGAL_GENERATION
    if not group.members:
        return ErrorCode.NONE if generation < 0 else ErrorCode.UNKNOWN_MEMBER_ID
    if isinstance(group, Group):
        error = member_error(group, member_id, instance_id)
        if error is ErrorCode.FENCED_INSTANCE_ID:
            turn.validate_member(group, member_id, instance_id, "txn-offset-commit", event.client)
        elif member_id in group.standbys:
            return ErrorCode.REBALANCE_IN_PROGRESS
        elif error is ErrorCode.NONE and generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error
    assert isinstance(group, ConsumerGroup)
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    committed = [(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions]
    if generation == member.epoch or (
        generation < member.epoch and all(had(turn, member, each, generation) for each in committed)
    ):
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION


def answer(
    body: TxnOffsetCommitRequest, error: ErrorCode, too_large: set[tuple[str, int]] | None = None
) -> TxnOffsetCommitResponse:
    """The answer: `error` for every partition, or OFFSET_METADATA_TOO_LARGE for those in `too_large`."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE
                        if too_large and (topic.name, each.partition_index) in too_large
                        else error,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def marker(producer_id: int, epoch: int, *, is_commit: bool, coordinator_epoch: int, wall_ms: int) -> Batch:
    """The batch that ends a producer's transaction in a partition."""
    value = b"\0\0" + coordinator_epoch.to_bytes(4, signed=True)
    record = Record(COMMIT if is_commit else ABORT, value, wall_ms)
    return Batch([record], producer_id, epoch, TRANSACTIONAL | CONTROL, base_sequence=-1)
