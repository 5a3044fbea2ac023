"""Counts of a running server as plain numbers: /metrics and StatsD both read them here.

`Measures.take` counts notes, `Measures.answered` counts answers. A request pays for these additions only: no library
call, no lock; names are made when somebody reads the counts. `census` reads numbers that the groups themselves have
(how many there are, in which state).

The first groups have series of their own, up to tenure.metrics.groups.max. All others share one, so that a client that
makes up groups can't make up series.

House rule: counts only grow; a group that is deleted gives its series back.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from coordinator.group import notes
from coordinator.group.causes import CauseKind, Origin
from coordinator.group.consumer.group import AWAY, ConsumerGroup
from coordinator.group.course import Outcome
from coordinator.group.describe import silent_ms
from coordinator.group.group import NEVER, Group
from coordinator.group.state import State
from coordinator.group.turn import Watched
from coordinator.log.segments.counts import Counts, Histogram
from coordinator.story.counts import STORM_MIN, away_after_ms, is_storm
from coordinator.transaction.state import Status
from protocol.messages import API_KEYS, Message

if TYPE_CHECKING:
    from coordinator.group.coordinator import Coordinator
    from coordinator.transaction.coordinator import Coordinator as TransactionCoordinator

GROUPS_MAX = 100
"""Groups with series of their own, unless tenure.metrics.groups.max says another number: those that came first."""

STORMS_WATCHED_MAX = 10_000
"""Groups whose newest rebalances are remembered, so that a storm is seen: those that rebalanced last."""

PRINCIPALS_MAX = 100
"""Principals with series of their own: those that were throttled first."""

OTHER_PRINCIPALS = ""
"""The principal that stands for all other principals. No client has this one."""

OTHER_GROUPS = ""
"""The group id that stands for all other groups. No group with this id can rebalance."""

COUNTED_AT_ONCE = 1_000
"""Groups that a census reads before it lets the loop go on: about half a millisecond."""

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper ends of the buckets for phases of rebalances and for loads of partitions."""

PHASES, CONSUMER_PHASES = ("preparing", "completing"), ("assigning", "reconciling")
"""The phases of a rebalance: until all have joined, until the assignments are there. In the consumer protocol: until
there is a target, until all members have their part.
"""

COUNTED_EPOCHS = frozenset(
    {
        CauseKind.MEMBER_JOINED,
        CauseKind.SUBSCRIPTION_CHANGED,
        CauseKind.TOPICS_CHANGED,
        CauseKind.REGEX_RESOLVED,
        CauseKind.ASSIGNOR_CHANGED,
    }
)
"""Causes whose epochs Kafka's consumer-group-rebalance-count has; those of members that go are not in it."""

RECENT_MS = 30_000
"""How far back Kafka's metrics about loads reach (metrics.sample.window.ms)."""

INSIDE: Mapping[int, Callable[[Any], int]] = {
    API_KEYS["LeaveGroup"]: lambda body: next((each.error_code for each in body.members if each.error_code), 0),
    API_KEYS["OffsetCommit"]: lambda body: next(
        (each.error_code for topic in body.topics for each in topic.partitions), 0
    ),
}
"""The error of an answer that has none on top. LeaveGroup: the first error of a member. OffsetCommit: the error of the
first topic partition, because nearly always all have the same."""


class Login(Enum):
    """The ways a login ends; the first one of a connection, or another one (KIP-368)."""

    SUCCEEDED = "successful_authentication"
    FAILED = "failed_authentication"
    SUCCEEDED_AGAIN = "successful_reauthentication"
    FAILED_AGAIN = "failed_reauthentication"


