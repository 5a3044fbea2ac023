"""Reads batches, markers and whole topics, within limits: for the audit, `tenure log verify` and `tenure log dump`.

The decoders are those of the coordinator: protocol.records for batches. coordinator.story.records reads keys and
values.

A few compressed bytes may unpack to many millions of records. So their count is compared with its limit before anything
is decoded, and the reason names the limit.

House rule: bytes raise CorruptBatch, and nothing else. Where a topic is read, they are None, and reading goes on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from coordinator.log.segments.outside import Log, NoBatch, opened, read_segment
from coordinator.log.segments.transactions import COMMIT, marker_type
from protocol.checksum import Buffer
from protocol.records.batch import CorruptBatch, Header, Record, check_crc, peek_header
from protocol.records.walk import Batch, decode_records

UNREADABLE_BATCH_KIND = "unreadable_batch"
BAD_CHECKSUM_KIND = "bad_checksum"
MARKER_KIND = "transaction_marker"

RECORDS_MAX = 250_000
"""Records of a batch at most: no message.max.bytes in use has room for more."""

_MARKER_VALUE_SIZE = 6


class Marker(NamedTuple):
    """The end of a transaction. version: of its key (Kafka: ControlRecordType).

    ends: whether the transaction was committed; None if that can't be read, and `reason` says why.
    """

    version: int | None
    ends: bool | None
    reason: str | None = None


class BatchRead(NamedTuple):
    """A batch. batch: None if its records can't be read or trusted; then `kind` and `reason` say why."""

    header: Header
    batch: Batch | None
    kind: str | None = None
    reason: str | None = None


def read_batch(data: Buffer, at: int) -> BatchRead:
    """Read the batch at `at` of `data`; its header makes sense, and all of its bytes are there."""
    header = peek_header(data, at)
    try:
        check_crc(data, at, header)
    except CorruptBatch as error:
        return BatchRead(header, None, BAD_CHECKSUM_KIND, error.reason)
    try:
        return BatchRead(header, unpack(data, at, header))
    except CorruptBatch as error:
        return BatchRead(header, None, UNREADABLE_BATCH_KIND, error.reason)


def unpack(data: Buffer, at: int, header: Header) -> Batch:
    """The records of the batch at `at` of `data`; its CRC was checked. Raises CorruptBatch, also for too many."""
    if header.record_count > RECORDS_MAX:
        raise CorruptBatch(at, f"{header.record_count} records, {RECORDS_MAX} allowed")
    # Of a view, decode_records copies the batch alone: no length in it can reach the bytes behind it.
    with memoryview(data) as view:
        return decode_records(view, at, header)


def read_marker(record: Record) -> Marker:
    """Read a record of a control batch."""
    try:
        ends = marker_type(record.key)
    except ValueError as error:
        return Marker(None, None, str(error))
    version, number = struct.unpack_from(">hh", record.key)
    if ends is None:
        return Marker(version, None, f"unknown marker {number}")
    size = len(record.value or b"")
    if size < _MARKER_VALUE_SIZE:
        return Marker(version, None, f"a marker's value of {size} bytes")
    return Marker(version, ends == COMMIT)


def read_records(log: Log) -> Iterator[tuple[int, Record] | None]:
    """The records of a partition with their offsets; None for bytes that can't be read. Raises OSError.

    For the topics beside the log of groups: `__rebalance_events`, and `__transaction_state`.
    """
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
