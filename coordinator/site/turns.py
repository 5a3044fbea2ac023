"""Turns: HTTP shares the turns of the loop with Kafka's clients, and the loop's pace counts its work.

Before each piece of work HTTP asks here: to read what a client sent, to begin an answer, to write a further part of it.
While the turn has time (`loop.pace`), the work is done at once. Otherwise it waits, in its order, and each further
turn lets one piece on. So a hundred clients who ask for everything at once take a hundred turns, and in each of them
heartbeats are answered.

House rule: no piece of work is larger than a request, or PIECE_BYTES of an answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.loop.pace import Pace


class Turns:
    """See the module. pace: None if the loop serves nobody else; then nothing waits."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace
        self._waiting: deque[asyncio.Future[None]] = deque()

    def has_time(self) -> bool:
        """Whether the caller may do one more thing in this turn. If not, it goes to `later`."""
        return self._pace is None or self._pace.has_time()

    def later(self, work: Callable[[], None]) -> None:
        """Do `work` in one of the next turns. `has_time` has just said no."""
        assert self._pace is not None
        self._pace.later(work)

    def work(self, steps: Iterator[None]) -> None:
        """Do `steps` while this turn has time, and the rest in further turns."""
        if self._pace is None:
            deque(steps, 0)
        else:
            self._pace.work(steps)

    async def next(self) -> None:
        """Wait until the caller may do one more thing."""
        if self._pace is None or (not self._waiting and self._pace.has_time()):
            return
        self._waiting.append(asyncio.get_running_loop().create_future())
        waits = self._waiting[-1]
        if len(self._waiting) == 1:
            self._pace.has_time()  # begins the turn, if nothing has
            self._pace.later(self._let_on)
        await waits

    def _let_on(self) -> None:
        assert self._pace is not None
        while self._waiting:
            waits = self._waiting.popleft()
            if not waits.done():  # else the server stops, and has cancelled its task
                waits.set_result(None)
                break
        if self._waiting:
            self._pace.later(self._let_on)
