"""A search finds a batch behind damage wherever it is, and takes nothing else for a batch."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from coordinator.log.segments import damage
from coordinator.log.segments.damage import OldMessages, Search, is_whole_but_for_its_frame, makes_sense, why_not_torn
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import CHUNK_SIZE
from protocol.checksum import crc32c
from protocol.records.batch import FRAME_SIZE, HEADER_SIZE, MAGIC, Header, Record, encode_batch, peek_header
from tests.log.segments.test_segment import CountingDisk
from tests.support.batches import old_messages

GIB = 2**30
BATCH = encode_batch([Record(b"key", b"value" * 30, 1)], 7, 3)


def behind(path: Path, content: bytes, size: int | None = None, lowest: int = 0) -> int | None:
    """Return where a batch begins behind the first byte of a file with that content."""
    path.write_bytes(content)
    disk = Disk()
    descriptor = disk.open(path)
    try:
        end = len(content) if size is None else size
        return Search(disk, descriptor, end).behind(1, lambda header: header.base_offset >= lowest)
    finally:
        disk.close(descriptor)


def old_in(path: Path, content: bytes) -> OldMessages | None:
    """Return the messages of an older format that a file with that content begins with."""
    path.write_bytes(content)
    disk = Disk()
    descriptor = disk.open(path)
    try:
        return Search(disk, descriptor, len(content)).old_messages(0)
    finally:
        disk.close(descriptor)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_an_older_format_are_known(tmp_path: Path, magic: int, zipped: bool) -> None:
    """The search knows messages by their own CRC, up to a batch or to bytes that are neither."""
    path = tmp_path / "file"
    messages = old_messages(magic, 3, zipped=zipped)
    for behind in (b"", BATCH, b"\0" * 99, messages[:20]):
        assert old_in(path, messages + behind) == (len(messages), magic)
    damaged = bytearray(messages)
    damaged[30] ^= 1
    assert old_in(path, bytes(damaged)) is None
    assert old_in(path, messages[:16]) is None
    assert old_in(path, BATCH) is None
    assert old_in(path, b"\0" * 99) is None


def test_mixed_formats_are_one_stretch(tmp_path: Path) -> None:
    """A stretch of both old formats, as an upgraded broker has it, is one, named for the first."""
    messages = old_messages(0) + old_messages(1, first=1)
    found = old_in(tmp_path / "file", messages + BATCH)
    assert found == (len(messages), 0)
    assert found.reason == "message format 0, only 2 is read"


def test_lengths_that_lie_take_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search tries messages of an older format within its allowance."""
    monkeypatch.setattr(damage, "CRC_SIZE_MIN", 100)
    assert old_in(tmp_path / "file", old_messages(1, zipped=True)) is not None
    assert old_in(tmp_path / "file", old_messages(1, 20)[:40] + old_messages(1, 20)) is None
    monkeypatch.setattr(damage, "CRC_SIZE_MIN", 10)
    assert old_in(tmp_path / "file", old_messages(1)) is None


CHUNK_ENDS = range(CHUNK_SIZE - HEADER_SIZE - 1, CHUNK_SIZE + 3, 16)


@pytest.mark.parametrize(
    ("before", "filler"),
    [*((before, b"\0") for before in (1, 60, *CHUNK_ENDS, 3 * CHUNK_SIZE + 1)), (1, b"\2"), (60, b"\2"), (999, b"\2")],
)
def test_batch_is_found_wherever_it_is(tmp_path: Path, before: int, filler: bytes) -> None:
    """The search finds a batch across the end of a chunk too, and behind bytes that all could be a magic."""
    assert behind(tmp_path / "file", filler * before + BATCH) == before


def test_only_what_makes_sense_is_a_batch(tmp_path: Path) -> None:
    """The search passes over a wrong CRC, an end behind the file's end, and a header that its caller rejects."""
    path = tmp_path / "file"
    assert behind(path, b"\0" + BATCH[:-1] + b"x") is None
    assert behind(path, b"\0" + BATCH, len(BATCH)) is None
    assert behind(path, b"\0" + BATCH, lowest=8) is None
    assert behind(path, b"\0" * 30) is None


@pytest.mark.parametrize(("at", "expected"), [(0, True), (9, True), (16, True), (17, False), (80, False)])
def test_batch_with_another_frame_is_whole(tmp_path: Path, at: int, expected: bool) -> None:
    """A batch with a wrong length or magic is whole if the CRC over all bytes up to the end is right."""
    changed = bytearray(BATCH)
    changed[at] ^= 1
    path = tmp_path / "file"
    path.write_bytes(b"head" + changed)
    disk = Disk()
    descriptor = disk.open(path)
    assert is_whole_but_for_its_frame(disk, descriptor, 4, 4 + len(BATCH)) is expected
    assert not is_whole_but_for_its_frame(disk, descriptor, 4, 4 + len(BATCH) - 1)
    assert not is_whole_but_for_its_frame(disk, descriptor, 4 + len(BATCH) - 20, 4 + len(BATCH))
    assert not is_whole_but_for_its_frame(disk, descriptor, 4 + len(BATCH), 4 + 2 * len(BATCH))
    disk.close(descriptor)


def test_a_batch_with_holes_is_whole(tmp_path: Path) -> None:
    """Zeros of a record may be holes, as a copy of a file makes them: they count, and nobody reads them."""
    batch = encode_batch([Record(b"key", b"x" + bytes(20 * CHUNK_SIZE) + b"x" + bytes(20 * CHUNK_SIZE), 1)], 7, 3)
    middle, end = batch.rindex(b"x"), len(batch)
    path = sparse(tmp_path / "file", {0: batch[: HEADER_SIZE + 20], middle: batch[middle : middle + 1]}, end)
    disk = CountingDisk()
    descriptor = disk.open(path)
    assert is_whole_but_for_its_frame(disk, descriptor, 0, end)
    assert not is_whole_but_for_its_frame(disk, descriptor, 0, end - 1)
    assert disk.bytes_read < 2 * CHUNK_SIZE


