"""What happened to one group, from its records in the order of the log, and the checks on it.

The log has no record of a rebalance that wasn't completed, so a generation may jump; the steps are counted, seen or
not. Where the server told of a rebalance (events.py), its cause is what was told, and not in what two records differ.
What a group's record says by itself and beside the one before is checked here; what shows over time is followed in

    commits    its committed offsets
    instances  its static members
    storms     how often it rebalances
    drawing    what is kept of it to be drawn

A group that went over to a newer protocol (KIP-848) has records of other kinds: it is known to live, and no more.

House rule: what is held is one record, the last, and what has an end by itself; docs of each part say which.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.audit.check.checks import Finding, Findings
from coordinator.audit.check.commits import Commits
from coordinator.audit.check.drawing import STEPS_MAX, Step, draw
from coordinator.audit.check.generations import Clock, Member, Seat, Seen, cause, restarted, seat_of
from coordinator.audit.check.instances import Instances
from coordinator.audit.check.limits import Limits
from coordinator.audit.check.storms import Storms, within_an_hour
from coordinator.audit.read.events import Course, Rebalance, Told
from coordinator.audit.read.parse import Row
from coordinator.audit.read.records import (
    GROUP_KIND,
    NEWER_GROUPS,
    OFFSET_KIND,
    read_assignment,
    read_group,
    read_subscription,
)
from coordinator.group.invariants import RecordRule, record_violations
from coordinator.group.partition import partition_for
from coordinator.timeline.lanes import Lane, Mark
from protocol.consumer import CONSUMER
from protocol.messages import GroupMetadataValue

CLASSIC = "classic"
"""The type of a group whose rebalances are those of JoinGroup and SyncGroup, and of one without members."""
NAMES_MAX = 100
"""Members that a finding names."""
OLD_CLIENTS_MAX = 100
"""Client ids of a group that are kept."""

OLD_CLIENTS = {
    "aiokafka-": "aiokafka's heartbeats have no instance id: a member that was replaced goes on until it rejoins",
}
"""How a client id that nobody chose begins -> what such a client can't do."""

CHECK_OF_RULE: dict[RecordRule, tuple[str, str]] = {
    RecordRule.MEMBER_TWICE: ("undecodable", "member_id"),
    RecordRule.INSTANCE_TWICE: ("duplicate_instance", "group_instance_id"),
    RecordRule.LEADER: ("leader_not_member", "leader"),
    RecordRule.PROTOCOL_TYPE: ("undecodable", ""),
    RecordRule.PROTOCOL_NAME: ("undecodable", ""),
}
"""A rule of a record -> the check that finds where it is broken, and how its detail names the one it is about."""


@dataclass
class Story:
    """What is told of a group at the end.

    first_ms, last_ms: the time that its records cover, -1 where no record has one. rebalances: steps of the generation
    between its records, and rebalances_forgotten, which only the server told of; rebalances_unseen: the steps without a
    record. rebalances_per_hour: the most that surely fell within one. causes: inferred; causes_told: as the server told
    them. static_restarts: instance id -> how often its member came back under a new member id, at once or after it was
    gone. committed: "topic-partition" -> offset. group_type: classic, or that of a newer protocol.
    generation, member_count: in its last record, None and 0 if it has none, was deleted or isn't classic.
    record_bytes: of its last record. bytes: of all its records, group_bytes those without committed offsets.
    old_clients: client id -> why its members can't do what static members must.
    """

    group: str
    partition: int
    first_ms: int
    last_ms: int
    records: int = 0
    rebalances: int = 0
    rebalances_unseen: int = 0
    rebalances_forgotten: int = 0
    rebalances_per_hour: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    causes_told: Counter[str] = field(default_factory=Counter)
    static_restarts: Counter[str] = field(default_factory=Counter)
    committed: dict[str, int] = field(default_factory=dict)
    group_type: str = CLASSIC
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
        lanes = {seat: (lane.spans, lane.marks) for seat, lane in self.lanes.items()}
        return {**vars(self), "steps": list(self.steps), "lanes": lanes}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Story:
        """What `to_json` was told of."""
        story = cls(**values)
        story.causes, story.static_restarts = Counter(story.causes), Counter(story.static_restarts)
        story.causes_told = Counter(story.causes_told)
        story.steps = deque((Step(*step) for step in values["steps"]), maxlen=STEPS_MAX)
        story.lanes = {
            seat: Lane(
                [(start, end) for start, end in spans], [Mark(*mark)._replace(text=tuple(mark[-1])) for mark in marks]
            )
            for seat, (spans, marks) in values["lanes"].items()
        }
        return story


