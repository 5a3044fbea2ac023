"""What happened to one group, from its records in the order of the log, and the checks on it.

A record of a group is one of four things: a new generation, a static member that came back under a new member id (in
the same generation), the group emptied, or its end (a tombstone). The log has no record of a rebalance that wasn't
completed, so a generation may jump; the steps are counted, seen or not. Who joined and who went is the difference of
two records, and why is inferred from it: the log knows no reasons.

A member is followed by its seat: its instance id, or its member id if it has none.

House rule: one record is held, the last; what is told at the end is small, whatever the log's size.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coordinator.audit.checks import Finding, finding
from coordinator.audit.parse import (
    OFFSET_KIND,
    Row,
    read_assignment,
    read_group,
    read_key,
    read_offset,
    read_subscription,
)
from coordinator.group.group import CONSUMER
from coordinator.group.partition import partition_for
from protocol.messages import GroupMetadataValue

HOUR_MS = 3_600_000
REBALANCES_PER_HOUR_MAX = 10
"""A deployment of ten members that aren't static makes twice as many; a quiet group makes none."""
CONTEST_COUNT = 3
CONTEST_WINDOW_MS = 60_000
"""So many replacements of one instance within that time are a fight: a program takes longer to start and crash."""
NEVER_RETURNS_MIN = 2
"""So many instance ids that are gone for good, each with a new one instead: one may have been renamed."""
OFFSETS_RETENTION_MS = 7 * 24 * HOUR_MS
"""Kafka's offsets.retention.minutes: what is committed to a topic that nobody subscribes to is dropped after it."""
SESSION_MS_MAX = 1_800_000
"""Kafka's group.max.session.timeout.ms."""
STEPS_MAX = 2_000
"""Steps of a group that are kept to be drawn, the last ones."""
LANES_MAX = 60
"""Seats of a group that are kept to be drawn, the first ones: what a page has room for."""
MARKS_MAX = 500
"""Spans and restarts of a seat that are kept to be drawn."""

_NO_TIMESTAMP = -1

Member = GroupMetadataValue.MemberMetadata


class Limits(NamedTuple):
    """What a coordinator allows. partition_count: offsets.topic.num.partitions, None if it isn't known."""

    partition_count: int | None = None
    session_ms_max: int = SESSION_MS_MAX
    rebalances_per_hour_max: int = REBALANCES_PER_HOUR_MAX


class Step(NamedTuple):
    """A record of the group. kind: generation, restart, rewritten, empty or deleted. cause: what changed, inferred."""

    ts: int
    kind: str
    generation: int | None
    members: int
    cause: str


@dataclass
class Lane:
    """When a seat was taken: from and to, in ms, None for what lasts; and when its member came back under a new id."""

    spans: list[tuple[int, int | None]] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)

    def take(self, ts: int) -> None:
        """Somebody has the seat from now on."""
        if len(self.spans) < MARKS_MAX and not (self.spans and self.spans[-1][1] is None):
            self.spans.append((ts, None))

    def free(self, ts: int) -> None:
        """Nobody has the seat any more."""
        if self.spans and self.spans[-1][1] is None:
            self.spans[-1] = self.spans[-1][0], ts


