"""What goes wrong with a partition's log: when it may be tried again, and which line says so.

After a failure the log is left alone for a while, the longer the more often it failed in a row, because each try reads
the partition. A line is written when something goes wrong that the line before didn't say.

House rule: one line for each trouble, and one when it is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.log.engine import Damaged, EngineError, Unavailable

if TYPE_CHECKING:
    from coordinator.server.clock import Clock
    from coordinator.server.telemetry.lines import Lines

BACKOFF_MIN_MS = 500
BACKOFF_MAX_MS = 10_000
"""How long the log is left alone after a failure; doubles up to the second."""

WHAT_TO_DO = 'what to do: docs/operations.md, "A partition is refused"'
"""The line of a damaged partition ends with it: nothing mends that by itself."""


class Trouble:
    """Of one partition. name: as lines have it. failures: in a row. retry_ms: when the log may be tried again."""

    __slots__ = ("_clock", "_last", "_lines", "_name", "_partition", "failures", "retry_ms")

    def __init__(self, partition: int, name: str, clock: Clock, lines: Lines) -> None:
        self._partition = partition
        self._name = name
        self._clock = clock
        self._lines = lines
        self._last = ""
        self.failures = 0
        self.retry_ms = 0

    @property
    def may_retry(self) -> bool:
        """Whether the log has been left alone for long enough."""
        return self._clock.ms() >= self.retry_ms

    def pause(self) -> None:
        """Leave the log alone for a while."""
        pause_ms = min(BACKOFF_MIN_MS << min(self.failures, 16), BACKOFF_MAX_MS)
        self.failures += 1
        self.retry_ms = self._clock.ms() + pause_ms

    def say(self, event: str, text: str, **fields: object) -> None:
        """Log an error, unless the last line about this partition's log was the same event."""
        if self._last != event:
            self._last = event
            self._lines.error(event, text, partition=self._partition, **fields)

    def refused(self, error: EngineError) -> None:
        """The partition can't be served: say why, and leave the log alone if it may work later."""
        text = f"{self._name} is not served: {error}"
        if isinstance(error, Damaged):
            where = {"file": error.file, "position": error.position, "reason": error.reason}
            self.say("partition_damaged", f"{text} ({WHAT_TO_DO})", **where)
        else:
            self.say("partition_refused", text, reason=str(error))
        if isinstance(error, Unavailable):
            self.pause()

    def over(self) -> None:
        """The log can be written again."""
        self.failures = 0
        self._last = ""
        self._lines.info("log_recovered", f"{self._name} can be written again", partition=self._partition)
