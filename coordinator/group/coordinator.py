"""The coordinator of one partition of `__consumer_offsets`: every group whose records lie there.

Theory of operation. The coordinator is a pure state machine. The runtime hands in one event at a time, with the time,
and gets back effects: answers, records, timers, notes (`effects`). The coordinator never waits: it keeps a JoinGroup
that has to wait as a value in its member, and the effects of a later event answer it. State changes at once, before the
records are durable. The runtime holds the answers and notes until they are. If the records can't be written, the
runtime drops the coordinator and loads the partition again, so nobody sees what the log doesn't have.

    state        the table of states
    group        the data
    rules        the rules of each kind of groups, as a table
    classic      those of the classic protocol
    consumer     those of the consumer protocol
    offsets      committed offsets, the same for groups of every kind
    describe     what an administrator sees and does, likewise
    records      the log's side
    invariants   what must hold of each record

House rule: a refused event changes nothing. As in Kafka, a first JoinGroup or commit leaves an empty group all the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar, TypeVar

from coordinator.config import GroupConfig, GroupSettings
from coordinator.group import describe, notes, offsets, pending, transactions
from coordinator.group.any_group import NO_PENDING, AnyGroup
from coordinator.group.classic import expected, seats
from coordinator.group.classic import join as joins
from coordinator.group.client import Now
from coordinator.group.consumer import describe as consumer_describe
from coordinator.group.consumer import expected as consumer_expected
from coordinator.group.consumer import heartbeat as consumer_heartbeat
from coordinator.group.consumer import reasons, regex, target, upgrade
from coordinator.group.consumer.group import JOINING, ConsumerGroup
from coordinator.group.consumer.steady import Steady, steady
from coordinator.group.effects import Effects, Response
from coordinator.group.events import (
    CommitInTransaction,
    CommitOffsets,
    CommitPrepared,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    EndTransaction,
    EraseOffsets,
    Event,
    FetchOffsets,
    GroupSettingsChanged,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    Load,
    RegexResolved,
    RemoveOffsets,
    Resume,
    SyncGroup,
    TargetMade,
    TimerFired,
    TopicsChanged,
    Unload,
)
from coordinator.group.group import Group
from coordinator.group.offsets import Admit, Repeat
from coordinator.group.refusal import Refusal, RefusedRequest
from coordinator.group.rules import RULES
from coordinator.group.state import DEAD, EMPTY, Kind
from coordinator.group.topics import NO_TOPICS, Topics
from coordinator.group.turn import UNKNOWN_MEMBER_ID, Turn
from protocol.messages import DeleteGroupsResponse, HeartbeatResponse
from schemas.errors import ErrorCode

C = TypeVar("C", CommitOffsets, CommitPrepared)

COMMIT_OF_KAFKA_3 = 9
"""The last version of OffsetCommit that Kafka 3.9 knows."""

PROTOCOLS_MAX = 1_000
"""Protocols in a JoinGroup. A client has about ten at most."""


class Coordinator:
    """The state machine of one partition.

    partition: its number. groups: its groups by id; after an unload all are Dead, before it none.
    topics: as of the last TopicsChanged. group_configs: the settings of groups that have their own.
    """

    def __init__(self, partition: int, config: GroupConfig) -> None:
        self.partition = partition
        self.config = config
        # Each is an AnyGroup; who knows the kind of one reads its own fields.
        self.groups: dict[str, Any] = {}
        self.topics: Topics = NO_TOPICS
        self.group_configs: Mapping[str, GroupSettings] = {}
        # The place of the last commit in a transaction, and by producer id, the groups that it has pending offsets in.
        self._place = 0
        self._groups_of: dict[int, set[str]] = {}

    def handle(self, event: Event, now: Now) -> Effects:
        """Handle one event. The event's group must live on this partition."""
        turn = Turn(self.config, now, self.topics, self.group_configs)
        self._HANDLERS[type(event)](self, turn, event)
        if turn.successor is not None:
            self.groups[turn.successor.group_id] = turn.successor
        return turn.effects

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> int | None:
        """A heartbeat without an event: the error code to answer; None if it needs one.

        Its only effect is a later deadline.
        """
        group = self.groups.get(group_id)
        if group is None or not group_id:
            return _absent(group_id)
        return RULES[group.kind].heartbeat(group, member_id, instance_id, generation, now_ms)

    def steady(self, group_id: str, member_id: str, now: Now) -> Steady | None:
        """A member whose next heartbeat has the same answer as the one that it has just got; None if it may differ."""
        group = self.groups.get(group_id)
        return steady(self, group, member_id, now) if isinstance(group, ConsumerGroup) else None

    def commit_repeated(self, commits: Iterable[Repeat], now: Now) -> offsets.Stored[Repeat]:
        """Repeated commits without events. Their records are their only effect."""
        return offsets.commit_repeated(self.groups, commits, now, self.config)

    def offsets_in(self, topics: Collection[str] | None) -> Iterator[RemoveOffsets | None]:
        """The events that remove all offsets in deleted topics. Yields None where the caller may pause.

        Other events may come in between. Each event names at most `offsets.REMOVED_AT_ONCE` offsets and groups.
        topics: None for the events that remove expired offsets of all topics.
        """
        if_expired = topics is None
        found: dict[str, list[tuple[str, int]]] = {}
        size = 0
        for group_id in list(self.groups):
            group = self.groups.get(group_id)
            if group is None:
                continue
            if _ends(group, if_expired=if_expired):
                found[group_id] = []
                size += 1
            held = dict.fromkeys(group.offsets)
            if topics is not None:
                held |= dict.fromkeys(topic for topic, _ in group.pending_offsets.by_partition)
            for topic in held:
                wanted = topics is None or topic in topics
                found_here = dict.fromkeys(group.offsets.get(topic, ()) if wanted else ())
                if wanted and topics is not None:
                    found_here |= dict.fromkeys(
                        each for name, each in group.pending_offsets.by_partition if name == topic
                    )
                left = iter(found_here)
                while taken := [(topic, partition) for partition in islice(left, offsets.REMOVED_AT_ONCE - size)]:
                    found.setdefault(group_id, []).extend(taken)
                    size += len(taken)
                    if size == offsets.REMOVED_AT_ONCE:
                        yield RemoveOffsets(found, if_expired)
                        found, size = {}, 0
                yield None
            if size == offsets.REMOVED_AT_ONCE:
                yield RemoveOffsets(found, if_expired)
                found, size = {}, 0
            yield None
        if found:
            yield RemoveOffsets(found, if_expired)

    def target_of(self, group_id: str) -> Iterator[TargetMade | None]:
        """The event that brings the target that `Effects.assigning` asked for. Yields None where the caller may pause.

        Other events may come in between. There is no event if the group is gone or of another kind by then.
        """
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or group.making is None:
            return
        making = group.making
        for made in making.steps:
            held: object = self.groups.get(group_id)
            if made is None:
                yield None
            elif held is group and group.making is making:
                yield TargetMade(group_id, making.epoch, *made)

    def pending_producers(self) -> set[int]:
        """The ids of producers with pending offsets."""
        return set(self._groups_of)

    def close(self) -> None:
        """Drop all groups. Nobody may ask for them after this."""
        for group in self.groups.values():
            group.close()
        self.groups.clear()

    # One method per event. A rule that needs the group itself is a function of a module of its own.

    def _join(self, turn: Turn, event: JoinGroup) -> None:
        body = event.body
        least, most = self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms
        if not body.group_id:
            self._refuse_join(turn, event, ErrorCode.INVALID_GROUP_ID)
        elif len(body.protocols) > PROTOCOLS_MAX:
            why = f"it lists more than {PROTOCOLS_MAX} protocols"
            self._refuse_join(turn, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)
        elif not least <= body.session_timeout_ms <= most:
            limits = f"group.min.session.timeout.ms={least} and group.max.session.timeout.ms={most}"
            why = f"its session timeout, {body.session_timeout_ms} ms, is not between {limits}"
            self._refuse_join(turn, event, ErrorCode.INVALID_SESSION_TIMEOUT, why)
        elif not joins.member_id_fits(event):
            self._refuse_join(turn, event, ErrorCode.INVALID_REQUEST, "its client id or instance id is too long")
        else:
            group = self.groups.get(body.group_id)
            if group is None:
                if body.member_id != UNKNOWN_MEMBER_ID:
                    turn.refuse(event, ErrorCode.UNKNOWN_MEMBER_ID)
                    return
                group = self.groups[body.group_id] = Group(body.group_id, turn.now.wall_ms)
            elif group.kind is Kind.CONSUMER and not group.size:
                group = self._change_kind(turn, group, Group(body.group_id, turn.now.wall_ms))
            RULES[group.kind].join(turn, group, event)

    def _sync(self, turn: Turn, event: SyncGroup) -> None:
        group_id = event.body.group_id
        group = self.groups.get(group_id)
        if group is None or not group_id:
            turn.refuse(event, _absent(group_id))
        else:
            RULES[group.kind].sync(turn, group, event)

    def _heartbeat(self, turn: Turn, event: Heartbeat) -> None:
        body = event.body
        group = self.groups.get(body.group_id)
        if group is None or not body.group_id:
            error: int = _absent(body.group_id)
        else:
            error = RULES[group.kind].beat(turn, group, event)
        turn.effects.responses.append(Response(event.request, HeartbeatResponse(error_code=error)))

    def _leave(self, turn: Turn, event: LeaveGroup) -> None:
        body = event.body
        group = self.groups.get(body.group_id)
        if not body.group_id:
            turn.refuse(event, ErrorCode.INVALID_GROUP_ID)
        elif group is None:
            errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(event.leaving)
            turn.answer(event.request, event.answered(errors))
        else:
            RULES[group.kind].leave(turn, group, event)

    def _consumer_heartbeat(self, turn: Turn, event: ConsumerHeartbeat) -> None:
        body = event.body
        group = self.groups.get(body.group_id)
        refused = consumer_heartbeat.validate(event, self.config)
        if refused is not None:
            # Without a raise: this frame has the error, whose trace would have this frame.
            self._refuse_consumer_heartbeat(turn, group, event, refused)
            return
        try:
            if isinstance(group, ConsumerGroup):
                consumer_heartbeat.heartbeat(turn, group, event)
            elif body.member_epoch != JOINING:
                words = "not found." if group is None else "is not a consumer group."
                raise RefusedRequest(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {body.group_id[:100]} {words}")
            else:
                self._begin_consumer_group(turn, group, event)
        except RefusedRequest as error:
            self._refuse_consumer_heartbeat(turn, group, event, error)

    def _refuse_consumer_heartbeat(
        self, turn: Turn, group: AnyGroup | None, event: ConsumerHeartbeat, refused: RefusedRequest
    ) -> None:
        body = event.refused(refused.refusal.error)
        body.error_message = refused.refusal.message
        turn.answer(event.request, body)
        if event.body.member_epoch >= JOINING and not upgrade.is_waiting_again(group, refused.refusal):
            turn.note_refused(group, event, refused.refusal)

    def _begin_consumer_group(self, turn: Turn, group: Group | None, event: ConsumerHeartbeat) -> None:
        """The first member of the consumer protocol makes a group, or another one of a classic group."""
        body = event.body
        consumer_expected.admit(turn, body.group_id, group, body.member_id, body.instance_id)
        # Effects of a group that is refused its first member would have to be taken back.
        begun = Turn(self.config, turn.now, self.topics, self.group_configs)
        if group is None or group.state is EMPTY:
            new = ConsumerGroup(event.body.group_id)
        else:
            new = upgrade.upgraded(begun, group, event)
        consumer_heartbeat.heartbeat(begun, new, event)
        if isinstance(group, Group) and group.state is not EMPTY:
            upgrade.check_size(begun, group)
        if group is None:
            self.groups[new.group_id] = new
        elif group.state is EMPTY:
            self._change_kind(turn, group, new)
        else:
            upgrade.give_way(turn, group)
            new.offsets, new.pending_offsets = group.offsets, group.pending_offsets
            self.groups[new.group_id] = new
        turn.effects.extend(begun.effects)

    def _change_kind(self, turn: Turn, group: AnyGroup, new: AnyGroup) -> AnyGroup:
        """Put a group of another kind in the place of an empty one; it keeps the offsets (KIP-848)."""
        RULES[group.kind].bury(turn, group)
        new.offsets, new.pending_offsets = group.offsets, group.pending_offsets
        self.groups[group.group_id] = new
        return new

    def _describe_consumer_group(self, turn: Turn, event: DescribeConsumerGroup) -> None:
        group = self.groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            described = consumer_describe.describe(turn, group, sessions=event.waiting)
            if event.waiting:
                described.head.expects = consumer_expected.describe(turn, group)
                described.head.waiting = consumer_describe.describe_waiting(turn, group)
            turn.answer(event.request, described)
        else:
            body = event.refused(ErrorCode.GROUP_ID_NOT_FOUND)
            words = "not found." if group is None else "is not a consumer group."
            body.error_message = f"Group {event.group_id[:100]} {words}"
            turn.answer(event.request, body)

    def _topics_changed(self, turn: Turn, event: TopicsChanged) -> None:
        turn.topics = self.topics = event.topics
        changed = None if event.changed is None else frozenset(event.changed)
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup) and (
                changed is None or not changed.isdisjoint(group.subscribed_topics or ())
            ):
                group.is_stale = True
                reasons.topics_changed(turn, group, event.changed or ())

    def _group_settings_changed(self, turn: Turn, event: GroupSettingsChanged) -> None:
        group = self.groups.get(event.group_id)
        if group is not None:
            RULES[group.kind].settings_changed(turn, group, event)

    def _regex_resolved(self, turn: Turn, event: RegexResolved) -> None:
        group = self.groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            regex.resolved(turn, group, event)

    def _target_made(self, turn: Turn, event: TargetMade) -> None:
        group = self.groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            target.made(turn, group, event)

    def _commit(self, turn: Turn, event: C, rule: Callable[[Turn, AnyGroup, C, Admit], None]) -> None:
        body = event.body
        if body.group_id not in self.groups and body.generation_id_or_member_epoch < 0:
            self.groups[body.group_id] = Group(body.group_id, turn.now.wall_ms)
            turn.note(notes.OffsetsCreatedGroup(body.group_id, 0))
        group = self.groups.get(body.group_id)
        if group is None:
            # Kafka 4 says GROUP_ID_NOT_FOUND in version 9 too, which Kafka 3.9 knows and answers in this way.
            is_new = event.version > COMMIT_OF_KAFKA_3
            turn.refuse(event, ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION)
        else:
            rule(turn, group, event, RULES[group.kind].admit)

    def _commit_in_transaction(self, turn: Turn, event: CommitInTransaction) -> None:
        body = event.body
        group = self.groups.get(body.group_id)
        if group is None and body.generation_id < 0:
            group = self.groups[body.group_id] = Group(body.group_id, turn.now.wall_ms)
            turn.note(notes.OffsetsCreatedGroup(body.group_id, 0))
        self._place += 1
        if transactions.commit(turn, group, event, self._place):
            self._groups_of.setdefault(body.producer_id, set()).add(body.group_id)

    def _end_transaction(self, turn: Turn, event: EndTransaction) -> None:
        turn.effects.records = transactions.marker(
            event.producer_id,
            event.epoch,
            is_commit=event.is_commit,
            coordinator_epoch=event.coordinator_epoch,
            wall_ms=turn.now.wall_ms,
        )
        for group_id in self._groups_of.pop(event.producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                pending.settle(group, event.producer_id, is_commit=event.is_commit)
        turn.answer(event.request, ErrorCode.NONE)

    def _fetch(self, turn: Turn, event: FetchOffsets) -> None:
        # A group that doesn't exist has no committed offsets; Kafka answers the same.
        group = self.groups.get(event.group_id) or Group(event.group_id, None)
        offsets.fetch(turn, group, event, RULES[group.kind].fetch_error)

    def _delete_offsets(self, turn: Turn, event: DeleteOffsets) -> None:
        group_id = event.body.group_id
        group = self.groups.get(group_id)
        if group is None or not group_id:
            turn.refuse(event, _absent(group_id, ErrorCode.GROUP_ID_NOT_FOUND))
            return
        offsets.delete(turn, group, event)
        if event.body.topics:
            self._delete_if_unused(turn, group)

    def _describe(self, turn: Turn, event: DescribeGroup) -> None:
        group = self.groups.get(event.group_id)
        if isinstance(group, Group):
            body = describe.describe(group)
            if event.waiting:
                describe.describe_sessions(group, body, turn.now.ms)
                body.expects = expected.describe(turn, group)
                body.target_size = seats.target_size(turn, group.group_id) if seats.has_seats(group) else 0
                if group.course is not None:
                    body.waiting = describe.describe_waiting(group, group.course)
        else:
            body = describe.describe_absent(event.group_id, event.version, exists=group is not None)
        turn.effects.responses.append(Response(event.request, body))

    def _delete(self, turn: Turn, event: DeleteGroup) -> None:
        group = self.groups.get(event.group_id)
        if group is None:
            turn.refuse(event, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        turn.answer(event.request, describe.delete(turn, group, event.client, RULES[group.kind].bury))
        self._forget_if_dead(group)

    def _erase(self, turn: Turn, event: EraseOffsets) -> None:
        group = self.groups.get(event.group_id)
        offsets.erase(turn, group or Group(event.group_id, None), event)
        if group is not None:
            self._delete_if_unused(turn, group)
        turn.answer(event.request, DeleteGroupsResponse.DeletableGroupResult(group_id=event.group_id))

    def _list(self, turn: Turn, event: ListGroups) -> None:
        groups = self.groups
        ids = groups.keys() if event.group_ids is None else filter(groups.__contains__, event.group_ids)
        body = describe.list_groups(map(groups.__getitem__, ids), event.states, event.types)
        turn.effects.responses.append(Response(event.request, body))

    def _timer_fired(self, turn: Turn, event: TimerFired) -> None:
        group = self.groups.get(event.key.group_id)
        if group is not None:
            RULES[group.kind].timer_fired(turn, group, event.key)

    def _remove_offsets(self, turn: Turn, event: RemoveOffsets) -> None:
        for group_id, topic_partitions in event.topic_partitions.items():
            group = self.groups.get(group_id)
            if group is not None:
                removed = [each for each in topic_partitions if offsets.holds(group, *each)]
                if event.if_expired:
                    removed = [(topic, each) for topic, each in removed if each in group.offsets.get(topic, {})]
                    removed = offsets.expired(turn, group, removed)
                offsets.remove(turn, group, removed, expired=event.if_expired)
                self._delete_if_unused(turn, group, if_expired=event.if_expired)

    def _load(self, turn: Turn, event: Load) -> None:
        assert not self.groups.keys() & event.groups.keys()
        self.groups |= event.groups
        for group in event.groups.values():
            state, members = group.state.value, group.size
            turn.note(notes.GroupLoaded(group.group_id, group.generation, state, members, event.write_failed))
            RULES[group.kind].load(turn, group)
            for producer_id in group.pending_offsets.by_producer:
                self._groups_of.setdefault(producer_id, set()).add(group.group_id)
            self._place = max(self._place, group.pending_offsets.place)
        if not event.is_last:
            return
        for group_id in event.before:
            if group_id not in self.groups:
                turn.note(notes.GroupLoaded(group_id, 0, DEAD.value, 0, event.write_failed))
        for group in self.groups.values():
            RULES[group.kind].serve(turn, group)

    def _resume(self, turn: Turn, _event: Resume) -> None:
        for group in self.groups.values():
            RULES[group.kind].resume(turn, group)

    def _unload(self, turn: Turn, _event: Unload) -> None:
        for group in self.groups.values():
            RULES[group.kind].unload(turn, group)

    # Shared by several events.

    def _refuse_join(self, turn: Turn, event: JoinGroup, error: ErrorCode, why: str | None = None) -> None:
        turn.refuse(event, error)
        turn.note_refused(self.groups.get(event.body.group_id), event, Refusal(error, why=why))

    def _delete_if_unused(self, turn: Turn, group: AnyGroup, *, if_expired: bool = False) -> None:
        """Delete a group without members and offsets (Kafka: cleanupGroupMetadata)."""
        if _ends(group, if_expired=if_expired):
            RULES[group.kind].bury(turn, group)
            turn.note(notes.GroupDeleted(group.group_id, group.generation, 0, expired=True))
        self._forget_if_dead(group)

    def _forget_if_dead(self, group: AnyGroup) -> None:
        if group.state is DEAD:
            del self.groups[group.group_id]

    _HANDLERS: ClassVar[dict[type, Callable[[Coordinator, Turn, Any], None]]] = {
        JoinGroup: _join,
        SyncGroup: _sync,
        Heartbeat: _heartbeat,
        LeaveGroup: _leave,
        ConsumerHeartbeat: _consumer_heartbeat,
        DescribeConsumerGroup: _describe_consumer_group,
        TopicsChanged: _topics_changed,
        GroupSettingsChanged: _group_settings_changed,
        RegexResolved: _regex_resolved,
        TargetMade: _target_made,
        CommitOffsets: lambda self, turn, event: self._commit(turn, event, offsets.commit),
        CommitPrepared: lambda self, turn, event: self._commit(turn, event, offsets.commit_prepared),
        CommitInTransaction: _commit_in_transaction,
        EndTransaction: _end_transaction,
        FetchOffsets: _fetch,
        DeleteOffsets: _delete_offsets,
        DescribeGroup: _describe,
        DeleteGroup: _delete,
        EraseOffsets: _erase,
        ListGroups: _list,
        TimerFired: _timer_fired,
        RemoveOffsets: _remove_offsets,
        Load: _load,
        Resume: _resume,
        Unload: _unload,
    }


def _absent(group_id: str, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> ErrorCode:
    """The error of a request about a group that doesn't exist, or whose id is empty."""
    return error if group_id else ErrorCode.INVALID_GROUP_ID


def _ends(group: AnyGroup, *, if_expired: bool) -> bool:
    """Whether a group ends, because it has neither members nor offsets.

    if_expired: whether offsets expire at present. Kafka's consumer groups end only then, so that their epochs go on.
    """
    is_unused = group.state is EMPTY and not group.offsets and group.pending_offsets is NO_PENDING
    return is_unused and not group.is_awaited and (if_expired or group.kind is Kind.CLASSIC)
