"""What the server itself told of groups in `__rebalance_events`, where there is such a topic: only Tenure's have one.

The log of groups knows generations and no reasons, and a compacted one has forgotten most generations. The topic has
each rebalance with what triggered it, who says so and who was waited for, and each fencing with both parties, for as
long as it keeps them. A history is given what was told of its group and joins the two: by generation, and by time, as a
group that was deleted begins to count anew.

House rule: a record that can't be read is counted and passed over, and a topic that isn't there changes nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from coordinator.audit.read.records import unpack
from coordinator.audit.words import count_text, time_text
from coordinator.log.segments.outside import Log, NoBatch, opened, read_segment
from coordinator.timeline.schema import EVENTS_TOPIC, RebalanceEvent, read_event
from protocol.records.batch import CorruptBatch

SLACK_MS = 1_000
"""A rebalance may be told so much later than its record says: the note is made when the record is on its way."""
NAMES_MAX = 10
"""Groups that a note names."""
WORDS_MAX = 500
"""Characters of what is told of a rebalance: a client's reason may have 32,767."""
CLIENT = "client"
"""The source of a cause that a client gave, with words of its own or a number (KIP-800, KIP-423)."""

_UNLOADED = "unloaded"
"""The outcome of a rebalance whose generation isn't kept: the next one has the same number."""
_FOLDER_NAME = re.compile(rf"{EVENTS_TOPIC}-(\d+)")


class Rebalance(NamedTuple):
    """A rebalance that ended at `at_ms` with this generation. kind: its trigger; words: all that is known of it."""

    at_ms: int
    generation: int
    kind: str
    words: str


class Conflict(NamedTuple):
    """Two programs with one instance id. parties: who was fenced and who fenced it, the last time."""

    at_ms: int
    generation: int | None
    parties: tuple[str, str]
    fencings: int


@dataclass
class Told:
    """What was told of a group. rebalances: in the order of time. conflicts: by instance id."""

    rebalances: list[Rebalance] = field(default_factory=list)
    conflicts: dict[str, Conflict] = field(default_factory=dict)


@dataclass
class Events:
    """All that was told, by group; dropped: events that the server could not keep, and between which times.

    refused: why the topic can't be read, if so.
    """

    groups: dict[str, Told] = field(default_factory=dict)
    dropped: int = 0
    first_dropped_ms: int = 0
    last_dropped_ms: int = 0
    passed_over: int = 0
    refused: str = ""

    def of(self, group: str) -> Told:
        """What was told of that group."""
        return self.groups.get(group) or Told()

    def notes(self, known: Collection[str]) -> list[str]:
        """What a person should know of it; known: the groups that the log has."""
        notes = []
        if self.refused:
            notes.append(f"{EVENTS_TOPIC} can't be read: {self.refused}")
        if self.dropped:
            notes.append(
                f"{count_text(self.dropped, 'event')} could not be kept in {EVENTS_TOPIC}, from "
                f"{time_text(self.first_dropped_ms)} to {time_text(self.last_dropped_ms)}: causes may be missing"
            )
        if self.passed_over:
            notes.append(f"{count_text(self.passed_over, 'record')} of {EVENTS_TOPIC} could not be read")
        gone = {group: told for group, told in sorted(self.groups.items()) if group not in known and told.rebalances}
        if gone:
            names = ", ".join(list(gone)[:NAMES_MAX]) + (" and others" if len(gone) > NAMES_MAX else "")
            count = sum(len(told.rebalances) for told in gone.values())
            notes.append(
                f"{EVENTS_TOPIC} tells of {count_text(count, 'rebalance')} of {count_text(len(gone), 'group')} "
                f"that the log has forgotten: {names}"
            )
        return notes


class Course:
    """The rebalances that were told of a group, while its log is read."""

    def __init__(self, told: Told) -> None:
        self._left = deque(told.rebalances)

    def until(self, ts: int, before: int, generation: int) -> list[Rebalance]:
        """Those not taken yet up to a record of that time and generation; before: the generation of the one before."""
        taken = []
        while self._left:
            each = self._left[0]
            if each.at_ms > ts and not (each.at_ms <= ts + SLACK_MS and before < each.generation <= generation):
                break
            taken.append(self._left.popleft())
        return taken

    def rest(self) -> list[Rebalance]:
        """All that are left."""
        left = list(self._left)
        self._left.clear()
        return left