def test_header_is_handed_to_who_asks(tmp_path: Path) -> None:
    """The search hands a header that it finds to its caller's function."""
    seen: list[Header] = []

    def take_note(header: Header) -> bool:
        seen.append(header)
        return False

    path = tmp_path / "file"
    path.write_bytes(b"\0" + BATCH)
    disk = Disk()
    descriptor = disk.open(path)
    assert Search(disk, descriptor, 1 + len(BATCH)).behind(1, take_note) is None
    disk.close(descriptor)
    assert [(header.base_offset, header.partition_leader_epoch) for header in seen] == [(7, 3)]


def lying(count: int) -> bytes:
    """Return headers that make sense one behind the other; each claims all that follows and has the wrong CRC."""
    left = count * HEADER_SIZE
    heads = []
    while left:
        heads.append(struct.pack(">qiibIhiqqqhii", 7, left - FRAME_SIZE, 0, MAGIC, 0, 0, 0, 1, 1, -1, -1, -1, 1))
        left -= HEADER_SIZE
    return b"".join(heads)


def test_time_is_linear_in_what_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search doesn't compute a CRC for each false header, and says what it didn't try: it may be a batch."""
    taken = 0

    def counting(data: bytes, crc: int = 0) -> int:
        nonlocal taken
        taken += len(data)
        return crc32c(data, crc)

    monkeypatch.setattr(damage, "crc32c", counting)
    content = lying(8_000)
    (tmp_path / "file").write_bytes(content)
    disk = Disk()
    descriptor = disk.open(tmp_path / "file")
    search = Search(disk, descriptor, len(content))
    assert search.behind(0, makes_sense) is None
    assert search.untried is not None
    assert taken <= damage.CRC_SIZE_MIN + damage.CRC_SIZE_FACTOR * len(content)
    assert search.behind(0, makes_sense) is None
    assert taken <= damage.CRC_SIZE_MIN + damage.CRC_SIZE_FACTOR * len(content)
    why = why_not_torn(disk, descriptor, 0, len(content), makes_sense)
    assert why is not None
    assert "may follow at byte" in why
    disk.close(descriptor)


def test_batch_behind_headers_that_lie_is_found(tmp_path: Path) -> None:
    """False headers use up the allowance for large batches, and the search still tries a small one."""
    content = lying(8_000)
    assert behind(tmp_path / "file", content + BATCH) == len(content)


def test_what_random_bytes_say_makes_no_sense() -> None:
    """Headers of random bytes make no sense; headers that a broker or Tenure writes do."""
    chance = random.Random(1)
    assert makes_sense(peek_header(BATCH))
    heads = (bytearray(chance.randbytes(HEADER_SIZE)) for _ in range(2_000))
    for head in heads:
        head[8:12], head[16] = b"\0\0\1\0", MAGIC
        assert not makes_sense(peek_header(head))


def sparse(path: Path, parts: dict[int, bytes], size: int) -> Path:
    """Write a file with these bytes at these positions, and holes between them."""
    with path.open("wb") as file:
        for position, data in parts.items():
            file.seek(position)
            file.write(data)
        file.truncate(size)
    return path


@pytest.mark.parametrize("at", [16 * GIB, 16 * GIB - 1, 16 * GIB - 15, 16 * GIB - 17, 16 * GIB - len(BATCH), 17 * GIB])
def test_holes_are_skipped(tmp_path: Path, at: int) -> None:
    """The search reads no hole, and finds a batch that lies at one, also if its first bytes, zeros, are in it."""
    batch = BATCH[:7] + b"\0" + BATCH[8:]  # offset 0; no CRC covers it
    path = sparse(tmp_path / "file", {1: b"x", at: batch}, 64 * GIB)
    disk = CountingDisk()
    descriptor = disk.open(path)
    passed: list[int] = []
    search = Search(disk, descriptor, 64 * GIB, passed.append)
    assert search.behind(1, makes_sense) == at
    assert search.behind(at + 1, makes_sense) is None
    assert disk.bytes_read < 10 * CHUNK_SIZE
    assert 64 * GIB - 3 * CHUNK_SIZE < sum(passed) < 64 * GIB


def test_holes_add_nothing_to_the_allowance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a hole of gigabytes the search takes no more CRCs than its bytes on disk allow."""
    monkeypatch.setattr(damage, "CRC_SIZE_MIN", 10)
    claims = bytearray(BATCH * 100)
    for at in range(0, len(claims), len(BATCH)):  # each claims all of the rest
        claims[at + 8 : at + 12] = (len(claims) - at - FRAME_SIZE).to_bytes(4)
    claims[-1] ^= 1
    path = sparse(tmp_path / "file", {0: b"x", 8 * GIB: bytes(claims)}, 16 * GIB)
    disk = CountingDisk()
    search = Search(disk, disk.open(path), 16 * GIB)
    assert search.behind(1, makes_sense) is None
    assert search.untried is not None
    assert disk.bytes_read < 10 * CHUNK_SIZE


def test_no_batch_is_longer_than_its_length_can_say(tmp_path: Path) -> None:
    """Bytes that no int32 can count are no batch with a wrong length, and nobody reads them to know that."""
    path = sparse(tmp_path / "file", {0: BATCH}, 8 * GIB)
    disk = CountingDisk()
    assert not is_whole_but_for_its_frame(disk, disk.open(path), 0, 8 * GIB)
    assert disk.bytes_read == 0
