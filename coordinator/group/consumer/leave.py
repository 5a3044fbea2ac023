"""Members that go: by a heartbeat of epoch -1 or -2, by an administrator's LeaveGroup, or because time is up.

Each departure bumps the group epoch, several at once bump it once. The next heartbeat of anybody makes the new target;
an empty group has its own at once.
A static member that is away (-2) keeps its partitions and its place in the target: nothing moves while it restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from coordinator.group import notes
from coordinator.group.bounds import following
from coordinator.group.causes import Cause, CauseKind
from coordinator.group.classic import rebalance
from coordinator.group.consumer import course, downgrade, reasons, records, sessions
from coordinator.group.consumer.group import AWAY, NOTHING, ConsumerGroup, ConsumerMember
from coordinator.group.events import LeaveGroup
from coordinator.group.topics import metadata_hash
from coordinator.group.turn import Turn
from schemas.errors import ErrorCode


def be_away(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Keep the seat of a static member. Its session goes on, so it has the rest of it to come back."""
    # Commits from before count as the member's own once it is back, whatever their epoch.
    assigned = {topic_id: dict.fromkeys(held, 0) for topic_id, held in member.assigned.items()}
    away = member._replace(epoch=AWAY, revoking=NOTHING, assigned=assigned)
    turn.append(records.current_record(group.group_id, away, turn.now.wall_ms))
    if member.epoch != AWAY:
        course.went_away(turn, group, member)
    group.put(away)
    course.settled(turn, group)


def remove(
    turn: Turn, group: ConsumerGroup, members: Sequence[ConsumerMember], reason: str, cause: Cause | None = None
) -> None:
    """Remove members that leave by request. cause: if it isn't that of one member that leaves itself."""
    for member in members:
        turn.note(notes.MemberLeft(group.group_id, group.generation, *member.named, reason))
    if members:
        drop(turn, group, members, cause or reasons.of_member(group, CauseKind.MEMBER_LEFT, members[0]))


def drop(turn: Turn, group: ConsumerGroup, members: Sequence[ConsumerMember], cause: Cause) -> None:
    """Remove members and bump the epoch once, or downgrade a group that has only classic members left."""
    if downgrade.is_due(turn, group, members):
        rebalance.prepare(turn, downgrade.downgrade(turn, group, group.generation, members), cause)
        return
    wall_ms = turn.now.wall_ms
    course.opened(turn, group)
    for member in members:
        course.waited_for(turn, group, member)
        turn.append(*records.member_tombstones(group.group_id, member.member_id, wall_ms))
        sessions.forget(turn, group, member.member_id)
    regexes = Counter(member.regex for member in members if member.regex)
    for regex, count in regexes.items():
        if group.regex_members[regex] == count:
            turn.append(records.regex_tombstone(group.group_id, regex, wall_ms))
            group.regexes.pop(regex, None)
    for member in members:
        group.remove(member.member_id)
    group.metadata_hash = metadata_hash(turn.topics, group.subscribed_names())
    group.generation = following(group.generation)
    turn.append(records.epoch_record(group.group_id, group.generation, group.metadata_hash, wall_ms))
    if not group.members:
        # Nobody is left to make a target for: the group has it (KAFKA-20442), and the next one needn't wait.
        turn.append(records.target_epoch_record(group.group_id, group.generation, 0, wall_ms))
        group.set_targets({}, group.generation, 0)
    course.bumped(turn, group, cause)
    course.settled(turn, group)
    if not group.members:
        turn.note(notes.GroupEmptied(group.group_id, group.generation))


def leave(turn: Turn, group: ConsumerGroup, event: LeaveGroup) -> None:
    """Handle a LeaveGroup: an administrator removes members by instance id or member id (KIP-345)."""
    errors: list[ErrorCode] = []
    leaving: dict[str, ConsumerMember] = {}
    reason = ""
    for identity in event.leaving:
        error = ErrorCode.NONE
        if identity.group_instance_id is None:
            member = group.members.get(identity.member_id)
        else:
            member = group.seat(identity.group_instance_id)
            if member is not None and identity.member_id and identity.member_id != member.member_id:
                error = ErrorCode.FENCED_INSTANCE_ID
        if member is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif error is ErrorCode.NONE:
            leaving[member.member_id] = member
            reason = identity.reason or reason
        errors.append(error)
    members = list(leaving.values())
    gone = (each for member in members for each in records.member_tombstones(group.group_id, member.member_id, 0))
    if not turn.store_takes(gone):
        turn.answer(event.request, event.answered([ErrorCode.UNKNOWN_SERVER_ERROR] * len(errors)))
        return
    remove(turn, group, members, reason, reasons.of_removal(group, members, event, reason) if members else None)
    turn.answer(event.request, event.answered(errors))
