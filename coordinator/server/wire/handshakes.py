"""TLS handshakes under way: how many there may be, whose turn it is, and how they end.

A handshake costs 20 times as much as a heartbeat, and 45 KB from a client's first message on. So:

- A turn of the loop takes few steps: those that `Pace` has time for at once, the others in further turns of TURN_MIN_MS
  to TURN_MAX_MS each. A handshake that has begun goes before one that hasn't, so that 1,000 clients who come at once
  don't all wait for the last of them.
- A connection that has sent nothing yet costs no more than a plain one. Of those that have, STARTED_MAX may wait for
  their client. One more ends the oldest of them: a client that opens handshakes and goes away never keeps others out.
- WITHIN_MS after the accept an unfinished handshake ends, however busy its client seems.

A failure costs a warning, of which a few are written, and counts in the metrics.

House rule: knows neither bytes nor `ssl`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from coordinator.loop.clock import Alarm, Clock
from coordinator.loop.lines import Lines, Sparing
from coordinator.loop.pace import Pace

TURN_MIN_MS, TURN_MAX_MS = 2, 10
"""The time that queued steps take of a turn: as long as all else took since the last one, within these limits.

`Pace.later` has no upper limit, and 1,000 clients who connect at once would make heartbeats wait 0.3 s.
"""
WITHIN_MS = 30_000
"""How long a handshake may take in all. librdkafka gives a connection as long (socket.connection.setup.timeout.ms); a
server that 30,000 clients come to at once needs about as long for all of them.
"""
STARTED_MAX = 2_000
"""Handshakes that have begun and wait for their client: 90 MB."""


class Handshake(Protocol):
    """A connection whose handshake isn't over. peer: its address, for log lines."""

    @property
    def peer(self) -> str:
        """See above."""

    def step(self) -> None:
        """Go on with what the client has sent."""

    def give_up(self) -> None:
        """Close."""


class Handshakes:
    """All handshakes of the server. completed, failed: since the start."""

    def __init__(self, clock: Clock, lines: Lines, pace: Pace, soon: Callable[[Callable[[], None]], object]) -> None:
        self._clock = clock
        self._pace = pace
        self._soon = soon
        self._alarm: Alarm[str] = Alarm(clock, self._ring)
        self._failures = Sparing(lines, clock)
        self._deadlines: dict[Handshake, int] = {}
        self._started: dict[Handshake, None] = {}
        self._going: deque[Handshake] = deque()
        self._fresh: deque[Handshake] = deque()
        self._queued: set[Handshake] = set()
        self._has_turn = False
        self._ended_ms = 0
        self.completed = 0
        self.failed = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def begin(self, handshake: Handshake) -> None:
        """A client connected."""
        at_ms = self._clock.ms() + WITHIN_MS
        if not self._deadlines:
            self._alarm.arm("late", at_ms)
        self._deadlines[handshake] = at_ms

    def proceed(self, handshake: Handshake, *, at_once: bool = False) -> None:
        """A client sent something: take a step now, or in one of the next turns. at_once: don't wait for one."""
        if at_once or (not self._queued and self._pace.has_time()):
            self._queued.discard(handshake)
            self._step(handshake)
            return
        if handshake in self._queued:
            return
        self._queued.add(handshake)
        (self._going if handshake in self._started else self._fresh).append(handshake)
        if not self._has_turn:
            self._has_turn = True
            self._ended_ms = self._clock.ms()
            self._soon(self._turn)

    def _turn(self) -> None:
        """Take queued steps for a while. Some of the handshakes may have gone meanwhile."""
        now_ms = self._clock.ms()
        until_ms = now_ms + min(max(now_ms - self._ended_ms, TURN_MIN_MS), TURN_MAX_MS)
        while self._queued:
            handshake = (self._going or self._fresh).popleft()
            if handshake in self._queued:
                self._queued.remove(handshake)
                self._step(handshake)
                if self._clock.ms() >= until_ms:
                    break
        self._ended_ms = self._clock.ms()
        self._has_turn = bool(self._queued)
        if self._has_turn:
            self._soon(self._turn)
        else:
            self._going.clear()
            self._fresh.clear()

    def _step(self, handshake: Handshake) -> None:
        if handshake not in self._started:
            if len(self._started) >= STARTED_MAX:
                self._make_room()
            self._started[handshake] = None
        handshake.step()

    def _make_room(self) -> None:
        """End the oldest handshake that waits for its client."""
        oldest = next((each for each in self._started if each not in self._queued), None)
        if oldest is not None:
            self.fail(oldest, f"{STARTED_MAX} others wait as well, and this one waited longest")
            oldest.give_up()

    def complete(self, handshake: Handshake) -> None:
        """It succeeded."""
        self.completed += 1
        self.leave(handshake)

    def fail(self, handshake: Handshake, reason: str) -> None:
        """It failed; the caller closes the connection."""
        self.failed += 1
        self.leave(handshake)
        text = f"The TLS handshake with {handshake.peer} failed: {reason}"
        self._failures.warn("tls_handshake_failed", text, peer=handshake.peer, reason=reason)

    def leave(self, handshake: Handshake) -> None:
        """It is over; nothing happens if it was before."""
        self._deadlines.pop(handshake, None)
        self._started.pop(handshake, None)
        self._queued.discard(handshake)

    def _ring(self, _: str) -> None:
        """End what takes too long. The deadlines are in order, because all have the same time."""
        now_ms = self._clock.ms()
        while self._deadlines:
            handshake, at_ms = next(iter(self._deadlines.items()))
            if at_ms > now_ms:
                self._alarm.arm("late", at_ms)
                return
            self.fail(handshake, f"it was not done within {WITHIN_MS // 1000} s")
            handshake.give_up()

    def stop(self) -> None:
        """Watch no more deadlines."""
        self._alarm.stop()
