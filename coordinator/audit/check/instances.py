"""Checks the static members of one group.

Does a member come back too late? Do two programs share one instance id, or does a program restart in a loop? Do
instance ids go and never return? coordinator.story.diagnosis defines a conflict and a loop, and has their words.

The log doesn't say whether a member left or expired: a record simply lacks it.

House rule: the checks remember at most GONE_MAX instance ids that are gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from coordinator.audit.check.checks import NAMES_MAX, Findings
from coordinator.audit.read.events import Conflict
from coordinator.story.diagnosis import LOOP_MIN, LOOP_MS, loop_text
from coordinator.story.inference.seen import Member, Seat, Seen

RESTARTS, RETURNS = WHAT = ("restarts", "returns")
"""The words for the returns of a loop; the second one if the log doesn't say of each return that it is a restart."""

NEVER_RETURNS_MIN = 2
"""Instance ids that must be gone, and new ones that must have come: a single one may have been renamed."""
GONE_MAX = 10_000
"""Instance ids that are gone and remembered, the last ones: pods of a Deployment get new names in each rollout."""


@dataclass
class _Loop:
    """Returns of one seat that follow each other fast. offset, generation: of the record with the first of them.

    what: restarts, or returns if the log alone shows one of them.
    """

    offset: int
    generation: int
    first_ms: int
    last_ms: int
    times: int
    shortest_ms: int
    what: str


class _Back(NamedTuple):
    """A return."""

    at_ms: int
    offset: int
    generation: int
    what: str


@dataclass
class _Instance:
    """An instance id.

    first_step: number of the first record that has it. gone_ms, gone_step: time and number of the record that lacks it.
    gone_with_all: that record has no member at all. gap_reported: whether a finding reports the gap.
    back: its last returns. loop: the loop under way.
    """

    first_step: int
    session_ms: int = 0
    back: deque[_Back] = field(default_factory=lambda: deque(maxlen=LOOP_MIN))
    loop: _Loop | None = None
    gap_reported: bool = False
    gone_ms: int = 0
    gone_step: int = -1
    gone_with_all: bool = False


@dataclass
class _Stop:
    """Members that all went at once and came back. offset, generation: of the record with the first that came back."""

    offset: int
    generation: int
    count: int = 0
    gap_ms: int = 0
    session_ms: int = 0
    names: list[str] = field(default_factory=list)


