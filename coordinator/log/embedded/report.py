"""What the engine reports to its operator: events with names and fields, no log lines.

House rule: a report that would repeat itself is made once, until it is over.
"""

from __future__ import annotations

from typing import Protocol


class Report(Protocol):
    """Takes an event, on the engine's thread: its name, and fields. `partition` is always one of them.

    tail_cut: a crash had interrupted a write; its `size` bytes from `position` of `file` were removed.
    partition_damaged: `file` breaks the rules at `position`, as `reason` says; the partition is refused until a person
    has looked at it.
    partition_unavailable: the disk failed, as `reason` says. Reported once, until
    partition_available: the disk works again.
    compacted: the closed segments of a log took `size_before` bytes, and take `size_after`; it took `duration_s`.
    compaction_failed: `reason` says why a part of the log is not compacted; it is tried again later.
    load_progress: `percent` of the partition is read; every few seconds of a long load.
    transactions_open: so many `transactions` have no end, and hold so many `commits` of offsets that don't count. They
    count only if the transactions' coordinator ends them; this server can't.
    engine_failed: an `error` in the program ended the engine's thread (partition -1); nothing is written after that.
    """

    def __call__(self, name: str, /, **fields: object) -> None:
        """Take note."""


def ignore(_name: str, /, **_fields: object) -> None:
    """A report that does nothing."""


class Availability:
    """Reports once that the disk fails a partition, until it works again."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._unavailable: set[int] = set()

    def failed(self, partition: int, reason: str) -> None:
        """The disk failed the partition."""
        if partition not in self._unavailable:
            self._unavailable.add(partition)
            self._report("partition_unavailable", partition=partition, reason=reason)

    def works(self, partition: int) -> None:
        """The disk served the partition."""
        if partition in self._unavailable:
            self._unavailable.remove(partition)
            self._report("partition_available", partition=partition)
