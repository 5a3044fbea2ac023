"""Follows one group through its records, in the order of the log: `History` makes its `Story` and feeds its checks.

coordinator.story.counts defines a rebalance, and a return of a static member. The recorded events have them all. The
log has no record of a rebalance that got no generation, and compaction removes records, so the generation may jump from
one record to the next. Every step of the generation that no event tells of counts as a rebalance too, also the step to
a first record. Then the numbers are lower bounds (`Story.at_least`).

The cause of a rebalance is the one that the server recorded (read/events.py). Without recorded events it is inferred
(coordinator.story.inference).

A rebalance of a group of the consumer protocol begins when its epoch grows while all members are at their target. Of a
share or streams group the audit knows only that it exists. The checks are in modules of their own.

House rule: memory has a limit that doesn't depend on the size of the log: the last record, and what each part says.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.audit.check.checks import Finding, Findings
from coordinator.audit.check.commits import Commits
from coordinator.audit.check.consumer_groups import ConsumerHistory, words_of
from coordinator.audit.check.instances import RESTARTS, RETURNS, Instances
from coordinator.audit.check.limits import Limits
from coordinator.audit.check.records import RecordChecks
from coordinator.audit.check.storms import Storms, within_an_hour
from coordinator.audit.read.events import GroupEvents, Rebalance, take_until
from coordinator.audit.read.parse import Row
from coordinator.group.notes import CLASSIC, CONSUMER
from coordinator.story.counts import NOUNS, REJOIN, RESTART, TAKEOVER
from coordinator.story.inference.classic import Classic
from coordinator.story.inference.seen import Seen, returned, taken
from coordinator.story.lanes import MARKS, Lane, Mark, hold
from coordinator.story.records.consumer import CONSUMER_VERSIONS
from coordinator.story.records.values import GROUP_KIND, NEWER_GROUPS, OFFSET_KIND, read_group, read_key
from protocol.messages import GroupMetadataValue

READ = frozenset({CLASSIC, CONSUMER})
"""The types of groups whose members the audit reads. A group that only commits offsets is CLASSIC too."""
KINDS = {RESTART: "static_restarts", REJOIN: "static_rejoins", TAKEOVER: "takeovers"}
"""Kinds of returns -> where a story counts them."""
UNSAID = "return"
"""The kind of a return that only the log shows."""
LOOPED = {RESTART: RESTARTS, UNSAID: RETURNS}
"""Kinds of returns that may be a loop; the doctor doesn't count takeovers and rejoins as one either."""
OLD_CLIENTS_MAX = 100
"""Client ids of a group that are kept."""
STEPS_MAX = 2_000
"""Steps of a group that are kept: the last ones."""
LANES_MAX = 60
"""Seats of a group that are kept: the first ones, as many as a page has room for."""
MARKS_MAX = 500
"""Spans, and restarts, of a seat that are kept."""

OLD_CLIENTS = {
    "aiokafka-": "aiokafka's heartbeats have no instance id: a member that was replaced goes on until it rejoins",
}
"""Start of a client library's default client id -> what its static members can't do."""


class Step(NamedTuple):
    """A record of the group, for its drawing. cause: why it was written, in words.

    kind: generation, return, rewritten, empty, deleted, or converted (to another group protocol).
    """

    ts: int
    kind: str
    generation: int | None
    members: int
    cause: str


