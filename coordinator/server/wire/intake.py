"""Intake: how much memory the large requests of all connections take while they come in and are handled.

A request of LARGE_BYTES (protocol.connection) or more that comes in pieces counts from its first one until its answer.
Above `queued.max.request.bytes` connections with such requests are read no further, but for the oldest one: so one
request always gets on. While others wait for it, it has to be whole within STALLED_MAX_MS. Otherwise its connection is
closed, and its memory is free. Small requests don't count, and wait for nothing.

A whole request counts for COUNTED_MAX_MS at most: a Fetch may wait for long, and keeps little of its bytes.

House rule: memory counts for bytes that came, never for a size that was announced. So a size costs a client nothing and
gives it nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from coordinator.config import Config
from coordinator.loop.clock import Alarm, Clock

STALLED_MAX_MS = 30_000
"""A request of 100 MB takes that long at 3.4 MB a second. Only while others wait has a request to be so fast."""

COUNTED_MAX_MS = 30_000
"""Far longer than the server works at a request."""

READ_BYTES = 256 * 1024
"""Bytes that a connection brings in one read at most."""


class Sender(Protocol):
    """A connection."""

    def __hash__(self) -> int:
        """By identity."""

    def pause_intake(self) -> None:
        """Read nothing more."""

    def resume_intake(self) -> None:
        """Read on."""


SenderT = TypeVar("SenderT", bound=Sender)


class Intake(Generic[SenderT]):
    """The large requests of all connections. give_up: closes a connection for a reason.

    counted_bytes: of all of them.
    """

    def __init__(self, config: Config, clock: Clock, give_up: Callable[[SenderT, str], None]) -> None:
        max_bytes = config.queued_max_request_bytes
        self._max_bytes = max(max_bytes, config.socket_request_max_bytes) if max_bytes > 0 else None
        self._give_up = give_up
        self._clock = clock
        self.counted_bytes = 0
        self._sizes: dict[SenderT, int] = {}
        # Both in the order of their first pieces.
        self._coming: dict[SenderT, None] = {}
        self._paused: dict[SenderT, None] = {}
        self._stalled: Alarm[SenderT] = Alarm(clock, self._stalls)
        self._whole: Alarm[SenderT] = Alarm(clock, self.release)

    def take(self, source: SenderT, size: int) -> None:
        """So many bytes of a request have come so far."""
        if self._max_bytes is None:
            return
        self.counted_bytes += size - self._sizes.get(source, 0)
        self._sizes[source] = size
        self._coming[source] = None
        if self.counted_bytes > self._max_bytes and source is not next(iter(self._coming)):
            self._paused[source] = None
            source.pause_intake()
        self._go_on()

    def is_whole(self, source: SenderT) -> None:
        """The request has come. It counts until `release`, but not for ever."""
        self._coming.pop(source, None)
        self._stalled.cancel(source)
        if source in self._sizes:
            self._whole.arm(source, self._clock.ms() + COUNTED_MAX_MS)
            self._go_on()

    def release(self, source: SenderT) -> None:
        """The request is answered, or its connection is gone."""
        if source not in self._sizes:
            return
        self.counted_bytes -= self._sizes.pop(source)
        self._coming.pop(source, None)
        self._paused.pop(source, None)
        self._stalled.cancel(source)
        self._whole.cancel(source)
        self._go_on()

    def _go_on(self) -> None:
        """Let connections read on, the oldest first, as far as there is room for what they may bring."""
        assert self._max_bytes is not None
        first = next(iter(self._coming), None)
        room = self._max_bytes - self.counted_bytes
        while self._paused and (room > 0 or first in self._paused):
            source = first if first in self._paused else next(iter(self._paused))
            assert source is not None
            del self._paused[source]
            source.resume_intake()
            room -= READ_BYTES
        if first is None:
            return
        if not self._paused:
            self._stalled.cancel(first)
        elif first not in self._stalled:
            self._stalled.arm(first, self._clock.ms() + STALLED_MAX_MS)

    def _stalls(self, source: SenderT) -> None:
        waits = STALLED_MAX_MS // 1000
        self._give_up(source, f"its request is not whole after {waits} s, and queued.max.request.bytes is used up")

    def stop(self) -> None:
        """Close nothing any more."""
        self._stalled.stop()
        self._whole.stop()
