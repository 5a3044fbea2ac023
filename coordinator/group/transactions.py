"""Commits inside transactions: TxnOffsetCommit and the markers that end them (KIP-98, KIP-447).

Such a commit is no heartbeat. It is taken in any state of a group, also between the end of a rebalance and the sync.
A commit without any claim (no generation, member id or instance id) is always taken: before KIP-447 none had a claim.

House rule: whether the transaction is open is decided before this module gets the event.
"""

from __future__ import annotations

from coordinator.group import pending
from coordinator.group.any_group import AnyGroup
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.offsets import had
from coordinator.group.events import CommitInTransaction
from coordinator.group.group import Group
from coordinator.group.turn import UNKNOWN_MEMBER_ID, Turn, member_error
from protocol.records.batch import CONTROL, TRANSACTIONAL, Batch, Record
from schemas.errors import ErrorCode

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
"""The keys of markers: version 0, and the type."""


def commit(turn: Turn, group: AnyGroup | None, event: CommitInTransaction, place: int) -> bool:
    """Handle a TxnOffsetCommit; returns whether something is pending. group: None if there is none of this id."""
    prepared, body = event.prepared, event.body
    error = admit(turn, group, event)
    size_max = turn.config.transaction_offsets_max
    has_room = group is None or pending.has_room(group, body.producer_id, prepared.offsets, size_max)
    if error is ErrorCode.NONE and not (prepared.fits and has_room):
        error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    turn.answer(event.request, error)
    if error is not ErrorCode.NONE or group is None or not prepared.records:
        return False
    turn.effects.records = Batch(prepared.records, body.producer_id, body.producer_epoch)
    pending.add(group, body.producer_id, place, prepared.offsets)
    return True


def admit(turn: Turn, group: AnyGroup | None, event: CommitInTransaction) -> ErrorCode:
    """NONE if the group takes the commit."""
    body = event.body
    generation, member_id, instance_id = body.generation_id, body.member_id, body.group_instance_id
    if generation < 0 and member_id == UNKNOWN_MEMBER_ID and instance_id is None:
        return ErrorCode.NONE
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
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
    if generation == member.epoch or (
        generation < member.epoch and all(had(turn, member, each, generation) for each in event.prepared.offsets)
    ):
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def marker(producer_id: int, epoch: int, *, is_commit: bool, coordinator_epoch: int, wall_ms: int) -> Batch:
    """The batch that ends a producer's transaction in a partition."""
    value = b"\0\0" + coordinator_epoch.to_bytes(4, signed=True)
    record = Record(COMMIT if is_commit else ABORT, value, wall_ms)
    return Batch([record], producer_id, epoch, TRANSACTIONAL | CONTROL, base_sequence=-1)
