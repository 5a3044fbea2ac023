"""Reads what the server recorded about groups in `__rebalance_events`; only Tenure writes this topic.

The log of groups has generations and no reasons, and compaction removes most generations. The topic has each rebalance
with its trigger, the source of that cause and the member that the group waited for; and each fencing with both members.
It keeps them for its retention time.

`History` gets the recorded events of its group and joins them with the records of the log: by generation, and also by
time, as a group that was deleted starts again at generation 1.

House rule: a record that can't be read is counted and skipped; without the topic the audit is the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from coordinator.audit.read.batches import read_records
from coordinator.log.segments.outside import Log
from coordinator.log.segments.segment import topic_partition_of
from coordinator.story import entries
from coordinator.story.counts import number_text
from coordinator.story.diagnosis import conflict_text
from coordinator.story.events import (
    Cause,
    EventsDropped,
    GroupDeleted,
    GroupEvent,
    GroupLoaded,
    MemberFenced,
    RebalanceEnded,
    RebalanceEvent,
    RebalanceStarted,
    read_event,
)
from coordinator.story.inference.told import unknown
from coordinator.story.rebalances import RETURN_EVENTS, Rebalances
from coordinator.story.schema import EVENTS_TOPIC, Gap
from coordinator.text import second_text

SLACK_MS = 1_000
"""The server may record a rebalance this much later than the time of the group's record."""
NAMES_MAX = 10
"""Groups that a note names."""
WORDS_MAX = 500
"""Characters of the description of a rebalance: a client's reason may have 32,767."""
CLIENT = "client"
"""The source of a cause that a client gave, as text (KIP-800) or as a number (KIP-423)."""

COUNTED = (RebalanceStarted, RebalanceEnded, GroupLoaded, GroupDeleted, *RETURN_EVENTS)
"""Events that are counted."""

NO_CAUSE = unknown(())

_UNLOADED = "unloaded"
"""The outcome of a rebalance whose generation is lost: the next generation has the same number."""


class Rebalance(NamedTuple):
    """A rebalance that ended at `at_ms` with this generation. kind: its trigger. words: a description for people."""

    at_ms: int
    generation: int
    kind: str
    words: str


class Conflict(NamedTuple):
    """Two programs with one instance id. found: the last fencing in words. fencings: how many there were."""

    at_ms: int
    generation: int | None
    found: str
    fencings: int


class Return(NamedTuple):
    """A static member's return. kind: a type of an entry (coordinator.story.counts)."""

    kind: str
    group_instance_id: str


@dataclass
class GroupEvents:
    """The recorded events of one group.

    rebalances: those that got a generation, in the order of time. conflicts: by instance id.
    rebalance_count: all rebalances (coordinator.story.counts). returns: by the new member id.
    has_gaps: events of this group may be missing. waiting: events that `settle` is going to count.
    """

    rebalances: list[Rebalance] = field(default_factory=list)
    conflicts: dict[str, Conflict] = field(default_factory=dict)
    rebalance_count: int = 0
    returns: dict[str, Return] = field(default_factory=dict)
    has_gaps: bool = False
    waiting: list[GroupEvent] = field(default_factory=list, repr=False)

    def settle(self) -> None:
        """All events are taken: put them in order and count."""
        self.rebalances.sort(key=attrgetter("at_ms"))
        self.waiting.sort(key=attrgetter("at_ms"))
        rebalances = Rebalances()
        for event in self.waiting:
            rebalances.add(event)
        self.rebalance_count = rebalances.count
        seats = [event for event in self.waiting if isinstance(event, RETURN_EVENTS)]
        for entry in entries.Timeline(seats[0].group if seats else "").add_all(seats).entries:
            if isinstance(entry, entries.Return):
                self.returns[entry.event.member_id] = Return(entry.type, entry.event.group_instance_id)
        self.waiting.clear()


@dataclass
class RecordedEvents:
    """The recorded events of all groups.

    dropped: the events that the server could not keep; None without any.
    passed_over: records that can't be read. refused: why the topic can't be read; empty if it can.
    """

    groups: dict[str, GroupEvents] = field(default_factory=dict)
    dropped: Gap | None = None
    passed_over: int = 0
    refused: str = ""

    def of(self, group: str) -> GroupEvents:
        """The events of that group; none if it has none."""
        found = self.groups.get(group) or GroupEvents()
        found.has_gaps = bool(self.refused or self.dropped or self.passed_over)
        return found

    def notes(self, known: Collection[str]) -> list[str]:
        """Notes for the report; known: the groups that the log has."""
        notes = []
        if self.refused:
            notes.append(f"{EVENTS_TOPIC} can't be read: {self.refused}")
        if self.dropped:
            notes.append(
                f"{number_text(self.dropped.events, 'event')} could not be kept in {EVENTS_TOPIC}, from "
                f"{second_text(self.dropped.first_ms)} to {second_text(self.dropped.last_ms)}: causes may be missing"
            )
        if self.passed_over:
            notes.append(f"{number_text(self.passed_over, 'record')} of {EVENTS_TOPIC} could not be read")
        gone = {
            group: of_group
            for group, of_group in sorted(self.groups.items())
            if group not in known and of_group.rebalance_count
        }
        if gone:
            names = ", ".join(list(gone)[:NAMES_MAX]) + (" and others" if len(gone) > NAMES_MAX else "")
            count = sum(of_group.rebalance_count for of_group in gone.values())
            notes.append(
                f"{EVENTS_TOPIC} has {number_text(count, 'rebalance')} of {number_text(len(gone), 'group')} "
                f"that the log has forgotten: {names}"
            )
        return notes


