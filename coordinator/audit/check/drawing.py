"""What is kept of a group to be drawn: its steps, and who sat where and when.

House rule: all of it has an end, whatever the log's size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

STEPS_MAX = 2_000
"""Steps of a group that are kept, the last ones."""
LANES_MAX = 60
"""Seats of a group that are kept, the first ones: what a page has room for."""
MARKS_MAX = 500
"""Spans and restarts of a seat that are kept."""


class Step(NamedTuple):
    """A record of the group. cause: what changed, inferred.

    kind: generation, restart, rewritten, empty, deleted, or converted to another group protocol.
    """

    ts: int
    kind: str
    generation: int | None
    members: int
    cause: str


@dataclass
class Lane:
    """When a seat was taken: from and to, in ms, None for what lasts; and when its member came back under a new id."""

    spans: list[tuple[int, int | None]] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)

    def take(self, ts: int) -> None:
        """Somebody has the seat from now on."""
        if len(self.spans) < MARKS_MAX and not (self.spans and self.spans[-1][1] is None):
            self.spans.append((ts, None))

    def free(self, ts: int) -> None:
        """Nobody has the seat any more."""
        if self.spans and self.spans[-1][1] is None:
            self.spans[-1] = self.spans[-1][0], ts


def draw(
    lanes: dict[str, Lane], before: Collection[str], seats: Collection[str], restarted: Iterable[str], ts: int
) -> bool:
    """Note by their names which seats were taken, and which are now; returns whether all of them had room."""
    fits = True
    for seat in seats:
        if seat in before:
            continue
        if seat not in lanes and len(lanes) >= LANES_MAX:
            fits = False
        else:
            lanes.setdefault(seat, Lane()).take(ts)
    for seat in before:
        if seat not in seats and seat in lanes:
            lanes[seat].free(ts)
    for seat in restarted:
        if seat in lanes and len(lanes[seat].restarts) < MARKS_MAX:
            lanes[seat].restarts.append(ts)
    return fits
