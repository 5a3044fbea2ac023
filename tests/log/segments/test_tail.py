"""A log cuts off the torn tail that an interrupted write leaves, and no other damage."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from coordinator.log.segments.segment import CHUNK_SIZE, segment_at
from coordinator.log.segments.tail import KEPT_MAX, LAST_CUT, Durable
from tests.log.disks import FailingDisk, fail_one
from tests.log.segments.test_recovery import EPOCH, LENGTH_AND_MAGIC, Log, batches, records
from tests.log.segments.test_segment import CountingDisk


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return the log of an empty folder."""
    return Log(tmp_path / "__consumer_offsets-0")


class TestTornTail:
    """A log cuts the bytes that an interrupted write leaves, and only those."""

    def test_each_byte_of_the_last_batches(self, log: Log) -> None:
        """Wherever the file ends, the log serves the whole batches, cuts and reports the rest, and appends there."""
        whole = batches([1, 3, 2, 1, 2])
        ends = [sum(map(len, whole[: number + 1])) for number in range(len(whole))]
        counts = [1, 4, 6, 7, 9]
        content = b"".join(whole)
        for size in range(ends[1], len(content) + 1):
            log.write(content[:size])
            reader = log.read()
            kept = max(number for number, end in enumerate(ends) if end <= size)
            assert log.records == records(0, counts[kept])
            assert (reader.next_offset, reader.size) == (counts[kept], ends[kept])
            assert log.cuts == ([(log.path(), ends[kept], size - ends[kept])] if size > ends[kept] else [])
            assert log.path().stat().st_size == ends[kept]
            if size > ends[kept]:
                assert (log.folder / LAST_CUT).read_bytes() == content[ends[kept] : size]

    def test_what_is_kept_of_a_tail_has_a_limit(self, log: Log) -> None:
        """The log keeps a copy of the first bytes of a large tail, and only the last tail's copy."""
        whole = batches([1])[0]
        log.write(whole, b"x" * (KEPT_MAX + 1))
        log.read()
        assert (log.folder / LAST_CUT).read_bytes() == b"x" * KEPT_MAX
        log.write(whole, b"last")
        log.read()
        assert (log.folder / LAST_CUT).read_bytes() == b"last"
        log.read()
        assert (log.folder / LAST_CUT).read_bytes() == b"last"

    @pytest.mark.parametrize("size", [10**8, 2**31 - 1, 8 * 2**30])
    @pytest.mark.parametrize("first", [b"", b"torn"])
    def test_a_hole_is_not_read(self, log: Log, size: int, first: bytes) -> None:
        """A hole of gigabytes behind the last batch, which a crash or a restore leaves, is cut off without reading."""
        whole = batches([1])[0]
        log.write(whole, first)
        os.truncate(log.path(), len(whole) + size)
        disk = CountingDisk()
        log.read(disk=disk)
        assert log.cuts == [(log.path(), len(whole), size)]
        assert disk.bytes_read < KEPT_MAX + 5 * CHUNK_SIZE

    def test_a_tail_that_can_not_be_kept_is_cut(self, log: Log) -> None:
        """A log loads on a full disk: it cuts a tail even if it can't keep a copy."""
        whole = batches([1])[0]
        log.write(whole, b"torn")
        log.read(disk=FailingDisk(fail_one("write", 1, errno.ENOSPC)))
        assert log.cuts == [(log.path(), len(whole), 4)]
        assert log.path().read_bytes() == whole

    def test_everything_torn(self, log: Log) -> None:
        """A log cuts a newest segment without a whole batch to nothing, and serves those before it."""
        log.write(*batches([2]))
        log.write(batches([1], first=2)[0][:50], base_offset=2)
        reader = log.read()
        assert log.records == records(0, 2)
        assert (reader.next_offset, reader.size) == (2, 0)
        assert log.cuts == [(log.path(2), 0, 50)]

    @pytest.mark.parametrize("size", [1, 60, 61, 5_000, CHUNK_SIZE * 2])
    def test_zeros(self, log: Log, size: int) -> None:
        """A log cuts a file at the zeros that some file systems leave after a power cut."""
        whole = b"".join(batches([2, 2]))
        log.write(whole, bytes(size))
        log.read()
        assert log.records == records(0, 4)
        assert log.cuts == [(log.path(), len(whole), size)]

    def test_half_written_page(self, log: Log) -> None:
        """A log cuts a last batch of full length whose end never got to the disk."""
        whole = batches([2, 30])
        log.write(whole[0], whole[1][:200], bytes(len(whole[1]) - 200))
        log.read()
        assert log.records == records(0, 2)
        assert len(log.cuts) == 1

    def test_last_batch_with_a_flipped_bit_is_never_served(self, log: Log) -> None:
        """If a bit of the last batch flips, the log cuts or refuses it, or an offset or epoch still makes sense."""
        whole = batches([2, 1])
        for bit in range(len(whole[1]) * 8):
            flipped = bytearray(whole[1])
            flipped[bit // 8] ^= 1 << bit % 8
            log.write(whole[0], flipped)
            base_offset = int.from_bytes(flipped[:8], "big", signed=True)
            epoch = int.from_bytes(flipped[12:16], "big", signed=True)
            if bit // 8 in LENGTH_AND_MAGIC or not 2 <= base_offset < 2**31 or epoch < EPOCH:
                assert log.damage().position == len(whole[0])
                continue
            log.read()
            torn = bit >= 17 * 8
            assert log.records == records(0, 2 if torn else 3)
            assert len(log.cuts) == torn


class TestNotTorn:
    """A log refuses to load with damage that no interrupted write explains, and changes no byte."""

    def test_tail_of_an_older_segment(self, log: Log) -> None:
        """A log refuses part of a batch at the end of a segment before the newest, even if the newest is empty."""
        whole = batches([2, 1])
        log.write(base_offset=3)
        for size in range(1, len(whole[1])):
            log.write(whole[0], whole[1][:size])
            damaged = log.damage()
            assert (damaged.file, damaged.position) == (str(log.path()), len(whole[0]))
            assert damaged.reason.endswith("newer segments exist")

    def test_whole_batch_with_a_wrong_length(self, log: Log) -> None:
        """A log doesn't cut a last batch with only its length or magic wrong: the writer wrote it whole."""
        whole = batches([2, 1])
        for at, value in ((8, b"\x7f"), (11, bytes([whole[1][11] - 1])), (11, bytes([whole[1][11] + 1])), (16, b"\1")):
            changed = bytearray(whole[1])
            changed[at : at + 1] = value
            log.write(whole[0], changed)
            assert "whole" in log.damage().reason

    def test_batch_behind_far_away(self, log: Log) -> None:
        """A log finds a batch behind the damage at any distance and any position in a piece, and refuses to load."""
        whole = batches([1, 1])
        for size in (1, 15, CHUNK_SIZE - 61, CHUNK_SIZE - 30, CHUNK_SIZE, CHUNK_SIZE * 2 + 17):
            log.write(whole[0], bytes(size), whole[1])
            damaged = log.damage()
            assert damaged.position == len(whole[0])
            assert f"a batch follows at byte {len(whole[0]) + size}" in damaged.reason

    def test_older_batch_behind(self, log: Log) -> None:
        """A log cuts a tail with batches behind it that can't follow there, by offset or epoch: they don't count."""
        whole = batches([1, 1])
        for older in (whole[0], batches([1], first=2, epoch=EPOCH - 1)[0]):
            log.write(*whole, b"torn", older)
            log.read()
            assert log.records == records(0, 2)
            assert len(log.cuts) == 1

    def test_behind_durable_bytes_only(self, log: Log) -> None:
        """A log doesn't cut bytes that this process made durable, even if they look like a torn tail."""
        whole = batches([2, 1])
        log.write(whole[0], whole[1][:-1])
        size = len(whole[0] + whole[1])
        assert log.damage(Durable(segment_at(log.folder, 0), size)).reason.endswith("it was durable")
        assert log.damage(Durable(segment_at(log.folder, 3), 0)).reason.endswith("it was durable")
        log.read(Durable(segment_at(log.folder, 0), len(whole[0])))
        assert log.records == records(0, 2)
