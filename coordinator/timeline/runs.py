"""Restarts of one static member that come one soon after the other, as one: a run.

A run is a mark on a member's lane. So it goes on whatever others do meanwhile, where a line of `tenure explain`
doesn't; how many restarts make one, and what pause ends it, is the same (coordinator.timeline.folding).

Whether a run is anything but a member that restarts is the doctor's to say (coordinator.timeline.diagnosis): programs
that take a seat from each other in turn, none of which is fenced, look like restarts one by one.

House rule: what is wrong with restarts is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from coordinator.timeline.diagnosis import Finding, findings
from coordinator.timeline.entries import Entry
from coordinator.timeline.folding import FOLDED_MIN, PAUSE_MS
from coordinator.timeline.words import restarts_text

OF_RESTARTS = frozenset({"instance_id_in_turns", "restarts_in_a_loop"})
"""Kinds of findings that are about restarts."""


class Run(NamedTuple):
    """Restarts of one instance id, FOLDED_MIN or more.

    finding: what the doctor says of them, None if they are in order.
    """

    group_instance_id: str
    restarts: list[Entry]
    finding: Finding | None

    @property
    def is_suspect(self) -> bool:
        """Whether no healthy member restarts like that."""
        return self.finding is not None

    @property
    def text(self) -> list[str]:
        """What to say about it: how many restarts, by whom, and what is wrong with them."""
        lines = [restarts_text(self.restarts)]
        return lines if self.finding is None else [*lines, self.finding.found, self.finding.advice]


def runs(group_id: str, entries: Sequence[Entry], now_ms: int) -> list[Run]:
    """Those of a timeline, in the order of their beginning. now_ms: Unix time."""
    by_seat: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry["type"] in {"static_restart", "fencing"}:
            by_seat.setdefault(entry["group_instance_id"], []).append(entry)
    found: list[Run] = []
    for seat, told in by_seat.items():
        for near in _near(told):
            restarts = [entry for entry in near if entry["type"] == "static_restart"]
            if len(restarts) >= FOLDED_MIN:
                said = findings(group_id, near, None, {}, now_ms)
                found.append(Run(seat, restarts, next((each for each in said if each.kind in OF_RESTARTS), None)))
    return sorted(found, key=lambda run: run.restarts[0]["at_ms"])


def _near(told: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Entries of one seat, cut where nothing came for long."""
    cuts = [place for place, (one, other) in enumerate(pairwise(told), 1) if other["at_ms"] - one["at_ms"] > PAUSE_MS]
    for begin, end in pairwise([0, *cuts, len(told)]):
        yield told[begin:end]


def run_json(run: Run) -> dict[str, Any]:
    """A run as JSON, with its words."""
    return {
        "group_instance_id": run.group_instance_id,
        "from_ms": run.restarts[0]["at_ms"],
        "until_ms": run.restarts[-1]["at_ms"],
        "restarts": len(run.restarts),
        "rebalances": sum(entry["rebalances"] for entry in run.restarts),
        "finding": None if run.finding is None else run.finding._asdict(),
        "text": run.text,
    }
