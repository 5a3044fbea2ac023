"""What others know about a group beside its log: a cause that was told, and live members.

House rule: plain values. Knowledge is used for one generation and then dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coordinator.timeline.inference.told import cause_of


class Told(NamedTuple):
    """A cause that somebody knows, such as a line of the broker's log about the begin of a rebalance.

    at_ms: Unix time. generation_before: the generation in which the rebalance began. kind: of the cause. member_id: of
    the member that caused it, as far as it is known. reason: the client's own.
    """

    at_ms: int
    group: str
    generation_before: int
    kind: str
    member_id: str | None = None
    reason: str = ""

    def cause(self, inferred: list[dict[str, Any]]) -> dict[str, Any]:
        """The cause as a JSON object; the names of its client come from an inferred cause about the same member."""
        same = next((each for each in inferred if self.member_id in each["member_ids"]), None)
        made = cause_of(self.kind, () if self.member_id is None else (self.member_id,))
        if same is not None:
            made |= {name: same[name] for name in ("member_ids", "group_instance_id", "client_id", "client_host")}
        return made | {"reason": self.reason, "source": "client" if self.reason else "inferred", "told": True}


class Live(NamedTuple):
    """A group as it was described while it prepared: the ids of its members."""

    at_ms: int
    member_ids: frozenset[str]
