"""Reads the topics beside the log of groups: `__rebalance_events`, and `__transaction_state`.

House rule: bytes that are no record are None, and reading goes on behind them.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.audit.read.batches import unpack
from coordinator.log.segments.outside import Log, NoBatch, opened, read_segment
from protocol.records.batch import CorruptBatch, Record


def read_records(log: Log) -> Iterator[tuple[int, Record] | None]:
    """The records of a partition with their offsets; None for bytes that can't be read. Raises OSError."""
    with opened(log) as segments:
        for segment in segments:
            for frame in read_segment(segment):
                if isinstance(frame, NoBatch):
                    if not frame.at_end:  # at the end a write may be under way
                        yield None
                    continue
                try:
                    batch = unpack(frame.data, frame.at, frame.header)
                except CorruptBatch:
                    yield None
                else:
                    yield from zip(batch.offsets, batch.records, strict=True)
