"""Virtual time for several processes: one order of events, which a seed decides.

`Timeline` has one list of calls, each with its time; `run` makes the next one. A `Process` stands for a program on a
machine. Its calls come through the timeline too, but wait while it is frozen, as after SIGSTOP, and are gone once it is
killed. Calls of one lane, for example its timers or one stream of the network, keep their order. A woken process finds
several lanes full, and chance decides between them: its timers may be first, or what the network brought. The clock of
its machine may run too fast or too slow.

    time = Timeline(seed=1)
    node = time.process("node 0")
    node.later(500, callback)
    node.freeze(); time.run_until(9_000); node.thaw()      # the callback comes after the thaw

House rule: chance comes from `Timeline.random` alone, so that a seed repeats every step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil
from random import Random

START_MS = 1_000_000
"""The first moment. Not 0: a time of 0 could hide that a time was never set."""

TIMERS = "timers"
"""The lane of a process's own timers."""

Callback = Callable[[], None]
Cancel = Callable[[], None]


class _Call:
    __slots__ = ("callback", "lane", "process")

    def __init__(self, callback: Callback, process: Process | None = None, lane: object = None) -> None:
        self.callback: Callback | None = callback
        self.process = process
        self.lane = lane

    def cancel(self) -> None:
        self.callback = None


class Timeline:
    """See the module. ms: the time. random: decides all that is left to chance. trace: lines for a failed run."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.ms = START_MS
        self.random = Random(seed)
        self.trace: list[str] = []
        self._keep_trace = keep_trace
        # Tuples: the list compares them without a call of Python, which took a fifth of a simulation's time.
        self._calls: list[tuple[int, int, _Call]] = []
        self._order = 0

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self._keep_trace:
            self.trace.append(f"{self.ms - START_MS:>7} {text}")

    def later(self, ms: int, callback: Callback) -> Cancel:
        """Call back after `ms`, behind earlier calls of that moment. Returns what cancels it."""
        call = _Call(callback)
        self.push(ms, call)
        return call.cancel

    def push(self, ms: int, call: _Call) -> None:
        """Make a call after `ms`; for processes."""
        self._order += 1
        heappush(self._calls, (self.ms + ms if ms > 0 else self.ms, self._order, call))

    def process(self, name: str, rate: float = 1.0) -> Process:
        """A new process. rate: of its clock."""
        return Process(name, self, rate)

    def step(self, until_ms: int) -> bool:
        """Make the next call, if one is due by then."""
        calls = self._calls
        while calls and calls[0][0] <= until_ms:
            at_ms, _, call = heappop(calls)
            callback = call.callback
            if callback is None:
                continue
            self.ms = at_ms
            if call.process is None:
                callback()
            else:
                call.process.take(call, callback)
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
    so far, without the present time. rate: of its machine's clock, which counts so many milliseconds in one.
    """

    def __init__(self, name: str, timeline: Timeline, rate: float = 1.0) -> None:
        self.name = name
        self.rate = rate
        self.is_frozen = False
        self.is_dead = False
        self.timeline = timeline
        self.frozen_ms = 0
        self._frozen_since_ms = 0
        self._waiting: list[_Call] = []

    def now_ms(self) -> int:
        """The time of its clock, which never goes back."""
        ms = self.timeline.ms
        return ms if self.rate == 1.0 else START_MS + int((ms - START_MS) * self.rate)

    def later(self, ms: int, callback: Callback, lane: object = TIMERS) -> Cancel:
        """Call back after `ms`, or after the thaw if the process is frozen then. Timers count by its clock."""
        call = _Call(callback, self, lane)
        if lane is TIMERS and self.rate != 1.0:
            due_ms = self.now_ms() + max(ms, 0)
            # The first moment at which its clock shows that time.
            ms = ceil((due_ms - START_MS) / self.rate) + START_MS - self.timeline.ms
        self.timeline.push(ms, call)
        return call.cancel

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
            self.timeline.push(0, lane.popleft())
            if not lane:
                full.remove(lane)

    def kill(self) -> None:
        """End it, as SIGKILL does: none of its calls comes."""
        self.is_dead = True
        self._waiting.clear()

    def take(self, call: _Call, callback: Callback) -> None:
        """A call is due; for the timeline."""
        if self.is_dead:
            return
        if self.is_frozen:
            self._waiting.append(call)
        else:
            call.callback = None
            callback()
