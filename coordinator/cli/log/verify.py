"""`tenure log verify`: whether a log is right, and where it isn't.

Each partition is read through once. What is checked, by the name of its rule:

    batch          the bytes are a batch with the right CRC, and its records are what its header announces
    torn_tail      the end of the newest segment is no batch: a write that was interrupted, or damage there
    offset_order   offsets grow, within a segment and from one to the next (gaps are legal: compaction leaves them)
    epoch_order    epochs never fall
    record         keys and values are what a coordinator can read; newer and unknown types are counted, not judged
    partition      each group's records are on the partition that Kafka's rule says
    group          the last state of each group keeps the rules of coordinator.group.invariants
    swap           a server was interrupted while it replaced segments: start and stop it once

What members told each other (subscriptions, assignments) is theirs and not checked. A transaction without an end is no
finding: it waits. While a server works with the folder, a half written end is no finding either, and a note says so.

Memory: the last value of each group of one partition, and one batch.

House rule: every finding has a file and a position; nothing is repaired here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from coordinator.cli.log.decoded import GROUP_KIND, UNKNOWN_KIND, Decoded, decode_marker, decode_record
from coordinator.cli.log.files import Gap, Log, read_file
from coordinator.cli.log.locks import in_use
from coordinator.group.invariants import violations
from coordinator.group.partition import partition_for
from coordinator.group.records import NEWER_KINDS, decode_group
from coordinator.log.segment import SEGMENT_OFFSETS_MAX, Frame, Segment
from protocol.errors import ProtocolError
from protocol.record_batch import Batch, CorruptBatch, Record, decode_records

SWAP_SUFFIX = ".swap"
"""The compactions of Kafka and of Tenure give it to the segment that replaces others, until they are gone."""


class Rule(StrEnum):
    """What a finding breaks; see the module."""

    BATCH = "batch"
    TORN_TAIL = "torn_tail"
    OFFSET_ORDER = "offset_order"
    EPOCH_ORDER = "epoch_order"
    RECORD = "record"
    PARTITION = "partition"
    GROUP = "group"
    SWAP = "swap"


class Finding(NamedTuple):
    """What is wrong at `position` (in bytes) of `file`; offset: of the record, None if it is about none."""

    rule: Rule
    file: Path
    position: int
    offset: int | None
    reason: str


@dataclass
class Summary:
    """What was read.

    skipped: records by kind that a coordinator of the classic protocol doesn't load. open_transactions: without an end.
    notes: what a person should know that is no finding. unreadable: what the system refused to let be read.
    """

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    groups: int = 0
    open_transactions: int = 0
    epoch_max: dict[int, int] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


class _LastState(NamedTuple):
    """The last record of a group and where it stands."""

    value: bytes
    file: Path
    position: int
    offset: int


def guess_partition_count(path: Path, logs: list[Log]) -> int | None:
    """How many partitions the log has, None if nothing says.

    A broker has a folder for each, from its first start on. Tenure has one for each that was ever written to, but locks
    all of them.
    """
    if path.is_file() or (len(logs) == 1 and logs[0].folder == path):
        return None
    locks = (name.name.removeprefix(".lock-") for name in path.glob(".lock-*"))
    numbers = [int(number) for number in locks if number.isdecimal()]
    numbers += [log.partition for log in logs if log.partition is not None]
    return max(numbers) + 1 if numbers else None


def verify(
    logs: list[Log], partition_count: int | None, summary: Summary, *, may_be_live: bool = True
) -> Iterator[Finding]:
    """Check the logs and fill in `summary`; keys are held to their partition if `partition_count` is known.

    may_be_live: off where the caller keeps servers away.
    """
    for log in logs:
        summary.partitions += 1
        yield from _Check(log, partition_count, summary, may_be_live=may_be_live).findings()


class _Check:
    """The check of one partition."""

    def __init__(self, log: Log, partition_count: int | None, summary: Summary, *, may_be_live: bool) -> None:
        self._log = log
        self._may_be_live = may_be_live
        self._partition_count = partition_count
        self._summary = summary
        self._next_offset = 0
        self._epoch = -1
        self._groups: dict[str, _LastState] = {}
        self._open: set[int] = set()

    def findings(self) -> Iterator[Finding]:
        """Read all segments; what is wrong, in the order of the log."""
        for segment in self._log.segments:
            try:
                yield from self._segment(segment)
            except FileNotFoundError:
                self._summary.notes.append(f"{segment.path} went away meanwhile: compacted by a running server")
            except OSError as error:
                self._summary.unreadable.append(f"{error.strerror or error}: {segment.path}")
        yield from self._last_states()
        if self._log.segments:
            for path in sorted(self._log.folder.glob(f"*{SWAP_SUFFIX}")):
                if not self._is_live():
                    yield Finding(Rule.SWAP, path, 0, None, "a compaction was interrupted: start the server, stop it")
        if self._log.partition is not None:
            self._summary.epoch_max[self._log.partition] = self._epoch
        self._summary.open_transactions += len(self._open)

    def _segment(self, segment: Segment) -> Iterator[Finding]:
        if segment.base_offset < self._next_offset:
            reason = f"starts at offset {segment.base_offset}, the segment before it ends at {self._next_offset}"
            yield Finding(Rule.OFFSET_ORDER, segment.path, 0, None, reason)
        self._next_offset = max(self._next_offset, segment.base_offset)
        self._summary.segments += 1
        for found in read_file(segment.path):
            if isinstance(found, Gap):
                yield from self._gap(segment, found)
            else:
                yield from self._batch(segment, found)

    def _gap(self, segment: Segment, gap: Gap) -> Iterator[Finding]:
        size = gap.end - gap.position
        if not gap.at_end or segment is not self._log.segments[-1]:
            yield Finding(Rule.BATCH, segment.path, gap.position, None, f"{gap.reason} ({size} bytes)")
        elif gap.whole:
            reason = f"{gap.reason}; the batch is whole, its length or magic is wrong"
            yield Finding(Rule.BATCH, segment.path, gap.position, None, reason)
        elif self._is_live():
            self._summary.notes.append(
                f"{segment.path} ends in {size} bytes of a write under way at byte {gap.position}: a server is running"
            )
        else:
            yield Finding(Rule.TORN_TAIL, segment.path, gap.position, None, f"{gap.reason} ({size} bytes)")

    def _is_live(self) -> bool:
        return self._may_be_live and in_use(self._log.folder.absolute().parent)

    def _batch(self, segment: Segment, found: Frame) -> Iterator[Finding]:
        header = found.header
        self._summary.batches += 1
        if header.base_offset < self._next_offset:
            reason = f"offset {header.base_offset}, expected {self._next_offset} or later"
            yield Finding(Rule.OFFSET_ORDER, segment.path, found.position, header.base_offset, reason)
        elif header.next_offset > segment.base_offset + SEGMENT_OFFSETS_MAX:
            reason = f"offset {header.base_offset}, too far from the segment's {segment.base_offset}"
            yield Finding(Rule.OFFSET_ORDER, segment.path, found.position, header.base_offset, reason)
        else:
            self._next_offset = header.next_offset
        if header.partition_leader_epoch < self._epoch:
            reason = f"epoch {header.partition_leader_epoch}, the batch before it has {self._epoch}"
            yield Finding(Rule.EPOCH_ORDER, segment.path, found.position, header.base_offset, reason)
        self._epoch = max(self._epoch, header.partition_leader_epoch)
        try:
            batch = decode_records(found.data, found.at, header)
        except CorruptBatch as error:
            yield Finding(Rule.BATCH, segment.path, found.position, header.base_offset, error.reason)
            return
        if header.is_control:
            self._open.discard(header.producer_id)
        elif header.is_transactional:
            self._open.add(header.producer_id)
        yield from self._records(segment, found.position, batch)

    def _records(self, segment: Segment, position: int, batch: Batch) -> Iterator[Finding]:
        for offset, record in zip(batch.offsets, batch.records, strict=True):
            self._summary.records += 1
            decoded = decode_marker(record) if batch.is_control else decode_record(record)
            if decoded.problem is not None:
                yield Finding(Rule.RECORD, segment.path, position, offset, decoded.problem)
            if decoded.kind == UNKNOWN_KIND:
                self._summary.skipped[f"key version {decoded.key_version}"] += 1
            elif decoded.key_version in NEWER_KINDS and not batch.is_control:
                self._summary.skipped[decoded.kind] += 1
            reason = self._misplaced(decoded.group_id)
            if reason is not None:
                yield Finding(Rule.PARTITION, segment.path, position, offset, reason)
            if decoded.kind == GROUP_KIND:
                self._keep(decoded, record, _LastState(record.value or b"", segment.path, position, offset))

    def _misplaced(self, group_id: str | None) -> str | None:
        """Why a record of the group doesn't belong here, None if it does or if that isn't known."""
        if group_id is None or self._partition_count is None or self._log.partition is None:
            return None
        right = partition_for(group_id, self._partition_count)
        if right == self._log.partition:
            return None
        return f"group {group_id!r} belongs on partition {right} of {self._partition_count}"

    def _keep(self, decoded: Decoded, record: Record, state: _LastState) -> None:
        assert decoded.group_id is not None
        if record.value is None or decoded.problem is not None:
            self._groups.pop(decoded.group_id, None)
        else:
            self._groups[decoded.group_id] = state

    def _last_states(self) -> Iterator[Finding]:
        self._summary.groups += len(self._groups)
        for group_id, state in self._groups.items():
            for reason in broken_rules(group_id, state.value):
                yield Finding(Rule.GROUP, state.file, state.position, state.offset, f"group {group_id!r}: {reason}")


def broken_rules(group_id: str, value: bytes) -> list[str]:
    """The rules that a group breaks as its record brings it back."""
    try:
        group = decode_group(group_id, value)
    except ProtocolError as error:
        return [str(error).removeprefix(f"group {group_id!r}: ")]
    for member in group.members.values():
        # As the coordinator does first with a loaded group; without a timer, no member would be right.
        member.timer_at_ms = 0
    return violations(group)
