"""Lanes: who held which seat when. A lane has the spans in which its seat was taken, and marks.

A seat's name is an instance id, or the member id of a dynamic member. Both pages draw these lanes. The server's page
makes them from entries (`lanes_of`), the audit's from the records of a log, one after the other (`hold`, `Lane.add`).

A span without a beginning began before the first known event; a span without an end goes on.

House rule: a seat changes hands only where an entry or a record says so. A missing record leaves the lane as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Struct

from coordinator.story import events
from coordinator.story.counts import REJOIN, RETURN, TAKEOVER
from coordinator.story.entries import Entry, Rebalance, Return
from coordinator.story.events import UnixMs, one_of, says
from coordinator.story.runs import Run, run_json
from coordinator.story.words import entry_lines

SETTLED = frozenset({"completed", "emptied"})
"""Outcomes of a rebalance after which the seats are known."""

MARKS = {TAKEOVER: "takeover", REJOIN: "rejoin", RETURN: "return"}
"""The kinds of marks of returns that are no restarts."""


class Mark(Struct, frozen=True):
    """Something that happened to a seat, from one time to another (Unix time in ms).

    kind: suspect for restarts that no healthy member makes; return where only the log of groups shows it (counts).
    rebalances: how many of them started a rebalance. text: what to show.
    """

    kind: Annotated[str, one_of(("restart", "fencing", "suspect", *MARKS.values()))]
    from_ms: UnixMs
    until_ms: UnixMs
    times: Annotated[int, says("how many restarts or fencings the mark stands for")] = 1
    rebalances: int = 0
    text: tuple[str, ...] = ()


@dataclass
class Lane:
    """A seat. spans: from and until, Unix time in ms, in order; only the last may be open."""

    spans: list[tuple[int | None, int | None]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def is_taken(self) -> bool:
        """Whether a member has the seat."""
        return bool(self.spans) and self.spans[-1][1] is None

    def take(self, at_ms: int | None, spans_max: int = sys.maxsize) -> None:
        """A member has the seat from then on. No change if it is taken, or has `spans_max` spans."""
        if not self.is_taken and len(self.spans) < spans_max:
            self.spans.append((at_ms, None))

    def free(self, at_ms: int) -> None:
        """No member has the seat from then on."""
        if self.is_taken:
            self.spans[-1] = self.spans[-1][0], at_ms

    def add(self, mark: Mark, marks_max: int = sys.maxsize) -> None:
        """Mark the lane, unless it has `marks_max` marks."""
        if len(self.marks) < marks_max:
            self.marks.append(mark)


def hold(
    lanes: dict[str, Lane],
    names: Collection[str],
    at_ms: int,
    *,
    lanes_max: int = sys.maxsize,
    spans_max: int = sys.maxsize,
) -> bool:
    """From `at_ms` on exactly the seats of these names are taken. False if there was no room for all."""
    fits = True
    for name in names:
        if name not in lanes and len(lanes) >= lanes_max:
            fits = False
        else:
            lanes.setdefault(name, Lane()).take(at_ms, spans_max)
    held = set(names)
    for name, lane in lanes.items():
        if name not in held:
            lane.free(at_ms)
    return fits


def lanes_of(entries: Iterable[Entry], runs: Sequence[Run], names: Iterable[str]) -> dict[str, Lane]:
    """The lanes of a group, by name.

    entries: of its timeline. runs: of its restarts; each run is one mark. names: the seats that are taken now.
    """
    lanes: dict[str, Lane] = {}
    in_runs = {id(entry) for run in runs for entry in run.restarts}
    for entry in entries:
        match entry:
            case Rebalance(ended=events.RebalanceEnded() as end) if end.outcome in SETTLED:
                _settle(lanes, end)
            case Return(event=event):
                lane = lanes.setdefault(event.group_instance_id, Lane())
                lane.take(event.at_ms if lane.spans else None)
                if id(entry) not in in_runs:
                    lane.add(_mark(MARKS.get(entry.type, "restart"), entry, int(event.rebalances)))
            case Entry(event=events.MemberFenced() | events.InstanceIdUnreleased() as event):
                lanes.setdefault(event.group_instance_id, Lane()).add(_mark("fencing", entry))
            case Entry(event=events.SeatTaken() as event):
                _pass_on(lanes, event)
            case Entry(event=events.GroupDeleted() | events.GroupLoaded(members=0)):
                hold(lanes, (), entry.at_ms)
    for run in runs:
        told = run_json(run)
        kind = "restart" if told.finding is None else "suspect"
        mark = Mark(kind, told.from_ms, told.until_ms, told.restarts, told.rebalances, tuple(told.text))
        lanes.setdefault(run.group_instance_id, Lane()).add(mark)
    for name in names:
        lane = lanes.setdefault(name, Lane())
        if not lane.spans:
            lane.take(None)
    return dict(sorted(lanes.items()))


def _settle(lanes: dict[str, Lane], end: events.RebalanceEnded) -> None:
    """A rebalance ended: take over its members before and after. Of a large group an event names some of them."""
    for name in end.before:
        lane = lanes.setdefault(name, Lane())
        if not lane.spans:
            lane.take(None)
    after = [seat.group_instance_id or seat.member_id for seat in end.after]
    if len(after) == end.members_after:
        hold(lanes, after, end.at_ms)
        return
    for name in after:
        lanes.setdefault(name, Lane()).take(end.at_ms)


def _pass_on(lanes: dict[str, Lane], taken: events.SeatTaken) -> None:
    """A standby took the seat of a member that is gone."""
    lost = lanes.setdefault(taken.old_group_instance_id or taken.old_member_id, Lane())
    if not lost.spans:
        lost.take(None)
    lost.free(taken.at_ms)
    lanes.setdefault(taken.group_instance_id or taken.member_id, Lane()).take(taken.at_ms)


def _mark(kind: str, entry: Entry, rebalances: int = 0) -> Mark:
    first, *_ = entry_lines(entry)
    return Mark(kind, entry.at_ms, entry.at_ms, 1, rebalances, (first,))


class SpanJson(Struct):
    """A span as JSON."""

    from_ms: UnixMs | None
    until_ms: UnixMs | None


class LaneJson(Struct):
    """A lane as JSON."""

    name: Annotated[str, says("an instance id, or the member id of a member without one")]
    standby_since_ms: Annotated[UnixMs | None, says("since when a standby waits for a seat; null if it is none")]
    spans: Annotated[
        list[SpanJson], says("the times when the seat was taken; null: since before the first event, or still")
    ]
    marks: list[Mark]


def lane_json(name: str, lane: Lane, standby_since_ms: int | None = None) -> LaneJson:
    """A lane as JSON. standby_since_ms: since when it waits for a seat, Unix time in ms; None if it is no standby."""
    return LaneJson(name, standby_since_ms, [SpanJson(*span) for span in lane.spans], lane.marks)
