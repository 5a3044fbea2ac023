"""A batch as a producer sent it: whether the log of a topic partition may take it, by the batch and the topic alone.

The checks, their order, their error codes and their texts are Kafka's (LogValidator, UnifiedLog, release 3.9).

House rule: no I/O; what depends on the producer's earlier batches is in producers.py.
"""

from __future__ import annotations

from itertools import islice

from coordinator.log.segments.view import NO_TIME, Rejected
from coordinator.log.topics.partition import Limits
from protocol.records.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME, Header, check_crc, peek_header
from protocol.records.codecs import Codec
from protocol.records.walk import find_records
from schemas.errors import ErrorCode

RECORD_SIZE_MIN = 7
"""Bytes of a record without key, value and headers."""

RECORDS_MAX = 1_000_000
"""Records that a compressed batch may claim to have; the log doesn't count them. librdkafka packs no more
(batch.num.messages). Each takes an offset, of which a segment has 2 billion."""


def check_produced(data: bytes, limits: Limits, log_name: str) -> Header:
    """Return the header of the batch at the start of `data`, if the log may take it. Raises Rejected, CorruptBatch.

    log_name: the topic partition as error texts name it, "orders-0".
    """
    header = peek_header(data)
    if header.base_offset != 0:
        text = f"The base offset of a batch that is produced should be 0, but it is {header.base_offset}."
        raise Rejected(ErrorCode.INVALID_RECORD, text)
    if header.size > limits.max_message_bytes:
        text = f"The batch has {header.size} bytes, max.message.bytes allows {limits.max_message_bytes}."
        raise Rejected(ErrorCode.MESSAGE_TOO_LARGE, text)
    check_crc(data, 0, header)
    codec = header.attributes & CODEC_MASK
    if codec > Codec.ZSTD:
        raise Rejected(ErrorCode.UNKNOWN_SERVER_ERROR, f"There is no codec {codec}.")  # as in Kafka
    count_max = RECORDS_MAX if codec else (header.size - HEADER_SIZE) // RECORD_SIZE_MIN
    if not 0 < header.record_count <= count_max or header.record_count != header.last_offset_delta + 1:
        text = f"The batch says {header.record_count} records, its last is number {header.last_offset_delta}."
        raise Rejected(ErrorCode.INVALID_RECORD, text)
    if header.producer_id >= 0 and header.base_sequence < 0:
        text = f"Sequence number {header.base_sequence} in a batch of producer {header.producer_id}."
        raise Rejected(ErrorCode.INVALID_RECORD, text)
    if header.is_control:
        raise Rejected(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records.")
    _check_records(data, limits, header, log_name)
    if header.size > limits.segment_bytes:
        text = f"The batch has {header.size} bytes, segment.bytes allows {limits.segment_bytes}."
        raise Rejected(ErrorCode.RECORD_LIST_TOO_LARGE, text)
    return header


def _check_records(data: bytes, limits: Limits, header: Header, log_name: str) -> None:
    """Check each record as far as the topic's settings ask for it. Raises Rejected, CorruptBatch.

    It names records among as many as the batch has bytes: a small compressed one may have a million.
    """
    # Where the topic wants the records' own times, Kafka takes the batch's time for theirs, unless it has none.
    is_late = bool(header.attributes & LOG_APPEND_TIME) and (
        limits.has_append_time or header.max_timestamp_ms == NO_TIME
    )
    if not is_late and not limits.is_compacted:
        return
    error = ErrorCode.INVALID_RECORD
    reason = keyless_reason = f"Compacted topic cannot accept message without key in topic partition {log_name}"
    keyless = bytes(min(header.record_count, header.size))
    has_keyless = False
    if limits.is_compacted:
        found = (not record.has_key for record in find_records(data, 0, header))
        keyless = bytes(islice(found, header.size))
        has_keyless = 1 in keyless or any(found)
    records = [(keyless, keyless_reason)] if has_keyless else []
    if is_late and 0 in keyless:
        error, reason = ErrorCode.INVALID_TIMESTAMP, "Only the server may give records the timestamp type LogAppendTime"
        records.append((keyless.translate(b"\1\0" + bytes(254)), reason))
    if records:
        raise Rejected(error, f"One or more of the batch's records are refused: {reason}.", records)
