"""A task of the compaction process, and its result: values that travel as JSON.

House rule: plain values, and the rules about them that both passes follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

KEYS_MAX = 500_000
"""Entries of the map from keys to offsets, of 150 to 200 bytes each; everything else that a compaction remembers counts
as entries too. A compaction needs more memory only for its largest batch and its aborted transactions.
"""

TIME_END_MS = 2**63


class Task(NamedTuple):
    """The task.

    end_offset: segments that start below it are closed. dirty_offset: below it each key occurs once; it may lie inside
    a batch, if records were deleted up to there.
    now_ms: Unix time. lag_ms, retention_ms: log.cleaner.min.compaction.lag.ms, log.cleaner.delete.retention.ms.
    segment_size: in bytes. keys_max: entries of the map, exceeded by the keys of one batch at most.
    is_topic: the rules of a topic's log hold. last_offsets: in a topic's log, the last offset of each producer's last
    batch.
    """

    end_offset: int
    dirty_offset: int
    now_ms: int
    lag_ms: int
    retention_ms: int
    segment_size: int
    keys_max: int = KEYS_MAX
    is_topic: bool = False
    last_offsets: Sequence[int] = ()

    @property
    def due_ms(self) -> int:
        """In a plain batch, a compaction examines single tombstones only if their timestamp is this one or earlier."""
        return TIME_END_MS if self.is_topic else self.now_ms - self.retention_ms


class Cleaned(NamedTuple):
    """A `.cleaned` file, durable, that replaces all segments from `base_offset` to below `next_offset`.

    part: for a topic's log, the fields of the file's Part.
    """

    base_offset: int
    next_offset: int
    part: Sequence[Any] = ()


class Compaction(NamedTuple):
    """The result: the files that were swapped in, oldest first.

    clean_offset: the dirty offset of the next compaction. size_before, size_after: bytes of the segments that were
    processed, before and after. reason: why some segments were left as they are, "" if none was.
    """

    clean_offset: int
    files: list[Cleaned]
    size_before: int
    size_after: int
    reason: str = ""


Swap = Callable[[Cleaned], None]
"""Called with a new file; returns once it is swapped in, so that the next file may use the space that this freed."""