class Instances:
    """Takes a group's records, in their order; conflicts: by instance id, those that the server recorded."""

    def __init__(self, findings: Findings, session_ms_max: int, conflicts: Mapping[str, Conflict]) -> None:
        self._findings = findings
        self._session_ms_max = session_ms_max
        self._conflicts = conflicts
        self._step = 0
        self._here: dict[str, _Instance] = {}
        self._gone: dict[str, _Instance] = {}
        self._forgotten = 0
        self._stop: _Stop | None = None

    def clear(self) -> None:
        """The group was deleted."""
        for name, instance in self._here.items():
            self._end_loop(name, instance)
        self._here.clear()
        self._gone.clear()
        self._forgotten = 0

    def follow(self, before: Mapping[Seat, Member], seen: Seen, came_back: Mapping[str, str]) -> None:
        """Take the next record. came_back: instance ids whose seat has a new member id; restarts, or returns."""
        self._step += 1
        for seat, member in seen.seats.items():
            if not seat.is_static:
                continue
            gone = self._gone.pop(seat.name, None)
            if gone is not None:
                self._came_back(seat.name, gone, seen)
                self._here[seat.name] = gone
            instance = self._here.setdefault(seat.name, _Instance(self._step))
            instance.session_ms = member.session_timeout
        for name, what in came_back.items():
            self._returned(name, seen, what)
        for seat in before:
            if seat.is_static and seat not in seen.seats:
                self._go(seat.name, seen)

    def report(self, last: Seen | None, findings: Findings) -> None:
        """Add the findings that only the end of the log shows; last: the group's last record."""
        if self._stop is not None:
            stop = self._stop
            findings.add(
                "session_shorter_than_gap", stop.offset, stop.generation, left_or_expired="all at once",
                instances=stop.names, count=stop.count, session_ms=stop.session_ms, gap_ms=stop.gap_ms,
            )  # fmt: skip
        for name, conflict in self._conflicts.items():
            findings.add(
                "instance_contested", None, conflict.generation,
                found=conflict.found, group_instance_id=name, fencings=conflict.fencings, last_ms=conflict.at_ms,
            )  # fmt: skip
        for name, instance in self._here.items():
            if instance.loop is not None:
                _report_loop(name, instance.loop, findings)
        if last is None or not last.value.members or not self._gone:
            return
        # Some instance ids went for good, and as many new ones came afterwards.
        first_gone = next(iter(self._gone.values())).gone_step
        known = {**self._gone, **self._here}
        new = sorted(name for name, each in known.items() if each.first_step >= first_gone)
        gone = sorted(self._gone)
        if min(len(gone), len(new)) >= NEVER_RETURNS_MIN:
            findings.add(
                "instance_never_returns", last.offset, last.value.generation,
                gone_count=len(gone) + self._forgotten, new_count=len(new), gone=gone[:NAMES_MAX], new=new[:NAMES_MAX],
            )  # fmt: skip

    def _go(self, name: str, seen: Seen) -> None:
        instance = self._gone[name] = self._here.pop(name)
        self._end_loop(name, instance)
        instance.gone_ms, instance.gone_step = seen.now_ms, self._step
        instance.gone_with_all = not seen.seats
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]
            self._forgotten += 1

    def _came_back(self, name: str, instance: _Instance, seen: Seen) -> None:
        gap_ms = seen.now_ms - instance.gone_ms + instance.session_ms
        if gap_ms > self._session_ms_max:
            return  # longer than any session timeout
        if instance.gone_with_all:
            stop = self._stop = self._stop or _Stop(seen.offset, seen.value.generation)
            stop.count += 1
            if gap_ms > stop.gap_ms:
                stop.gap_ms, stop.session_ms = gap_ms, instance.session_ms
            if len(stop.names) < NAMES_MAX and name not in stop.names:
                stop.names.append(name)
        elif not instance.gap_reported:
            instance.gap_reported = True
            self._findings.add(
                "session_shorter_than_gap", seen.offset, seen.value.generation, left_or_expired="by itself",
                group_instance_id=name, session_ms=instance.session_ms, gap_ms=gap_ms,
            )  # fmt: skip

    def _returned(self, name: str, seen: Seen, what: str) -> None:
        instance = self._here[name]
        back, loop = instance.back, instance.loop
        gap_ms = seen.now_ms - back[-1].at_ms if back else 0
        back.append(_Back(seen.now_ms, seen.offset, seen.value.generation, what))
        first = back[0]
        if len(back) < LOOP_MIN or seen.now_ms - first.at_ms > LOOP_MS:
            self._end_loop(name, instance)
        elif loop is None:
            shortest_ms = min(later.at_ms - former.at_ms for former, later in pairwise(back))
            what = max((each.what for each in back), key=WHAT.index)
            instance.loop = _Loop(
                first.offset, first.generation, first.at_ms, seen.now_ms, len(back), shortest_ms, what
            )
        else:
            loop.times += 1
            loop.last_ms = seen.now_ms
            loop.shortest_ms = min(loop.shortest_ms, gap_ms)
            loop.what = max(loop.what, what, key=WHAT.index)

    def _end_loop(self, name: str, instance: _Instance) -> None:
        if instance.loop is not None:
            _report_loop(name, instance.loop, self._findings)
            instance.loop = None


def _report_loop(name: str, loop: _Loop, findings: Findings) -> None:
    over_ms = loop.last_ms - loop.first_ms
    findings.add(
        "restarts_in_a_loop", loop.offset, loop.generation,
        found=loop_text(name, loop.what, loop.times, over_ms, loop.shortest_ms),
        group_instance_id=name, times=loop.times, within_ms=over_ms,
    )  # fmt: skip
