"""`tenure log verify`: whether a log is right, and where it isn't.

Each partition is read through once. What is checked, by the name of its rule:

    batch          the bytes are a batch with the right CRC, and its records are what its header announces
    torn_tail      the end of the newest segment is no batch: a write that was interrupted, or damage there
    offset_order   offsets grow, within a segment and from one to the next (gaps are legal: compaction leaves them)
    epoch_order    epochs never fall
    record         keys and values are what a coordinator can read; newer and unknown types are counted, not judged
    partition      each group's records are on the partition that Kafka's rule says
    group          the last state of each group keeps the rules of coordinator.group.invariants

What members told each other (subscriptions, assignments) is theirs and not checked. No finding is what a start makes
good or a running server is at: a transaction without an end, which waits; a compaction that was interrupted, which is
read as finished; and, with a server at work, a half written end, of which a note tells.

Every value is decoded, superseded ones too, but no further than a coordinator does when it loads the last of them; keys
come again and again and are decoded once.

Memory: the last value of each group of one partition, its keys up to a limit, and one batch.

House rule: every finding has a file and a position; nothing is repaired here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from coordinator.audit.read.parse import read_group
from coordinator.cli.log.decoded import GROUP_KIND, UNKNOWN_KIND, decode_marker, decode_record, value_problem
from coordinator.cli.log.locks import in_use, write_under_way
from coordinator.group.invariants import record_violations
from coordinator.group.partition import partition_for
from coordinator.group.records import NEWER_KINDS
from coordinator.log.meta import noted_partition_count
from coordinator.log.outside import Gap, Log, OpenSegment, opened, read_segment
from coordinator.log.segment import SEGMENT_OFFSETS_MAX, Frame
from protocol.errors import ProtocolError
from protocol.record_batch import Batch, CorruptBatch, Record, decode_records

BROKER_SWAP_SUFFIX = ".log.swap"
"""What a broker's compaction calls the segment that replaces others, until they are gone."""

KEYS_MAX = 50_000
"""Keys that are remembered as decoded."""


class Rule(StrEnum):
    """What a finding breaks; see the module."""

    BATCH = "batch"
    TORN_TAIL = "torn_tail"
    OFFSET_ORDER = "offset_order"
    EPOCH_ORDER = "epoch_order"
    RECORD = "record"
    PARTITION = "partition"
    GROUP = "group"


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


def guess_partition_count(path: Path, logs: list[Log]) -> int | None:
    """How many partitions the log has, None if nothing says.

    A broker has a folder for each, from its first start on. Tenure has one for each that was ever written to, but notes
    the number, and locks all of them.
    """
    if path.is_file() or (len(logs) == 1 and logs[0].folder == path):
        return None
    noted = noted_partition_count(path)
    if noted is not None:
        return noted
    locks = (name.name.removeprefix(".lock-") for name in path.glob(".lock-*"))
    numbers = [int(number) for number in locks if number.isdecimal()]
    numbers += [log.partition for log in logs if log.partition is not None]
    return max(numbers) + 1 if numbers else None


def verify(
    logs: list[Log],
    partition_count: int | None,
    summary: Summary,
    *,
    may_be_live: bool = True,
    progress: Callable[[int], None] = lambda _size: None,
) -> Iterator[Finding]:
    """Check the logs and fill in `summary`; keys are held to their partition if `partition_count` is known.

    may_be_live: off where the caller keeps servers away. progress: told how many bytes were gone through since it was
    last told.
    """
    for log in logs:
        summary.partitions += 1
        yield from _Check(log, partition_count, summary, progress, may_be_live=may_be_live).findings()


class _LastState(NamedTuple):
    """The last record of a group and where it stands."""

    value: bytes
    file: Path
    position: int
    offset: int


class _Jump(NamedTuple):
    """A batch before which offsets are left out, by compaction or because its own is wrong.

    follows: the offset of the batch behind it, if it should stand where the batch before it ends.
    """

    file: Path
    position: int
    offset: int
    follows: int


