"""Virtual time for several processes: one order of events, which a seed decides.

`Timeline` has one list of calls, each with its time; `run` makes the next one. A `Process` stands for a program on a
machine. Its calls come through the timeline too, but wait while it is frozen, as after SIGSTOP, and are gone once it is
killed. Calls of one lane, for example its timers or one stream of the network, keep their order. A woken process finds
several lanes full, and chance decides between them: its timers may be first, or what the network brought.

    time = Timeline(seed=1)
    node = time.process("node 0")
    node.later(500, callback)
    node.freeze(); time.run_until(9_000); node.thaw()      # the callback comes after the thaw

House rule: chance comes from `Timeline.random` alone, so that a seed repeats every step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random

START_MS = 1_000_000
"""The first moment. Not 0: a time of 0 could hide that a time was never set."""

TIMERS = "timers"
"""The lane of a process's own timers."""

Callback = Callable[[], None]
Cancel = Callable[[], None]


class _Call:
    __slots__ = ("at_ms", "callback", "lane", "order")

    def __init__(self, at_ms: int, order: int, callback: Callback, lane: object = None) -> None:
        self.at_ms = at_ms
        self.order = order
        self.callback: Callback | None = callback
        self.lane = lane

    def __lt__(self, other: _Call) -> bool:
        return (self.at_ms, self.order) < (other.at_ms, other.order)

    def cancel(self) -> None:
        self.callback = None


class Timeline:
    """See the module. ms: the time. random: decides all that is left to chance. trace: lines for a failed run."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.ms = START_MS
        self.random = Random(seed)
        self.trace: list[str] = []
        self._keep_trace = keep_trace
        self._calls: list[_Call] = []
        self._order = 0

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self._keep_trace:
            self.trace.append(f"{self.ms - START_MS:>7} {text}")

    def later(self, ms: int, callback: Callback) -> Cancel:
        """Call back after `ms`, behind earlier calls of that moment. Returns what cancels it."""
        self._order += 1
        call = _Call(self.ms + max(ms, 0), self._order, callback)
        heappush(self._calls, call)
        return call.cancel

    def process(self, name: str) -> Process:
        """A new process."""
        return Process(name, self)

    def step(self, until_ms: int) -> bool:
        """Make the next call, if one is due by then."""
        while self._calls and self._calls[0].at_ms <= until_ms:
            call = heappop(self._calls)
            if call.callback is not None:
                self.ms = call.at_ms
                call.callback()
                return True
        return False

    def run_until(self, until_ms: int) -> None:
        """Make all calls up to that time."""
        while self.step(until_ms):
            pass
        self.ms = max(self.ms, until_ms)

    def run(self, ms: int) -> None:
        """Let `ms` pass."""
        self.run_until(self.ms + ms)


class Process:
    """See the module.

    is_frozen, is_dead: its state. A dead process stays dead; a restart is a new one. frozen_ms: how long it was frozen
    so far, without the present time.
    """

    def __init__(self, name: str, timeline: Timeline) -> None:
        self.name = name
        self.is_frozen = False
        self.is_dead = False
        self.timeline = timeline
        self.frozen_ms = 0
        self._frozen_since_ms = 0
        self._waiting: list[_Call] = []

    def later(self, ms: int, callback: Callback, lane: object = TIMERS) -> Cancel:
        """Call back after `ms`, or after the thaw if the process is frozen then."""
        call = _Call(0, 0, callback, lane)
        cancel = self.timeline.later(ms, partial(self._take, call))

        def cancel_both() -> None:
            cancel()
            call.cancel()

        return cancel_both

    def freeze(self) -> None:
        """Stop the process, as SIGSTOP does. Its clock goes on."""
        assert not self.is_dead
        self.is_frozen = True
        self._frozen_since_ms = self.timeline.ms

    def thaw(self) -> None:
        """Let it go on. Calls that came meanwhile come now; chance decides between lanes."""
        self.is_frozen = False
        self.frozen_ms += self.timeline.ms - self._frozen_since_ms
        lanes: dict[object, deque[_Call]] = {}
        for call in self._waiting:
            lanes.setdefault(call.lane, deque()).append(call)
        self._waiting.clear()
        full = list(lanes.values())
        while full:
            lane = self.timeline.random.choice(full)
            self.timeline.later(0, partial(self._take, lane.popleft()))
            if not lane:
                full.remove(lane)

    def kill(self) -> None:
        """End it, as SIGKILL does: none of its calls comes."""
        self.is_dead = True
        self._waiting.clear()

    def _take(self, call: _Call) -> None:
        if self.is_dead or call.callback is None:
            return
        if self.is_frozen:
            self._waiting.append(call)
        else:
            callback, call.callback = call.callback, None
            callback()
