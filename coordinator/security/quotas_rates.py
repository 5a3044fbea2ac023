"""The arithmetic of quotas: how fast something goes, and how long a client has to wait until it is slow enough.

`Rate` sums up values in samples, and forgets a sample once nothing was added to it for the time of all samples.
`Tokens` is a bucket that fills with time. `Sensors` keeps one of either for each client that has a quota.

House rule: time is handed in. A name, a formula and a rounding is Kafka's: Rate, SampledStat, TokenBucket, QuotaUtils,
ControllerMutationQuotaManager, release 3.9.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from math import floor
from typing import Generic, NamedTuple, TypeVar

MS_PER_SECOND = 1000

WAIT_MAX_MS = 2**31 - 1
"""The longest wait: an answer has it as an int32. (Kafka's number overflows.)"""


class Sampling(NamedTuple):
    """quota.window.num samples of quota.window.size.seconds."""

    samples: int
    size_ms: int

    @property
    def all_ms(self) -> int:
        """The time of all samples."""
        return self.samples * self.size_ms


class _Sample:
    """A part of the window. changed_ms: when something was added to it last."""

    __slots__ = ("changed_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.changed_ms = now_ms
        self.value = 0.0


class Rate:
    """How much is recorded a second, over the last samples."""

    __slots__ = ("_current", "_samples", "_window")

    def __init__(self, window: Sampling) -> None:
        self._window = window
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one takes an earlier one back."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window.size_ms:
            sample = self._next(now_ms)
        sample.value += value
        sample.changed_ms = now_ms

    def _next(self, now_ms: int) -> _Sample:
        # One more than the window has, because the oldest may reach into the window.
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def per_second(self, now_ms: int) -> float:
        """The rate."""
        for sample in self._samples:
            if now_ms - sample.changed_ms >= self._window.all_ms:
                sample.reset(now_ms)
        return sum(sample.value for sample in self._samples) / (self._elapsed_ms(now_ms) / MS_PER_SECOND)

    def _elapsed_ms(self, now_ms: int) -> int:
        """The time that the rate is about: at least all whole samples but one."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        size_ms = self._window.size_ms
        elapsed_ms = now_ms - min(sample.start_ms for sample in self._samples)
        missing = self._window.samples - 1 - elapsed_ms // size_ms
        return max(elapsed_ms + max(missing, 0) * size_ms, 1)

    def wait_ms(self, bound: float, now_ms: int) -> int:
        """How long nothing may be recorded until the rate is back at the bound; 0 if it is not above it."""
        rate = self.per_second(now_ms)
        if rate <= bound:
            return 0
        return rounded((rate - bound) / bound * self._elapsed_ms(now_ms))

    def is_idle(self, bound: float, now_ms: int) -> bool:  # noqa: ARG002 - as Tokens
        """Whether a new one would be equal."""
        return all(now_ms - sample.changed_ms >= self._window.all_ms for sample in self._samples)


class Tokens:
    """A bucket: the bound is how many tokens come a second, and it holds those of the whole window."""

    __slots__ = ("_changed_ms", "_left", "_window")

    def __init__(self, window: Sampling) -> None:
        self._window = window
        self._left: float | None = None
        self._changed_ms = 0

    def left(self, bound: float, now_ms: int) -> float:
        """How many tokens there are; below 0, how many are lacking."""
        full = self._window.all_ms / MS_PER_SECOND * bound
        if self._left is None:
            self._left = full
        self._left = min(full, self._left + bound * ((now_ms - self._changed_ms) / MS_PER_SECOND))
        self._changed_ms = now_ms
        return self._left

    def take(self, count: float, bound: float, now_ms: int) -> None:
        """Take tokens, even more than there are."""
        self._left = self.left(bound, now_ms) - count

    def wait_ms(self, bound: float, now_ms: int) -> int:
        """How long until there is no lack of tokens; 0 if there is none."""
        left = self.left(bound, now_ms)
        return rounded(-left / bound * MS_PER_SECOND) if left < 0 else 0

    def is_idle(self, bound: float, now_ms: int) -> bool:
        """Whether a new one would be equal."""
        return self.left(bound, now_ms) >= self._window.all_ms / MS_PER_SECOND * bound


def rounded(wait_ms: float) -> int:
    """As Java's Math.round, up to WAIT_MAX_MS."""
    return floor(wait_ms + 0.5) if wait_ms < WAIT_MAX_MS else WAIT_MAX_MS


SensorT = TypeVar("SensorT", bound=Rate | Tokens)

SENSORS_MAX = 10_000
"""Sensors under one key, 1 to 3 kB each, because a client can choose any number of client ids. Above this number the
sensor that was used longest ago goes, and its client starts anew.
"""

LOOKED_AT = 2
"""Sensors that are dropped if they are idle, each time a new one comes: so idle ones go faster than others come."""


class Sensors(Generic[SensorT]):
    """The sensors of one key, by whose they are."""

    def __init__(self, make: Callable[[], SensorT]) -> None:
        self._make = make
        self._sensors: OrderedDict[Hashable, tuple[SensorT, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sensors)

    def get(self, whose: Hashable, bound: float, now_ms: int) -> SensorT:
        """The sensor; a new one if there is none."""
        found = self._sensors.pop(whose, None)
        if found is None:
            self._drop(now_ms)
        sensor = self._make() if found is None else found[0]
        self._sensors[whose] = sensor, bound
        return sensor

    def _drop(self, now_ms: int) -> None:
        """Make room for a new one."""
        for _ in range(min(LOOKED_AT, len(self._sensors))):
            whose, (sensor, bound) = next(iter(self._sensors.items()))
            if len(self._sensors) < SENSORS_MAX and not sensor.is_idle(bound, now_ms):
                return
            del self._sensors[whose]
