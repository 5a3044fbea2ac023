"""Tests which files are segments, and that a reader reads a file once, in pieces that may end anywhere."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import (
    CHUNK_SIZE,
    list_segments,
    partition_folder,
    read_frames,
    segment_at,
    segments_among,
    topic_partition_of,
)
from protocol.records.batch import CorruptBatch, Record, encode_batch
from protocol.records.walk import decode_batches, decode_records
from tests.log.calls import record
from tests.log.disks import FailingDisk


class CountingDisk(FailingDisk):
    """Counts the bytes that it reads, and keeps the size of the largest piece."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0
        self.largest = 0

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        data = super().read(descriptor, size, position)
        self.bytes_read += len(data)
        self.largest = max(self.largest, len(data))
        return data


def write_batches(path: Path, sizes: list[int]) -> bytes:
    """Write a file of batches with one record of about these sizes each."""
    content = b"".join(encode_batch([record(offset, size)], offset, 1) for offset, size in enumerate(sizes))
    path.write_bytes(content)
    return content


def test_names(tmp_path: Path) -> None:
    """Segments have Kafka's names and come in the order of their offsets; other files are none."""
    folder = partition_folder(tmp_path, 7)
    assert folder == tmp_path / "__consumer_offsets-7"
    disk = Disk()
    assert list_segments(disk, folder) == []
    folder.mkdir()
    for name in ("00000000000000000100.log", "00000000000000000000.log", "00000000000000000020.log"):
        (folder / name).touch()
    for name in ("00000000000000000000.index", "00000000000000000000.log.deleted", "1.log", "leader-epoch-checkpoint"):
        (folder / name).touch()
    assert list_segments(disk, folder) == [segment_at(folder, 0), segment_at(folder, 20), segment_at(folder, 100)]
    assert segment_at(folder, 20).path == folder / "00000000000000000020.log"


@pytest.mark.parametrize("seed", range(5))
def test_same_batches_as_in_one_piece(tmp_path: Path, seed: int) -> None:
    """Pieces give the same batches as the file decoded as a whole, even batches larger than a piece."""
    chance = Random(seed)
    sizes = [chance.choice([10, 500, 30_000, CHUNK_SIZE - 80, CHUNK_SIZE * 2]) for _ in range(40)]
    content = write_batches(tmp_path / "log", sizes)
    disk = CountingDisk()
    descriptor = disk.open(tmp_path / "log")
    frames = list(read_frames(disk, descriptor, len(content)))
    disk.close(descriptor)
    batches = list(decode_batches(content))
    assert [(frame.position, frame.header) for frame in frames] == [(batch.position, batch.header) for batch in batches]
    read = [decode_records(frame.data, frame.at, frame.header).records for frame in frames]
    assert read == [batch.records for batch in batches]
    assert disk.largest <= max(CHUNK_SIZE, *(batch.header.size for batch in batches))


def test_bytes_are_read_once(tmp_path: Path) -> None:
    """A reader reads only the bytes across the end of a piece twice, and all others once."""
    content = write_batches(tmp_path / "log", [1_000] * 5_000)
    disk = CountingDisk()
    descriptor = disk.open(tmp_path / "log")
    assert sum(1 for _ in read_frames(disk, descriptor, len(content))) == 5_000
    disk.close(descriptor)
    assert disk.bytes_read < len(content) * 1.01
    assert disk.largest == CHUNK_SIZE


@pytest.mark.parametrize("at", [0, 12, 16, 40, 61, 100])
def test_position_of_damage(tmp_path: Path, at: int) -> None:
    """Damage has its batch's position in the file, behind the first piece too."""
    sizes = [5_000] * 200
    content = bytearray(write_batches(tmp_path / "log", sizes))
    positions = [batch.position for batch in decode_batches(content)]
    content[positions[150] + at] ^= 0x55
    (tmp_path / "log").write_bytes(content)
    disk = Disk()
    descriptor = disk.open(tmp_path / "log")
    if at in {0, 12}:  # base offset and epoch are under no CRC: recovery checks them
        assert len(list(read_frames(disk, descriptor, len(content)))) == 200
    else:
        with pytest.raises(CorruptBatch) as caught:
            list(read_frames(disk, descriptor, len(content)))
        assert caught.value.position == positions[150]
    disk.close(descriptor)