class _Key(NamedTuple):
    """What is known of a record by its key.

    problem: why it can't be read. misplaced: why it doesn't belong on this partition. skipped: what it is, if a
    coordinator of the classic protocol doesn't load it.
    """

    kind: str
    group_id: str | None
    problem: str | None
    misplaced: str | None
    skipped: str | None


class _Check:
    """The check of one partition."""

    def __init__(
        self,
        log: Log,
        partition_count: int | None,
        summary: Summary,
        progress: Callable[[int], None],
        *,
        may_be_live: bool,
    ) -> None:
        self._log = log
        self._partition_count = partition_count
        self._summary = summary
        self._progress = progress
        self._may_be_live = may_be_live
        self._was_live = False
        self._next_offset = 0
        self._jump: _Jump | None = None
        self._epoch = -1
        self._keys: dict[bytes, _Key] = {}
        self._groups: dict[str, _LastState] = {}
        self._open: set[int] = set()

    def findings(self) -> Iterator[Finding]:
        """Read all segments; what is wrong, in the order of the log."""
        # Before anything is opened: a server that ends while its log is read may have been writing.
        self._was_live = self._is_live()
        try:
            with opened(self._log) as segments:
                if self._log.file is None and segments and segments[0].base_offset:
                    # Compaction, Kafka's too, leaves a segment in the place of the first.
                    self._summary.notes.append(f"{segments[0].path} is the first segment: those before it are gone")
                for segment in segments:
                    try:
                        yield from self._segment(segment, is_newest=segment is segments[-1])
                    except OSError as error:
                        self._summary.unreadable.append(f"{error.strerror or error}: {segment.path}")
        except OSError as error:
            self._summary.unreadable.append(f"{error.strerror or error}: {error.filename or self._log.folder}")
        yield from self._last_states()
        if self._log.file is None and not self._is_live():
            self._summary.notes += [
                f"{path}: a compaction of the broker was interrupted; its next start finishes it"
                for path in sorted(self._log.folder.glob(f"*{BROKER_SWAP_SUFFIX}"))
            ]
        if self._log.partition is not None:
            self._summary.epoch_max[self._log.partition] = self._epoch
        self._summary.open_transactions += len(self._open)

    def _segment(self, segment: OpenSegment, *, is_newest: bool) -> Iterator[Finding]:
        if segment.base_offset < self._next_offset:
            reason = f"starts at offset {segment.base_offset}, the segment before it ends at {self._next_offset}"
            yield Finding(Rule.OFFSET_ORDER, segment.path, 0, None, reason)
        self._next_offset = max(self._next_offset, segment.base_offset)
        self._summary.segments += 1
        for found in read_segment(segment):
            if isinstance(found, Gap):
                self._progress(found.end - found.position)
                yield from self._gap(segment, found, is_newest=is_newest)
            else:
                self._progress(found.header.size)
                yield from self._batch(segment, found)

    def _gap(self, segment: OpenSegment, gap: Gap, *, is_newest: bool) -> Iterator[Finding]:
        size = gap.end - gap.position
        if not gap.at_end or not is_newest:
            yield Finding(Rule.BATCH, segment.path, gap.position, None, f"{gap.reason} ({size} bytes)")
        elif gap.whole:
            reason = f"{gap.reason}; the batch is whole, its length or magic is wrong"
            yield Finding(Rule.BATCH, segment.path, gap.position, None, reason)
        elif self._was_live or self._is_live():
            self._summary.notes.append(write_under_way(segment.path, gap.position, size))
        else:
            yield Finding(Rule.TORN_TAIL, segment.path, gap.position, None, f"{gap.reason} ({size} bytes)")

    def _is_live(self) -> bool:
        return self._may_be_live and in_use(self._log.folder.absolute().parent)

    def _batch(self, segment: OpenSegment, found: Frame) -> Iterator[Finding]:
        header = found.header
        self._summary.batches += 1
        jump, self._jump = self._jump, None
        if jump is not None and jump.follows == header.base_offset:
            reason = f"offset {jump.offset}, but the batch behind it goes on at {header.base_offset}"
            yield Finding(Rule.OFFSET_ORDER, jump.file, jump.position, jump.offset, reason)
            self._next_offset = header.next_offset
        elif header.base_offset < self._next_offset:
            reason = f"offset {header.base_offset}, expected {self._next_offset} or later"
            yield Finding(Rule.OFFSET_ORDER, segment.path, found.position, header.base_offset, reason)
        elif header.next_offset > segment.base_offset + SEGMENT_OFFSETS_MAX:
            reason = f"offset {header.base_offset}, too far from the segment's {segment.base_offset}"
            yield Finding(Rule.OFFSET_ORDER, segment.path, found.position, header.base_offset, reason)
        else:
            if header.base_offset > self._next_offset:
                follows = self._next_offset + header.next_offset - header.base_offset
                self._jump = _Jump(segment.path, found.position, header.base_offset, follows)
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
        self._summary.records += len(batch.records)
        if header.is_control:
            self._open.discard(header.producer_id)
            yield from self._markers(segment, found.position, batch)
        else:
            if header.is_transactional:
                self._open.add(header.producer_id)
            yield from self._records(segment, found.position, batch)

    def _markers(self, segment: OpenSegment, position: int, batch: Batch) -> Iterator[Finding]:
        for offset, record in zip(batch.offsets, batch.records, strict=True):
            problem = decode_marker(record).problem
            if problem is not None:
                yield Finding(Rule.RECORD, segment.path, position, offset, problem)

    def _records(self, segment: OpenSegment, position: int, batch: Batch) -> Iterator[Finding]:
        for offset, (key_bytes, value, _) in zip(batch.offsets, batch.records, strict=True):
            key = self._keys.get(key_bytes) or self._key(key_bytes)
            problem = key.problem
            if problem is None and value is not None:
                problem = value_problem(key.kind, value)
            if problem is not None:
                yield Finding(Rule.RECORD, segment.path, position, offset, problem)
            if key.skipped is not None:
                self._summary.skipped[key.skipped] += 1
            if key.misplaced is not None:
                yield Finding(Rule.PARTITION, segment.path, position, offset, key.misplaced)
            if key.kind == GROUP_KIND and key.group_id is not None:
                if value is None or problem is not None:
                    self._groups.pop(key.group_id, None)
                else:
                    self._groups[key.group_id] = _LastState(value, segment.path, position, offset)

    def _key(self, key_bytes: bytes) -> _Key:
        """Decode a key and remember it."""
        decoded = decode_record(Record(key_bytes, None, 0))
        skipped = None
        if decoded.kind == UNKNOWN_KIND:
            skipped = f"key version {decoded.key_version}"
        elif decoded.key_version in NEWER_KINDS:
            skipped = decoded.kind
        key = _Key(decoded.kind, decoded.group_id, decoded.problem, self._misplaced(decoded.group_id), skipped)
        if len(self._keys) >= KEYS_MAX:
            self._keys.clear()
        self._keys[key_bytes] = key
        return key

    def _misplaced(self, group_id: str | None) -> str | None:
        """Why a record of the group doesn't belong here, None if it does or if that isn't known."""
        if group_id is None or self._partition_count is None or self._log.partition is None:
            return None
        right = partition_for(group_id, self._partition_count)
        if right == self._log.partition:
            return None
        return f"group {group_id!r} belongs on partition {right} of {self._partition_count}"

    def _last_states(self) -> Iterator[Finding]:
        self._summary.groups += len(self._groups)
        for group_id, state in self._groups.items():
            for reason in broken_rules(group_id, state.value):
                yield Finding(Rule.GROUP, state.file, state.position, state.offset, f"group {group_id!r}: {reason}")


def broken_rules(group_id: str, value: bytes) -> list[str]:
    """The rules that a group breaks as its record brings it back."""
    try:
        return [broken.reason for broken in record_violations(read_group(value)[1])]
    except ProtocolError as error:
        return [str(error).removeprefix(f"group {group_id!r}: ")]
