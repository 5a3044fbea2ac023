"""Knowledge about a group beside its log: a cause from a broker's log, and live members.

A broker's log has words that clients chose, and a newline in them begins a line that may look like the broker's. So a
told cause counts only if the records don't contradict it: it names the group and the generation that ended, its time is
that of the rebalance, a member that is gone is in no later record, and one that is new in no earlier one. A client can
still forge a line that fits all of this.

House rule: plain values. Knowledge is used for one generation and then dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from coordinator.group.causes import GONE, CauseKind, Origin
from coordinator.story.events import Cause
from coordinator.story.inference.told import cause_of
from coordinator.story.schema import UNKNOWN

ZONE_MS = 15 * 60_000
"""Time zones differ from each other by a multiple of this; the lines of a broker's log have local times."""

LATE_MS = 2_000
"""How much older than the record before its rebalance a line may be, or newer than the record after it."""

IN_RECORDS = frozenset({CauseKind.METADATA_CHANGED.value, CauseKind.SUBSCRIPTION_CHANGED.value})
"""Kinds that the records always show."""


class Told(NamedTuple):
    """A cause that somebody knows, such as a line of the broker's log about the begin of a rebalance.

    at_ms: Unix time. generation_before: the generation in which the rebalance began. kind: of the cause. member_id,
    group_instance_id: of the member that caused it, as far as they are known. reason: the client's own. or_kinds: other
    kinds that the same words may mean; the records decide which one it is.
    """

    at_ms: int
    group: str
    generation_before: int
    kind: str
    member_id: str | None = None
    reason: str = ""
    group_instance_id: str | None = None
    or_kinds: tuple[str, ...] = ()

    def cause(self, inferred: list[Cause]) -> Cause:
        """The cause; the names of its client come from an inferred cause about the same member."""
        same = next((each for each in inferred if self._names(each)), None)
        kinds = self._kinds(inferred)
        if len(kinds) > 1:
            made = cause_of(UNKNOWN, _known(self.member_id), possible=kinds)
            return replace(made, reason=self.reason, told=True)
        if same is None:
            same = replace(cause_of(self.kind, _known(self.member_id)), group_instance_id=self.group_instance_id)
        return replace(
            same,
            kind=kinds[0],
            source=(Origin.CLIENT if self.reason else Origin.INFERRED).value,
            reason=self.reason,
            meaning=None,
            possible=UNSET,
            told=True,
        )

    def is_of_time(self, since_ms: int, until_ms: int) -> bool:
        """Whether a rebalance between these times can have this cause, by a wall clock in any time zone.

        A line without a date has no time.
        """
        span_ms = until_ms - since_ms + 2 * LATE_MS
        return self.at_ms < 0 or (until_ms + LATE_MS - self.at_ms) % ZONE_MS <= span_ms

    def agrees(self, before: Collection[str], after: Collection[str]) -> bool:
        """Whether the members before a rebalance, and those after it, allow this cause."""
        if self.member_id is None:
            return True
        if self.kind in GONE:
            return self.member_id not in after
        return self.kind != CauseKind.MEMBER_JOINED.value or self.member_id not in before

    def decides(self, cause: Cause) -> bool:
        """Whether this is one of the kinds that fit an unknown cause, about the same member."""
        return cause.kind == UNKNOWN and self.kind in (cause.possible or ()) and self._names(cause)

    def _kinds(self, inferred: list[Cause]) -> list[str]:
        """The kinds that are left, once the records had their say."""
        kinds = [self.kind, *self.or_kinds]
        fits = [each.kind for each in inferred if each.kind in kinds]
        if len(kinds) == 1 or fits:
            return fits[:1] or kinds
        return [kind for kind in kinds if kind not in IN_RECORDS] or kinds

    def _names(self, cause: Cause) -> bool:
        """Whether a cause is about the member of this one."""
        if self.member_id is not None and self.member_id in cause.member_ids:
            return True
        return self.group_instance_id is not None and self.group_instance_id == cause.group_instance_id


def _known(member_id: str | None) -> tuple[str, ...]:
    return () if member_id is None else (member_id,)


class Live(NamedTuple):
    """A group as it was described while it prepared: the ids of its members."""

    at_ms: int
    member_ids: frozenset[str]
