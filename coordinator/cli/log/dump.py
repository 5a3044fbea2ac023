"""`tenure log dump`: every record of a log, decoded, in the order of the log.

The command prints while it reads, so it needs only as much memory as the largest batch. A table has a heading for each
segment, a line for each record and, below a group, a line for each member. JSON has one object a line. Damage has a
line of its own in its place, and so has a batch with more records than the audit believes. The command leaves out bytes
that a running server is still writing.

House rule: dump prints each record of the log, even an odd one; verify decides whether it is right.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from coordinator.audit.read.batches import unpack
from coordinator.cli.exit_codes import warn
from coordinator.cli.log.decoded import Decoded, Fields, decode_marker, decode_record, decode_transactional_id, is_odd
from coordinator.cli.log.locks import in_use, write_under_way
from coordinator.cli.output import MISSING, json_text
from coordinator.group.records import NEWER_KINDS
from coordinator.log.segments.outside import JournalsBeside, Log, NoBatch, OpenSegment, opened, read_segment
from coordinator.story.records.consumer import READ_VERSIONS
from coordinator.story.records.values import GROUP_KIND, OFFSET_KIND, UNKNOWN_KIND
from coordinator.text import iso_text, printable
from protocol.records.batch import CorruptBatch, Record
from protocol.records.codecs import Codec
from protocol.records.walk import Batch

DAMAGE_KIND = "damage"

COLUMNS = (
    ("POSITION", 10),
    ("OFFSET", 8),
    ("TIMESTAMP", 24),
    ("EPOCH", 5),
    ("CODEC", 6),
    ("PRODUCER", 8),
    ("KIND", 14),
    ("KEY", 40),
    ("VALUE", 0),
)
"""Headings and the least width of each column: a line is printed before the next one is known."""

_encode_tight = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Line(NamedTuple):
    """A record of the log with its batch, or damage (`gap`) in place of batches."""

    log: Log
    file: Path
    position: int
    batch: Batch | None
    offset: int
    record: Record | None
    decoded: Decoded | None
    gap: NoBatch | None


def read_lines(
    log: Log,
    group_id: str | None = None,
    journals: JournalsBeside | None = None,
    progress: Callable[[int], None] = lambda _size: None,
) -> Iterator[Line]:
    """The records of a log, or of one group of it, and the damage. Raises OSError.

    progress: called with the number of bytes that were read since the last call.
    A half written end is no damage while a server works with the folder: the function leaves it out and warns about it.
    """
    # Before any file is opened: a server that ends while we read may have been writing.
    was_live = in_use(_data_dir(log))
    with opened(log, journals) as segments:
        for segment in segments:
            for line in _segment_lines(log, segment, group_id, progress):
                gap = line.gap
                if gap is None or not gap.at_end or gap.whole or segment is not segments[-1]:
                    yield line
                elif was_live or in_use(_data_dir(log)):
                    warn(write_under_way(segment.path, gap.position, gap.end - gap.position))
                else:
                    yield line


def _data_dir(log: Log) -> Path:
    return log.folder.absolute().parent


def _segment_lines(
    log: Log, segment: OpenSegment, group_id: str | None, progress: Callable[[int], None]
) -> Iterator[Line]:
    decode = decode_transactional_id if log.has_ids else decode_record
    for found in read_segment(segment, progress):
        if isinstance(found, NoBatch):
            yield Line(log, segment.path, found.position, None, -1, None, None, found)
            continue
        try:
            batch = unpack(found.data, found.at, found.header)
        except CorruptBatch as error:
            gap = NoBatch(found.position, found.position + found.header.size, error.reason, at_end=False, whole=False)
            yield Line(log, segment.path, found.position, None, found.header.base_offset, None, None, gap)
            continue
        for offset, record in zip(batch.offsets, batch.records, strict=True):
            decoded = decode_marker(record) if batch.header.is_control else decode(record)
            if group_id is None or decoded.group_id == group_id:
                yield Line(log, segment.path, found.position, batch, offset, record, decoded, None)


class Counts:
    """How much was printed.

    records: all records. unknown: records with a key version that no known Kafka writes, by version. damaged: gaps.
    """

    def __init__(self) -> None:
        self.records = 0
        self.unknown: Counter[int | None] = Counter()
        self.damaged = 0

    def add(self, line: Line) -> None:
        """Count a line."""
        if line.gap is not None:
            self.damaged += 1
            return
        self.records += 1
        if line.decoded is not None and line.decoded.kind == UNKNOWN_KIND:
            self.unknown[line.decoded.key_version] += 1


def print_lines(
    logs: list[Log],
    group_id: str | None,
    *,
    as_json: bool,
    progress: Callable[[int], None] = lambda _size: None,
) -> Counts:
    """Print the records of all logs. Raises OSError."""
    counts = Counts()
    file: Path | None = None
    journals = JournalsBeside()
    for log in logs:
        for line in read_lines(log, group_id, journals, progress):
            counts.add(line)
            if as_json:
                print(json_text(line_json(line)))
                continue
            if line.file != file:
                file = line.file
                print(f"# {file}")
                print(_columns(*(heading for heading, _ in COLUMNS)))
            for text in table_lines(line):
                print(text)
    return counts


def line_json(line: Line) -> Fields:
    """A line as JSON."""
    fields: Fields = {"file": str(line.file), "log_partition": line.log.partition, "position": line.position}
    if line.gap is not None:
        return fields | {"kind": DAMAGE_KIND, "size": line.gap.end - line.position, "reason": line.gap.reason}
    assert line.batch is not None
    assert line.record is not None
    assert line.decoded is not None
    header, decoded = line.batch.header, line.decoded
    return fields | {
        "offset": line.offset,
        "timestamp_ms": line.record.timestamp_ms,
        "leader_epoch": header.partition_leader_epoch,
        "codec": line.batch.codec.name.lower(),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "kind": decoded.kind,
        "key_version": decoded.key_version,
        "group_id": decoded.group_id,
        "key": decoded.key,
        "tombstone": line.record.value is None,
        "value_version": decoded.value_version,
        "value": decoded.value,
    }


def table_lines(line: Line) -> Iterator[str]:
    """A line as text, and one more for each member of a group."""
    if line.gap is not None:
        size = line.gap.end - line.position
        offset = line.offset if line.offset >= 0 else MISSING
        yield _columns(line.position, offset, "", "", "", "", DAMAGE_KIND, f"{size} bytes", line.gap.reason)
        return
    assert line.batch is not None
    assert line.record is not None
    assert line.decoded is not None
    header, decoded = line.batch.header, line.decoded
    yield _columns(
        line.position,
        line.offset,
        iso_text(line.record.timestamp_ms),
        header.partition_leader_epoch,
        "" if line.batch.codec is Codec.NONE else line.batch.codec.name.lower(),
        "" if header.producer_id < 0 else f"{header.producer_id}{'t' if header.is_transactional else ''}",
        decoded.kind,
        _key_text(decoded),
        "tombstone" if line.record.value is None else _value_text(decoded),
    )
    if decoded.kind == GROUP_KIND and decoded.value is not None and not is_odd(decoded.value):
        yield from (f"    {_member_text(member)}" for member in decoded.value["members"])


def _columns(*cells: object) -> str:
    texts = [printable(str(cell)) or MISSING for cell in cells]
    padded = (text.ljust(width) for text, (_heading, width) in zip(texts, COLUMNS, strict=True))
    return "  ".join(padded).rstrip()


def _key_text(decoded: Decoded) -> str:
    key = decoded.key
    if is_odd(key):
        return f"{key['hex']} ({key['reason']})"
    if decoded.kind == OFFSET_KIND:
        return f"{key['group_id']} {key['topic']}-{key['partition']}"
    if decoded.kind == GROUP_KIND or decoded.kind in READ_VERSIONS:
        return " ".join(key.values())
    for name in ("marker", "transactional_id"):
        if name in key:
            return f"{key[name]}"
    if decoded.kind in NEWER_KINDS.values() and decoded.group_id is not None:
        return decoded.group_id
    return f"v{decoded.key_version} {key['hex']}"


def _value_text(decoded: Decoded) -> str:
    value = decoded.value
    assert value is not None
    version = "" if decoded.value_version is None else f"v{decoded.value_version} "
    if is_odd(value):
        return f"{version}{value['hex']} ({value['reason']})"
    if "members" in value:
        value = {**value, "members": len(value["members"])}
    return version + " ".join(f"{name}={_text(field)}" for name, field in value.items())


def _member_text(member: Fields) -> str:
    return " ".join(f"{name}={printable(_text(field))}" for name, field in member.items())


def _text(value: Any) -> str:
    if value is None or value == "":
        return MISSING
    if is_odd(value):
        return f"{value['hex']} ({value['reason']})"
    if isinstance(value, dict | list):
        return _encode_tight(value)
    return str(value)