@dataclass
class Story:
    """What is told of a group at the end.

    first_ms, last_ms: the time that its records cover. rebalances: steps of the generation between its records;
    rebalances_unseen: those of them without a record. rebalances_per_hour: the most within one.
    committed: "topic-partition" -> offset.
    generation, member_count: in its last record, None and 0 if it has none or was deleted. record_bytes: of its last
    record. bytes: of all its records, group_bytes those without committed offsets. old_clients: client id -> why its
    members can't do what static members must.
    """

    group: str
    partition: int
    first_ms: int
    last_ms: int
    records: int = 0
    rebalances: int = 0
    rebalances_unseen: int = 0
    rebalances_per_hour: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    static_restarts: Counter[str] = field(default_factory=Counter)
    committed: dict[str, int] = field(default_factory=dict)
    generation: int | None = None
    member_count: int = 0
    deleted: bool = False
    bytes: int = 0
    group_bytes: int = 0
    record_bytes: int = 0
    old_clients: dict[str, str] = field(default_factory=dict)
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=STEPS_MAX))
    lanes: dict[str, Lane] = field(default_factory=dict)
    seats_left_out: bool = False

    def to_json(self) -> dict[str, Any]:
        """As JSON values, for another process."""
        lanes = {seat: vars(lane) for seat, lane in self.lanes.items()}
        return {**vars(self), "steps": list(self.steps), "lanes": lanes}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Story:
        """What `to_json` was told of."""
        story = cls(**values)
        story.causes, story.static_restarts = Counter(story.causes), Counter(story.static_restarts)
        story.steps = deque((Step(*step) for step in values["steps"]), maxlen=STEPS_MAX)
        story.lanes = {
            seat: Lane([(start, end) for start, end in lane["spans"]], lane["restarts"])
            for seat, lane in values["lanes"].items()
        }
        return story


class _Committed(NamedTuple):
    offset: int
    committed: int
    commit_ms: int
    topic: str


class _Seen(NamedTuple):
    """A group's record, read."""

    offset: int
    ts: int
    value: GroupMetadataValue
    seats: dict[str, Member]


@dataclass
class _Instance:
    """What is known of an instance id: when it was last replaced, when it went, when it was first seen."""

    first_step: int
    replaced_ms: deque[int] = field(default_factory=lambda: deque(maxlen=CONTEST_COUNT))
    gone_ms: int | None = None
    gone_step: int = -1
    session_ms: int = 0
    contested: bool = False


OLD_CLIENTS = {
    "aiokafka-": "aiokafka's heartbeats have no instance id: a member that was replaced goes on until it rejoins",
}
"""How a client id that nobody chose begins -> what such a client can't do."""


