"""Follows a group of the consumer protocol (KIP-848) through its records, and infers why its epoch grew.

The log of such a group has nearly all that its coordinator knows: each epoch, each target, each step of a member. So a
rebalance has its begin, its phases and its end. A batch may have the records of several changes, one after the other.
The records of one change are those of members, then the epoch if it grew, then the target, then the steps of members.
So the causes of an epoch are the changes of members since the last one:

    a new member                       member_joined
    a member is gone                   member_left, member_expired or revocation_timed_out (`_departure`)
    another subscription               subscription_changed
    a regular expression's topics      regex_resolved
    another hash, or list, of topics   topics_changed

Which members held the others up, is said by the coordinator's own rules (group.consumer.course): the records tell each
step that these take.

The records have no session timeout: it is a setting of the broker or the group (`session_timeouts`). A told cause
decides where two kinds fit.

House rule: see the package: a kind is named only if the records rule out every other one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.group import causes, notes
from coordinator.group.causes import CauseKind
from coordinator.group.client import Now
from coordinator.group.consumer import course
from coordinator.group.consumer.group import AWAY, ConsumerCourse, ConsumerGroup, ConsumerMember, MemberState
from coordinator.group.consumer.records import (
    CURRENT,
    EPOCH,
    MEMBER,
    PARTITIONS,
    REGEX,
    TARGET,
    TARGET_EPOCH,
    LastRecords,
    member_of,
)
from coordinator.group.course import CAUSES_MAX, LATE_MAX, Outcome
from coordinator.group.state import State
from coordinator.group.turn import DEFAULTS, Turn
from coordinator.story.events import Cause, GroupEvent, TopicChange
from coordinator.story.inference.knowledge import Told
from coordinator.story.inference.signs import Sign
from coordinator.story.inference.told import client_cause, ended_event, event, subscribed, with_topics
from coordinator.story.schema import UNKNOWN
from protocol.messages import ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue

JOINED, LEFT, REMOVED, EXPIRED, SUBSCRIPTION, TOPICS, REGEXES, REVOCATION = (
    str(kind.value)
    for kind in (
        CauseKind.MEMBER_JOINED, CauseKind.MEMBER_LEFT, CauseKind.MEMBER_REMOVED, CauseKind.MEMBER_EXPIRED,
        CauseKind.SUBSCRIPTION_CHANGED, CauseKind.TOPICS_CHANGED, CauseKind.REGEX_RESOLVED,
        CauseKind.REVOCATION_TIMED_OUT,
    )
)  # fmt: skip

SESSION_MS_MIN = 3_000
"""A session timeout is at least as long, where nobody knows it."""

PAUSE_MS_MIN = 1_000
"""A silence is measured no finer than that: a busy machine commits, and expires members, later."""

CAUSES_KEPT = 10 * CAUSES_MAX
"""Causes of an open rebalance after which those of further epochs don't count."""

CHANGES_MAX = 100
"""Members of a target that an event names."""

UNSEEN = ConsumerGroupMemberMetadataValue(instance_id=None)
"""Stands for the record of a member that came before the log's begin."""

SOMETHING = causes.Cause(CauseKind.MEMBER_JOINED)
"""Stands in a note for the cause that its event gets."""


class _Gone(NamedTuple):
    """A member whose record is gone: its last one, where it was, and its place among the members."""

    said: ConsumerGroupMemberMetadataValue
    has: ConsumerGroupCurrentMemberAssignmentValue | None
    at_ms: int
    place: int


