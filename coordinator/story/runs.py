"""Runs: restarts of one static member that follow each other soon, as one mark on its lane.

A run goes on whatever other members do meanwhile; a fold of `tenure explain` doesn't. How many restarts make a run, and
which pause ends it, is the same for both (`folding`).

The doctor decides whether a run is more than a member that restarts (`diagnosis`): programs that take a seat from each
other without being fenced look like restarts one by one.

House rule: this module doesn't decide what is wrong with restarts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple

from msgspec import Struct

from coordinator.story.diagnosis import Case, Finding, findings
from coordinator.story.entries import Entry, Return, is_restart
from coordinator.story.events import MemberFenced, MemberReplaced, says
from coordinator.story.folding import FOLDED_MIN, PAUSE_MS
from coordinator.story.words import restarts_text

OF_RESTARTS = frozenset({"instance_id_in_turns", "restarts_in_a_loop"})
"""Kinds of findings about restarts."""


class Run(NamedTuple):
    """FOLDED_MIN or more restarts of one instance id.

    finding: the doctor's, if no healthy member makes such restarts; else None.
    """

    group_instance_id: str
    restarts: list[Return]
    finding: Finding | None


def runs(group_id: str, entries: Sequence[Entry], now_ms: int) -> list[Run]:
    """The runs of a timeline, in the order in which they began. now_ms: Unix time."""
    by_seat: dict[str, list[Entry]] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, MemberFenced) or (isinstance(event, MemberReplaced) and is_restart(entry)):
            by_seat.setdefault(event.group_instance_id, []).append(entry)
    found: list[Run] = []
    for seat, told in by_seat.items():
        for near in _near(told):
            restarts = list(filter(is_restart, near))
            if len(restarts) >= FOLDED_MIN:
                said = findings(Case(group_id, near, None, {}, now_ms))
                found.append(Run(seat, restarts, next((each for each in said if each.kind in OF_RESTARTS), None)))
    return sorted(found, key=lambda run: run.restarts[0].at_ms)


def _near(told: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Entries of one seat, cut at long pauses."""
    cuts = [place for place, (one, other) in enumerate(pairwise(told), 1) if other.at_ms - one.at_ms > PAUSE_MS]
    for begin, end in pairwise([0, *cuts, len(told)]):
        yield told[begin:end]


class RunJson(Struct):
    """Several restarts of one static member, each soon after the last."""

    group_instance_id: str
    from_ms: Annotated[int, says("time of the first restart, Unix time in ms")]
    until_ms: Annotated[int, says("time of the last restart, Unix time in ms")]
    restarts: int
    rebalances: Annotated[int, says("how many of the restarts made the group rebalance")]
    finding: Annotated[Finding | None, says("null if a healthy member may restart like this")]
    text: list[str]


def run_json(run: Run) -> RunJson:
    """A run as JSON, with its words: how many restarts, by which clients, and what is wrong with them."""
    seat, restarts, finding = run
    rebalances = sum(entry.event.rebalances for entry in restarts)
    text = [restarts_text(restarts), *(() if finding is None else (finding.found, finding.advice))]
    return RunJson(seat, restarts[0].at_ms, restarts[-1].at_ms, len(restarts), rebalances, finding, text)