class History:
    """Told of the rows of `records` of one group on one partition, in the order of their offsets."""

    def __init__(self, partition: int, group: str, limits: Limits) -> None:
        self.findings: list[Finding] = []
        self.story: Story | None = None
        self._partition = partition
        self._group = group
        self._limits = limits
        self._last: _Seen | None = None
        self._before_deletion: _Seen | None = None
        self._deleted_at: int | None = None
        self._step = 0
        self._instances: dict[str, _Instance] = {}
        self._offsets: dict[tuple[str, int], _Committed] = {}
        self._rebalanced: deque[tuple[int, int, str]] = deque()
        self._storm_count = 0
        self._told: set[tuple[Any, ...]] = set()

    def add(self, row: Row) -> None:
        """Take the next record; one that is part of a transaction only if that was committed."""
        _partition, offset, ts, kind, _group, key, value = row[:7]
        story = self.story
        if story is None:
            story = self.story = Story(self._group, self._partition, ts, ts)
            self._check_partition(offset)
        size = len(key) + len(value or b"")
        story.records += 1
        story.bytes += size
        story.first_ms = min(story.first_ms, ts)
        story.last_ms = max(story.last_ms, ts)
        if kind == OFFSET_KIND:
            self._add_offset(offset, key, value)
        else:
            story.group_bytes += size
            if value is None:
                self._add_tombstone(story, offset, ts)
            else:
                story.record_bytes = size
                self._add_group(story, offset, ts, value)

    def finish(self) -> tuple[Story, list[Finding]]:
        """What is known when there are no more records; there was at least one."""
        story = self.story
        assert story is not None
        self._tell_storm()
        self._check_returns()
        self._check_orphans(story)
        story.committed = {
            f"{topic}-{partition}": committed.committed for (topic, partition), committed in self._offsets.items()
        }
        if self._last is not None:
            story.generation = self._last.value.generation
            story.member_count = len(self._last.value.members)
        return story, self.findings

    # -- offsets

    def _add_offset(self, offset: int, key: bytes, data: bytes | None) -> None:
        name = read_key(key)
        assert name.topic is not None
        assert name.topic_partition is not None
        place = name.topic, name.topic_partition
        if data is None:
            self._offsets.pop(place, None)
            return
        value = read_offset(data)[1]
        before = self._offsets.get(place)
        if before is not None and value.offset < before.committed:
            self._find(
                "commit_back", offset,
                topic=name.topic, topic_partition=name.topic_partition, committed=value.offset,
                before=before.committed, commit_ms=value.commit_timestamp,
            )  # fmt: skip
        self._offsets[place] = _Committed(offset, value.offset, value.commit_timestamp, name.topic)

    def _check_orphans(self, story: Story) -> None:
        orphans: list[tuple[str, int]] = []
        why = ""
        if self._deleted_at is not None and self._last is None:
            why = "the group was deleted after they were committed"
            orphans = [place for place, each in self._offsets.items() if each.offset < self._deleted_at]
        elif self._last is not None and self._last.value.protocol_type == CONSUMER and self._last.value.members:
            subscribed: set[str] = set()
            for member in self._last.value.members:
                topics = read_subscription(member.subscription)
                if not topics:
                    return  # who knows what it reads
                subscribed.update(topics)
            why = "nobody subscribes to their topic, and they are older than offsets.retention.minutes by default"
            orphans = [
                place
                for place, each in self._offsets.items()
                if each.topic not in subscribed and each.commit_ms + OFFSETS_RETENTION_MS < story.last_ms
            ]
        if orphans:
            newest = max(self._offsets[place].offset for place in orphans)
            names = [f"{topic}-{partition}" for topic, partition in sorted(orphans)]
            self._find("orphan_offsets", newest, why=why, count=len(names), topic_partitions=names[:100])

    # -- the group

    def _add_tombstone(self, story: Story, offset: int, ts: int) -> None:
        if self._last is not None:
            self._before_deletion = self._last
            self._draw_lanes(story, self._last.seats, (), (), ts)
        self._last = None
        self._deleted_at = offset
        self._instances.clear()
        story.deleted = True
        story.steps.append(Step(ts, "deleted", None, 0, "deleted"))

    def _add_group(self, story: Story, offset: int, ts: int, data: bytes) -> None:
        value = read_group(data)[1]
        seen = _Seen(offset, ts, value, self._seats(value, offset))
        self._check_record(seen)
        self._check_deleted(seen)
        before = self._last
        self._step += 1
        if before is None:
            story.deleted = False
            kind, cause, restarted = "generation", "first seen", list[str]()
        elif value.generation == before.value.generation:
            kind, cause, restarted = self._same_generation(story, before, seen)
        else:
            kind, cause, restarted = self._next_generation(story, before, seen)
        self._follow_instances(story, before, seen, restarted)
        if not value.members and before is not None:
            kind = "empty"
        story.steps.append(Step(ts, kind, value.generation, len(value.members), cause))
        self._draw_lanes(story, before.seats if before else (), seen.seats, restarted, ts)
        self._note_clients(story, value)
        self._last = seen

    def _seats(self, value: GroupMetadataValue, offset: int) -> dict[str, Member]:
        """The members by seat; what is there twice is found here."""
        seats: dict[str, Member] = {}
        ids: set[str] = set()
        for member in value.members:
            instance_id = member.group_instance_id
            if member.member_id in ids:
                self._find(
                    "undecodable", offset, value.generation, reason="a member id twice", member_id=member.member_id
                )
            elif instance_id is not None and instance_id in seats:
                self._find("duplicate_instance", offset, value.generation, group_instance_id=instance_id)
            ids.add(member.member_id)
            seats[member.member_id if instance_id is None else instance_id] = member
        if value.members and value.protocol is None:
            self._find("undecodable", offset, value.generation, reason="members without a protocol name")
        return seats

    def _same_generation(self, story: Story, before: _Seen, seen: _Seen) -> tuple[str, str, list[str]]:
        """A static member came back; anything else must not be."""
        restarted = _restarted(before, seen)
        joined = [seat for seat in seen.seats if seat not in before.seats]
        gone = [seat for seat in before.seats if seat not in seen.seats]
        if joined or gone:
            self._find("membership_changed", seen.offset, seen.value.generation, joined=joined[:100], gone=gone[:100])
        story.static_restarts.update(restarted)
        return ("restart", "restarted", restarted) if restarted else ("rewritten", "written again", [])

    def _next_generation(self, story: Story, before: _Seen, seen: _Seen) -> tuple[str, str, list[str]]:
        generation, former = seen.value.generation, before.value.generation
        restarted = _restarted(before, seen)
        story.static_restarts.update(restarted)
        if generation < former:
            self._find("generation_falls", seen.offset, generation, before=former)
            return "generation", "the generation fell", restarted
        cause = _cause(before, seen, restarted)
        story.rebalances += generation - former
        story.rebalances_unseen += generation - former - 1
        story.causes[cause] += 1
        self._count_storm(seen.ts, within_an_hour(generation - former, seen.ts - before.ts), cause)
        return "generation", cause, restarted

    def _check_partition(self, offset: int) -> None:
        count = self._limits.partition_count
        if count is None:
            return
        right = partition_for(self._group, count)
        if right != self._partition:
            self._find("wrong_partition", offset, belongs_on=right, partition_count=count)

    def _check_record(self, seen: _Seen) -> None:
        """What must hold of each record by itself."""
        value, offset = seen.value, seen.offset
        ids = {member.member_id for member in value.members}
        if (value.members or value.leader) and value.leader not in ids:
            self._find("leader_not_member", offset, value.generation, leader=value.leader)
        for member in value.members:
            if member.session_timeout > self._limits.session_ms_max:
                self._find_once(
                    "session_above_cap", _name(member), offset, value.generation,
                    member=_name(member), session_ms=member.session_timeout, cap_ms=self._limits.session_ms_max,
                )  # fmt: skip
        if value.protocol_type == CONSUMER:
            self._check_assignments(seen)

    def _check_assignments(self, seen: _Seen) -> None:
        """What consumers told each other: can it be read, is a partition there twice, a topic not at all?"""
        value, offset = seen.value, seen.offset
        owners: dict[tuple[str, int], str] = {}
        topics: set[str] = set()
        subscribed: dict[str, str] = {}
        all_read = True
        for member in value.members:
            wanted = read_subscription(member.subscription)
            assigned = read_assignment(member.assignment)
            for what, read, data in (
                ("subscription", wanted, member.subscription),
                ("assignment", assigned, member.assignment),
            ):
                if read is None:
                    all_read = False
                    self._find_once(
                        "undecodable_metadata", (what, data), offset, value.generation,
                        what=what, member=_name(member), size=len(data), start=data[:32].hex(),
                    )  # fmt: skip
            for topic in wanted or ():
                subscribed.setdefault(topic, _name(member))
            for topic, partitions in assigned or ():
                topics.add(topic)
                for partition in partitions:
                    owner = owners.setdefault((topic, partition), member.member_id)
                    if owner != member.member_id:
                        self._find_once(
                            "partition_assigned_twice", (topic, partition, value.generation), offset, value.generation,
                            topic=topic, topic_partition=partition, members=[owner, member.member_id],
                        )  # fmt: skip
        if topics and all_read:
            for topic in sorted(subscribed.keys() - topics):
                self._find_once(
                    "subscribed_unassigned", (topic, value.generation), offset, value.generation,
                    topic=topic, member=subscribed[topic],
                )  # fmt: skip

    def _check_deleted(self, seen: _Seen) -> None:
        """A group that comes after a tombstone must be a new one."""
        before = self._before_deletion
        if self._last is not None or before is None:
            return
        self._before_deletion = None
        old_ids = {member.member_id for member in before.value.members}
        back = sorted(old_ids & {member.member_id for member in seen.value.members})
        since, was_since = seen.value.current_state_timestamp, before.value.current_state_timestamp
        if back or _NO_TIMESTAMP < since <= was_since:
            self._find(
                "deleted_returns", seen.offset, seen.value.generation,
                members=back[:100], before=before.value.generation, deleted_at=self._deleted_at,
            )  # fmt: skip

    # -- behaviour

    def _follow_instances(self, story: Story, before: _Seen | None, seen: _Seen, restarted: Sequence[str]) -> None:
        """Follow the static members: who is replaced, who goes, who comes back."""
        for seat, member in seen.seats.items():
            if member.group_instance_id is None:
                continue
            instance = self._instances.get(seat)
            if instance is None:
                self._instances[seat] = instance = _Instance(self._step)
            elif instance.gone_ms is not None:
                self._came_back(seat, instance, seen)
                story.static_restarts[seat] += 1
            instance.gone_ms = None
            instance.session_ms = member.session_timeout
        for seat in restarted:
            self._replaced(seat, seen)
        if before is not None:
            for seat, member in before.seats.items():
                if member.group_instance_id is not None and seat not in seen.seats:
                    instance = self._instances[seat]
                    instance.gone_ms = seen.ts
                    instance.gone_step = self._step

    def _came_back(self, seat: str, instance: _Instance, seen: _Seen) -> None:
        assert instance.gone_ms is not None
        gap_ms = seen.ts - instance.gone_ms + instance.session_ms
        if 0 <= gap_ms <= self._limits.session_ms_max:
            self._find_once(
                "session_shorter_than_gap", seat, seen.offset, seen.value.generation,
                group_instance_id=seat, session_ms=instance.session_ms, gap_ms=gap_ms,
            )  # fmt: skip

    def _replaced(self, seat: str, seen: _Seen) -> None:
        instance = self._instances[seat]
        times = instance.replaced_ms
        times.append(seen.ts)
        if len(times) < CONTEST_COUNT or times[-1] - times[0] > CONTEST_WINDOW_MS:
            instance.contested = False
        elif not instance.contested:
            instance.contested = True  # told once while it goes on
            self._find(
                "instance_contested", seen.offset, seen.value.generation,
                group_instance_id=seat, replacements=len(times), within_ms=times[-1] - times[0],
            )  # fmt: skip

    def _check_returns(self) -> None:
        """Instance ids that went and didn't come back, while as many that nobody knew came after them."""
        if self._last is None or not self._last.value.members:
            return
        gone = {name: each for name, each in self._instances.items() if each.gone_ms is not None}
        if not gone:
            return
        first_gone = min(each.gone_step for each in gone.values())
        new = [name for name, each in self._instances.items() if each.first_step >= first_gone]
        if min(len(gone), len(new)) >= NEVER_RETURNS_MIN:
            self._find(
                "instance_never_returns", self._last.offset, self._last.value.generation,
                gone_count=len(gone), new_count=len(new), gone=sorted(gone)[:100], new=sorted(new)[:100],
            )  # fmt: skip

    def _count_storm(self, ts: int, count: int, cause: str) -> None:
        """Rebalances that surely fell within an hour; hours that follow each other in a storm are one finding each."""
        rebalanced = self._rebalanced
        if rebalanced and ts - rebalanced[0][0] > HOUR_MS:
            if self._storm_count > self._limits.rebalances_per_hour_max:
                self._tell_storm()
            while rebalanced and ts - rebalanced[0][0] > HOUR_MS:
                self._storm_count -= rebalanced.popleft()[1]
        rebalanced.append((ts, count, cause))
        self._storm_count += count
        assert self.story is not None
        self.story.rebalances_per_hour = max(self.story.rebalances_per_hour, self._storm_count)

    def _tell_storm(self) -> None:
        if self._storm_count <= self._limits.rebalances_per_hour_max:
            return
        causes: Counter[str] = Counter()
        for _ts, _count, cause in self._rebalanced:
            causes[cause] += 1
        assert self.story is not None
        last = self._last
        self._find(
            "rebalance_storm", last.offset if last else self._deleted_at, last.value.generation if last else None,
            rebalances=self._storm_count, seen=len(self._rebalanced), first_ms=self._rebalanced[0][0],
            last_ms=self._rebalanced[-1][0], causes=dict(causes),
        )  # fmt: skip
        self._rebalanced.clear()
        self._storm_count = 0

    def _note_clients(self, story: Story, value: GroupMetadataValue) -> None:
        for member in value.members:
            if member.group_instance_id is not None:
                for start, why in OLD_CLIENTS.items():
                    if member.client_id.startswith(start):
                        story.old_clients[member.client_id] = why

    def _draw_lanes(
        self, story: Story, before: Collection[str], seats: Collection[str], restarted: Sequence[str], ts: int
    ) -> None:
        for seat in seats:
            if seat not in before:
                if seat not in story.lanes and len(story.lanes) >= LANES_MAX:
                    story.seats_left_out = True
                else:
                    story.lanes.setdefault(seat, Lane()).take(ts)
        for seat in before:
            if seat not in seats and seat in story.lanes:
                story.lanes[seat].free(ts)
        for seat in restarted:
            if seat in story.lanes and len(story.lanes[seat].restarts) < MARKS_MAX:
                story.lanes[seat].restarts.append(ts)

    def _find(self, check: str, offset: int | None, generation: int | None = None, /, **detail: Any) -> None:
        self.findings.append(finding(check, self._partition, offset, self._group, generation, **detail))

    def _find_once(self, check: str, what: Any, offset: int, generation: int, /, **detail: Any) -> None:
        """A finding that each later record would repeat."""
        if (check, what) not in self._told:
            self._told.add((check, what))
            self._find(check, offset, generation, **detail)


