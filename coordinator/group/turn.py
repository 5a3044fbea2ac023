"""One event under way: what the rules share.

A `Turn` carries the time and the settings, and gathers the effects. It also has the checks that every request of a
member passes, in Kafka's order: instance id, then member id. The generation comes after them, where it counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol

from coordinator.config import GroupConfig, GroupSettings
from coordinator.group import notes, records
from coordinator.group.answers import join_error, sync_error
from coordinator.group.any_group import AnyGroup
from coordinator.group.client import Client, Now
from coordinator.group.effects import SESSION, SYNC, Effects, Response, Timer, TimerKey, TimerKind
from coordinator.group.events import ClientEvent, ConsumerHeartbeat, JoinGroup
from coordinator.group.group import NEVER, Group, Member, Waiting
from coordinator.group.refusal import WORDS, Refusal
from coordinator.group.topics import NO_TOPICS, Topics
from protocol.messages import JoinGroupRequest, SyncGroupResponse, alike
from protocol.records.batch import Record
from protocol.records.packing import plain_bytes, stored_bytes
from protocol.speed import new
from schemas.errors import ErrorCode

UNKNOWN_MEMBER_ID = ""
"""The member id of a client that has none yet (JoinGroupRequest.UNKNOWN_MEMBER_ID)."""

# Short names: see `speed`.
NONE, FENCED_INSTANCE_ID = ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID

_in_protocol = alike(SyncGroupResponse, "protocol_type", "protocol_name", "assignment")
_assigned = alike(SyncGroupResponse, "assignment")
# Answers share fields with this one; nobody changes them.
_NO_ERROR = SyncGroupResponse(error_code=NONE)

NO_CONFIGS: Mapping[str, GroupSettings] = {}
"""Where no group has settings of its own."""

DEFAULTS = GroupConfig()
"""For a turn whose rules ask for no setting, as those that follow a group through its records."""


class Watched(Protocol):
    """The session of a member, as `Turn.watch` sees it; see `group.Member`."""

    member_id: str
    session_timeout_ms: int
    deadline_ms: int
    timer_at_ms: int


class Turn:
    """The handling of one event.

    successor: the group that takes the place of the event's group, once a rule has made one.
    """

    __slots__ = ("_group_configs", "config", "effects", "now", "successor", "topics")

    def __init__(
        self,
        config: GroupConfig,
        now: Now,
        topics: Topics = NO_TOPICS,
        group_configs: Mapping[str, GroupSettings] = NO_CONFIGS,
    ) -> None:
        self.config = config
        self.now = now
        self.topics = topics
        self.effects = Effects()
        self.successor: AnyGroup | None = None
        self._group_configs = group_configs

    def group_settings(self, group_id: str) -> GroupSettings:
        """The settings of a group: its own, else those of the coordinator."""
        return self._group_configs.get(group_id) or self.config.group_settings

    def own_settings(self, group_id: str) -> GroupSettings | None:
        """The settings that a group has of its own; None if it has none."""
        return self._group_configs.get(group_id)

    def expecting(self, group_id: str) -> GroupSettings | None:
        """The settings of a group that expects members; None if it expects nobody."""
        own = self._group_configs.get(group_id)
        return own if own is not None and own.expected else None

    def answer(self, request: Hashable, body: Any) -> None:
        """Answer a request."""
        self.effects.responses.append(new(Response, (request, body)))

    def refuse(self, event: ClientEvent, error: ErrorCode) -> None:
        """Answer the request of an event with an error."""
        self.answer(event.request, event.refused(error))

    def answer_all(self, answers: Iterable[tuple[Hashable, Any]]) -> None:
        """Answer requests, each with its body."""
        self.effects.responses += [new(Response, answer) for answer in answers]

    def note(self, note: notes.Note) -> None:
        """Report what happened."""
        self.effects.notes.append(note)

    def arm(self, kind: TimerKind, group: AnyGroup, at_ms: int | None, member_id: str = "") -> None:
        """Arm a timer of `group`; at_ms None cancels it."""
        self.effects.timers.append(new(Timer, (new(TimerKey, (kind, group.group_id, member_id)), at_ms)))

    def fixed(self, ticket: str, group_id: str) -> bool:
        """Whether the setting tenure.fix.<ticket> is on for a group."""
        own = self._group_configs.get(group_id)
        return ticket in (self.config.fixes if own is None else own.fixes)

    # Sessions.

    def renew_sessions(self, group: Group, members: Iterable[Member]) -> None:
        """Restart the sessions of members."""
        # `expect` and `watch` in one loop: a rebalance renews a thousand sessions at a time.
        now_ms = self.now.ms
        for member in members:
            member.deadline_ms = at_ms = now_ms + member.session_timeout_ms
            if at_ms < member.timer_at_ms:
                member.timer_at_ms = at_ms
                key = new(TimerKey, (SESSION, group.group_id, member.member_id))
                self.effects.timers.append(new(Timer, (key, at_ms)))

    def expect(self, group: AnyGroup, member: Watched, within_ms: int) -> None:
        """Expire `member` unless a request of it comes within this time."""
        member.deadline_ms = self.now.ms + within_ms
        self.watch(group, member)

    def watch(self, group: AnyGroup, member: Watched) -> None:
        """Make sure that a timer looks at the deadline of `member` in time.

        A heartbeat moves the deadline and leaves the timer alone. A shortened session timeout could move the deadline
        before the timer, so the timer is never further away than one session timeout.
        """
        at_ms = min(member.deadline_ms, self.now.ms + member.session_timeout_ms)
        if at_ms < member.timer_at_ms:
            member.timer_at_ms = at_ms
            self.arm(SESSION, group, at_ms, member.member_id)

    def forget(self, group: AnyGroup, member: Watched) -> None:
        """Cancel the session timer of `member`: its member id is about to go."""
        if member.timer_at_ms != NEVER:
            member.timer_at_ms = NEVER
            # As `arm`, without its call: each restart of a static member comes here.
            key = new(TimerKey, (SESSION, group.group_id, member.member_id))
            self.effects.timers.append(new(Timer, (key, None)))

    def update(self, group: Group, member: Member, event: JoinGroup, waiting: Waiting | None) -> None:
        """Take over the new data of a member that joins again."""
        member.joined_by = event.client
        # The event's two functions are called only where they have something to find out.
        protocols = event.protocols or event.listed()
        body = event.body
        rebalance_timeout_ms = body.rebalance_timeout_ms if event.version else event.rebalance_timeout_ms
        group.update(member, protocols, rebalance_timeout_ms, body.session_timeout_ms, waiting)
        self.watch(group, member)

    # Checks.

    def validate_member(
        self, group: Group, member_id: str, instance_id: str | None, operation: str, client: Client
    ) -> ErrorCode:
        """See `member_error`. Notes a fenced member. client: the sender of the request."""
        error = member_error(group, member_id, instance_id)
        if error is FENCED_INSTANCE_ID:
            assert instance_id is not None
            holder = group.holder_of(instance_id)
            assert holder is not None
            self.note_fenced(group, member_id, holder, operation, client)
        return error

    def note_fenced(
        self,
        group: Group,
        member_id: str,
        holder: Member,
        operation: str,
        client: Client | None,
        *,
        waited: bool = False,
    ) -> None:
        """Note that `holder`, which has the instance id, fences `client`, which is or was `member_id`."""
        assert holder.group_instance_id is not None
        self.note(
            notes.MemberFenced(
                group.group_id,
                group.generation,
                member_id,
                holder.member_id,
                holder.group_instance_id,
                operation,
                client,
                holder.joined_by,
                waited,
            )
        )

    def note_refused(self, group: AnyGroup | None, event: JoinGroup | ConsumerHeartbeat, refusal: Refusal) -> None:
        """Note the refusal of a client that wants to join, if it ends the client."""
        words = WORDS.get(refusal.error)
        if words is None:
            return
        why, until = words
        body = event.body
        self.note(
            notes.ClientRefused(
                body.group_id,
                0 if group is None else group.generation,
                body.member_id,
                body.group_instance_id if isinstance(body, JoinGroupRequest) else body.instance_id,
                refusal.error.name,
                refusal.why or refusal.message or why,
                refusal.until or until,
                event.client,
            )
        )

    # Records.

    def append(self, *appended: Record) -> None:
        """Write records, in one batch with the others of this turn."""
        self.effects.records.extend(appended)

    def store_takes(self, written: Iterable[Record]) -> bool:
        """Whether the store takes these records in a batch that must not be divided."""
        limit = self.config.stored_max_bytes
        if not limit:
            return True
        batch = list(written)
        return len(batch) <= self.config.stored_max_records and stored_bytes(batch) <= limit

    def takes_each(self, group: AnyGroup, written: Iterable[Record]) -> bool:
        """Whether the store takes each of these records, in a batch that may be divided; if not, a note says so.

        The size counts that a record has before it is packed: to pack one that is too large would stop the server.
        """
        limit = self.config.stored_max_bytes
        size = max((plain_bytes([record]) for record in written), default=0) if limit else 0
        if size > limit:
            self.note(notes.GroupTooLarge(group.group_id, group.generation, size, limit))
        return size <= limit

    def write_group(self, group: Group, since_ms: int | None) -> bool:
        """Write the group's record; since_ms: when the group entered its state.

        Returns False and writes nothing if the record would be larger than a batch may be (KAFKA-19760).
        """
        record = records.group_record(group, since_ms, self.now.wall_ms)
        size, limit = records.OVERHEAD + len(record.key) + len(record.value or b""), self.config.message_max_bytes
        if size <= limit and 0 < self.config.stored_max_bytes < size:
            size, limit = records.stored_size(record), self.config.stored_max_bytes
        if size > limit:
            self.note(notes.GroupTooLarge(group.group_id, group.generation, size, limit))
            return False
        self.effects.records.append(record)
        return True

    # Answers to requests that wait.

    def refuse_join(self, waiting: Waiting, error: ErrorCode, member_id: str) -> None:
        """Answer a JoinGroup with an error."""
        self.answer(waiting.request, join_error(waiting.version, error, member_id))

    def release_join(self, group: Group, member: Member, error: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        """Answer with an error the JoinGroup that `member` waits in, if there is one."""
        waiting = group.take_join(member)
        if waiting is not None:
            self.refuse_join(waiting, error, member_id)

    def release_sync(self, member: Member, error: ErrorCode) -> None:
        """Answer with an error the SyncGroup that `member` waits in, if there is one."""
        waiting = member.awaiting_sync
        if waiting is not None:
            member.awaiting_sync = None
            self.answer(waiting.request, sync_error(error))

    def release_syncs(self, group: Group, error: ErrorCode) -> None:
        """Answer every waiting SyncGroup, and renew the sessions of their members.

        error: NONE answers with the member's assignment.
        """
        like = sync_answer(group, b"") if error is NONE else sync_error(error)
        released: list[Member] = []
        answers: list[tuple[Hashable, Any]] = []
        for member in group.members.values():
            waiting = member.awaiting_sync
            if waiting is not None:
                member.awaiting_sync = None
                member.is_asked = error is ErrorCode.REBALANCE_IN_PROGRESS
                released.append(member)
                answers.append((waiting[0], _assigned(like, member.assignment if error is NONE else b"")))
        self.answer_all(answers)
        self.renew_sessions(group, released)

    def drop(self, group: Group, member: Member) -> None:
        """Remove a member; a request that it waits in gets UNKNOWN_MEMBER_ID, so that the client joins anew."""
        self.release_join(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.release_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.forget(group, member)
        awaited = bool(group.pending_sync)
        group.remove(member)
        if awaited and not group.pending_sync:
            self.arm(SYNC, group, None)


def member_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE if `member_id` is a member, and the one behind `instance_id` if the request names one.

    An instance id of another member or standby is FENCED_INSTANCE_ID, an instance id of nobody UNKNOWN_MEMBER_ID
    (KIP-345, KAFKA-8225). A static member may leave its instance id out.
    """
    if instance_id is not None and group.static_members.get(instance_id) != member_id:
        holder = group.holder_of(instance_id)
        if holder is None or holder.member_id != member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID if holder is None else FENCED_INSTANCE_ID
    return NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def sync_answer(group: Group, assignment: bytes) -> SyncGroupResponse:
    """The answer of a SyncGroup: the member's assignment."""
    return _in_protocol(_NO_ERROR, group.protocol_type, group.protocol_name, assignment)
