"""Reads a partition's log back, and decides whether damage is a torn tail.

The batches of all segments are read once, oldest first. The reader checks each batch's CRC, and also the fields that
the CRC doesn't cover: offsets grow (with gaps, which compaction leaves), epochs never fall, and the length stays inside
the file. plain_values.py reads simple batches, many at a time; this module reads the others one by one. Records of a
transaction wait for its marker (transactions.py).

Where a segment ends in the middle of a batch, tail.py decides whether a crash tore it; anything else raises Damaged.

House rule: the reader hands on the records of a key in the order of the log, each at most once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk, closing
from coordinator.log.segments.segment import SEGMENT_OFFSETS_MAX, Frame, Segment, list_segments, read_others
from coordinator.log.segments.tail import Cut, Durable, Tails
from coordinator.log.segments.transactions import Transactions
from protocol.records.batch import CorruptBatch, Header, Record
from protocol.records.codecs import Codec
from protocol.records.plain_values import Position, Values, scan
from protocol.records.walk import decode_records

PAGE_SIZE = 4 * 1024 * 1024
"""The reader holds records back for so many bytes of the log. A larger page hands on fewer superseded records; a
smaller page takes less memory during a load.
"""

PAGE_KEYS = 4096
"""The reader hands on at most so many records at once, plus those of one chunk (segment.py): a few ms of work."""


class LogReader:
    """Reads the log in `folder` once, by `pages`; after that the attributes describe its end.

    next_offset: of the record to be appended next. epoch: of the last batch, -1 without one.
    segment: the newest, None without any. size: its bytes.
    transactions: those that are still open; the reader hasn't handed on their records.
    progress: the part of the log that is read, from 0 to 1, if all segments were of one size.
    """

    def __init__(self, disk: Disk, folder: Path, durable: Durable | None, cut: Cut) -> None:
        self.next_offset = 0
        self.epoch = -1
        self.segment: Segment | None = None
        self.size = 0
        self.progress = 0.0
        self.transactions = Transactions()
        self._last: Values = {}
        self._was_packed = False
        self._offset_end = 0
        self._segments_read = 0
        self._segment_count = 0
        self._disk = disk
        self._folder = folder
        self._tails = Tails(disk, folder, durable, cut)

    def pages(self) -> Iterator[list[Record]]:
        """Yield the records in lists, each with the last record of each key; cut a torn tail.

        There is a list for each chunk, so that the caller can do other work between two chunks. Most lists are empty:
        the reader holds records back for a while (PAGE_SIZE, PAGE_KEYS), because later records may have the same keys.

        Raises Damaged, or OSError. The markers of transactions are left out. Nothing is synced: the records, and the
        cut, are durable only after a sync of `segment`.
        """
        segments = list_segments(self._disk, self._folder)
        self._segment_count = len(segments)
        for segment in segments:
            if segment.base_offset < self.next_offset:
                reason = f"starts at offset {segment.base_offset}, the segment before it ends at {self.next_offset}"
                raise Damaged(str(segment.path), 0, reason)
            self.segment = segment
            self.next_offset = segment.base_offset
            with closing(self._disk, self._disk.open(segment.path)) as descriptor:
                self.size = self._disk.size(descriptor)
                yield from self._read(segment, descriptor, is_newest=segment is segments[-1])
            self._segments_read += 1

    def _read(self, segment: Segment, descriptor: int, *, is_newest: bool) -> Iterator[list[Record]]:
        self._offset_end = segment.base_offset + SEGMENT_OFFSETS_MAX
        page_end = PAGE_SIZE
        try:
            for found in read_others(self._disk, descriptor, self.size, self._handle_plain):
                if isinstance(found, Frame):
                    self._take(segment, found)
                    continue
                self.progress = (self._segments_read + found / self.size) / self._segment_count
                if found >= page_end or len(self._last) >= PAGE_KEYS or self._was_packed:
                    page_end = found + PAGE_SIZE
                    yield self._page()
                else:
                    yield []
        except CorruptBatch as error:
            self._tails.cut_off(segment, descriptor, self.size, error, self._could_follow, is_newest=is_newest)
            self.size = error.position
        self.progress = (self._segments_read + 1) / self._segment_count
        if self._last:
            yield self._page()

    def _page(self) -> list[Record]:
        page = [Record(key, value, timestamp_ms) for key, (value, timestamp_ms) in self._last.items()]
        self._last = {}
        self._was_packed = False
        return page

    def _handle_plain(self, data: bytes, at: int) -> int:
        """Read the batches of a chunk up to the first that isn't simple (ChunkHandler)."""
        last: Values = {} if self.transactions.open_count else self._last
        at, self.next_offset, self.epoch = scan(
            data, Position(at, self.next_offset, self.epoch), self._offset_end, last
        )
        if last is not self._last:
            self.transactions.supersede(last)
            self._last |= last
        return at

    def _take(self, segment: Segment, frame: Frame) -> None:
        """Check the offsets and the epoch of a batch with the right CRC, and take its records."""
        header = frame.header
        reason = None
        if header.base_offset < self.next_offset:
            reason = f"offset {header.base_offset}, expected {self.next_offset} or later"
        elif header.next_offset > self._offset_end:
            reason = f"offset {header.base_offset}, too far from the segment's {segment.base_offset}"
        elif header.partition_leader_epoch < self.epoch:
            reason = f"epoch {header.partition_leader_epoch}, the batch before it has {self.epoch}"
        if reason is not None:
            raise Damaged(str(segment.path), frame.position, reason)
        try:
            batch = decode_records(frame.data, frame.at, header)
            counting = self.transactions.take(header.producer_id, header.attributes, batch.offsets, batch.records)
            self._last |= {key: (value, timestamp_ms) for key, value, timestamp_ms in counting}
        except CorruptBatch as error:
            raise Damaged(str(segment.path), frame.position, error.reason) from error
        except ValueError as error:
            raise Damaged(str(segment.path), frame.position, str(error)) from error
        self._was_packed |= batch.codec is not Codec.NONE
        self.next_offset = header.next_offset
        self.epoch = header.partition_leader_epoch

    def _could_follow(self, header: Header) -> bool:
        return header.base_offset >= self.next_offset and header.partition_leader_epoch >= self.epoch
