"""Checks the static members of one group.

Does a member come back too late? Do two programs share one instance id? Do instance ids go and never return?

The log doesn't say whether a member left or expired: a record simply lacks it.

House rule: at most GONE_MAX instance ids that are gone are remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.audit.check.checks import Findings
from coordinator.audit.check.generations import Member, Seat, Seen
from coordinator.audit.read.events import Conflict

CONTEST_COUNT = 3
CONTEST_WINDOW_MS = 60_000
"""This many replacements within this time mean that two programs share the instance id, or one crashes at once."""
NEVER_RETURNS_MIN = 2
"""Instance ids that must be gone, and new ones that must have come: a single one may have been renamed."""
GONE_MAX = 10_000
"""Instance ids that are gone and remembered, the last ones: pods of a Deployment get new names in each rollout."""
NAMES_MAX = 100
"""Instance ids that a finding names."""


@dataclass
class _Instance:
    """An instance id.

    first_step: number of the first record that has it. gone_ms, gone_step: time and number of the record that lacks it.
    gone_with_all: that record has no member at all. contested, gap_reported: whether there is a finding.
    """

    first_step: int
    session_ms: int = 0
    replaced_ms: deque[int] = field(default_factory=lambda: deque(maxlen=CONTEST_COUNT))
    contested: bool = False
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
        self._fought_over: set[str] = set()
        self._step = 0
        self._here: dict[str, _Instance] = {}
        self._gone: dict[str, _Instance] = {}
        self._forgotten = 0
        self._stop: _Stop | None = None

    def clear(self) -> None:
        """The group was deleted."""
        self._here.clear()
        self._gone.clear()
        self._forgotten = 0

    def follow(self, before: Mapping[Seat, Member], seen: Seen, restarted: Sequence[str]) -> list[str]:
        """Take the next record; return the instance ids that were gone and are back."""
        self._step += 1
        back = []
        for seat, member in seen.seats.items():
            if not seat.is_static:
                continue
            gone = self._gone.pop(seat.name, None)
            if gone is not None:
                back.append(seat.name)
                self._came_back(seat.name, gone, seen)
                self._here[seat.name] = gone
            instance = self._here.setdefault(seat.name, _Instance(self._step))
            instance.session_ms = member.session_timeout
        for name in restarted:
            self._replaced(name, seen)
        for seat in before:
            if seat.is_static and seat not in seen.seats:
                self._go(seat.name, seen)
        return back

    def report(self, last: Seen | None, findings: Findings) -> None:
        """Add the findings that only the end of the log shows; last: the group's last record."""
        if self._stop is not None:
            stop = self._stop
            findings.add(
                "session_shorter_than_gap", stop.offset, stop.generation, left_or_expired="all at once",
                instances=stop.names, count=stop.count, session_ms=stop.session_ms, gap_ms=stop.gap_ms,
            )  # fmt: skip
        for name, conflict in self._conflicts.items():
            if name not in self._fought_over:
                findings.add(
                    "instance_contested", None, conflict.generation,
                    group_instance_id=name, last_ms=conflict.at_ms, **_of_conflict(conflict),
                )  # fmt: skip
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

    def _replaced(self, name: str, seen: Seen) -> None:
        instance = self._here[name]
        times = instance.replaced_ms
        times.append(seen.now_ms)
        if len(times) < CONTEST_COUNT or times[-1] - times[0] > CONTEST_WINDOW_MS:
            instance.contested = False
        elif not instance.contested:
            instance.contested = True  # one finding as long as it goes on
            if name in self._conflicts:
                self._fought_over.add(name)
            self._findings.add(
                "instance_contested", seen.offset, seen.value.generation,
                group_instance_id=name, replacements=len(times), within_ms=times[-1] - times[0],
                **_of_conflict(self._conflicts.get(name)),
            )  # fmt: skip


def _of_conflict(conflict: Conflict | None) -> dict[str, Any]:
    """The part of a finding's detail that a recorded conflict gives."""
    return {} if conflict is None else {"parties": conflict.parties, "fencings": conflict.fencings}