class Loads:
    """How long partitions took to load: from the wish to load one until it serves its groups."""

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self._recent: deque[tuple[int, int]] = deque()

    def add(self, now_ms: int, took_ms: int) -> None:
        """Count a partition whose load has just ended."""
        self.seconds.add(took_ms / 1000)
        self.recent(now_ms)
        self._recent.append((now_ms, took_ms))

    def recent(self, now_ms: int) -> list[int]:
        """The times of the loads of the last RECENT_MS, in ms."""
        while self._recent and self._recent[0][0] < now_ms - RECENT_MS:
            self._recent.popleft()
        return [took_ms for _, took_ms in self._recent]


class GroupSeries:
    """The counts of groups by their ids: the first `groups_max` groups count each for itself, the others together.

    by_group: rebalances by group id; OTHER_GROUPS has those of all other groups. by_group_cause: the same, by group id
    and by kind of cause. restarts: static restarts by group id and by whether that rebalanced. storms: by group id;
    storms_before: of groups that are deleted, so that the sum of both never falls.
    """

    def __init__(self, groups_max: int) -> None:
        self._groups_max = groups_max
        self.by_group: Counter[str] = Counter()
        self.by_group_cause: defaultdict[str, dict[str | CauseKind, int]] = defaultdict(partial(defaultdict, int))
        self.restarts: Counter[tuple[str, bool]] = Counter()
        self.storms: Counter[str] = Counter()
        self.storms_before = 0
        self._newest: OrderedDict[str, deque[int]] = OrderedDict()
        """When the newest rebalances began of the groups that rebalanced last: they are watched for storms."""

    def _series(self, group_id: str) -> str:
        """The group id under which a group counts."""
        if group_id in self.by_group:
            return group_id
        with_series = len(self.by_group) - (OTHER_GROUPS in self.by_group)
        return group_id if with_series < self._groups_max else OTHER_GROUPS

    def _begins_storm(self, group_id: str, at_ms: int) -> bool:
        """Whether a storm begins with a rebalance of that time."""
        newest = self._newest.pop(group_id, None) or deque(maxlen=STORM_MIN)
        was_one = is_storm(newest, at_ms)
        newest.append(at_ms)
        self._newest[group_id] = newest
        if len(self._newest) > STORMS_WATCHED_MAX:
            self._newest.popitem(last=False)
        return not was_one and is_storm(newest, at_ms)

    def _forget(self, group_id: str) -> None:
        """A group is deleted: give its series back."""
        self._newest.pop(group_id, None)
        if group_id != OTHER_GROUPS and self.by_group.pop(group_id, None) is not None:
            self.storms_before += self.storms.pop(group_id, 0)
            self.by_group_cause.pop(group_id, None)
            for rebalances in (False, True):
                self.restarts.pop((group_id, rebalances), None)


