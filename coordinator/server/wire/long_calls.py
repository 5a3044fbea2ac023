"""Long calls: how many calls that take long are under way at the same time, and how large an answer may be.

The work of a call goes on in turns (`loop.pace`). A call that has taken FREE_MS of them is long: it may hold a part
of a large answer. Only AT_ONCE long calls go on; the others wait, in their order, so that a hundred clients who ask for
everything hold a few answers and not a hundred. A call that waits for something else than the loop doesn't count. When
its work goes on, it comes before calls that were never under way: it holds more memory than they do.

House rule: a call that isn't long waits for no other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from coordinator.config import Config
from coordinator.loop.pace import Pace

Work = Callable[[], None]

AT_ONCE = 4
"""Each may have built 100 MB; and a client that asks for everything doesn't hold up the next one."""

FREE_MS = 4
"""Two turns of the loop. In this time the objects and bytes of an answer reach about 1 MB."""


class Working(Protocol):
    """A call. worked_ms: how long its work has taken. was_under_way: as a long call."""

    worked_ms: int
    was_under_way: bool

    def __hash__(self) -> int:
        """By identity."""


class LongCalls:
    """See the module. answer_bytes_max: of the parts of an answer; a larger one is not built.

    That is what the largest request and the records of the largest Fetch have together.
    """

    def __init__(self, pace: Pace, config: Config) -> None:
        self.pace = pace
        self.answer_bytes_max = config.socket_request_max_bytes + config.fetch_max_bytes
        self._under_way: dict[Working, int] = {}
        """The long calls that go on, with the number of their works that a further turn does."""
        self._again: dict[Working, list[Work]] = {}
        self._waiting: dict[Working, list[Work]] = {}

    def later(self, call: Working, work: Work) -> None:
        """Do a call's work in a further turn. `pace.has_time` was asked in this turn."""
        if call.worked_ms <= FREE_MS:
            self.pace.later(work)
        elif call in self._under_way or len(self._under_way) < AT_ONCE:
            self._go_on(call, work)
        else:
            waiting = self._again if call.was_under_way else self._waiting
            waiting.setdefault(call, []).append(work)

    def forget(self, call: Working) -> None:
        """The client is gone: drop what waits of its call."""
        self._again.pop(call, None)
        self._waiting.pop(call, None)

    def _go_on(self, call: Working, work: Work) -> None:
        call.was_under_way = True
        self._under_way[call] = self._under_way.get(call, 0) + 1
        self.pace.later(partial(self._do, call, work))

    def _do(self, call: Working, work: Work) -> None:
        try:
            work()
        finally:
            self._under_way[call] -= 1
            if not self._under_way[call]:
                del self._under_way[call]
                self._next()

    def _next(self) -> None:
        waiting = self._again or self._waiting
        if waiting:
            call = next(iter(waiting))
            for work in waiting.pop(call):
                self._go_on(call, work)
