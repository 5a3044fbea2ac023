"""`tenure log verify`: is a log right, and where is it wrong?

The audit's modules read and judge: coordinator.audit.read decides whether bytes are batches and records,
coordinator.audit.check.integrity checks the order of batches. The rules of a group's records are those of
coordinator.group.invariants and coordinator.group.consumer.invariants. This module gives a finding the name of a rule,
a file and a position:

    batch          the bytes are a batch with the right CRC, and its records match its header
    torn_tail      the end of the newest segment is no batch: a write that was interrupted, or damage there
    offset_order   offsets grow, within a segment and from one to the next (gaps are legal: compaction leaves them)
    epoch_order    epochs never fall
    record         a coordinator can read keys and values; types that Tenure doesn't serve are counted, not judged
    partition      the records of each group and of each transactional id are on the partition that Kafka's rule says
    group          the last state of each group keeps the rules of its records, and it is of one kind

A group or a commit that has the last number there is gets a note: it is right, but no higher number can follow.

Verify doesn't check subscriptions and assignments, because they belong to the members. A transaction without an end is
no finding: it still waits. An interrupted compaction is none either: verify reads it as if it were finished. A half
written end is a note while a server works with the folder.

Memory: READ_SIZE bytes of a segment or one batch, its records, and the last value of each group of one partition.

House rule: every finding has a file and a position. This module repairs nothing and imports nothing heavy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from coordinator.audit.check.integrity import Integrity
from coordinator.audit.read.batches import BAD_CHECKSUM_KIND, UNREADABLE_BATCH_KIND, read_batch, read_marker
from coordinator.audit.read.ids import id_partition_count
from coordinator.audit.read.logs import (
    NO_BATCH_KIND,
    OLD_FORMAT_KIND,
    TORN_TAIL_KIND,
    FilePart,
    Piece,
    Range,
    known_partitions,
    ranges_of,
    read_range,
)
from coordinator.audit.read.parse import batch_row
from coordinator.cli.log.locks import in_use, write_under_way
from coordinator.config import INT64_MAX
from coordinator.group.bounds import epoch_at_bound, group_at_bound, offset_at_bound
from coordinator.group.consumer.invariants import ConsumerRule, broken_rules
from coordinator.group.consumer.records import CURRENT, MEMBER, TARGET, TARGET_EPOCH, LastRecords
from coordinator.group.invariants import RecordRule, record_violations
from coordinator.group.partition import partition_for
from coordinator.log.meta import noted_partition_count
from coordinator.log.segments.outside import JournalsBeside, Log, OpenSegment, find_logs_of_ids, opened
from coordinator.log.segments.partition import EPOCH_MAX, OFFSET_ROOM
from coordinator.story.records.consumer import CONSUMER_VERSIONS, read_consumer_value
from coordinator.story.records.values import (
    GROUP_KIND,
    OFFSET_KIND,
    RECORD_KINDS,
    UNKNOWN_KIND,
    UNREADABLE_KIND,
    read_group,
    read_key,
    read_offset,
)
from coordinator.transaction.records import decode_id, transactional_id_of
from protocol.errors import ProtocolError
from protocol.messages import Message, OffsetCommitValue
from protocol.records.walk import Batch

BROKER_SWAP_SUFFIX = ".log.swap"
"""How a broker's compaction names the segment that replaces others, until the others are gone."""

READ_SIZE = 1024 * 1024
"""Bytes of a segment that are read at a time, unless a batch is larger."""

GROUPS_MAX = 50_000
"""The number of groups whose partition is remembered."""

AT_BOUND_MAX = 100
"""The most records at a bound that notes name; one more note counts the others."""


class Rule(StrEnum):
    """The rule that a finding breaks; the module explains each."""

    BATCH = "batch"
    TORN_TAIL = "torn_tail"
    OFFSET_ORDER = "offset_order"
    EPOCH_ORDER = "epoch_order"
    RECORD = "record"
    PARTITION = "partition"
    GROUP = "group"


