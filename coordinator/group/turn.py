"""One event under way: what the rules of `join`, `sync` and the others share.

A `Turn` carries the time, the settings and the effects as they gather. Here are also the checks that every request of
a member goes through, in Kafka's order: instance id, then member id; the generation comes after, where it counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from coordinator.group import notes, records
from coordinator.group.effects import SESSION, SYNC, Effects, Response, Timer, TimerKey, TimerKind
from coordinator.group.group import NEVER, Group, Member, Waiting
from protocol.messages import JoinGroupResponse, SyncGroupResponse, alike
from protocol.tuples import new
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.config import GroupConfig
    from coordinator.group.client import Client, Now
    from protocol.records.batch import Record

UNKNOWN_MEMBER_ID = ""
"""What a client sends that has no member id yet (JoinGroupRequest.UNKNOWN_MEMBER_ID)."""

NO_GENERATION = -1

# Before Python 3.12, naming an enum's member is a call.
NONE, FENCED_INSTANCE_ID = ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID

_in_protocol = alike(SyncGroupResponse, "protocol_type", "protocol_name", "assignment")
_assigned = alike(SyncGroupResponse, "assignment")
# What answers share with it nobody changes.
_NO_ERROR = SyncGroupResponse(error_code=NONE)


class Turn:
    """The handling of one event."""

    __slots__ = ("config", "effects", "now")

    def __init__(self, config: GroupConfig, now: Now) -> None:
        self.config = config
        self.now = now
        self.effects = Effects()

    def answer(self, request: Hashable, body: Any) -> None:
        """Answer a request."""
        self.effects.responses.append(new(Response, (request, body)))

    def answer_all(self, answers: Iterable[tuple[Hashable, Any]]) -> None:
        """Answer requests, each with its body."""
        self.effects.responses += [new(Response, answer) for answer in answers]

    def note(self, note: notes.Note) -> None:
        """Say what happened."""
        self.effects.notes.append(note)

    def arm(self, kind: TimerKind, group: Group, at_ms: int | None, member_id: str = "") -> None:
        """Set a timer of `group`, or cancel it."""
        self.effects.timers.append(new(Timer, (new(TimerKey, (kind, group.group_id, member_id)), at_ms)))

    def fixed(self, ticket: str) -> bool:
        """Whether the better rule of `ticket` is switched on."""
        return ticket in self.config.fixes

    # Sessions.

    def hear_of(self, group: Group, members: Iterable[Member]) -> None:
        """Start the sessions of members anew."""
        # As `expect` and `watch` do, in one: a rebalance hears of a thousand members at a time.
        now_ms = self.now.ms
        for member in members:
            member.deadline_ms = at_ms = now_ms + member.session_timeout_ms
            if at_ms < member.timer_at_ms:
                member.timer_at_ms = at_ms
                self.arm(SESSION, group, at_ms, member.member_id)

    def expect(self, group: Group, member: Member, within_ms: int) -> None:
        """Expire `member` unless it is heard of within a time."""
        member.deadline_ms = self.now.ms + within_ms
        self.watch(group, member)

    def watch(self, group: Group, member: Member) -> None:
        """Make sure that a timer looks at the deadline of `member` in time.

        A heartbeat moves the deadline without a look at the timer. So that it can't move it before the timer, which a
        shortened session timeout would do, the timer is never further away than one session timeout.
        """
        at_ms = min(member.deadline_ms, self.now.ms + member.session_timeout_ms)
        if at_ms < member.timer_at_ms:
            member.timer_at_ms = at_ms
            self.arm(SESSION, group, at_ms, member.member_id)

    def forget(self, group: Group, member: Member) -> None:
        """Stop watching over `member`, which is no longer known by its id."""
        if member.timer_at_ms != NEVER:
            member.timer_at_ms = NEVER
            self.arm(SESSION, group, None, member.member_id)

    # Checks.

    def validate_member(
        self, group: Group, member_id: str, instance_id: str | None, operation: str, client: Client
    ) -> ErrorCode:
        """See `member_error`; that one is fenced is noted. client: who says to be that member."""
        error = member_error(group, member_id, instance_id)
        if error is FENCED_INSTANCE_ID:
            assert instance_id is not None
            self.note_fenced(group, member_id, group.static_members[instance_id], instance_id, operation, client)
        return error

    def note_fenced(
        self,
        group: Group,
        member_id: str,
        current_member_id: str,
        instance_id: str,
        operation: str,
        client: Client | None,
    ) -> None:
        """Say that `client`, who is or was `member_id`, is fenced by the member behind `instance_id`."""
        holder = group.members[current_member_id].joined_by
        self.note(
            notes.MemberFenced(
                group.group_id, group.generation, member_id, current_member_id, instance_id, operation, client, holder
            )
        )

    # Records.

    def append(self, *appended: Record) -> None:
        """Write records, as one with the others of this turn."""
        self.effects.records.extend(appended)

    def write_group(self, group: Group, since_ms: int | None) -> bool:
        """Write what the group is, in a state that it is in since `since_ms`.

        False, and nothing written, if the record would be larger than a batch may be (KAFKA-19760).
        """
        record = records.group_record(group, since_ms, self.now.wall_ms)
        size = records.batch_size([record])
        if size > self.config.message_max_bytes:
            self.note(notes.GroupTooLarge(group.group_id, group.generation, size, self.config.message_max_bytes))
            return False
        self.append(record)
        return True

    # Answers to those who wait.

    def refuse_join(self, waiting: Waiting, error: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        """Answer a JoinGroup with an error."""
        self.answer(waiting.request, join_error(waiting.version, error, member_id))

    def release_join(self, group: Group, member: Member, error: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        """Answer the JoinGroup that `member` waits in, if it does, with an error."""
        waiting = group.take_join(member)
        if waiting is not None:
            self.refuse_join(waiting, error, member_id)

    def release_sync(self, member: Member, error: ErrorCode) -> None:
        """Answer the SyncGroup that `member` waits in, if it does, with an error."""
        waiting = member.awaiting_sync
        if waiting is not None:
            member.awaiting_sync = None
            self.answer(waiting.request, sync_error(error))

    def release_syncs(self, group: Group, error: ErrorCode) -> None:
        """Answer every SyncGroup that waits, with its member's assignment or an error, and hear of who sent it."""
        like = sync_answer(group, b"") if error is NONE else sync_error(error)
        released: list[Member] = []
        answers: list[tuple[Hashable, Any]] = []
        for member in group.members.values():
            waiting = member.awaiting_sync
            if waiting is not None:
                member.awaiting_sync = None
                released.append(member)
                answers.append((waiting[0], _assigned(like, member.assignment if error is NONE else b"")))
        self.answer_all(answers)
        self.hear_of(group, released)

    def drop(self, group: Group, member: Member) -> None:
        """Remove a member; whatever it waits for is answered with UNKNOWN_MEMBER_ID, so that it joins anew."""
        self.release_join(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.release_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.forget(group, member)
        awaited = bool(group.pending_sync)
        group.remove(member)
        if awaited and not group.pending_sync:
            self.arm(SYNC, group, None)


def join_error(version: int, error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """A JoinGroup answered with an error; up to v6 there is no null protocol name."""
    return JoinGroupResponse(
        error_code=error,
        generation_id=NO_GENERATION,
        protocol_type=None,
        protocol_name=None if version >= 7 else "",
        leader="",
        member_id=member_id,
        members=[],
    )


def member_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE if `member_id` is a member, and the one behind `instance_id` if that is given.

    KIP-345, KAFKA-8225: an instance id that another member holds is FENCED_INSTANCE_ID, one that nobody holds
    UNKNOWN_MEMBER_ID. A static member may leave its instance id out.
    """
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current != member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID if current is None else FENCED_INSTANCE_ID
    return NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """A SyncGroup answered with an error."""
    return SyncGroupResponse(error_code=error, protocol_type=None, protocol_name=None, assignment=b"")


def sync_answer(group: Group, assignment: bytes) -> SyncGroupResponse:
    """A SyncGroup answered with a member's assignment."""
    return _in_protocol(_NO_ERROR, group.protocol_type, group.protocol_name, assignment)