def take_until(left: deque[Rebalance], ts: int, before: int, generation: int) -> list[Rebalance]:
    """Take the recorded rebalances up to a record of that time and generation.

    left: those that no record has taken yet. before: the generation of the record before it.
    """
    taken = []
    while left:
        each = left[0]
        if each.at_ms > ts and not (each.at_ms <= ts + SLACK_MS and before < each.generation <= generation):
            break
        taken.append(left.popleft())
    return taken


def read_events(path: Path) -> RecordedEvents:
    """The recorded events in the data folder `path`; none if it has no such topic. Raises OSError."""
    return gather(each and read_event(each[1].value) for log in _logs(path) for each in read_records(log))


def _logs(path: Path) -> list[Log]:
    named = ((topic_partition_of(folder.name), folder) for folder in path.absolute().iterdir() if folder.is_dir())
    return sorted(Log(name[1], folder) for name, folder in named if name and name[0] == EVENTS_TOPIC)


def gather(events: Iterable[RebalanceEvent | None], passed_over: int = 0) -> RecordedEvents:
    """Sort events by group, whatever their order; None stands for a record that can't be read.

    passed_over: further records that can't be read. The events are taken one by one: a topic may have millions.
    """
    gathered = RecordedEvents(passed_over=passed_over)
    for event in events:
        if event is None or (isinstance(event, RebalanceEnded) and not event.causes):
            gathered.passed_over += 1
        else:
            _take(gathered, event)
    for recorded in gathered.groups.values():
        recorded.settle()
    return gathered


def _take(gathered: RecordedEvents, event: RebalanceEvent) -> None:
    if isinstance(event, EventsDropped):
        events, first_ms, last_ms = gathered.dropped or Gap(0, event.first_ms, event.last_ms)
        gathered.dropped = Gap(events + event.events, min(event.first_ms, first_ms), max(event.last_ms, last_ms))
        return
    if not isinstance(event, COUNTED):
        return
    recorded = gathered.groups.setdefault(event.group, GroupEvents())
    recorded.waiting.append(_slim(event))
    if isinstance(event, RebalanceEnded) and event.generation > event.generation_before and event.outcome != _UNLOADED:
        kind = event.causes[0].kind.replace("_", " ")
        words = "; ".join(_words(event, event.causes[0], kind))
        recorded.rebalances.append(Rebalance(event.at_ms, event.generation, kind, words[:WORDS_MAX]))
    elif isinstance(event, MemberFenced) and event.is_conflict:
        newest = Conflict(event.at_ms, event.generation, conflict_text(event), 0)
        former = recorded.conflicts.get(event.group_instance_id, newest)
        if former.at_ms > newest.at_ms:
            newest = former
        recorded.conflicts[event.group_instance_id] = newest._replace(fencings=former.fencings + 1)


def _slim(event: GroupEvent) -> GroupEvent:
    """The event without its lists, which counts don't need: a topic may have millions of events."""
    if isinstance(event, RebalanceStarted):
        return replace(event, cause=NO_CAUSE, pending=[])
    if isinstance(event, RebalanceEnded):
        return replace(event, causes=[], late=[], lapsed=[], before=[], after=[], moved=None)
    return event


def _words(event: RebalanceEnded, cause: Cause, kind: str) -> Iterator[str]:
    """The trigger, the source of the cause, and the member that the group waited for."""
    who = cause.group_instance_id or ", ".join(cause.member_ids)
    yield f"{kind}: {who}" if who else kind
    if cause.source == CLIENT:
        yield f"its client says: {cause.reason}" if cause.reason else "its client says so"
    else:
        yield "inferred by the server"
    further = len(event.causes) - 1 + event.further_causes
    if further:
        yield number_text(further, "further cause")
    waited = event.waited_for
    if waited is not None:
        yield f"waited for {waited.member_id}, {waited.ms / 1000:.1f} s"
