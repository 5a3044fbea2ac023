"""The log of a user's topic partition: the same files as a group's partition has, but nobody here knows the records.

It is a PartitionLog in how it writes, and in what a failed write leaves behind; what differs is what it takes, batches
as producers sent them, and what it knows of them:

- where they are, in memory (view.py);
- who wrote them (producers.py), to know a repetition.

Both are made anew when the log is opened, from all its batches, each with its CRC checked; a tail that a crash tore is
cut off under the same rules as everywhere (damage.py).

A segment begins where the one before it ends, compacted or not: where it doesn't, records were lost, and the log is
refused. Inside segments offsets have gaps only if the log was ever compacted, which a file
`cleaner-offset-checkpoint` says, with the offset below which no key is there twice. A compacted file takes its place in
steps (swap.py), between which the log may be read and appended to.

The log starts where a file `log-start-offset-checkpoint` says (DeleteRecords), or where its oldest segment does.

House rule: as PartitionLog's. Source: Kafka's UnifiedLog and LogSegment, release 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from coordinator.log.compaction import Cleaned
from coordinator.log.counts import Counts
from coordinator.log.damage import why_not_torn
from coordinator.log.disk import Disk, replace_file
from coordinator.log.engine import Damaged
from coordinator.log.folders import OWNER_NAME
from coordinator.log.meta import kafka_id
from coordinator.log.partition import PartitionLog
from coordinator.log.producers import Producers, Repeated
from coordinator.log.recovery import Cut, keep_tail
from coordinator.log.segment import SEGMENT_OFFSETS_MAX, Segment, list_segments, read_frames, segment_at
from coordinator.log.swap import recover_swaps, swap_in, swap_path
from coordinator.log.view import NO_OFFSET, NO_TIME, Part, Refused, View
from protocol.records.batch import CODEC_MASK, HEADER_SIZE, CorruptBatch, Header, check_crc, peek_header
from protocol.records.codecs import Codec
from protocol.records.rewrite import placed
from protocol.records.walk import find_records
from schemas.errors import ErrorCode

LEADER_EPOCH = 0
"""Of every batch: nobody else ever leads a topic partition."""

RECORD_SIZE_MIN = 7
"""Bytes of a record without key, value and headers."""

RECORDS_MAX = 1_000_000
"""Records that a packed batch may say it has, which nobody counts: librdkafka packs no more (batch.num.messages). Each
takes an offset, of which a segment has 2 billion."""

START_NAME = "log-start-offset-checkpoint"
CLEAN_NAME = "cleaner-offset-checkpoint"


class Limits(NamedTuple):
    """What a topic is configured with, by the names that Kafka has for it; -1: no limit."""

    max_message_bytes: int
    segment_bytes: int
    segment_ms: int
    retention_bytes: int
    retention_ms: int
    is_compacted: bool
    is_deleted: bool
    has_append_time: bool
    min_cleanable_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int


class Written(NamedTuple):
    """What became of a batch. append_time_ms: -1 if its records kept their times."""

    base_offset: int
    append_time_ms: int
    log_start_offset: int


class TopicLog(PartitionLog):
    """The log in `folder`, of a partition of the topic with `topic_id`.

    reads: how often it was opened. clean_offset: below it no key is there twice. is_being_compacted: closed segments
    stay as they are but for what compaction does with them.
    """

    def __init__(
        self, disk: Disk, folder: Path, topic_id: UUID, segment_bytes: int, cut: Cut, counts: Counts | None = None
    ) -> None:
        super().__init__(disk, folder, LEADER_EPOCH, segment_bytes, cut, counts)
        self.producers = Producers()
        self.topic_id = topic_id
        self.clean_offset = 0
        self.is_being_compacted = False
        self._has_gaps = False
        self._is_parked = False
        self.view = View(disk)

    # Opening.

    def open(self) -> None:
        """Read what is there; then the log takes appends. Raises Damaged, OSError: it stays closed then."""
        self.close("it is being loaded")
        self.reads += 1
        self._is_parked = self.is_being_compacted = False
        recover_swaps(self._disk, self._folder)
        if self._must_mend:
            self._mend()
        clean_offset = noted_offset(self._folder / CLEAN_NAME)
        self._has_gaps = clean_offset is not None
        self.producers = Producers()
        self.view = View(self._disk)
        self._next_offset = 0
        segments = list_segments(self._disk, self._folder)
        for segment in segments:
            if segment.base_offset != self._next_offset and segment is not segments[0]:
                reason = f"starts at offset {segment.base_offset}, the segment before it ends at {self._next_offset}"
                raise Damaged(str(segment.path), 0, reason)
            self._next_offset = segment.base_offset
            self.view.parts.append(self._read(segment, is_newest=segment is segments[-1]))
        first = segments[0].base_offset if segments else 0
        self.view.start = min(max(first, noted_offset(self._folder / START_NAME) or 0), self._next_offset)
        self.view.end = self._next_offset
        # What lay behind may be gone with a tail.
        self.clean_offset = clean_offset if clean_offset is not None and clean_offset <= self._next_offset else 0
        if self.view.parts:
            self._make_durable(self.view.parts[-1].segment, self.view.parts[-1].size)
        self.closed_because = ""

    def _read(self, segment: Segment, *, is_newest: bool) -> Part:
        part = Part(segment)
        end = segment.base_offset + SEGMENT_OFFSETS_MAX
        descriptor = self._disk.open(segment.path)
        try:
            size = self._disk.size(descriptor)
            try:
                for frame in read_frames(self._disk, descriptor, size):
                    header = frame.header
                    is_next = header.base_offset == self._next_offset
                    if not (is_next or self._may_follow(header)) or header.next_offset > end:
                        reason = f"offset {header.base_offset}, expected {self._next_offset}"
                        raise Damaged(str(segment.path), frame.position, reason)
                    self._take(part, frame.position, header.base_offset, header)
            except CorruptBatch as error:
                why = self._why_not_torn(segment, descriptor, error.position, size, is_newest=is_newest)
                if why is not None:
                    raise Damaged(str(segment.path), error.position, f"{error.reason}; {why}") from error
                keep_tail(self._disk, self._folder, descriptor, error.position, size)
                self._disk.truncate(descriptor, error.position)
                self._cut(segment.path, error.position, size - error.position)
        finally:
            self._disk.close(descriptor)
        return part

    def _why_not_torn(
        self, segment: Segment, descriptor: int, position: int, size: int, *, is_newest: bool
    ) -> str | None:
        """Why damage is not the rest of a write that a crash interrupted; None if it can be."""
        if not is_newest:
            return "newer segments exist"
        if self._durable is not None and (segment.base_offset, position) < (
            self._durable.segment.base_offset,
            self._durable.size,
        ):
            return "it was durable"
        end = self._next_offset
        return why_not_torn(self._disk, descriptor, position, size, lambda header: header.base_offset >= end)

    def _take(self, part: Part, position: int, base_offset: int, header: Header) -> None:
        """A batch is in the log."""
        part.add(position, base_offset, header)
        self.producers.take(header, base_offset)
        self._next_offset = self.view.end = base_offset + header.last_offset_delta + 1

    def _may_follow(self, header: Header) -> bool:
        """Whether a batch may stand behind a gap."""
        return self._has_gaps and header.base_offset > self._next_offset

    def _note_offset(self, name: str, offset: int) -> None:
        """Keep an offset as Kafka's checkpoints do, durably. Raises OSError."""
        topic, _, partition = self._folder.name.rpartition("-")
        replace_file(self._disk, self._folder / name, f"0\n1\n{topic} {partition} {offset}\n".encode())

    def give_up(self, because: str) -> None:
        """Close it after a mistake of ours: what is in memory is not believed any more."""
        self._must_mend = self._durable is not None
        self.close(because)

    # Appending.

    def park(self) -> None:
        """Close the file that is appended to, until the next append opens it again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._is_parked = True
            with suppress(OSError):  # all that was appended is durable
                self._disk.close(descriptor)

    def append_batches(
        self, batches: Sequence[bytes], limits: Limits, now_ms: int
    ) -> list[Written | Refused | OSError]:
        """Write the batch at the start of each of `batches`, as each passes; all that are Written are durable.

        After an OSError the log is closed, and the batches that it wasn't told of are not in it.
        """
        assert self.is_open()
        self._segment_size = limits.segment_bytes
        outcomes: list[Written | Refused | OSError] = []
        queued: list[bytes] = []
        size = self._durable.size if self._durable else 0
        flushed = 0
        try:
            if self._is_parked:
                assert self._durable is not None
                self._descriptor = self._disk.open(self._durable.segment.path)
                self._is_parked = False
            for data in batches:
                header = self._decide(data, limits, now_ms)
                if not isinstance(header, Header):
                    outcomes.append(header)
                    continue
                base_offset = self._next_offset
                end_offset = base_offset + header.last_offset_delta + 1
                is_old = size and header.max_timestamp_ms - self.view.parts[-1].first_ms > limits.segment_ms
                if is_old or self._is_full(size, header.size, end_offset):
                    self._flush(queued, base_offset)
                    flushed, queued, size = len(outcomes), [], 0
                    self._begin_segment(base_offset)
                    self.view.parts.append(Part(segment_at(self._folder, base_offset)))
                append_time_ms = now_ms if limits.has_append_time else NO_TIME
                queued += placed(data, header, base_offset, LEADER_EPOCH, append_time_ms)  # type: ignore[arg-type]
                self._take(self.view.parts[-1], size, base_offset, header)
                size += header.size
                outcomes.append(Written(base_offset, append_time_ms, self.view.start))
            self._flush(queued, self._next_offset)
        except OSError as error:
            self._fail(error)
            return outcomes[:flushed] + [error] * (len(batches) - flushed)
        return outcomes

    def _decide(self, data: bytes, limits: Limits, now_ms: int) -> Header | Written | Refused:
        """The header that a batch is to be appended with, or why it is not."""
        try:
            header = self._checked(data, limits)
        except Refused as refused:
            return self._refused(refused)
        except CorruptBatch as corrupt:
            return Refused(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt: {corrupt.reason}.")
        known = self.producers.check(header)
        if isinstance(known, Repeated):
            return Written(known.base_offset, known.timestamp_ms, self.view.start)
        if known is not ErrorCode.NONE:
            return self._refused(Refused(known, _sequence_text(known, header)))
        return header._replace(max_timestamp_ms=now_ms) if limits.has_append_time else header

    def _refused(self, refused: Refused) -> Refused:
        """With the log's start, but for batches that Kafka refuses by their bytes alone (ReplicaManager)."""
        if refused.error not in {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}:
            refused.log_start_offset = self.view.start
        return refused

    def _checked(self, data: bytes, limits: Limits) -> Header:
        """The header of a batch that may be appended, as far as the batch says. Raises Refused, CorruptBatch."""
        header = peek_header(data)
        if header.base_offset != 0:
            text = f"The base offset of a batch that is produced should be 0, but it is {header.base_offset}."
            raise Refused(ErrorCode.INVALID_RECORD, text)
        if header.size > limits.max_message_bytes:
            text = f"The batch has {header.size} bytes, max.message.bytes allows {limits.max_message_bytes}."
            raise Refused(ErrorCode.MESSAGE_TOO_LARGE, text)
        check_crc(data, 0, header)
        codec = header.attributes & CODEC_MASK
        if codec > Codec.ZSTD:
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"There is no codec {codec}.")  # as in Kafka
        count_max = RECORDS_MAX if codec else (header.size - HEADER_SIZE) // RECORD_SIZE_MIN
        if not 0 < header.record_count <= count_max or header.record_count != header.last_offset_delta + 1:
            text = f"The batch says {header.record_count} records, its last is number {header.last_offset_delta}."
            raise Refused(ErrorCode.INVALID_RECORD, text)
        if header.producer_id >= 0 and header.base_sequence < 0:
            text = f"Sequence number {header.base_sequence} in a batch of producer {header.producer_id}."
            raise Refused(ErrorCode.INVALID_RECORD, text)
        if header.is_control:
            raise Refused(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records.")
        if limits.is_compacted and not all(record.has_key for record in find_records(data, 0, header)):
            text = f"Compacted topic cannot accept message without key in topic partition {self._folder.name}."
            raise Refused(ErrorCode.INVALID_RECORD, text)
        if header.size > limits.segment_bytes:
            text = f"The batch has {header.size} bytes, segment.bytes allows {limits.segment_bytes}."
            raise Refused(ErrorCode.RECORD_LIST_TOO_LARGE, text)
        return header

    # Losing what is old.

    def delete_before(self, offset: int) -> None:
        """Let the log start at `offset`, durably. Raises Refused, OSError."""
        offset = self._next_offset if offset == NO_OFFSET else offset
        if not 0 <= offset <= self._next_offset:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"Offset {offset}, the log ends at {self._next_offset}.")
        if offset <= self.view.start:
            return
        self._note_offset(START_NAME, offset)
        self.view.start = offset
        if not self.is_being_compacted:
            self._remove(self._count_before(offset))

    def retain(self, limits: Limits, now_ms: int) -> int:
        """Remove the segments that the topic's retention gives up, and return how many. Raises OSError.

        Also those that nobody may read any more; none while they are being compacted, as in Kafka.
        """
        if self.is_being_compacted:
            return 0
        count = self._count_before(self.view.start)
        if limits.is_deleted:
            if limits.retention_ms >= 0:
                for number, part in enumerate(self.view.parts):
                    if self._newest_ms(part) >= now_ms - limits.retention_ms:
                        break
                    count = max(count, number + 1)
            excess = sum(part.size for part in self.view.parts) - limits.retention_bytes
            for number, part in enumerate(self.view.parts if limits.retention_bytes >= 0 else ()):
                excess -= part.size
                if excess < 0:
                    break
                count = max(count, number + 1)
        if count and count == len(self.view.parts):
            if not self.view.parts[-1].size:
                count -= 1
            else:
                self._is_parked = False  # its successor is open
                self.roll()
                if not self.is_open():
                    return 0
                self.view.parts.append(Part(segment_at(self._folder, self._next_offset)))
        self.view.start = max(self.view.start, self.view.parts[count].segment.base_offset if count else 0)
        self._remove(count)
        return count

    # Compaction.

    def begin_compaction(self) -> None:
        """Note, durably, that offsets may have gaps from now on, and leave closed segments alone. Raises OSError."""
        if not self._has_gaps:
            self._note_offset(CLEAN_NAME, self.clean_offset)
            self._has_gaps = True
        self.is_being_compacted = True

    def end_compaction(self, clean_offset: int) -> None:
        """Note up to where no key is there twice. Raises OSError."""
        self.is_being_compacted = False
        if clean_offset != self.clean_offset:
            self._note_offset(CLEAN_NAME, clean_offset)
            self.clean_offset = clean_offset

    def swap(self, cleaned: Cleaned) -> Iterator[None]:
        """Let a compacted file take its place, in steps between which all of the log can be read. Raises OSError.

        Where it isn't taken to its end, the log has to be closed: opening it goes on with it.
        """
        base_offset, next_offset, fields = cleaned
        steps = swap_in(self._disk, self._folder, base_offset, next_offset)
        next(steps)
        new = Part.of_fields(Segment(base_offset, swap_path(self._folder, base_offset, next_offset)), fields)
        parts = self.view.parts
        at = [at for at, part in enumerate(parts) if base_offset <= part.segment.base_offset < next_offset]
        parts[at[0] : at[-1] + 1] = [new]
        yield
        yield from steps
        new.segment = segment_at(self._folder, base_offset)

    def _newest_ms(self, part: Part) -> int:
        """When a segment's newest record was made, as far as records say; else when it was written, as in Kafka."""
        return part.max_ms if part.max_ms >= 0 or not part.size else part.segment.path.stat().st_mtime_ns // 1_000_000

    def _count_before(self, offset: int) -> int:
        """How many segments end before `offset`, but for the newest."""
        return sum(part.segment.base_offset <= offset for part in self.view.parts[1:])

    def _remove(self, count: int) -> None:
        """Remove the oldest segments."""
        for part in self.view.parts[:count]:
            with suppress(FileNotFoundError):
                self._disk.remove(part.segment.path)
            # Not before: one that can't be removed now is tried again.
            self.view.parts.remove(part)
        if count:
            self._disk.sync_folder(self._folder)

    def claim(self) -> None:
        """Note whose folder it is, once. Raises OSError."""
        path = self._folder / OWNER_NAME
        if not path.exists():
            self._disk.make_folder(self._folder)
            replace_file(self._disk, path, f"version: 0\ntopic_id: {kafka_id(self.topic_id)}\n".encode())


def noted_offset(path: Path) -> int | None:
    """The offset in a checkpoint of one topic partition, None if there is none. Raises Damaged, OSError."""
    try:
        return int(path.read_text(encoding="ascii").split("\n")[2].split(" ")[2])
    except FileNotFoundError:
        return None
    except (IndexError, ValueError) as error:
        raise Damaged(str(path), 0, "it names no offset") from error


def _sequence_text(error: ErrorCode, header: Header) -> str:
    if error is ErrorCode.INVALID_PRODUCER_EPOCH:
        return f"Producer {header.producer_id} has a newer epoch than {header.producer_epoch}."
    return f"Out of order sequence number for producer {header.producer_id}: {header.base_sequence}."