def _name(member: Member) -> str:
    return member.member_id if member.group_instance_id is None else member.group_instance_id


def within_an_hour(rebalances: int, over_ms: int) -> int:
    """How many of `rebalances`, spread over a time in any way, must have fallen within one hour, at least.

    A compacted log has the last record of a group and none of those before: it may have grown for a month.
    """
    hours = max(1, -(-over_ms // HOUR_MS))
    return -(-rebalances // hours)


def _restarted(before: _Seen, seen: _Seen) -> list[str]:
    """The instance ids whose member id is another one than before."""
    return [
        seat
        for seat, member in seen.seats.items()
        if member.group_instance_id is not None
        and seat in before.seats
        and before.seats[seat].member_id != member.member_id
    ]


def _cause(before: _Seen, seen: _Seen, restarted: Sequence[str]) -> str:
    """Why there is a new generation, as far as two records tell."""
    causes = []
    if any(seat not in before.seats for seat in seen.seats):
        causes.append("joined")
    if any(seat not in seen.seats for seat in before.seats):
        causes.append("left or expired")
    if seen.value.members and before.value.members:
        both = [(member, before.seats[seat]) for seat, member in seen.seats.items() if seat in before.seats]
        if before.value.protocol != seen.value.protocol:
            causes.append("protocol changed")
        elif any(read_subscription(now.subscription) != read_subscription(was.subscription) for now, was in both):
            causes.append("subscription changed")
    if not causes:
        causes.append("static member restarted" if restarted else "leader or member rejoined")
    return ", ".join(causes)


def tell(partition: int, group: str, limits: Limits, rows: Iterable[Row]) -> tuple[Story, list[Finding]]:
    """The story of one group, and what is wrong with it, from its rows of `records` in the order of their offsets."""
    history = History(partition, group, limits)
    for row in rows:
        history.add(row)
    return history.finish()
