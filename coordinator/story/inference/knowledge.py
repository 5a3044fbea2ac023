"""Knowledge about a group beside its log: a cause from a broker's log, and live members.

A broker's log has words that clients chose, and a newline in them begins a line that may look like the broker's. So a
told cause counts only if the records don't contradict it: it names the group and the generation that ended, its time is
that of the rebalance, a member that is gone is in no later record, and one that is new in no earlier one. A client can
still forge a line that fits all of this.

House rule: plain values. Knowledge is used for one generation and then dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    """A cause that somebody knows, such as a line of the broker's log about a rebalance.

    at_ms: Unix time; -1 if nobody knows. generation_before: the generation, or group epoch, that ends. kinds: all that
    the words may mean, nearly always one; the records decide. member_ids, group_instance_id: of the members that caused
    it, as far as they are known. reason: the client's own. is_first: whether it began the rebalance.
    """

    at_ms: int
    group: str
    generation_before: int
    kinds: tuple[str, ...]
    member_ids: tuple[str, ...] = ()
    group_instance_id: str | None = None
    reason: str = ""
    is_first: bool = True

    def cause(self, inferred: list[Cause]) -> Cause:
        """The cause; the names of its client come from an inferred cause about the same member."""
        same = next((each for each in inferred if self._names(each)), None)
        kinds = self._kinds(inferred)
        if len(kinds) > 1:
            made = cause_of(UNKNOWN, self.member_ids[:1], possible=kinds)
            return replace(made, reason=self.reason, told=True)
        if same is None:
            same = replace(cause_of(kinds[0], self.member_ids[:1]), group_instance_id=self.group_instance_id)
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
        if not self.member_ids:
            return True
        kind, member_id = self.kinds[0], self.member_ids[0]
        if kind in GONE:
            return member_id not in after
        return kind != CauseKind.MEMBER_JOINED.value or member_id not in before

    def decides(self, cause: Cause) -> bool:
        """Whether this is one of the kinds that fit an unknown cause, about the same member."""
        return cause.kind == UNKNOWN and self.kinds[0] in (cause.possible or ()) and self._names(cause)

    def _kinds(self, inferred: list[Cause]) -> Sequence[str]:
        """The kinds that are left, once the records had their say."""
        fits = [each.kind for each in inferred if each.kind in self.kinds]
        if len(self.kinds) == 1 or fits:
            return fits[:1] or self.kinds
        return [kind for kind in self.kinds if kind not in IN_RECORDS] or self.kinds

    def _names(self, cause: Cause) -> bool:
        """Whether a cause is about the member of this one."""
        if self.member_ids and self.member_ids[0] in cause.member_ids:
            return True
        return self.group_instance_id is not None and self.group_instance_id == cause.group_instance_id


class Live(NamedTuple):
    """A group as it was described while it prepared: the ids of its members."""

    at_ms: int
    member_ids: frozenset[str]
