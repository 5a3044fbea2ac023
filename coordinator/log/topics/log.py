"""The log of a user's topic partition. Its files are those of a group's partition, but its records are opaque bytes.

It writes, and handles failed writes, as a PartitionLog does. It differs in its input, batches as producers sent them,
and in what it keeps in memory about them:

- where the batches are (view.py);
- the producers of the batches (producers.py), to recognize a repeated batch.

Opening the log builds both from all batches and checks each CRC. It cuts off a torn tail under the same rules as for
other logs (damage.py).

A segment begins where the one before it ends, compacted or not. A gap between two segments means that records were
lost, and the log is refused. A gap inside a segment is legal only if the log was ever compacted: then a file
`cleaner-offset-checkpoint` exists, with the offset below which each key occurs once. A compacted file replaces the old
ones in steps (swap.py); between two steps the log can be read and appended to.

The log starts at the offset in the file `log-start-offset-checkpoint` (DeleteRecords), or where its oldest segment
does.

House rule: as PartitionLog's. Source: Kafka's UnifiedLog and LogSegment, release 3.9.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain, repeat, takewhile
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from coordinator.log.compaction.task import Cleaned
from coordinator.log.engine import Damaged
from coordinator.log.files import read_regular
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk, closing, replace_file
from coordinator.log.segments.partition import PartitionLog, check_room
from coordinator.log.segments.segment import SEGMENT_OFFSETS_MAX, Segment, list_segments, read_frames, segment_at
from coordinator.log.segments.swap import recover_swaps, swap_in, swap_path
from coordinator.log.segments.tail import Cut, Tails
from coordinator.log.segments.transactions import NO_EPOCH, marker_of
from coordinator.log.segments.view import NO_OFFSET, NO_TIME, Part, Rejected, View
from coordinator.log.topics.folders import OWNER_NAME
from coordinator.log.topics.list import kafka_id
from coordinator.log.topics.partition import Limits
from coordinator.log.topics.produced import check_produced
from coordinator.log.topics.producers import DuplicateBatch, Producers
from protocol.records.batch import Batch, CorruptBatch, Header, encode_batch, peek_header
from protocol.records.rewrite import placed
from schemas.errors import ErrorCode

LEADER_EPOCH = 0
"""The epoch of every batch: a topic partition has the same leader forever."""

START_NAME = "log-start-offset-checkpoint"
CLEAN_NAME = "cleaner-offset-checkpoint"


class Written(NamedTuple):
    """Result of a written batch. append_time_ms: -1 if its records kept their times."""

    base_offset: int
    append_time_ms: int
    log_start_offset: int


class TopicLog(PartitionLog):
    """The log in `folder`, of a partition of the topic with `topic_id`.

    reads: how often it was opened. clean_offset: below it each key occurs once. is_being_compacted: only the compaction
    may change closed segments.
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
        self._is_claimed = False
        self.view = View(disk)

    # Opening.

    def open(self) -> None:
        """Read the log; after that it takes appends. Raises Damaged, OSError: then it stays closed."""
        self.close("it is being loaded")
        self.reads += 1
        self._is_parked = self.is_being_compacted = self._is_claimed = False
        recover_swaps(self._disk, self._folder)
        if self._must_mend:
            self._mend()
        clean_offset = noted_offset(self._folder / CLEAN_NAME)
        self._has_gaps = clean_offset is not None
        self.producers = Producers()
        self.view = View(self._disk)
        self.next_offset = 0
        tails = Tails(self._disk, self._folder, self._durable, self._cut)
        segments = list_segments(self._disk, self._folder)
        for segment in segments:
            if segment.base_offset != self.next_offset and segment is not segments[0]:
                reason = f"starts at offset {segment.base_offset}, the segment before it ends at {self.next_offset}"
                raise Damaged(str(segment.path), 0, reason)
            self.next_offset = segment.base_offset
            self.view.parts.append(self._read(segment, tails, is_newest=segment is segments[-1]))
        first = segments[0].base_offset if segments else 0
        self.view.start = min(max(first, noted_offset(self._folder / START_NAME) or 0), self.next_offset)
        self.view.end = self.next_offset
        # A torn tail may have taken offsets with it, so the noted offset may be behind the end.
        self.clean_offset = clean_offset if clean_offset is not None and clean_offset <= self.next_offset else 0
        if self.view.parts:
            check_room(self.view.parts[-1].segment, self.view.parts[-1].size, self.next_offset)
            self._make_durable(self.view.parts[-1].segment, self.view.parts[-1].size)
        self.closed_because = ""

    def _read(self, segment: Segment, tails: Tails, *, is_newest: bool) -> Part:
        part = Part(segment)
        end = segment.base_offset + SEGMENT_OFFSETS_MAX
        with closing(self._disk, self._disk.open(segment.path)) as descriptor:
            size = self._disk.size(descriptor)
            try:
                for frame in read_frames(self._disk, descriptor, size):
                    header = frame.header
                    is_next = header.base_offset == self.next_offset
                    if not (is_next or self._may_follow(header)) or header.next_offset > end:
                        reason = f"offset {header.base_offset}, expected {self.next_offset}"
                        raise Damaged(str(segment.path), frame.position, reason)
                    self._take(part, frame.position, header.base_offset, header, frame.data, frame.at)
            except CorruptBatch as error:
                tails.cut_off(segment, descriptor, size, error, self._could_follow, is_newest=is_newest)
        return part

    def _take(self, part: Part, position: int, base_offset: int, header: Header, data: bytes, at: int = 0) -> None:
        """Note a batch that is in the log; its bytes begin at `at` of `data`."""
        part.add(position, base_offset, header)
        if header.producer_id >= 0:
            take_batch(self.producers, self.view, base_offset, header, data, at)
        self.next_offset = self.view.end = base_offset + header.last_offset_delta + 1

    def _could_follow(self, header: Header) -> bool:
        return header.base_offset >= self.next_offset

    def _may_follow(self, header: Header) -> bool:
        """Whether a batch may stand behind a gap."""
        return self._has_gaps and header.base_offset > self.next_offset

    def _note_offset(self, name: str, offset: int) -> None:
        """Store an offset durably in the format of Kafka's checkpoints. Raises OSError."""
        topic, _, partition = self._folder.name.rpartition("-")
        replace_file(self._disk, self._folder / name, f"0\n1\n{topic} {partition} {offset}\n".encode())

    def give_up(self, because: str) -> None:
        """Close the log after a bug of ours: its state in memory may be wrong."""
        self._must_mend = self._durable is not None
        self.close(because)

    # Appending.

    def park(self) -> None:
        """Close the file of the active segment, until the next append opens it again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._is_parked = True
            with suppress(OSError):  # all appended batches are durable
                self._disk.close(descriptor)

    def append_marker(
        self, marker: Batch, limits: Limits, coordinator_epoch: int | None = None, *, is_higher: bool = False
    ) -> Written | OSError | Rejected:
        """Write the marker that ends a producer's transaction; it is durable then.

        coordinator_epoch: of an administrator's marker, which may come too late; None for the server's own.
        is_higher: see Producers.check_marker.
        """
        if coordinator_epoch is not None:
            ids = marker.producer_id, marker.producer_epoch
            error = self.producers.check_marker(*ids, coordinator_epoch, is_higher=is_higher)
            if error is not ErrorCode.NONE:
                return Rejected(error, "The marker is older than the producer.")
        (outcome,) = self.append_batches([encode_batch(marker, 0, LEADER_EPOCH)], limits, 0, are_markers=True)
        return outcome

    def append_batches(
        self,
        batches: Sequence[bytes],
        limits: Limits,
        now_ms: int,
        *,
        are_markers: bool = False,
        are_v2: Iterable[bool] = (),
    ) -> list[Written | Rejected | OSError]:
        """Write the batch at the start of each of `batches`, if it passes the checks; each Written batch is durable.

        are_markers: they are the server's own, and need no check. are_v2: of each batch, see Producers.check.
        After an OSError the log is closed, and the batches without a result are not in it.
        """
        assert self.is_open()
        self._segment_size = limits.segment_bytes
        outcomes: list[Written | Rejected | OSError] = []
        queued: list[bytes] = []
        size = self._durable.size if self._durable else 0
        flushed = 0
        try:
            if self._is_parked:
                assert self._durable is not None
                self._descriptor = self._disk.open(self._durable.segment.path)
                self._is_parked = False
            for data, is_v2 in zip(batches, chain(are_v2, repeat(False)), strict=False):
                header = peek_header(data) if are_markers else self._decide(data, limits, now_ms, is_v2=is_v2)
                if not isinstance(header, Header):
                    outcomes.append(header)
                    continue
                base_offset = self.next_offset
                end_offset = base_offset + header.last_offset_delta + 1
                is_old = size and header.max_timestamp_ms - self.view.parts[-1].first_ms > limits.segment_ms
                if is_old or self._is_full(size, header.size, end_offset):
                    self._flush(queued, base_offset)
                    flushed, queued, size = len(outcomes), [], 0
                    self._begin_segment(base_offset)
                    self.view.parts.append(Part(segment_at(self._folder, base_offset)))
                append_time_ms = now_ms if limits.has_append_time and not are_markers else NO_TIME
                queued += placed(data, header, base_offset, LEADER_EPOCH, append_time_ms)  # type: ignore[arg-type]
                self._take(self.view.parts[-1], size, base_offset, header, data)
                size += header.size
                outcomes.append(Written(base_offset, append_time_ms, self.view.start))
            self._flush(queued, self.next_offset)
        except OSError as error:
            self._fail(error)
            return outcomes[:flushed] + [error] * (len(batches) - flushed)
        return outcomes

    def _decide(self, data: bytes, limits: Limits, now_ms: int, *, is_v2: bool) -> Header | Written | Rejected:
        """The header to append the batch with, or the reason not to append it."""
        try:
            header = check_produced(data, limits, self._folder.name)
        except Rejected as rejected:
            # Its traceback would keep the batch, and what it unpacked to, until the request is answered.
            return self._with_start(rejected.with_traceback(None))
        except CorruptBatch as corrupt:
            return Rejected(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt: {corrupt.reason}.")
        if header.producer_id in self.view.open and not header.is_transactional:
            return self._with_start(Rejected(ErrorCode.INVALID_TXN_STATE, "The producer has an open transaction here."))
        known = self.producers.check(header, is_v2=is_v2)
        if isinstance(known, DuplicateBatch):
            return Written(known.base_offset, known.timestamp_ms, self.view.start)
        if known is not ErrorCode.NONE:
            return self._with_start(Rejected(known, _sequence_text(known, header)))
        return header._replace(max_timestamp_ms=now_ms) if limits.has_append_time else header

    def _with_start(self, rejected: Rejected) -> Rejected:
        """Add the log's start, except for batches that Kafka refuses by their bytes alone (ReplicaManager)."""
        if rejected.error not in {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}:
            rejected.log_start_offset = self.view.start
        return rejected

    # Removing old records.

    def delete_before(self, offset: int) -> None:
        """Let the log start at `offset`, durably. Raises Rejected, OSError."""
        offset = self.next_offset if offset == NO_OFFSET else offset
        if not 0 <= offset <= self.next_offset:
            raise Rejected(ErrorCode.OFFSET_OUT_OF_RANGE, f"Offset {offset}, the log ends at {self.next_offset}.")
        if offset <= self.view.start:
            return
        self._note_offset(START_NAME, offset)
        self.view.start = offset
        self.view.forget_aborted(offset)
        if not self.is_being_compacted:
            self._remove(self._count_before(offset))

    def retain(self, limits: Limits, now_ms: int) -> int:
        """Remove the segments that the topic's retention gives up, and return their number. Raises OSError.

        Segments below the log's start go too. As in Kafka, a log that is being compacted loses none.
        """
        if self.is_being_compacted:
            return 0
        count = self._count_before(self.view.start)
        if limits.is_deleted:
            if limits.retention_ms >= 0:
                old = takewhile(lambda part: self._newest_ms(part) < now_ms - limits.retention_ms, self.view.parts)
                count = max(count, len(list(old)))
            if limits.retention_bytes >= 0:
                ends = list(accumulate((part.size for part in self.view.parts), initial=0))
                count = max(count, bisect_right(ends, ends[-1] - limits.retention_bytes) - 1)
        if count and count == len(self.view.parts):
            if not self.view.parts[-1].size:
                count -= 1
            else:
                self._is_parked = False  # its successor is open
                self.roll()
                if not self.is_open():
                    return 0
                self.view.parts.append(Part(segment_at(self._folder, self.next_offset)))
        self.view.start = max(self.view.start, self.view.parts[count].segment.base_offset if count else 0)
        self.view.forget_aborted(self.view.start)
        self._remove(count)
        return count

    # Compaction.

    def begin_compaction(self) -> None:
        """Note, durably, that offsets may have gaps from here on, and keep closed segments. Raises OSError."""
        if not self._has_gaps:
            self._note_offset(CLEAN_NAME, self.clean_offset)
            self._has_gaps = True
        self.is_being_compacted = True

    def end_compaction(self, clean_offset: int) -> None:
        """Note the offset below which each key occurs once. Raises OSError."""
        self.is_being_compacted = False
        self.view.forget_aborted(clean_offset)
        if clean_offset != self.clean_offset:
            self._note_offset(CLEAN_NAME, clean_offset)
            self.clean_offset = clean_offset

    def swap(self, cleaned: Cleaned) -> Iterator[None]:
        """Replace old files by a compacted one, in steps between which all of the log can be read. Raises OSError.

        A caller that stops between two steps closes the log; the next `open` finishes the swap.
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
        """The newest timestamp of a segment's records; without one, as in Kafka, when the file was written."""
        return part.max_ms if part.max_ms >= 0 or not part.size else part.segment.path.stat().st_mtime_ns // 1_000_000

    def _count_before(self, offset: int) -> int:
        """The number of segments that end before `offset`, without the newest."""
        return sum(part.segment.base_offset <= offset for part in self.view.parts[1:])

    def _remove(self, count: int) -> None:
        """Remove the oldest segments."""
        for part in self.view.parts[:count]:
            with suppress(FileNotFoundError):
                self._disk.remove(part.segment.path)
            # Only after the removal: a file that can't be removed is tried again later.
            self.view.parts.remove(part)
        if count:
            self._disk.sync_folder(self._folder)

    def claim(self) -> None:
        """Note the topic's id in the folder, once. Raises OSError."""
        if self._is_claimed:
            return
        path = self._folder / OWNER_NAME
        if not path.exists():
            self._disk.make_folder(self._folder)
            replace_file(self._disk, path, f"version: 0\ntopic_id: {kafka_id(self.topic_id)}\n".encode())
        self._is_claimed = True


def take_batch(producers: Producers, view: View, base_offset: int, header: Header, data: bytes, at: int) -> None:
    """Note the producer of a batch in a log, and its transaction. Raises CorruptBatch."""
    marker, coordinator_epoch = marker_of(data, at, header) if header.is_control else (None, NO_EPOCH)
    producers.take(header, base_offset, coordinator_epoch)
    if header.is_transactional:
        view.take_transaction(header, base_offset, marker)


def noted_offset(path: Path) -> int | None:
    """The offset in a topic partition's checkpoint file, None if there is no file. Raises Damaged, OSError."""
    try:
        return int(read_regular(path, flags=os.O_NOFOLLOW).split(b"\n")[2].split(b" ")[2])
    except FileNotFoundError:
        return None
    except (IndexError, ValueError) as error:
        raise Damaged(str(path), 0, "it names no offset") from error


def _sequence_text(error: ErrorCode, header: Header) -> str:
    if error is ErrorCode.INVALID_PRODUCER_EPOCH:
        return f"Producer {header.producer_id} has a newer epoch than {header.producer_epoch}."
    return f"Out of order sequence number for producer {header.producer_id}: {header.base_sequence}."
