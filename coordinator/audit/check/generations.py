"""The time on which an audit puts records, and the words for inferred causes.

The log has no causes. coordinator.story.inference infers them, for the audit as for `tenure explain` on a cluster
that keeps no events.

House rule: plain values; no check is made here, and no cause is inferred here.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group.causes import CauseKind
from coordinator.story.events import Cause
from coordinator.story.schema import UNKNOWN


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


def words_of(causes: Iterable[Cause]) -> str:
    """Inferred causes in words, each once: "joined, left or expired"."""
    return ", ".join(dict.fromkeys(_word(cause) for cause in causes))


def _word(cause: Cause) -> str:
    kinds = cause.possible or () if cause.kind == UNKNOWN else [cause.kind]
    return " or ".join(CauseKind(kind).words.short for kind in kinds) or UNKNOWN
