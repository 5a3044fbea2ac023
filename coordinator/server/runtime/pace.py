"""How much the loop does before it looks who else is there.

When a thousand members join, all of their requests can be read at once, and one of them is answered with a thousand
answers. Who only sends a heartbeat would wait until all of that is done. So whoever has more to do than one thing asks
`has_time` before each; once a turn of the loop took long, what is left goes to `later`, and from there on in its order,
turn after turn, while the loop reads and writes in between. Answers that are put off go before it all: who was heard is
answered before others are heard, and a turn with many of both takes no longer than one with many of either.

Heartbeats may be so many that they fill the loop's time by themselves, as those of five thousand members that wait for
each other. They are late then whatever is done beside them, so half of the time goes to what would end that. It takes
two long turns, one after the other, to tell them from a crowd that comes; what was done before the first thing was put
off is no sign of either.

House rule: heartbeats don't ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.server.clock import Times

TURN_MAX_MS = 2
"""What a turn takes on top of heartbeats, about: a join takes 0.1 ms, so hardly anything is put off but in a crowd.
With 1, thousands of groups that come together took a tenth more CPU."""

LATE_MS = 5
"""Heartbeats that take longer than this turn after turn are late: as long is given to the rest."""


class Pace:
    """Of one loop. soon: lets it call back in its next turn."""

    def __init__(self, clock: Times, soon: Callable[[Callable[[], None]], object]) -> None:
        self._ms = clock.ms
        self._soon = soon
        self._until_ms: int | None = None
        self._ended_ms: int | None = None
        self._others_ms = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def has_time(self) -> bool:
        """Whether the caller may do one more thing in this turn; if not, the rest goes to `later`."""
        now_ms = self._ms()
        if self._until_ms is None:
            self._ended_ms = None
            self._until_ms = now_ms + TURN_MAX_MS
            self._soon(self._next_turn)
            return True
        return now_ms < self._until_ms

    def later(self, work: Callable[[], None]) -> None:
        """Do it in one of the next turns, behind what waits already. Only after `has_time` said no."""
        assert self._until_ms is not None
        self._waiting.append(work)

    def first(self, work: Callable[[], None]) -> None:
        """As `later`, but before all that waits: what this turn has begun, and others wait for.

        What comes so in one turn is done last first; each client waits for one answer only.
        """
        assert self._until_ms is not None
        self._waiting.appendleft(work)

    def _next_turn(self) -> None:
        if not self._waiting:
            self._until_ms = None
            return
        now_ms = self._ms()
        former_ms, self._others_ms = self._others_ms, 0 if self._ended_ms is None else now_ms - self._ended_ms
        late_ms = min(former_ms, self._others_ms)
        self._until_ms = now_ms + (late_ms if late_ms > LATE_MS else TURN_MAX_MS)
        self._soon(self._next_turn)
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
            if not self.has_time():
                break
        self._ended_ms = self._ms()
