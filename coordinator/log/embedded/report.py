"""The engine's reports to its operator: events with names and fields, no log lines.

House rule: a lasting problem is reported once, and again only after it was over.
"""

from __future__ import annotations

from typing import Protocol


class Report(Protocol):
    """Called with an event on the engine's thread: its name, and fields. `partition` is always one of them.

    tail_cut: a crash had interrupted a write; the engine removed its `size` bytes from `position` of `file`.
    partition_damaged: `file` breaks the rules at `position`, as `reason` says; the partition is refused until a person
    has looked at it.
    partition_unavailable: the disk failed, as `reason` says. Reported once, until
    partition_available: the disk works again.
    compacted: compaction reduced the closed segments of a log from `size_before` to `size_after` bytes in `duration_s`.
    compaction_failed: `reason` says why a part of the log was not compacted; the engine tries again later.
    load_progress: `percent` of the partition is read; every few seconds of a long load.
    transactions_open: the log has `transactions` without an end, with `commits` of offsets that don't count. They count
    only if the transactions' coordinator ends the transactions; this server can't.
    journal_recovered: the journal of `node` had `size` bytes of so many `partitions` when its engine ended; they are in
    the segments. The partitions in `left`, by name, couldn't take them yet; their loads try again. journal_cut: a
    crash had interrupted a window of `size` bytes at `position` of `file`. journal_left_out: a file of the journal
    can't be made, as `reason` says; appends go past it, and the engine tries again later. `partition` is -1 for all
    three.
    engine_failed: an `error` in the program ended the engine's thread (partition -1); nothing is written after that.
    """

    def __call__(self, name: str, /, **fields: object) -> None:
        """Take an event."""


def ignore(_name: str, /, **_fields: object) -> None:
    """Do nothing with an event."""


class Availability:
    """Reports once that the disk fails for a partition, and once that it works again. report: takes all of it."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._unavailable: set[int] = set()

    def failed(self, partition: int, reason: str) -> None:
        """The disk failed for the partition."""
        if partition not in self._unavailable:
            self._unavailable.add(partition)
            self.report("partition_unavailable", partition=partition, reason=reason)

    def works(self, partition: int) -> None:
        """The disk worked for the partition."""
        if partition in self._unavailable:
            self._unavailable.remove(partition)
            self.report("partition_available", partition=partition)