class History:
    """Told of the rows of `records` of one group on one partition, in the order of their offsets.

    told: what the server itself told of the group.
    """

    def __init__(self, partition: int, group: str, limits: Limits, told: Told | None = None) -> None:
        told = told or Told()
        self.story: Story | None = None
        self._partition = partition
        self._group = group
        self._limits = limits
        self._findings = Findings(partition, group)
        self._commits = Commits(self._findings, limits)
        self._instances = Instances(self._findings, limits.session_ms_max, told.conflicts)
        self._course = Course(told)
        self._storms = Storms(self._findings, limits.rebalances_per_hour_max)
        self._clock = Clock()
        self._now_ms = 0
        self._offset = 0
        self._last: Seen | None = None
        self._before_deletion: Seen | None = None
        self._deleted_at: int | None = None

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
        if ts >= 0:
            story.first_ms = ts if story.first_ms < 0 else min(story.first_ms, ts)
            story.last_ms = max(story.last_ms, ts)
        now_ms = self._now_ms = self._clock.tick(ts)
        self._offset = offset
        if ts < 0:
            ts = story.last_ms  # to be drawn somewhere
        if kind == OFFSET_KIND:
            self._commits.add(offset, key, value)
            if story.deleted and value is not None:
                story.deleted, story.group_type = False, CLASSIC
            return
        story.group_bytes += size
        if kind != GROUP_KIND:
            self._add_newer(story, NEWER_GROUPS[kind], offset, ts, lives=value is not None)
        elif value is None:
            self._add_tombstone(story, offset, ts)
        else:
            story.record_bytes = size
            self._add_group(story, offset, ts, now_ms, value)

    def finish(self, end_ms: int) -> tuple[Story, list[Finding]]:
        """What is known if there are no more records; there was at least one. Should more come, they may be added.

        end_ms: the time of the last record of the partition. Its coordinator was at work until then.
        """
        story = self.story
        assert story is not None
        last = self._last
        at_end = Findings(self._partition, self._group)
        self._remember(story, self._course.rest(), self._offset, story.last_ms, self._now_ms)
        self._storms.tell(at_end)
        self._instances.tell(last, at_end)
        self._commits.tell_orphans(None if last is None else last.value, self._deleted_at, end_ms, at_end)
        story.rebalances_per_hour = self._storms.most
        story.committed = self._commits.committed()
        story.generation = None if last is None else last.value.generation
        story.member_count = 0 if last is None else len(last.value.members)
        return story, self._findings.found + at_end.found

    def _add_newer(self, story: Story, group_type: str, offset: int, ts: int, *, lives: bool) -> None:
        """The record of a group of a newer protocol, or its end; it follows the end of the classic group's, if any."""
        if lives:
            if story.group_type != group_type:
                if story.steps and story.steps[-1].kind == "deleted":
                    story.steps.pop()
                story.steps.append(Step(ts, "converted", None, 0, f"a group of the {group_type} protocol"))
            self._last = self._before_deletion = self._deleted_at = None
            story.group_type, story.deleted = group_type, False
        elif self._last is None:
            self._deleted_at = offset
            story.deleted = True
            story.steps.append(Step(ts, "deleted", None, 0, "deleted"))

    def _add_tombstone(self, story: Story, offset: int, ts: int) -> None:
        if self._last is not None:
            self._before_deletion = self._last
            draw(story.lanes, (), (), ts)
        self._last = None
        self._deleted_at = offset
        self._instances.clear()
        story.deleted = True
        story.steps.append(Step(ts, "deleted", None, 0, "deleted"))

    def _add_group(self, story: Story, offset: int, ts: int, now_ms: int, data: bytes) -> None:
        value = read_group(data)[1]
        seen = Seen(offset, ts, now_ms, value, {seat_of(member): member for member in value.members})
        self._check_record(seen)
        self._check_deleted(seen)
        before = self._last
        came_back: list[str] = []
        told = self._told_until(story, before, seen)
        if before is None:
            kind, why = "generation", told[value.generation].words if told else "first seen"
        else:
            came_back = restarted(before, seen)
            story.static_restarts.update(came_back)
            if value.generation == before.value.generation:
                kind, why = self._same_generation(before, seen, came_back)
            else:
                kind, why = self._next_generation(story, before, seen, came_back, told)
        if not value.members and before is not None:
            kind = "empty"
        seats = before.seats if before else {}
        story.static_restarts.update(self._instances.follow(seats, seen, came_back))
        story.steps.append(Step(ts, kind, value.generation, len(value.members), why))
        if not draw(story.lanes, _names(seen.seats), came_back, ts):
            story.seats_left_out = True
        _note_clients(story, value)
        story.deleted, story.group_type = False, CLASSIC
        self._last = seen

    def _same_generation(self, before: Seen, seen: Seen, came_back: Sequence[str]) -> tuple[str, str]:
        """A static member came back, to the assignment that it had; anything else must not be.

        A leader that syncs twice makes Apache Kafka write a second record before the first is durable
        (GroupMetadataManager.classicGroupSync). If that has other assignments, members work by the first, and the next
        owner of the group loads the second.
        """
        joined = [seat.name for seat in seen.seats if seat not in before.seats]
        gone = [seat.name for seat in before.seats if seat not in seen.seats]
        if joined or gone:
            self._findings.add(
                "membership_changed", seen.offset, seen.value.generation,
                joined=joined[:NAMES_MAX], gone=gone[:NAMES_MAX],
            )  # fmt: skip
        changed = [
            seat.name
            for seat, member in seen.seats.items()
            if seat in before.seats and before.seats[seat].assignment != member.assignment
        ]
        if changed:
            self._findings.add(
                "assignment_changed", seen.offset, seen.value.generation,
                members=changed[:NAMES_MAX], count=len(changed), before_offset=before.offset,
            )  # fmt: skip
        return ("restart", "restarted") if came_back else ("rewritten", "written again")

    def _next_generation(
        self, story: Story, before: Seen, seen: Seen, came_back: Sequence[str], told: Mapping[int, Rebalance]
    ) -> tuple[str, str]:
        """Rebalances from one record to the next; told: what the server told of them, by generation."""
        generation, former = seen.value.generation, before.value.generation
        if generation < former:
            self._findings.add("generation_falls", seen.offset, generation, before=former)
            return "generation", "the generation fell"
        story.rebalances += generation - former
        story.rebalances_unseen += generation - former - 1
        for each in told.values():
            self._count(story, each, seen.offset, seen.ts, seen.now_ms)
        untold = generation - former - len(told)
        why = None
        if generation not in told:
            why = cause(before, seen, came_back)
            story.causes[why] += 1
        if untold:
            surely = within_an_hour(untold, seen.now_ms - before.now_ms)
            self._storms.add(seen.now_ms, seen.ts, surely, why, seen.offset, generation)
        return "generation", why or told[generation].words

    def _told_until(self, story: Story, before: Seen | None, seen: Seen) -> dict[int, Rebalance]:
        """What the server told of the generations from one record to the next, or of a first record's own.

        The rest of what it told until then is what the log has forgotten.
        """
        generation = seen.value.generation
        former = generation - 1 if before is None else before.value.generation
        told: dict[int, Rebalance] = {}
        forgotten: list[Rebalance] = []
        for each in self._course.until(seen.ts, former, generation):
            if not former < each.generation <= generation:
                forgotten.append(each)
                continue
            if each.generation in told:  # of an earlier group of that name
                forgotten.append(told[each.generation])
            told[each.generation] = each
        self._remember(story, forgotten, seen.offset, seen.ts, seen.now_ms)
        return told

    def _remember(self, story: Story, forgotten: Iterable[Rebalance], offset: int, ts: int, now_ms: int) -> None:
        """Count rebalances of which the log knows nothing any more; offset, ts and now_ms: of a record behind them."""
        for each in forgotten:
            story.rebalances += 1
            story.rebalances_forgotten += 1
            self._count(story, each, offset, ts, now_ms)

    def _count(self, story: Story, told: Rebalance, offset: int, ts: int, now_ms: int) -> None:
        """Count a rebalance that the server told of, at its own time; ts, now_ms: of a record beside it."""
        story.causes_told[told.kind] += 1
        self._storms.add(now_ms + told.at_ms - ts, told.at_ms, 1, told.kind, offset, told.generation)

    # -- what must hold

    def _check_partition(self, offset: int) -> None:
        count = self._limits.partition_count
        if count is None:
            return
        right = partition_for(self._group, count)
        if right != self._partition:
            self._findings.add("wrong_partition", offset, belongs_on=right, partition_count=count)

    def _check_record(self, seen: Seen) -> None:
        """What must hold of each record by itself."""
        value, offset = seen.value, seen.offset
        self._check_rules(value, offset)
        cap_ms = self._limits.session_ms_max
        above: dict[Hashable, dict[str, Any]] = {
            name: {"member": name, "session_ms": member.session_timeout, "cap_ms": cap_ms}
            for (name, _), member in seen.seats.items()
            if member.session_timeout > cap_ms
        }
        if value.members:  # an empty group says nothing of what goes on
            self._findings.add_new("session_above_cap", above, offset, value.generation)
            if value.protocol_type == CONSUMER:
                self._check_assignments(value, offset)

    def _check_rules(self, value: GroupMetadataValue, offset: int) -> None:
        """Hold the record to the rules of coordinator.group.invariants."""
        for broken in record_violations(value):
            check, named = CHECK_OF_RULE[broken.rule]
            detail = {named: broken.who} if named else {}
            if check == "undecodable":
                detail["reason"] = broken.rule.value
            self._findings.add(check, offset, value.generation, **detail)

    def _check_assignments(self, value: GroupMetadataValue, offset: int) -> None:
        """What consumers told each other: can it be read, is a partition there twice, a topic not at all?

        A topic that somebody owned is no topic that nobody has: where members hand partitions over one by one
        (KIP-429), one that moves is in no assignment for a generation.
        """
        owners: dict[tuple[str, int], str] = {}
        topics: set[str] = set()
        owned: set[str] = set()
        subscribed: dict[str, str] = {}
        unread: dict[Hashable, dict[str, Any]] = {}
        twice: dict[Hashable, dict[str, Any]] = {}
        for member in value.members:
            wanted, assigned = read_subscription(member.subscription), read_assignment(member.assignment)
            for what, read, data in (
                ("subscription", wanted, member.subscription),
                ("assignment", assigned, member.assignment),
            ):
                if read is None:
                    unread[what, data] = {
                        "what": what, "member": _name(member), "size": len(data), "start": data[:32].hex(),
                    }  # fmt: skip
            if wanted is not None:
                owned.update(wanted.owned_topics)
                for topic in wanted.topics:
                    subscribed.setdefault(topic, _name(member))
            for topic, partitions in assigned or ():
                topics.add(topic)
                for partition in partitions:
                    owner = owners.get((topic, partition))
                    if owner is None:
                        owners[topic, partition] = member.member_id
                    else:
                        twice[topic, partition] = {
                            "topic": topic, "topic_partition": partition,
                            "members": list(dict.fromkeys([owner, member.member_id])),
                        }  # fmt: skip
        self._findings.add_new("undecodable_metadata", unread, offset, value.generation)
        self._findings.add_new("partition_assigned_twice", twice, offset, value.generation)
        if topics and not unread:
            nobodys = sorted(subscribed.keys() - topics - owned)
            self._findings.add_new(
                "subscribed_unassigned", {topic: {"topic": topic, "member": subscribed[topic]} for topic in nobodys},
                offset, value.generation,
            )  # fmt: skip

    def _check_deleted(self, seen: Seen) -> None:
        """A group that comes after a tombstone must be a new one: no member of the old one's, and not its state."""
        before = self._before_deletion
        if self._last is not None or before is None:
            return
        self._before_deletion = None
        now, was = seen.value, before.value
        back = sorted({member.member_id for member in was.members} & {member.member_id for member in now.members})
        same = was.generation == now.generation and was.current_state_timestamp == now.current_state_timestamp
        if back or (same and now.current_state_timestamp >= 0):
            self._findings.add(
                "deleted_returns", seen.offset, now.generation,
                members=back[:NAMES_MAX], before=was.generation, deleted_at=self._deleted_at,
            )  # fmt: skip


def _name(member: Member) -> str:
    return seat_of(member).name


def _names(seats: Iterable[Seat]) -> dict[str, None]:
    """Their names, each once, in their order."""
    return dict.fromkeys(seat.name for seat in seats)


def _note_clients(story: Story, value: GroupMetadataValue) -> None:
    """Note the clients of static members that can't do what such members must."""
    for member in value.members:
        if member.group_instance_id is not None and len(story.old_clients) < OLD_CLIENTS_MAX:
            for start, why in OLD_CLIENTS.items():
                if member.client_id.startswith(start):
                    story.old_clients[member.client_id] = why