class Measures(GroupSeries):
    """The counts of one process since its start.

    happened: notes by class. rebalances: rebalances that began, by kind and source of the first cause. ended:
    rebalances by outcome. epochs: group epochs of the consumer protocol that Kafka's metric counts. phases: how long
    rebalances prepared and completed, in the consumer protocol assigned and reconciled, in seconds. replaced: static
    members that restarted, by whether that rebalanced. fenced: requests by operation. dropped: members that did not
    join or sync in time. offsets_removed: committed offsets that were removed, by whether they expired. answers: by API
    key and error code. repeated_heartbeats: heartbeats answered without dispatch, never with an error; not in
    `answers`, because an item of a Counter takes four times as long to increase. repeated_beats: the same of the
    consumer protocol. throttles, throttled_ms: answers that muted their client, and for how long together, by the
    quota's key and the principal; OTHER_PRINCIPALS has those of all others. delays: connections that had to wait, by
    the limit. logins: logins by listener, mechanism and Login; the mechanism is empty if the client had named none that
    its listener has. logs: counts of the logs of groups and of topics.
    """

    def __init__(self, groups_max: int = GROUPS_MAX) -> None:
        super().__init__(groups_max)
        self.happened: Counter[type[notes.Note]] = Counter()
        self.rebalances: Counter[tuple[CauseKind, Origin]] = Counter()
        self.ended: Counter[Outcome] = Counter()
        self.epochs = 0
        self.phases = {name: Histogram(SECONDS) for name in (*PHASES, *CONSUMER_PHASES)}
        self.replaced: Counter[bool] = Counter()
        self.fenced: Counter[str] = Counter()
        self.dropped = 0
        self.offsets_removed: Counter[bool] = Counter()
        self.answers: Counter[tuple[int, int]] = Counter()
        self.repeated_heartbeats = 0
        self.repeated_beats = 0
        self.throttles: Counter[tuple[str, str]] = Counter()
        self.throttled_ms: Counter[tuple[str, str]] = Counter()
        self._throttled: set[str] = set()
        self.delays: Counter[str] = Counter()
        self.logins: Counter[tuple[str, str, Login]] = Counter()
        self.logs = {"groups": Counts(), "topics": Counts()}
        self._at_ms = 0

    def take(self, noted: Sequence[notes.Noted]) -> None:
        """Count what happened in groups."""
        for _, at_ms, happened in noted:
            self._at_ms = at_ms
            for note in happened:
                kind = type(note)
                self.happened[kind] += 1
                count = self._COUNTS.get(kind)
                if count is not None:
                    count(self, note)

    def _rebalance_started(self, note: notes.RebalanceStarted) -> None:
        self.rebalances[note.cause.kind, note.cause.source] += 1
        series = self._series(note.group)
        self.by_group[series] += 1
        self.by_group_cause[series][note.cause.kind] += 1
        self.storms[series] += self._begins_storm(note.group, self._at_ms)
        self._epoch(note)

    def _epoch(self, note: notes.RebalanceStarted | notes.RebalanceCause) -> None:
        self.epochs += note.group_type == notes.CONSUMER and note.cause.kind in COUNTED_EPOCHS

    def _rebalance_ended(self, note: notes.RebalanceEnded) -> None:
        self.ended[note.outcome] += 1
        first, second = CONSUMER_PHASES if note.group_type == notes.CONSUMER else PHASES
        self.phases[first].add(note.preparing_ms / 1000)
        if note.completing_ms is not None:
            self.phases[second].add(note.completing_ms / 1000)

    def _member_replaced(self, note: notes.MemberReplaced) -> None:
        if not note.after_load:
            self.replaced[note.rebalances] += 1
            series = note.group if note.group in self.by_group else self._series(note.group)
            self.by_group[series] += 0
            self.restarts[series, note.rebalances] += 1

    def _member_fenced(self, note: notes.MemberFenced) -> None:
        self.fenced[note.operation] += 1

    def _members_dropped(self, note: notes.MembersDropped) -> None:
        self.dropped += len(note.member_ids)

    def _offsets_removed(self, note: notes.OffsetsRemoved) -> None:
        self.offsets_removed[note.expired] += len(note.topic_partitions)

    def _group_deleted(self, note: notes.GroupDeleted) -> None:
        self._forget(note.group)

    _COUNTS: ClassVar[dict[type[notes.Note], Callable[[Measures, Any], None]]] = {
        notes.RebalanceStarted: _rebalance_started,
        notes.RebalanceCause: _epoch,
        notes.RebalanceEnded: _rebalance_ended,
        notes.MemberReplaced: _member_replaced,
        notes.MemberFenced: _member_fenced,
        notes.MembersDropped: _members_dropped,
        notes.OffsetsRemoved: _offsets_removed,
        notes.GroupDeleted: _group_deleted,
    }
    """Notes that change more counts than `happened`."""

    def answered(self, api_key: int, body: Message) -> None:
        """Count an answer by the error on top of it, or by INSIDE. Other errors inside an answer don't count."""
        error = getattr(body, "error_code", 0)
        if not error and api_key in INSIDE:
            error = INSIDE[api_key](body)
        self.answers[api_key, error] += 1

    def delayed(self, limit: str) -> None:
        """Count a connection that had to wait for the rate of its listener ("rate") or of its address ("ip")."""
        self.delays[limit] += 1

    def throttled(self, key: str, principal: str, wait_ms: int) -> None:
        """Count an answer that muted its client for `wait_ms` because of the quota `key`."""
        if len(self._throttled) < PRINCIPALS_MAX:
            self._throttled.add(principal)
        series = key, principal if principal in self._throttled else OTHER_PRINCIPALS
        self.throttles[series] += 1
        self.throttled_ms[series] += wait_ms


