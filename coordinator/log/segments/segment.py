"""The folder of a partition, and how one segment file is read.

A log's name and a number identify a partition, and name its folder, `__consumer_offsets-7`. Its log is cut into
segments. Each is a file whose name is an offset: `00000000000000000000.log`. The first batch of a segment may have a
higher offset, because compaction leaves gaps. Other names in the folder (Kafka's indexes, its `.deleted` and `.swap`
files) are not read.

A file is read in chunks from its front, and a chunk grows only for a batch that is larger. So a segment of any size
takes as much memory as its largest batch, and its bytes are read once. A header may claim any size, and a hole of a
sparse file takes no disk: a batch whose bytes are mostly a hole isn't read.

House rule: this module only finds whole batches; recovery.py checks their offsets and epochs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from coordinator.log.segments.disk import Disk, data_size
from protocol.records.batch import FRAME_SIZE, HEADER_SIZE, CorruptBatch, Header, check_crc, peek_header

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
ENGINES_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""The topics whose logs engines write. Clients read them."""

CHUNK_SIZE = 256 * 1024
"""Bytes of one read. A load decodes them in a few ms, and appends of other partitions wait that long."""

BATCH_SIZE_MAX = 2**31 - 1 + FRAME_SIZE
"""Bytes of a batch: its length is an int32."""

HOLES_SIZE_MAX = 100 * 1024 * 1024
"""Bytes of a batch that may lie in holes: a copy of a file may make holes of zeros, and by default no request has more
bytes than these (socket.request.max.bytes).
"""

SEGMENT_OFFSETS_MAX = 2**31 - 1
"""A segment spans at most so many offsets: Kafka's indexes hold them relative to the segment's first, as int32."""

ChunkHandler = Callable[[bytes, int], int]
"""Gets a chunk and the index of a batch in it, handles batches from there on, and returns the index of the first batch
that it leaves to the caller.
"""

OFFSET_MAX = 2**63 - 1
"""An offset is an int64; a file with a higher one in its name is none of a log."""

_SEGMENT_NAME = re.compile(r"([0-9]{20})\.log")
_FOLDER_NAME = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})", re.DOTALL)
_PARTITION_MAX = 2**31 - 1


class Segment(NamedTuple):
    """A file of the log; `base_offset` is the offset in its name."""

    base_offset: int
    path: Path


class Frame(NamedTuple):
    """A batch that was found at `position` of a file; its bytes begin at `at` of `data`."""

    position: int
    header: Header
    data: bytes
    at: int


def partition_folder(data_dir: Path, partition: int, log: str = OFFSETS_TOPIC) -> Path:
    """Return the folder of a partition of a log, be it a topic's; the groups' by default."""
    return data_dir / f"{log}-{partition}"


def topic_partition_of(name: str) -> tuple[str, int] | None:
    """Topic and partition of a folder with that name; None if it is no partition's.

    A partition is an int32, as in Kafka, and its number has one spelling. So no two folders are of one partition.
    """
    found = _FOLDER_NAME.fullmatch(name)
    return (found[1], int(found[2])) if found and int(found[2]) <= _PARTITION_MAX else None


def segment_at(folder: Path, base_offset: int) -> Segment:
    """Return the segment that starts at `base_offset`; the file may not exist."""
    return Segment(base_offset, folder / f"{base_offset:020}.log")


def list_segments(disk: Disk, folder: Path) -> list[Segment]:
    """Return the segments in `folder`, oldest first; none if there is no folder."""
    return segments_among(folder, disk.list_folder(folder))


def segments_among(folder: Path, names: Iterable[str]) -> list[Segment]:
    """Return the segments that `names` lists, oldest first; `folder` holds them."""
    found = (int(name[1]) for name in map(_SEGMENT_NAME.fullmatch, names) if name)
    return [segment_at(folder, base_offset) for base_offset in sorted(found) if base_offset <= OFFSET_MAX]


def read_frames(
    disk: Disk, descriptor: int, size: int, *, start: int = 0, batch_size_max: int = BATCH_SIZE_MAX
) -> Iterator[Frame]:
    """Find the batches in the first `size` bytes of a file, each with its CRC checked.

    start: where the first batch begins. Raises CorruptBatch, with the position in the file, where the bytes are no
    batch, or one of more than `batch_size_max` bytes, or of more than HOLES_SIZE_MAX in holes.
    """
    found = read_others(disk, descriptor, size, lambda _data, at: at, start=start, batch_size_max=batch_size_max)
    return (frame for frame in found if isinstance(frame, Frame))


def read_others(
    disk: Disk,
    descriptor: int,
    size: int,
    handle: ChunkHandler,
    *,
    start: int = 0,
    batch_size_max: int = BATCH_SIZE_MAX,
) -> Iterator[Frame | int]:
    """Yield the batches that `handle` leaves, and the position after each chunk; for the rest see `read_frames`."""
    position, at, data = start, 0, b""
    try:
        while position < size:
            if at < len(data):
                handled = handle(data, at) - at
                position += handled
                at += handled
                if position == size:
                    break
            header = peek_header(data, at) if len(data) - at >= HEADER_SIZE else None
            needed = header.size if header else HEADER_SIZE
            if needed > len(data) - at:
                left = size - position
                if needed > left:
                    raise CorruptBatch(at, f"a batch of at least {needed} bytes, {left} left")
                if needed > batch_size_max:
                    raise CorruptBatch(at, f"a batch of {needed} bytes, {batch_size_max} allowed")
                if needed > HOLES_SIZE_MAX:
                    there = data_size(disk, descriptor, position, position + needed)
                    if needed - there > HOLES_SIZE_MAX:
                        raise CorruptBatch(at, f"a batch of {needed} bytes, only {there} of them on the disk")
                if position:
                    yield position
                data, at = disk.read(descriptor, min(max(needed, CHUNK_SIZE), left), position), 0
                if needed > len(data):
                    raise CorruptBatch(at, f"a batch of at least {needed} bytes, {len(data)} could be read")
                continue
            assert header is not None
            check_crc(data, at, header)
            yield Frame(position, header, data, at)
            position += header.size
            at += header.size
    except CorruptBatch as error:
        raise CorruptBatch(position, error.reason) from error
