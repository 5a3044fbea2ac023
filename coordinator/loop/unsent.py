"""Unsent: how much memory large answers of all connections take until their clients have taken them.

An answer in parts counts until its last piece is written. A part that it has several times counts once, and so does
one list of parts that several connections write. If all answers have more than UNSENT_BYTES_MAX, the connection with
the oldest one is closed: its client was the slowest. Small answers don't count: the kernel takes them.

A client has TAKEN_WITHIN_MS for its answer, however few others there are. Then its connection is closed, whatever it
sent meanwhile.

House rule: nobody waits for a client that doesn't read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from coordinator.loop.clock import Alarm, Clock

UNSENT_BYTES_MAX = 256 * 1024 * 1024
"""As much as requests that come in may take by default (queued.max.request.bytes)."""

TAKEN_WITHIN_MS = 600_000
"""100 MB take that long at 170 KB a second. Kafka's clients give up earlier, by request.timeout.ms."""

SourceT = TypeVar("SourceT", bound=Hashable)


class Unsent(Generic[SourceT]):
    """The answers of all connections. give_up: closes a connection for a reason. counted_bytes: of all of them."""

    def __init__(
        self, clock: Clock, give_up: Callable[[SourceT, str], None], bytes_max: int = UNSENT_BYTES_MAX
    ) -> None:
        self._clock = clock
        self._give_up = give_up
        self._bytes_max = bytes_max
        self._slow: Alarm[SourceT] = Alarm(clock, self._is_slow)
        self._answers: dict[SourceT, list[bytes]] = {}
        self._writers: Counter[int] = Counter()
        """The number of connections that write an answer, by the id of its list."""
        self.counted_bytes = 0

    def add(self, source: SourceT, parts: list[bytes]) -> None:
        """A connection begins to write an answer."""
        self._answers[source] = parts
        self._writers[id(parts)] += 1
        if self._writers[id(parts)] == 1:
            self.counted_bytes += _size(parts)
        self._slow.arm(source, self._clock.ms() + TAKEN_WITHIN_MS)
        while self.counted_bytes > self._bytes_max and len(self._writers) > 1:
            oldest = next(iter(self._answers))
            self.release(oldest)
            self._give_up(oldest, "it takes its answer too slowly, and answers that nobody takes use up the memory")

    def release(self, source: SourceT) -> None:
        """The last piece of its answer is written, or the connection is gone."""
        parts = self._answers.pop(source, None)
        if parts is None:
            return
        self._writers[id(parts)] -= 1
        if not self._writers[id(parts)]:
            del self._writers[id(parts)]
            self.counted_bytes -= _size(parts)
        self._slow.cancel(source)

    def _is_slow(self, source: SourceT) -> None:
        self.release(source)
        self._give_up(source, f"it hasn't taken all of an answer after {TAKEN_WITHIN_MS // 60_000} minutes")

    def stop(self) -> None:
        """Close nothing any more."""
        self._slow.stop()


def _size(parts: list[bytes]) -> int:
    return sum(map(len, {id(part): part for part in parts}.values()))