@dataclass
class Census:
    """The groups of a process in numbers, at one time.

    states: of classic groups. groups: members and generation of groups with series. consumer_states: of groups of the
    consumer protocol. unsettled: their members that are not at their target. away: static members that are away, of
    groups with series by id, of all others under OTHER_GROUPS. pending_offsets: of transactions.
    """

    states: Counter[State] = field(default_factory=Counter)
    members: int = 0
    static_members: int = 0
    pending_members: int = 0
    offsets: int = 0
    groups: dict[str, tuple[int, int]] = field(default_factory=dict)
    consumer_states: Counter[State] = field(default_factory=Counter)
    unsettled: int = 0
    away: Counter[str] = field(default_factory=lambda: Counter({OTHER_GROUPS: 0}))
    pending_offsets: int = 0


async def census(coordinators: Iterable[Coordinator], series: Iterable[str], now_ms: int) -> Census:
    """Count groups, members and offsets. series: the ids of the groups whose own numbers are wanted.

    now_ms: the time of the groups' deadlines.
    """
    found, wanted, looked_at = Census(), set(series), 0
    for coordinator in coordinators:
        for group in list(coordinator.groups.values()):
            if isinstance(group, ConsumerGroup):
                found.consumer_states[group.state] += 1
                found.unsettled += len(group.unsettled)
            else:
                found.states[group.state] += 1
            found.members += group.size
            found.static_members += len(group.static_members)
            found.pending_members += group.pending_size
            found.offsets += sum(map(len, group.offsets.values()))
            found.pending_offsets += group.pending_offsets.size
            name = OTHER_GROUPS
            if group.group_id in wanted:
                name = group.group_id
                found.groups[name] = group.size, group.generation
            if group.static_members:
                found.away[name] += seats_away(group, now_ms)
                looked_at += len(group.static_members)
            looked_at += 1
            if looked_at >= COUNTED_AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
    return found


async def open_since_ms(coordinators: Iterable[TransactionCoordinator]) -> list[int]:
    """When each open transaction began, Unix time in ms."""
    found: list[int] = []
    for coordinator in coordinators:
        for number, each in enumerate(list(coordinator.groups.values()), 1):
            if each.status is Status.ONGOING or each.status.is_ending:
                found.append(each.start_ms)
            if number % COUNTED_AT_ONCE == 0:
                await asyncio.sleep(0)
    return found


def seats_away(group: Group | ConsumerGroup, now_ms: int) -> int:
    """How many static members of a group are away: silent, or gone for a while."""
    if isinstance(group, ConsumerGroup):
        return sum(_is_away(group, member_id, now_ms) for member_id in group.static_members.values())
    members = (group.members[member_id] for member_id in group.static_members.values())
    return sum(
        member.awaiting_join is None and member.awaiting_sync is None and _is_silent(member, now_ms)
        for member in members
    )


def _is_silent(member: Watched, now_ms: int) -> bool:
    """Whether a member is away by the rule of `tenure groups ready`."""
    return silent_ms(member, now_ms) >= away_after_ms(member.session_timeout_ms)


def _is_away(group: ConsumerGroup, member_id: str, now_ms: int) -> bool:
    """Whether a member of the consumer protocol said that it is away, or is silent."""
    session = group.sessions.get(member_id)
    is_silent = session is not None and session.deadline_ms != NEVER and _is_silent(session, now_ms)
    return is_silent or group.members[member_id].epoch == AWAY