RULES: dict[str, Rule] = {
    NO_BATCH_KIND: Rule.BATCH,
    OLD_FORMAT_KIND: Rule.BATCH,
    BAD_CHECKSUM_KIND: Rule.BATCH,
    UNREADABLE_BATCH_KIND: Rule.BATCH,
    TORN_TAIL_KIND: Rule.TORN_TAIL,
    "offset_order": Rule.OFFSET_ORDER,
    "epoch_order": Rule.EPOCH_ORDER,
    UNREADABLE_KIND: Rule.RECORD,
    "wrong_partition": Rule.PARTITION,
    **dict.fromkeys(RecordRule, Rule.GROUP),
    **dict.fromkeys(ConsumerRule, Rule.GROUP),
}
"""The audit's name of a fault (a kind of bytes or records, or a check), or a rule of a record -> the rule here."""


class BrokenRule(NamedTuple):
    """A finding at `position` (in bytes) of `file`; offset: the record's, None if the finding is about no record."""

    rule: Rule
    file: Path
    position: int
    offset: int | None
    reason: str


@dataclass
class Summary:
    """The amounts that were read, and remarks.

    partitions: of the groups' log. epoch_max: the highest epoch in a partition, by its folder.
    skipped: records by kind that Tenure doesn't load. open_transactions: without an end. at_bound: records with a
    number that is the last there is.
    notes: remarks for a person that are no findings. unreadable: errors of the system, one for each file.
    """

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    groups: int = 0
    transactional_ids: int = 0
    open_transactions: int = 0
    at_bound: int = 0
    epoch_max: dict[Path, int] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def guess_partition_count(path: Path, logs: list[Log]) -> int | None:
    """The number of partitions of the log, None if it can't be found out.

    A broker has a folder for each partition from its first start on. Tenure has a folder for each partition that it
    wrote to, but it notes their number, and locks all of them.
    """
    if path.is_file() or (len(logs) == 1 and logs[0].folder == path):
        return None
    noted = noted_partition_count(path)
    if noted is not None:
        return noted
    return 1 + max(known_partitions(path, logs), default=-1) or None


def guess_id_partition_count(path: Path) -> int | None:
    """The number of partitions of `__transaction_state`, as `guess_partition_count`; None if there are none."""
    return id_partition_count(path, find_logs_of_ids(path)) or None


def verify(
    logs: list[Log],
    partition_count: int | None,
    summary: Summary,
    *,
    id_partition_count: int | None = None,
    may_be_live: bool = True,
    progress: Callable[[int], None] = lambda _size: None,
) -> Iterator[BrokenRule]:
    """Check the logs and fill in `summary`; the partition of each key is checked if the number of partitions is known.

    id_partition_count: of `__transaction_state`.
    may_be_live: False if the caller keeps servers away. progress: called with the number of bytes that were read since
    the last call.
    """
    journals = JournalsBeside()
    for log in logs:
        summary.partitions += not log.has_ids
        count = id_partition_count if log.has_ids else partition_count
        yield from _Check(log, count, summary, progress, journals, may_be_live=may_be_live).findings()
    if summary.at_bound > AT_BOUND_MAX:
        summary.notes.append(f"{summary.at_bound - AT_BOUND_MAX} more records are at a bound")


Named = tuple[int, str | None]
"""Which record of a group of the consumer protocol it is: key version, and the name in the key."""


class _LastState(NamedTuple):
    """The last record of a key, with its file and position."""

    value: bytes
    file: Path
    position: int
    offset: int


_VERSIONS_OF = {
    ConsumerRule.INSTANCE_TWICE: (MEMBER,),
    ConsumerRule.TARGET_EPOCH: (TARGET_EPOCH,),
    ConsumerRule.TARGET_TWICE: (TARGET,),
}
"""A rule of the consumer protocol -> key versions of the record that breaks it; CURRENT or TARGET for other rules."""