@dataclass
class Story:
    """The history of a group, as far as the log and the recorded events say.

    first_ms, last_ms: the time that its records cover, -1 if no record has a time.
    rebalances: see the module. rebalances_unseen: those without a record.
    rebalances_forgotten: those that only the recorded events have. rebalances_per_hour: the most that must have fallen
    within one hour.
    causes: of rebalances with a record, inferred. causes_recorded: those that the server recorded.
    static_restarts, static_rejoins, takeovers: returns that the server recorded, by instance id.
    returns: those that only the log shows, which doesn't say what they were.
    at_least: there may have been more rebalances and returns.
    committed: "topic-partition" -> offset.
    group_type: classic, or the newer protocol of the group.
    generation, member_count: of its last record; the epoch, if it is of the consumer protocol. None and 0 without one,
    after a deletion, or for a share or streams group.
    bytes: of all its records. group_bytes: of those that aren't committed offsets. record_bytes: of its last record.
    old_clients: client id of static members -> what this client can't do.
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
    causes_recorded: Counter[str] = field(default_factory=Counter)
    static_restarts: Counter[str] = field(default_factory=Counter)
    static_rejoins: Counter[str] = field(default_factory=Counter)
    takeovers: Counter[str] = field(default_factory=Counter)
    returns: Counter[str] = field(default_factory=Counter)
    at_least: bool = True
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

    @property
    def returns_recorded(self) -> Counter[str]:
        """How many returns of each kind the server recorded."""
        return Counter({name: sum(getattr(self, KINDS[name]).values()) for name in KINDS})

    @property
    def return_count(self) -> int:
        """How many returns there were."""
        return self.returns_recorded.total() + sum(self.returns.values())

    def draw(self, seats: Collection[str], kinds: Mapping[str, str], ts: int) -> None:
        """Note which seats are taken from `ts` on, and which members came back. kinds: of returns, by instance id."""
        if not hold(self.lanes, seats, ts, lanes_max=LANES_MAX, spans_max=MARKS_MAX):
            self.seats_left_out = True
        for seat, kind in kinds.items():
            if seat in self.lanes:
                mark = MARKS.get(kind, "return" if kind == UNSAID else "restart")
                self.lanes[seat].add(Mark(mark, ts, ts), MARKS_MAX)


class Clock:
    """A time that never goes back, made of the timestamps of several coordinators with different clocks.

    If the clock of a new owner is behind, time stands still for one record and then follows the new clock. A measured
    duration is too short by that one step at most.
    """

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self._now_ms = 0

    def tick(self, ts: int) -> int:
        """The time of a record with that timestamp, in ms; a record without a timestamp has a negative one."""
        if ts >= 0:
            if self._last_ms is not None:
                self._now_ms += max(0, ts - self._last_ms)
            self._last_ms = ts
        return self._now_ms


class History:
    """Takes the rows of `records` of one group on one partition, in the order of their offsets.

    recorded: the events that the server recorded for the group.
    """

    def __init__(self, partition: int, group: str, limits: Limits, recorded: GroupEvents | None = None) -> None:
        recorded = recorded or GroupEvents()
        self.story = Story(group, partition, -1, -1)
        for each in recorded.returns.values():
            getattr(self.story, KINDS[each.kind])[each.group_instance_id] += 1
        self._findings = Findings(partition, group)
        self._checks = RecordChecks(partition, group, limits, self._findings)
        self._commits = Commits(self._findings, limits)
        self._instances = Instances(self._findings, limits.session_ms_max, recorded.conflicts)
        self._recorded = recorded
        self._left = deque(recorded.rebalances)
        self._unrecorded = 0
        self._forgotten = 0
        self._storms = Storms(self._findings, limits.rebalances_per_hour_max)
        self._consumer = ConsumerHistory(self._findings)
        self._consumer_rebalances = 0
        self._consumer_ts = -1
        self._clock = Clock()
        self._now_ms = 0
        self._offset = 0
        self._classic = Classic()
        self._before_deletion: Seen | None = None
        self._tombstone_batch: Hashable = None
        self._deleted_at: int | None = None

    def add(self, row: Row) -> None:
        """Take the next record; the caller leaves out records of transactions that were not committed."""
        _partition, offset, ts, kind, _group, key, value = row[:7]
        story = self.story
        if not story.records:
            self._checks.check_partition(offset)
        size = len(key) + len(value or b"")
        story.records += 1
        story.bytes += size
        if ts >= 0:
            story.first_ms = ts if story.first_ms < 0 else min(story.first_ms, ts)
            story.last_ms = max(story.last_ms, ts)
        batch = row[8:10] if row[9] is not None else ts
        if self._consumer.ends_batch(batch):
            self._end_consumer_batch()
        self._now_ms = self._clock.tick(ts)
        self._offset = offset
        if ts < 0:
            ts = story.last_ms  # a drawing needs a time
        if kind == OFFSET_KIND:
            name = read_key(key)
            assert name.topic is not None
            assert name.topic_partition is not None
            self._commits.add(offset, (name.topic, name.topic_partition), value)
            if value is not None:  # its member lives
                self._classic.signs.committed(name.topic, name.topic_partition, ts, is_weak=row[7] is not None)
                if story.deleted:
                    story.deleted, story.group_type = False, CLASSIC
            return
        story.group_bytes += size
        if kind != GROUP_KIND:
            if kind in NEWER_GROUPS:
                if value is not None and self._before_deletion is not None and self._tombstone_batch == batch:
                    before = self._before_deletion
                    seats = {seat.name: member.member_id for seat, member in before.seats.items()}
                    self._consumer.upgrade(before.value.generation, seats)
                self._add_newer(NEWER_GROUPS[kind], ts, lives=value is not None)
            if kind in CONSUMER_VERSIONS:
                self._consumer_ts = ts
                self._consumer.add(offset, ts, key, value, batch)
                if kind in NEWER_GROUPS and value is None:
                    self._consumer = ConsumerHistory(self._findings)
        elif value is None:
            self._tombstone_batch = batch
            self._add_tombstone(ts)
        else:
            story.record_bytes = size
            self._add_group(ts, value)

    def finish(self, end_ms: int) -> tuple[Story, list[Finding]]:
        """The story and the findings if the log ends here. More records may be added afterwards.

        There must have been a record. end_ms: the time of the last record of the partition, when its coordinator was
        still at work.
        """
        story, last = self.story, self._classic.last
        at_end = Findings(story.partition, story.group)
        if self._consumer.ends_batch(None):
            self._end_consumer_batch()
        self._consumer.report(end_ms, at_end)
        self._remember(list(self._left), story.last_ms)
        self._left.clear()
        self._storms.report(at_end)
        self._instances.report(last, at_end)
        self._commits.report_orphans(None if last is None else last.value, self._deleted_at, end_ms, at_end)
        recorded = self._recorded
        unrecorded = self._unrecorded + max(0, self._consumer_rebalances - recorded.rebalance_count)
        story.rebalances = recorded.rebalance_count + unrecorded
        story.rebalances_forgotten = self._forgotten + recorded.rebalance_count - len(recorded.rebalances)
        if story.group_type == CONSUMER:
            story.rebalances_forgotten = max(0, recorded.rebalance_count - self._consumer_rebalances)
        is_whole = bool(recorded.rebalance_count or recorded.returns) and not recorded.has_gaps
        # A group with committed offsets alone never had a rebalance.
        story.at_least = bool(story.group_bytes) and not (is_whole and not unrecorded and not story.returns)
        story.rebalances_per_hour = self._storms.most
        story.committed = self._commits.committed()
        story.generation = None if last is None else last.value.generation
        story.member_count = 0 if last is None else len(last.value.members)
        if story.group_type == CONSUMER and not story.deleted:
            story.generation = self._consumer.records.epoch
            story.member_count = len(self._consumer.records.members)
        return story, self._findings.found + at_end.found

    def _add_newer(self, group_type: str, ts: int, *, lives: bool) -> None:
        """Take the record or the tombstone of a group of a newer protocol.

        A classic group that is converted gets its tombstone first.
        """
        story = self.story
        if lives:
            if story.group_type != group_type:
                if story.steps and story.steps[-1].kind == "deleted":
                    story.steps.pop()
                story.steps.append(Step(ts, "converted", None, 0, f"a group of the {group_type} protocol"))
                self._classic = Classic()
            self._before_deletion = self._deleted_at = None
            story.group_type, story.deleted = group_type, False
        elif self._classic.last is None:
            self._deleted_at = self._offset
            story.deleted = True
            story.draw((), {}, ts)
            story.steps.append(Step(ts, "deleted", None, 0, "deleted"))

    def _end_consumer_batch(self) -> None:
        """Take what a batch changed in a group of the consumer protocol."""
        moved, ts, story = self._consumer.end_batch(), self._consumer_ts, self.story
        if moved is None or story.deleted:
            return
        if self._classic.last is None:
            story.group_type = CONSUMER
        kinds = self._returned(moved.back)
        kind, why = "rewritten", moved.cause
        if moved.grew:
            kind = "generation"
        elif kinds:
            kind, why = "return", _nouns(kinds)
        if not moved.seats:
            kind = "empty"
        story.steps.append(Step(ts, kind, moved.epoch, len(moved.seats), why))
        if moved.began:
            self._consumer_rebalances += 1
            if not self._recorded.rebalance_count:
                story.causes[why] += 1
                self._storms.add(self._now_ms, ts, 1, why, self._offset, moved.epoch)
        story.draw(dict.fromkeys(moved.seats), kinds, ts)

    def _add_tombstone(self, ts: int) -> None:
        story = self.story
        if self._classic.last is not None:
            self._before_deletion = self._classic.last
            story.draw((), {}, ts)
        self._classic = Classic()
        self._deleted_at = self._offset
        self._instances.clear()
        story.deleted = True
        story.steps.append(Step(ts, "deleted", None, 0, "deleted"))

    def _add_group(self, ts: int, data: bytes) -> None:
        story, value = self.story, read_group(data)[1]
        seen = Seen(self._offset, ts, self._now_ms, value)
        self._checks.check(seen)
        before = self._classic.last
        if before is None and self._before_deletion is not None:
            self._checks.check_new(self._before_deletion, seen, self._deleted_at)
            self._before_deletion = None
        came_back: dict[str, str] = {}
        recorded = self._recorded_until(before, seen)
        if before is None:
            kind, why = "generation", self._first_generation(seen, recorded)
        else:
            self._checks.check_pair(before, seen)
            came_back = self._returned(returned(before, seen))
            if value.generation == before.value.generation:
                kind, why = ("return", _nouns(came_back)) if came_back else ("rewritten", _why_written(before, seen))
            else:
                kind, why = self._next_generation(before, seen, recorded)
        if not value.members and before is not None:
            kind = "empty"
        if story.group_type == CONSUMER and story.steps and story.steps[-1][:2] == (ts, "deleted"):
            story.steps[-1] = Step(ts, "converted", None, 0, "a group of the classic protocol")
        seats = before.seats if before else {}
        self._instances.follow(seats, seen, {name: LOOPED[each] for name, each in came_back.items() if each in LOOPED})
        story.steps.append(Step(ts, kind, value.generation, len(value.members), why))
        story.draw(dict.fromkeys(seat.name for seat in seen.seats), came_back, ts)
        _note_clients(story, value)
        story.deleted, story.group_type = False, CLASSIC
        self._classic.take(seen)

    def _returned(self, back: Mapping[str, str]) -> dict[str, str]:
        """By instance id, the kinds of returns; count those that no event tells of. back: instance id -> member id."""
        kinds: dict[str, str] = {}
        story = self.story
        for name, member_id in back.items():
            recorded = self._recorded.returns.get(member_id)
            kinds[name] = UNSAID if recorded is None else recorded.kind
            story.returns[name] += recorded is None
        story.returns = +story.returns
        return kinds

    def _first_generation(self, seen: Seen, recorded: Mapping[int, Rebalance]) -> str:
        """Count the rebalance that led to a first record, and return its cause. Generation 0 had no rebalance."""
        each = recorded.get(seen.value.generation)
        if each is not None:
            self._count(each, seen.ts)
            return each.words
        if seen.value.generation:
            self._unrecorded += 1
            self._storms.add(seen.now_ms, seen.ts, 1, None, seen.offset, seen.value.generation)
        return "first seen"

    def _next_generation(self, before: Seen, seen: Seen, recorded: Mapping[int, Rebalance]) -> tuple[str, str]:
        """Count the rebalances from one record to the next, and return kind and cause of the step.

        recorded: by generation, the rebalances that the server recorded.
        """
        generation, former = seen.value.generation, before.value.generation
        if generation < former:
            return "generation", "the generation fell"
        self.story.rebalances_unseen += generation - former - 1
        for each in recorded.values():
            self._count(each, seen.ts)
        unrecorded = generation - former - len(recorded)
        why = None
        if generation not in recorded:
            why = words_of(self._classic.causes(seen).causes)
            self.story.causes[why] += 1
        self._unrecorded += unrecorded
        if unrecorded:
            surely = within_an_hour(unrecorded, seen.now_ms - before.now_ms)
            self._storms.add(seen.now_ms, seen.ts, surely, why, seen.offset, generation)
        return "generation", why or recorded[generation].words

    def _recorded_until(self, before: Seen | None, seen: Seen) -> dict[int, Rebalance]:
        """By generation, the recorded rebalances from one record to the next, or the one that led to a first record.

        The log has forgotten the other rebalances that the server recorded until then.
        """
        generation = seen.value.generation
        former = generation - 1 if before is None else before.value.generation
        recorded: dict[int, Rebalance] = {}
        forgotten: list[Rebalance] = []
        for each in take_until(self._left, seen.ts, former, generation):
            if not former < each.generation <= generation:
                forgotten.append(each)
                continue
            if each.generation in recorded:  # of an earlier group of that name
                forgotten.append(recorded[each.generation])
            recorded[each.generation] = each
        self._remember(forgotten, seen.ts)
        return recorded

    def _remember(self, forgotten: Iterable[Rebalance], ts: int) -> None:
        """Count recorded rebalances that left no trace in the log; ts: of the last record, which is behind them."""
        for each in forgotten:
            self._forgotten += 1
            self._count(each, ts)

    def _count(self, rebalance: Rebalance, ts: int) -> None:
        """Count a recorded rebalance at its own time; ts: of the last record."""
        self.story.causes_recorded[rebalance.kind] += 1
        at_ms = self._now_ms + rebalance.at_ms - ts
        self._storms.add(at_ms, rebalance.at_ms, 1, rebalance.kind, self._offset, rebalance.generation)


def _why_written(before: Seen, seen: Seen) -> str:
    """Why a generation is written once more, if no static member returned."""
    names = taken(before, seen)
    return "written again" if names is None else f"standby {names[0].name} took the seat of {names[1].name}"


def _nouns(kinds: Mapping[str, str]) -> str:
    """Each kind of returns once, in words."""
    return ", ".join(dict.fromkeys(NOUNS.get(each, "return") for each in kinds.values()))


def _note_clients(story: Story, value: GroupMetadataValue) -> None:
    """Note the clients of static members that are in OLD_CLIENTS."""
    for member in value.members:
        if member.group_instance_id is not None and len(story.old_clients) < OLD_CLIENTS_MAX:
            for start, why in OLD_CLIENTS.items():
                if member.client_id.startswith(start):
                    story.old_clients[member.client_id] = why
