"""Pace: how much the loop does in one turn before it reads from other connections.

When a thousand members join, the loop can read all their requests at once, and one of them leads to a thousand answers.
A client that only sends a heartbeat would wait for all of that. So code with several things to do asks `has_time`
before each. Once a turn has taken long, the rest goes to `later` and is done in order, turn after turn; between the
turns the loop reads and writes. Deferred answers come before all other deferred work: a request that was read gets its
answer before further requests are read. A turn with much of both takes as long as a turn with much of one.

Heartbeats alone may fill the loop's time, for example those of five thousand members that wait for each other. They are
late then, whatever else the loop does; so half of its time goes to the work that ends the wait. Two long turns in a row
show this case; one long turn, or work before anything was deferred, doesn't.

HTTP shares these turns with Kafka's clients. It asks before each piece of work: to read what a client sent, to begin an
answer, to write a further part of it. A piece that has no time waits in `next`, and each further turn lets one on. So a
hundred clients who ask for everything at once take a hundred turns, and in each of them heartbeats are answered. No
piece is larger than a request, or PIECE_BYTES of an answer (site/body.py).

House rule: heartbeats don't ask.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from coordinator.loop.clock import Times

TURN_MAX_MS = 2
"""About how long a turn may take beside heartbeats. A join takes 0.1 ms, so only a crowd is deferred. With 1 ms,
thousands of groups that join together took 10 % more CPU.
"""

LATE_MS = 5
"""If heartbeats take longer than this in turn after turn, they are late; other work then gets as much time."""


class Pace:
    """The pace of one loop. soon: has the loop call back in its next turn. ms: the time of its clock."""

    def __init__(self, clock: Times, soon: Callable[[Callable[[], None]], object]) -> None:
        self.ms = clock.ms
        self._soon = soon
        self._until_ms: int | None = None
        self._ended_ms: int | None = None
        self._others_ms = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._pieces: deque[asyncio.Future[None]] = deque()

    def has_time(self) -> bool:
        """Whether the caller may do one more thing in this turn. If not, the rest goes to `later`."""
        now_ms = self.ms()
        if self._until_ms is None:
            self._ended_ms = None
            self._until_ms = now_ms + TURN_MAX_MS
            self._soon(self._next_turn)
            return True
        return now_ms < self._until_ms

    def later(self, work: Callable[[], None]) -> None:
        """Do `work` in one of the next turns, behind work that waits already. `has_time` was asked in this turn."""
        assert self._until_ms is not None
        self._waiting.append(work)

    def first(self, work: Callable[[], None]) -> None:
        """As `later`, but before all that waits: this turn began it, and clients wait for it.

        Work that comes this way in one turn is done last first. Each client waits for one answer only.
        """
        assert self._until_ms is not None
        self._waiting.appendleft(work)

    def work(self, steps: Iterator[None]) -> None:
        """Do `steps` while this turn has time, and the rest in further turns."""
        for _ in steps:
            if not self.has_time():
                self.later(partial(self.work, steps))
                return

    async def next(self) -> None:
        """Wait until the caller may do one more thing."""
        if not self._pieces and self.has_time():
            return
        waits = asyncio.get_running_loop().create_future()
        self._pieces.append(waits)
        if len(self._pieces) == 1:
            self.later(self._let_on)
        await waits

    def _let_on(self) -> None:
        while self._pieces:
            waits = self._pieces.popleft()
            if not waits.done():  # else the server stops, and has cancelled its task
                waits.set_result(None)
                break
        if self._pieces:
            self.later(self._let_on)

    def _next_turn(self) -> None:
        if not self._waiting:
            self._until_ms = None
            return
        now_ms = self.ms()
        former_ms, self._others_ms = self._others_ms, 0 if self._ended_ms is None else now_ms - self._ended_ms
        late_ms = min(former_ms, self._others_ms)
        self._until_ms = now_ms + (late_ms if late_ms > LATE_MS else TURN_MAX_MS)
        self._soon(self._next_turn)
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
            if not self.has_time():
                break
        self._ended_ms = self.ms()