def _last_records(states: dict[Named, _LastState]) -> LastRecords:
    """The last records of a group of the consumer protocol, decoded."""
    records = LastRecords()
    for (version, name), state in states.items():
        records.put(name, read_consumer_value(state.value, version)[1])
    return records


class _Check:
    """The check of one partition."""

    def __init__(
        self,
        log: Log,
        partition_count: int | None,
        summary: Summary,
        progress: Callable[[int], None],
        journals: JournalsBeside,
        *,
        may_be_live: bool,
    ) -> None:
        self._log = log
        self._journals = journals
        self._partition = -1 if log.partition is None else log.partition
        self._partition_count = None if log.partition is None else partition_count
        self._summary = summary
        self._progress = progress
        self._may_be_live = may_be_live
        self._was_live = False
        self._paths: dict[int, Path] = {}
        self._newest: Path | None = None
        self._integrity = Integrity(self._partition, None, is_replica=False)
        self._epoch_max = -1
        self._room_ends = ""
        self._misplaced = lru_cache(GROUPS_MAX)(self._why_misplaced)
        self._groups: dict[str, _LastState] = {}
        self._consumer_groups: dict[str, dict[Named, _LastState]] = {}
        self._ids: set[str] = set()
        self._open: set[int] = set()

    def findings(self) -> Iterator[BrokenRule]:
        """Read all segments and return the findings in the order of the log."""
        # Before any file is opened: a server that ends while we read may have been writing.
        self._was_live = self._is_live()
        try:
            with opened(self._log, self._journals) as segments:
                if self._log.file is None and segments and segments[0].base_offset:
                    # Compaction, Kafka's too, leaves a segment in the place of the first one.
                    self._summary.notes.append(f"{segments[0].path} is the first segment: those before it are gone")
                self._paths = {segment.base_offset: segment.path for segment in segments}
                self._newest = segments[-1].path if segments else None
                for segment in segments:
                    try:
                        yield from self._segment(segment)
                    except OSError as error:
                        self._cannot_read(error, segment.path)
        except OSError as error:
            self._cannot_read(error, error.filename or self._log.folder)
        self._summary.groups += len(self._groups.keys() | self._consumer_groups.keys())
        self._summary.transactional_ids += len(self._ids)
        for group_id, state in self._groups.items():
            value = read_group(state.value)[1]
            self._note_bound(group_id, state, group_at_bound(value))
            for rule, words, _who in record_violations(value):
                reason = f"group {group_id!r}: {words}"
                yield BrokenRule(RULES[rule], state.file, state.position, state.offset, reason)
        for group_id, states in self._consumer_groups.items():
            yield from self._consumer_group(group_id, states)
        if self._log.file is None and not self._is_live():
            self._summary.notes += [
                f"{path}: a compaction of the broker was interrupted; its next start finishes it"
                for path in sorted(self._log.folder.glob(f"*{BROKER_SWAP_SUFFIX}"))
            ]
        if self._epoch_max == EPOCH_MAX:
            self._summary.notes.append(
                f"{self._log.folder}: its leader epoch is {EPOCH_MAX}: all later owners share it"
            )
        if self._room_ends:
            self._summary.notes.append(f"{self._room_ends}: hardly any offset is left, a server refuses the partition")
        if self._log.partition is not None:
            self._summary.epoch_max[self._log.folder] = self._epoch_max
        self._summary.open_transactions += len(self._open)

    def _cannot_read(self, error: OSError, path: Path | str) -> None:
        """Note an error of the system; a journal's is the same for one partition after the other."""
        problem = f"{error.strerror or error}: {path}"
        if self._summary.unreadable[-1:] != [problem]:
            self._summary.unreadable.append(problem)

    def _consumer_group(self, group_id: str, states: dict[Named, _LastState]) -> Iterator[BrokenRule]:
        """Check the last records of a group of the consumer protocol, beside one another."""
        newest = max(states.values(), key=lambda state: state.offset)
        if group_id in self._groups:
            reason = f"group {group_id!r}: it has records of both protocols"
            yield BrokenRule(Rule.GROUP, newest.file, newest.position, newest.offset, reason)
        records = _last_records(states)
        self._note_bound(group_id, newest, epoch_at_bound(records.epoch))
        for rule, words, member_id, _partition in broken_rules(records):
            versions = _VERSIONS_OF.get(rule, (CURRENT, TARGET))
            at = next((states[each, member_id] for each in versions if (each, member_id) in states), newest)
            yield BrokenRule(RULES[rule], at.file, at.position, at.offset, f"group {group_id!r}: {words}")

    def _note_bound(self, group_id: str, at: _LastState, words: str | None) -> None:
        """Name a record of a group that is at a bound."""
        if words is not None:
            self._summary.at_bound += 1
            if self._summary.at_bound <= AT_BOUND_MAX:
                self._summary.notes.append(f"{at.file} at byte {at.position}: group {group_id!r}: {words}")

    def _segment(self, segment: OpenSegment) -> Iterator[BrokenRule]:
        self._summary.segments += 1
        for range_ in ranges_of(self._partition, segment, READ_SIZE, searched=self._progress):
            window, pieces = read_range(range_)
            for piece in pieces:
                if piece.kind is None:
                    self._progress(piece.end - piece.position)
                    yield from self._batch(segment, range_, window, piece)
                else:
                    yield from self._damage(segment, piece, piece.kind, piece.reason)

    def _damage(self, segment: OpenSegment, piece: Piece, kind: str, reason: str | None) -> Iterator[BrokenRule]:
        """Report bytes that are no batch, or a batch that was changed."""
        size = piece.end - piece.position
        rule = RULES[kind]
        if kind in {TORN_TAIL_KIND, BAD_CHECKSUM_KIND} and piece.end == segment.size:
            # A crash tears only the newest segment, and may leave a batch at its full length; older segments were
            # durable.
            rule = Rule.TORN_TAIL if segment.path == self._newest else Rule.BATCH
        if rule is Rule.TORN_TAIL and (self._was_live or self._is_live()):
            self._summary.notes.append(write_under_way(segment.path, piece.position, size))
        else:
            yield BrokenRule(rule, segment.path, piece.position, None, f"{reason} ({size} bytes)")

    def _is_live(self) -> bool:
        return self._may_be_live and in_use(self._log.folder.absolute().parent)

    def _batch(self, segment: OpenSegment, range_: Range, window: FilePart, piece: Piece) -> Iterator[BrokenRule]:
        header, batch, kind, reason = read_batch(window.data, window.index(piece.position, piece.end - piece.position))
        is_right = kind != BAD_CHECKSUM_KIND
        self._integrity.add(batch_row(range_, piece.position, header, crc_ok=is_right))
        for fault in self._integrity.faults:
            path = self._paths[fault.segment]
            yield BrokenRule(RULES[fault.check], path, fault.position, fault.offset, fault.reason)
        self._integrity.faults.clear()
        if not is_right:
            yield from self._damage(segment, piece, BAD_CHECKSUM_KIND, reason)
            return
        self._summary.batches += 1
        self._epoch_max = max(self._epoch_max, header.partition_leader_epoch)
        if header.next_offset > INT64_MAX - OFFSET_ROOM:
            self._room_ends = self._room_ends or f"{segment.path} at byte {piece.position}"
        if batch is None:
            yield BrokenRule(
                RULES[UNREADABLE_BATCH_KIND], segment.path, piece.position, header.base_offset, str(reason)
            )
            return
        self._summary.records += len(batch.records)
        if header.is_control:
            self._open.discard(header.producer_id)
            yield from self._markers(segment, piece.position, batch)
        else:
            if header.is_transactional:
                self._open.add(header.producer_id)
            read = self._id_records if self._log.has_ids else self._records
            yield from read(segment, piece.position, batch)

    def _markers(self, segment: OpenSegment, position: int, batch: Batch) -> Iterator[BrokenRule]:
        for offset, record in zip(batch.offsets, batch.records, strict=True):
            reason = read_marker(record).reason
            if reason is not None:
                yield BrokenRule(RULES[UNREADABLE_KIND], segment.path, position, offset, reason)

    def _id_records(self, segment: OpenSegment, position: int, batch: Batch) -> Iterator[BrokenRule]:
        for offset, (key, value, _) in zip(batch.offsets, batch.records, strict=True):
            try:
                transactional_id = transactional_id_of(key)
                if value is not None:
                    decode_id(transactional_id, value)
            except ProtocolError as error:
                yield BrokenRule(RULES[UNREADABLE_KIND], segment.path, position, offset, str(error))
                continue
            misplaced = self._misplaced(transactional_id)
            if misplaced is not None:
                yield BrokenRule(RULES["wrong_partition"], segment.path, position, offset, misplaced)
            if value is None:
                self._ids.discard(transactional_id)
            else:
                self._ids.add(transactional_id)

    def _records(self, segment: OpenSegment, position: int, batch: Batch) -> Iterator[BrokenRule]:
        for offset, (key_bytes, value, _) in zip(batch.offsets, batch.records, strict=True):
            key = read_key(key_bytes)
            kind, group_id, reason = key.kind, key.group_id, key.reason
            if kind in RECORD_KINDS or kind in CONSUMER_VERSIONS:
                if value is not None and reason is None:
                    try:
                        read = _read(kind, value)
                    except ProtocolError as error:
                        reason = str(error)
                    else:
                        if isinstance(read, OffsetCommitValue):
                            at = _LastState(value, segment.path, position, offset)
                            self._note_bound(str(group_id), at, offset_at_bound(read))
            elif reason is None:
                self._summary.skipped[f"key version {key.version}" if kind == UNKNOWN_KIND else kind] += 1
            if reason is not None:
                yield BrokenRule(RULES[UNREADABLE_KIND], segment.path, position, offset, reason)
            if group_id is not None:
                misplaced = self._misplaced(group_id)
                if misplaced is not None:
                    yield BrokenRule(RULES["wrong_partition"], segment.path, position, offset, misplaced)
                if kind == GROUP_KIND and value is not None and reason is None:
                    self._groups[group_id] = _LastState(value, segment.path, position, offset)
                elif kind == GROUP_KIND:
                    self._groups.pop(group_id, None)
                elif kind in CONSUMER_VERSIONS:
                    state = None if value is None or reason else _LastState(value, segment.path, position, offset)
                    self._take_consumer(group_id, (CONSUMER_VERSIONS[kind], key.name), state)

    def _take_consumer(self, group_id: str, named: Named, state: _LastState | None) -> None:
        """Take the next record of a group of the consumer protocol; None for a tombstone."""
        states = self._consumer_groups.setdefault(group_id, {})
        if state is None:
            states.pop(named, None)
        else:
            states[named] = state
        if not states:
            del self._consumer_groups[group_id]

    def _why_misplaced(self, group_id: str) -> str | None:
        """Why a record of the group or id doesn't belong here; None if it does, or without a number of partitions."""
        if self._partition_count is None:
            return None
        right = partition_for(group_id, self._partition_count)
        if right == self._log.partition:
            return None
        kind = "transactional id" if self._log.has_ids else "group"
        return f"{kind} {group_id!r} belongs on partition {right} of {self._partition_count}"


def _read(kind: str, value: bytes) -> Message:
    """A value of this kind. Raises ProtocolError if no coordinator can load it."""
    if kind == OFFSET_KIND:
        return read_offset(value)[1]
    if kind in CONSUMER_VERSIONS:
        return read_consumer_value(value, CONSUMER_VERSIONS[kind])[1]
    return read_group(value)[1]