class Consumer:
    """The knowledge about a group of the consumer protocol.

    topic_names: by id. session_ms: the session timeout of its members, None where nobody knows it. told: the cause that
    somebody told for the epoch after this one, if there is one. group_type: of its events.
    """

    def __init__(
        self,
        group_id: str,
        topic_names: Mapping[UUID, str],
        session_ms: int | None = None,
        told: Callable[[int], Told | None] | None = None,
        group_type: str = notes.CONSUMER,
    ) -> None:
        self.records = LastRecords()
        self.is_known = False
        self._group_id = group_id
        self._names = topic_names
        self._session_ms = session_ms
        self._told = told
        self._group_type = group_type
        self._signs: dict[str, Sign] = {}
        self._owners: dict[tuple[str, int], str] = {}
        self._hash: int | None = None
        self._topics: dict[str, int] = {}
        self._topics_before: dict[str, int] = {}
        self._group = ConsumerGroup(group_id)
        """Only with its epochs, its course, and since when it waits for members: for the rules of the course."""
        self._open: list[Cause] = []
        """The causes of the open rebalance."""
        self._had: dict[str, ConsumerGroupCurrentMemberAssignmentValue] = {}
        self._aims: dict[str, frozenset[tuple[UUID, int]]] = {}
        # Since the last epoch:
        self._gone: dict[str, _Gone] = {}
        self._changes: list[Cause] = []
        self._waiting: list[Cause] = []
        self._returns: list[notes.MemberReplaced] = []
        self._is_regex = False
        self._is_regex_last = False
        self._has_grown = False
        self._of_batch: list[Cause] = []

    @property
    def causes_of_batch(self) -> list[Cause]:
        """The causes of the epochs of this batch; without one, the changes of members in it."""
        if self._of_batch or self._has_grown:
            return self._of_batch
        return [*(self._departure(name, gone) for name, gone in self._gone.items()), *self._changes]

    @property
    def behind(self) -> list[str]:
        """The ids of the members that aren't at the target; one that is away doesn't count."""
        current = self.records.current
        return [name for name, has in current.items() if has.member_epoch != AWAY and not self._is_there(has)]

    @property
    def is_settled(self) -> bool:
        """Whether all members are at the target of the newest epoch."""
        return self.records.target_epoch == self.records.epoch and not self.behind

    def upgraded(self, generation: int) -> None:
        """The group was a classic one: its conversion is no rebalance."""
        self.records.epoch = self._group.generation = generation
        self.is_known = True

    def committed(self, topic: str, partition: int, at_ms: int) -> None:
        """A committed offset was written."""
        sign = self._signs.get(self._owners.get((topic, partition), ""))
        if sign is not None:
            sign.note(at_ms, is_weak=True)

    def add(self, at_ms: int, version: int, name: str | None, said: Any, *, is_whole: bool) -> list[GroupEvent]:
        """Take a record, or a tombstone. version, name: of its key. is_whole: nothing before it is missing."""
        if version == EPOCH and said is not None:
            return self._epoch(at_ms, said, is_whole=is_whole)
        if version == TARGET_EPOCH and said is not None:
            return self._target_epoch(at_ms, said)
        if version == MEMBER and name is not None:
            self._is_regex_last = False
            self._member(at_ms, name, said)
        elif version == CURRENT and name is not None:
            return self._current(at_ms, name, said)
        elif version == TARGET and name is not None:
            self._aims.setdefault(name, _places(self.records.targets.get(name)))
            if said is None:
                self.records.targets.pop(name, None)
            else:
                self.records.put(name, said)
        elif version == PARTITIONS and said is not None:
            self._topics = {each.topic_name: each.num_partitions for each in said.topics}
        elif version == REGEX:
            self._is_regex = self._is_regex_last = True
        return []

    def end_batch(self, at_ms: int) -> list[GroupEvent]:
        """The batch is over: the static members that are back, and the end of the rebalance, if it has ended."""
        events = []
        for back in self._returns:
            if back.member_id in self.records.members:
                state = State.RECONCILING if self._has_grown else State.STABLE
                events.append(event(at_ms, back, state=state.value, rebalances=self._has_grown))
        self._returns.clear()
        self._has_grown = False
        self._of_batch = []
        # A member that subscribes to a regular expression makes no epoch until the expression is resolved.
        self._waiting += self._changes[: max(CAUSES_KEPT - len(self._waiting), 0)]
        self._changes = []
        self._is_regex = self._is_regex_last = False
        opened = self._group.course
        if opened is not None and (self.is_settled or not self.records.members):
            events.append(self._ended(at_ms, opened))
            self._group.course = None
        return events

    # One method per kind of record.

    def _member(self, at_ms: int, name: str, said: ConsumerGroupMemberMetadataValue | None) -> None:
        members = self.records.members
        if said is None:
            was = members.get(name)
            if was is not None:
                has = self._had.pop(name, None) or self.records.current.get(name)
                self._gone[name] = _Gone(was, has, at_ms, list(members).index(name))
                del members[name]
            return
        was = members.get(name)
        members[name] = said
        if was is not None:
            self._changed(name, was, said)
            return
        self._signs[name] = Sign(at_ms)
        old = next((each for each, gone in self._gone.items() if gone.said.instance_id == said.instance_id), None)
        if said.instance_id is not None and old is not None:
            gone = self._gone.pop(old)
            is_away = gone.has is not None and gone.has.member_epoch == AWAY
            since_ms = self._group.waits_since.get(old) if is_away else None
            away_ms = None if since_ms is None else at_ms - since_ms
            back = notes.MemberReplaced(
                self._group_id, self.records.epoch, name, old, said.instance_id, "", said.client_id, said.client_host,
                rebalances=False, away_ms=away_ms,
            )  # fmt: skip
            self._returns.append(back)
            self._aims[name] = self._aims.pop(old, frozenset()) or _places(self.records.targets.get(old))
            self._forget(old)
            self._changed(name, gone.said, said)
        else:
            self._changes.append(client_cause(JOINED, name, said))

    def _changed(self, name: str, was: ConsumerGroupMemberMetadataValue, now: ConsumerGroupMemberMetadataValue) -> None:
        """Note another subscription of a member."""
        changes = subscribed(was.subscribed_topic_names, now.subscribed_topic_names)
        if not changes and (was.subscribed_topic_regex or "") == (now.subscribed_topic_regex or ""):
            return
        self._changes.append(with_topics(client_cause(SUBSCRIPTION, name, now), changes))

    def _epoch(self, at_ms: int, said: Any, *, is_whole: bool) -> list[GroupEvent]:
        former, self.records.epoch = self.records.epoch, said.epoch
        was_known, self.is_known = self.is_known, True
        group, turn = self._group, _turn(at_ms)
        group.generation = said.epoch
        before = self._before() if group.course is None else ()
        is_away = any(each.epoch == AWAY for each in before) or any(each.away_ms is not None for each in self._returns)
        for name, gone in self._gone.items():
            if gone.has is not None:
                course.waited_for(turn, group, member_of(name, gone.said, gone.has))
        causes = self._causes(said.metadata_hash)
        told = None if self._told is None else self._told(said.epoch - 1)
        if told is not None and told.is_of_time(at_ms, at_ms):
            causes = [told.cause([each]) if told.decides(each) else each for each in causes]
        self._hash = said.metadata_hash
        if not was_known:
            if not is_whole:
                self._signs = {name: Sign(at_ms) for name in self.records.members}
                state = State.STABLE if self.records.members else State.EMPTY
                begin = notes.GroupLoaded(self._group_id, said.epoch, state.value, len(self.records.members))
                return [event(at_ms, begin, group_type=self._group_type)]
            former = said.epoch - 1
        if said.epoch <= former:
            return []
        self._has_grown = True
        self._of_batch += causes
        first = causes[0]
        if group.course is not None:
            self._open += causes[: max(CAUSES_KEPT - len(self._open), 0)]
            note = notes.RebalanceCause(self._group_id, former, SOMETHING, self._group_type)
            return [event(at_ms, note, cause=first)]
        state = State.EMPTY if not before else State.RECONCILING if is_away else State.STABLE
        self._open = causes
        group.course = ConsumerCourse(members=before)
        group.course.begin(state, former, SOMETHING, turn.now)
        start = notes.RebalanceStarted(
            self._group_id, former, state.value, SOMETHING, len(self.records.members), (), len(before), self._group_type
        )
        return [event(at_ms, start, cause=first)]

    def _causes(self, metadata_hash: int) -> list[Cause]:
        """The causes of an epoch: what changed since the last one."""
        went = [self._departure(name, gone) for name, gone in self._gone.items()]
        causes = [*went, *self._changes]
        if self._is_regex_last and not went:
            # The members before it in the batch have no epoch of their own: they waited for the expression.
            causes = [client_cause(REGEXES), *(each for each in causes if each.kind == JOINED)]
        elif not causes and self._is_regex:
            causes = [client_cause(REGEXES)]
        elif not causes and self._waiting:
            causes = self._waiting
        elif not causes and (metadata_hash != self._hash or self._topics != self._topics_before):
            grown = [
                TopicChange(topic, "grown" if topic in self._topics_before else "created")
                for topic, number in self._topics.items()
                if number > self._topics_before.get(topic, 0)
            ]
            gone = [TopicChange(topic, "deleted") for topic in self._topics_before if topic not in self._topics]
            causes = [with_topics(client_cause(TOPICS), grown + gone)]
        elif not causes:
            causes = [client_cause(UNKNOWN, possible=())]
        for name in self._gone:
            self._forget(name)
        self._gone.clear()
        self._changes, self._waiting = [], []
        self._is_regex = self._is_regex_last = False
        self._topics_before = self._topics
        return causes

    def _departure(self, name: str, gone: _Gone) -> Cause:
        """Why a member is gone.

        The record comes in the moment in which it goes. A static member that was away has not come back in time; one
        that wasn't away doesn't leave by itself. A member that had to give up partitions is removed when its rebalance
        timeout is over. Otherwise its last commit says more (`_by_silence`).
        """
        said, has, at_ms, _ = gone
        sign = self._signs.get(name)
        if has is not None and has.member_epoch == AWAY:
            return client_cause(EXPIRED, name, said)
        asked_ms = self._group.waits_since.get(name)
        is_asked = asked_ms is not None and has is not None and has.state == MemberState.UNREVOKED.value
        if is_asked and 0 < said.rebalance_timeout_ms <= at_ms - (asked_ms or 0):
            if self._group.course is not None and len(self._group.course.late) < LATE_MAX:
                self._group.course.late += (name,)
            return client_cause(REVOCATION, name, said)
        classic = said.classic_member_metadata
        session_ms = self._session_ms if classic is None else classic.session_timeout_ms
        went = LEFT if said.instance_id is None else REMOVED
        kind = None if sign is None else _by_silence(sign, said, at_ms, session_ms, went)
        if kind is None:
            return client_cause(UNKNOWN, name, said, possible=(went, EXPIRED))
        return client_cause(kind, name, said)

    def _target_epoch(self, at_ms: int, said: Any) -> list[GroupEvent]:
        group = self._group
        self.records.target_epoch = group.target_epoch = said.assignment_epoch
        group.target_ms = at_ms
        if group.course is not None and group.course.joined_ms is None:
            group.course.joined_ms = at_ms
        changes = []
        for name, former in self._aims.items():
            now = _places(self.records.targets.get(name))
            member = self.records.members.get(name)
            if member is not None and now != former:
                gains, loses = len(now - former), len(former - now)
                changes.append(notes.TargetChange(name, member.instance_id, gains, loses, len(now)))
        self._aims.clear()
        if group.course is None or not self.records.members:
            return []
        target = notes.TargetAssigned(
            self._group_id, said.assignment_epoch, "", len(self.records.members),
            sum(each.gains for each in changes), sum(each.loses for each in changes),
            tuple(changes[:CHANGES_MAX]), max(len(changes) - CHANGES_MAX, 0),
        )  # fmt: skip
        return [event(at_ms, target, assignor=self._assignor)]

    @property
    def _assignor(self) -> str | None:
        """The assignor that every member wants; None where they want none, or several."""
        wanted = {said.server_assignor for said in self.records.members.values()}
        return wanted.pop() if len(wanted) == 1 else None

    def _current(
        self, at_ms: int, name: str, said: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> list[GroupEvent]:
        current, member = self.records.current, self.records.members.get(name)
        was = current.get(name)
        for place in self._held(was):
            if self._owners.get(place) == name:
                del self._owners[place]
        if said is None:
            if was is not None:
                self._had[name] = current.pop(name)
            return []
        current[name] = said
        for place in self._held(said):
            self._owners[place] = name
        sign = self._signs.setdefault(name, Sign(at_ms))
        sign.last_ms = max(sign.last_ms, at_ms)  # its own heartbeat made it take this step
        turn, group = _turn(at_ms), self._group
        # The group waits for an unseen member all the same, but no event can name it.
        before, after = member_of(name, member or UNSEEN, was), member_of(name, member or UNSEEN, said)
        if after.epoch == AWAY:
            if before.epoch != AWAY:
                course.went_away(turn, group, before)
        elif was is not None or after.state is MemberState.UNREVOKED:
            course.moved(turn, group, before, after)
        if after.epoch != AWAY and after.state is not MemberState.UNREVOKED:
            group.waits_since.pop(name, None)
        return [] if member is None else [event(at_ms, note) for note in turn.effects.notes]

    def _is_there(self, has: ConsumerGroupCurrentMemberAssignmentValue) -> bool:
        """Whether a member is at the target."""
        return bool(has.member_epoch >= self.records.target_epoch and has.state == MemberState.STABLE.value)

    def _held(self, has: Any) -> list[tuple[str, int]]:
        """The topic partitions that a member may use, by the names of their topics."""
        if has is None:
            return []
        return [
            (self._names[each.topic_id], number)
            for each in has.assigned_partitions
            if each.topic_id in self._names
            for number in each.partitions
        ]

    def _forget(self, name: str) -> None:
        for known in (self._signs, self._group.waits_since, self._had):
            known.pop(name, None)

    def _before(self) -> tuple[ConsumerMember, ...]:
        """The members before the change that the last records tell."""
        came = {name for change in self._changes for name in change.member_ids if change.kind == JOINED}
        here = [member for member in self._members() if member.member_id not in came]
        for name, each in reversed(self._gone.items()):
            here.insert(each.place, member_of(name, each.said, each.has))
        return tuple(here)

    def _members(self) -> list[ConsumerMember]:
        records = self.records
        return [member_of(name, said, records.current.get(name)) for name, said in records.members.items()]

    def _ended(self, at_ms: int, opened: ConsumerCourse) -> GroupEvent:
        after = course.snapshots(self._members())
        targeted_ms = at_ms if opened.joined_ms is None else opened.joined_ms
        note = notes.RebalanceEnded(
            self._group_id, self.records.epoch, Outcome.COMPLETED if after else Outcome.EMPTIED, opened.generation,
            opened.state.value, (), 0, opened.began_wall_ms, targeted_ms - opened.began_ms,
            at_ms - targeted_ms if after else None, opened.longest, opened.late, (), None, notes.CONSUMER,
            self._assignor, course.snapshots(opened.members), after, self._group_type, self._names,
        )  # fmt: skip
        return ended_event(at_ms, note, self._open, in_order=True)


def _turn(at_ms: int) -> Turn:
    """A turn at the time of a record, for a rule of the course. It takes the rule's notes."""
    return Turn(DEFAULTS, Now(at_ms, at_ms))


def _places(target: Any) -> frozenset[tuple[UUID, int]]:
    """The topic partitions of a target."""
    if target is None:
        return frozenset()
    return frozenset((each.topic_id, number) for each in target.topic_partitions for number in each.partitions)


def _by_silence(
    sign: Sign, said: ConsumerGroupMemberMetadataValue, at_ms: int, session_ms: int | None, went: str
) -> str | None:
    """Why a member is gone, by the time since its last commit; None where two kinds fit.

    A client's last heartbeat is less than half its session timeout older than its last commit, even on a busy machine:
    it sends three in that time, and the last of them may be under way. A program that committed all the time and then
    ended is gone a session timeout after its last heartbeat. One that doesn't poll is silent for its
    max.poll.interval.ms (its rebalance timeout) or longer: its client leaves then, or only when it polls again
    (librdkafka).
    """
    silent_ms = at_ms - sign.last_ms
    if silent_ms < (session_ms or SESSION_MS_MIN) // 2:
        return went
    if session_ms is None or not sign.is_steady(session_ms):
        return None
    pause_ms = max(2 * sign.longest_ms, PAUSE_MS_MIN)
    poll_ms = said.rebalance_timeout_ms
    may_hang = said.instance_id is None and 0 < poll_ms - pause_ms <= silent_ms
    if silent_ms <= session_ms + pause_ms:
        return None if may_hang else EXPIRED
    return LEFT if may_hang and silent_ms <= poll_ms + pause_ms else None