def read_events(path: Path) -> Events:
    """What is told in the data folder `path`; nothing where there is no such topic. Raises OSError."""
    return gather(event for log in _logs(path) for event in _events(log))


def _events(log: Log) -> Iterator[RebalanceEvent | None]:
    """The events of a partition, one after the other; None for what can't be read."""
    with opened(log) as segments:
        for segment in segments:
            for frame in read_segment(segment):
                if isinstance(frame, NoBatch):
                    if not frame.at_end:  # what is at the end may be on its way
                        yield None
                    continue
                try:
                    records = unpack(frame.data, frame.at, frame.header).records
                except CorruptBatch:
                    yield None
                else:
                    yield from (read_event(record.value) for record in records)


def _logs(path: Path) -> list[Log]:
    names = ((_FOLDER_NAME.fullmatch(folder.name), folder) for folder in path.absolute().iterdir() if folder.is_dir())
    return sorted(Log(int(name[1]), folder) for name, folder in names if name)


def gather(events: Iterable[RebalanceEvent | None], passed_over: int = 0) -> Events:
    """Put the events together, whatever their order; None, and passed_over: what could not be read.

    They are taken one by one: a topic may have some millions.
    """
    gathered = Events(passed_over=passed_over)
    for event in events:
        try:
            if event is None:
                gathered.passed_over += 1
            else:
                _take(gathered, event)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            gathered.passed_over += 1
    for told in gathered.groups.values():
        told.rebalances.sort(key=attrgetter("at_ms"))
    return gathered


def _at_ms(event: RebalanceEvent) -> int:
    return int(event["at_ms"])


def _take(gathered: Events, event: RebalanceEvent) -> None:
    match event["type"]:
        case "rebalance_ended":
            generation, before = int(event["generation"]), int(event["generation_before"])
            if generation > before and event["outcome"] != _UNLOADED:
                cause = event["causes"][0]
                kind = cause["kind"].replace("_", " ")
                words = "; ".join(_words(event, cause, kind))
                each = Rebalance(_at_ms(event), generation, kind, words[:WORDS_MAX])
                gathered.groups.setdefault(event["group"], Told()).rebalances.append(each)
        case "member_fenced" if event["kind"] == "conflict":
            conflicts = gathered.groups.setdefault(event["group"], Told()).conflicts
            instance_id = str(event["group_instance_id"])
            parties = (
                _party(event["member_id"], event["client"]),
                _party(event["current_member_id"], event["current_client"]),
            )
            newest = Conflict(_at_ms(event), event["generation"], parties, 0)
            former = conflicts.get(instance_id, newest)
            if former.at_ms > newest.at_ms:
                newest = former
            conflicts[instance_id] = newest._replace(fencings=former.fencings + 1)
        case "events_dropped":
            first_ms, last_ms = int(event["first_ms"]), int(event["last_ms"])
            gathered.first_dropped_ms = min(first_ms, gathered.first_dropped_ms) if gathered.dropped else first_ms
            gathered.last_dropped_ms = max(last_ms, gathered.last_dropped_ms)
            gathered.dropped += int(event["events"])


def _words(event: RebalanceEvent, cause: dict[str, Any], kind: str) -> Iterator[str]:
    """The trigger, who says so, and who was waited for."""
    who = cause["group_instance_id"] or ", ".join(cause["member_ids"])
    yield f"{kind}: {who}" if who else kind
    if cause["source"] == CLIENT:
        yield f"its client says: {cause['reason']}" if cause["reason"] else "its client says so"
    else:
        yield "inferred by the server"
    further = len(event["causes"]) - 1 + int(event["further_causes"])
    if further:
        yield count_text(further, "further cause")
    waited = event["waited_for"]
    if waited is not None:
        yield f"waited for {waited['member_id']}, {int(waited['ms']) / 1000:.1f} s"


def _party(member_id: str, client: dict[str, str] | None) -> str:
    if client is None:
        return member_id
    return f"{member_id} ({client['client_id']} at {client['client_host'].removeprefix('/')})"