def test_file_shorter_than_said(tmp_path: Path) -> None:
    """A file that ends before its expected size is damage, not an endless loop."""
    content = write_batches(tmp_path / "log", [10])
    disk = Disk()
    descriptor = disk.open(tmp_path / "log")
    with pytest.raises(CorruptBatch, match="could be read") as caught:
        list(read_frames(disk, descriptor, len(content) * 2))
    disk.close(descriptor)
    assert caught.value.position == len(content)


def test_a_batch_above_the_limit_is_not_read(tmp_path: Path) -> None:
    """A header may claim up to 2 GB, and a hole of the file may have them: what exceeds the limit isn't read."""
    claims = bytearray(encode_batch([record(0)], 0, 1))
    claims[8:12] = (2**31 - 1).to_bytes(4)
    path = tmp_path / "file"
    path.write_bytes(claims)
    os.truncate(path, 2**32)
    disk = CountingDisk()
    descriptor = disk.open(path)
    with pytest.raises(CorruptBatch, match=f"a batch of {2**31 + 11} bytes, 1000 allowed"):
        next(read_frames(disk, descriptor, 2**32, batch_size_max=1000))
    assert disk.largest == CHUNK_SIZE


def test_a_batch_of_holes_is_not_read(tmp_path: Path) -> None:
    """A header that claims a hole of 1.9 GB costs a load no memory, whatever the limit of the batches is."""
    claims = bytearray(encode_batch([record(0)], 0, 1))
    claims[8:12] = (1_900_000_000 - 12).to_bytes(4)
    path = tmp_path / "file"
    path.write_bytes(claims)
    os.truncate(path, 1_900_000_000)
    disk = CountingDisk()
    descriptor = disk.open(path)
    with pytest.raises(CorruptBatch, match=r"a batch of 1900000000 bytes, only \d+ of them on the disk") as caught:
        next(read_frames(disk, descriptor, 1_900_000_000))
    disk.close(descriptor)
    assert caught.value.position == 0
    assert disk.largest == CHUNK_SIZE


def test_a_batch_with_some_holes_is_read(tmp_path: Path) -> None:
    """A copy of a file may make holes of its zeros."""
    batch = encode_batch([Record(b"key", bytes(8 * CHUNK_SIZE), 0)], 0, 1)
    path = tmp_path / "file"
    path.write_bytes(batch[:4_096])
    with path.open("r+b") as file:
        file.seek(len(batch) - 1)
        file.write(batch[-1:])
    disk = Disk()
    descriptor = disk.open(path)
    (frame,) = read_frames(disk, descriptor, len(batch))
    disk.close(descriptor)
    assert frame.data[frame.at :] == batch


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", ("orders", 0)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("a-b-7", ("a-b", 7)),
        ("orders-2147483647", ("orders", 2147483647)),
        ("orders-2147483648", None),
        (f"orders-{10**23}", None),
        ("orders-07", None),
        ("orders-\u0661", None),
        ("orders--1", ("orders-", 1)),
        ("orders-", None),
        ("-1", None),
        ("orders", None),
    ],
)
def test_names_of_partitions(name: str, expected: tuple[str, int] | None) -> None:
    """A partition is an int32 with one spelling, so that no two folders are of one partition."""
    assert topic_partition_of(name) == expected


def test_an_offset_is_an_int64(tmp_path: Path) -> None:
    """A file whose name has a higher offset, or digits of another script, is no segment."""
    names = [f"{2**63 - 1:020}.log", f"{2**63:020}.log", "9" * 20 + ".log", "\u0661" * 20 + ".log"]
    assert segments_among(tmp_path, names) == [segment_at(tmp_path, 2**63 - 1)]
