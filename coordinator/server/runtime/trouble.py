"""Trouble with a partition's log: when to try again, and which line to log.

After a failure the partition leaves its log alone for a pause, because each try reads the partition. The pause grows
with each failure in a row. A line is logged when the trouble is another one than the last line said.

A load that works ends the trouble of earlier claims and loads. It doesn't end that of a failed write: on a full disk
loads work. A later write does, also the claim of a partition in a store that several nodes share.

House rule: one line for each trouble, and one when it is over.
"""

from __future__ import annotations

from coordinator import pages
from coordinator.log.engine import Damaged, EngineError, Fenced, Unavailable
from coordinator.loop.clock import Clock
from coordinator.loop.lines import Lines

BACKOFF_MIN_MS = 500
BACKOFF_MAX_MS = 10_000
"""The longest pause after a failure. Pauses double up to it."""


class Trouble:
    """The trouble of one partition.

    name: for log lines. failures: in a row. retry_ms: when the log may be tried again.
    reason: why the log fails, empty if it doesn't. since_ms: since when it fails, Unix time in ms.
    """

    def __init__(self, partition: int, name: str, clock: Clock, lines: Lines) -> None:
        self._partition = partition
        self._name = name
        self._clock = clock
        self._lines = lines
        self._last = ""
        self._has_write_failed = False
        self.failures = 0
        self.retry_ms = 0
        self.reason = ""
        self.since_ms = 0

    def pause(self) -> None:
        """Begin a pause."""
        pause_ms = min(BACKOFF_MIN_MS << min(self.failures, 16), BACKOFF_MAX_MS)
        self.failures += 1
        self.retry_ms = self._clock.ms() + pause_ms

    def say(self, event: str, text: str, **fields: object) -> None:
        """Log an error, unless the last line about this log had the same event."""
        if self._last != event:
            self._last = event
            self._lines.error(event, text, partition=self._partition, **fields)

    def write_failed(self, error: EngineError) -> None:
        """The log can't be written."""
        self._has_write_failed = True
        self._failed(error)

    def _failed(self, error: EngineError) -> None:
        self.since_ms = self.since_ms if self.reason else self._clock.wall_ms()
        self.reason = str(error)

    def refused(self, error: EngineError) -> None:
        """The partition can't serve: log why, and begin a pause if trying again may help."""
        text = f"{self._name} is not served: {error}"
        if not isinstance(error, Fenced):
            self._failed(error)
        if isinstance(error, Damaged):
            where = {"file": error.file, "position": error.position, "reason": error.reason}
            self.say("partition_damaged", f"{text} (what to do: {pages.DAMAGED_PARTITION})", **where)
        else:
            self.say("partition_refused", text, reason=str(error))
        if isinstance(error, Unavailable):
            self.pause()

    def claimed(self) -> None:
        """The partition was claimed in a store that several nodes share: a write worked."""
        self._has_write_failed = False

    def loaded(self) -> None:
        """The partition was loaded."""
        if (self.failures or self.reason) and not self._has_write_failed:
            self._end("is served again")

    def written(self) -> None:
        """A write worked after all."""
        self._end("can be written again")

    def _end(self, text: str) -> None:
        self.failures = 0
        self._has_write_failed = False
        self._last = self.reason = ""
        self._lines.info("log_recovered", f"{self._name} {text}", partition=self._partition)
