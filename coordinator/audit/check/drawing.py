"""The data for the drawing of a group: its steps, and a lane for each seat.

House rule: everything here has a limit that doesn't depend on the size of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from coordinator.story.lanes import Lane, Mark, hold

STEPS_MAX = 2_000
"""Steps of a group that are kept: the last ones."""
LANES_MAX = 60
"""Seats of a group that are kept: the first ones, as many as a page has room for."""
MARKS_MAX = 500
"""Spans, and restarts, of a seat that are kept."""


class Step(NamedTuple):
    """A record of the group. cause: why it was written, in words.

    kind: generation, return, rewritten, empty, deleted, or converted (to another group protocol).
    """

    ts: int
    kind: str
    generation: int | None
    members: int
    cause: str


def draw(lanes: dict[str, Lane], seats: Collection[str], returned: Mapping[str, str], ts: int) -> bool:
    """Note which seats are taken from `ts` on, and which members came back; False if some seats have no room.

    returned: by instance id, the kind of the mark.
    """
    fits = hold(lanes, seats, ts, lanes_max=LANES_MAX, spans_max=MARKS_MAX)
    for seat, kind in returned.items():
        if seat in lanes:
            lanes[seat].add(Mark(kind, ts, ts), MARKS_MAX)
    return fits
