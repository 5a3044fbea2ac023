"""A log survives every crash when it is read back; it reports all other damage and never serves it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from crc32c import crc32c

from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.recovery import PAGE_KEYS, PAGE_SIZE, LogReader
from coordinator.log.segments.segment import CHUNK_SIZE, segment_at
from coordinator.log.segments.tail import Durable
from protocol.records.batch import Record, encode_batch
from tests.log.calls import record
from tests.log.disks import FailingDisk

GOLDEN = Path(__file__).parents[2] / "protocol" / "golden" / "record_batch"
EPOCH = 3
OFFSET_AND_EPOCH = {*range(8), *range(12, 16)}
LENGTH_AND_MAGIC = {*range(8, 12), 16}
"""The bytes of a batch that no CRC covers."""


class Log:
    """A log in one folder that a test writes by hand and reads.

    records, cuts: what the last `read` gave: all records, and (file, position, size) of each cut.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: list[Record] = []
        self.cuts: list[tuple[Path, int, int]] = []
        folder.mkdir()

    def path(self, base_offset: int = 0) -> Path:
        """Return the path of a segment."""
        return segment_at(self.folder, base_offset).path

    def write(self, *parts: bytes | bytearray, base_offset: int = 0) -> None:
        """Write a segment."""
        self.path(base_offset).write_bytes(b"".join(parts))

    def size(self) -> int:
        """Return the bytes of all segments."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def read(self, durable: Durable | None = None, disk: Disk | None = None) -> LogReader:
        """Read the whole log."""
        self.records, self.cuts = [], []
        reader = LogReader(disk or Disk(), self.folder, durable, lambda *cut: self.cuts.append(cut))
        for page in reader.pages():
            self.records += page
        return reader

    def damage(self, durable: Durable | None = None) -> Damaged:
        """Read the log, which must raise Damaged and change no file."""
        before = {path: path.read_bytes() for path in self.folder.iterdir()}
        with pytest.raises(Damaged) as caught:
            self.read(durable)
        assert self.cuts == []
        assert {path: path.read_bytes() for path in self.folder.iterdir()} == before
        return caught.value


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return the log of an empty folder."""
    return Log(tmp_path / "__consumer_offsets-0")


def batches(sizes: Sequence[int], first: int = 0, epoch: int = EPOCH) -> list[bytes]:
    """Return a batch of as many records as each size says, from offset `first` on; a record's number is its offset."""
    made = []
    for size in sizes:
        made.append(encode_batch([record(number) for number in range(first, first + size)], first, epoch))
        first += size
    return made


def records(first: int, end: int) -> list[Record]:
    """Return the records of `batches` at these offsets."""
    return [record(number) for number in range(first, end)]


def at_offset(batch: bytes, offset: int) -> bytes:
    """Return the same batch at another offset."""
    return offset.to_bytes(8, "big") + batch[8:]


def with_crc(batch: bytes | bytearray) -> bytes:
    """Return the same batch with the right CRC."""
    return bytes(batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:])


class TestWhole:
    """A log without damage reads whole."""

    def test_empty(self, log: Log) -> None:
        """No folder, no segment and an empty segment are logs without records."""
        reader = log.read()
        assert (log.records, reader.next_offset, reader.epoch, reader.segment) == ([], 0, -1, None)
        log.write(base_offset=40)
        reader = log.read()
        assert (log.records, reader.next_offset, reader.size) == ([], 40, 0)
        assert reader.segment == segment_at(log.folder, 40)
        log.folder = log.folder / "not there"
        assert log.read().segment is None

    def test_end(self, log: Log) -> None:
        """The reader reads all segments in order, and knows where the log ends."""
        first, second = batches([2, 1, 3]), batches([1, 4], first=6, epoch=EPOCH + 1)
        log.write(*first)
        log.write(*second, base_offset=6)
        reader = log.read()
        assert log.records == records(0, 11)
        assert (reader.next_offset, reader.epoch) == (11, EPOCH + 1)
        assert (reader.segment, reader.size) == (segment_at(log.folder, 6), len(b"".join(second)))

    def test_gaps(self, log: Log) -> None:
        """Offsets may be missing, as after compaction: before the first batch, between batches, at a segment's end."""
        log.write(*batches([1], first=3), *batches([2], first=10))
        log.write(*batches([1], first=25), base_offset=20)
        assert log.read().next_offset == 26
        assert log.records == [record(3), record(10), record(11), record(25)]

    def test_kafkas_batches(self, log: Log) -> None:
        """The reader reads a compressed and a compacted batch, and passes over a transaction's marker."""
        log.write((GOLDEN / "gzip.bin").read_bytes(), base_offset=42)
        assert log.read().next_offset == 46
        assert [found.key for found in log.records] == [b"first", b"tombstone", b"headers", b"large"]
        cleaned, marker = (GOLDEN / "cleaned.bin").read_bytes(), (GOLDEN / "control.bin").read_bytes()
        log.write(cleaned, marker.replace((44).to_bytes(8, "big"), (45).to_bytes(8, "big"), 1), base_offset=42)
        assert log.read().next_offset == 46
        assert [found.key for found in log.records] == [b"tombstone", b"headers"]

    def test_memory_is_bounded(self, log: Log) -> None:
        """The reader holds back at most PAGE_SIZE bytes, about, and records with about PAGE_KEYS keys, of any log."""
        log.write(*(encode_batch([record(number, 8_000)], number, 0) for number in range(2_000)))
        log.write(*(encode_batch([record(number)], number, 0) for number in range(2_000, 22_000)), base_offset=2_000)
        pages = list(LogReader(Disk(), log.folder, None, lambda *_cut: None).pages())
        assert [found for page in pages for found in page] == [
            *(record(number, 8_000) for number in range(2_000)),
            *records(2_000, 22_000),
        ]
        large = [sum(len(found.value or b"") for found in page) for page in pages]
        assert PAGE_SIZE - CHUNK_SIZE < max(large) < PAGE_SIZE + CHUNK_SIZE
        small = [len(page) for page in pages if page and page[0].key >= b"key-2000"]
        assert PAGE_KEYS < max(small) < PAGE_KEYS + CHUNK_SIZE // 70
        # The caller gets a turn for each chunk.
        assert len(pages) >= log.size() / (CHUNK_SIZE + 8_100)

    def test_compressed_records_are_not_held_back(self, log: Log) -> None:
        """The reader hands on records of a compressed batch with its chunk, because they may unpack to a lot."""
        packed = (GOLDEN / "gzip.bin").read_bytes()
        plain = [encode_batch([record(number, 100_000)], number, 7) for number in range(46, 60)]
        log.write(packed, *plain, base_offset=42)
        pages = [page for page in LogReader(Disk(), log.folder, None, lambda *_cut: None).pages() if page]
        assert len(pages) == 2
        assert len(pages[0]) < 8

    def test_last_record_of_each_key(self, log: Log) -> None:
        """The reader doesn't hand on records that others supersede soon."""
        log.write(*(encode_batch([record(number % 10, 1_000 + number)], number, 0) for number in range(2_000)))
        log.read()
        assert sorted(log.records) == sorted(record(number % 10, 1_000 + number) for number in range(1_990, 2_000))

    def test_every_file_is_closed(self, log: Log, disk: FailingDisk) -> None:
        """The reader closes every file of a log that it read to the end, left halfway, or refused."""
        log.write(*batches([1] * 10))
        log.write(*batches([1], first=5), base_offset=10)
        with pytest.raises(Damaged):
            log.read(disk=disk)
        log.path(10).unlink()
        log.read(disk=disk)
        pages = LogReader(disk, log.folder, None, lambda *_cut: None).pages()
        next(pages)
        del pages
        assert disk.calls["open"] == disk.calls["close"] == 4


class TestDamage:
    """A log refuses to load with damage that no crash explains; it names file and position, and changes no byte."""

    def test_each_bit_before_the_last_batch(self, log: Log) -> None:
        """The reader finds each flipped bit of a batch that others follow, in the newest segment."""
        whole = batches([2, 1, 3])
        for bit in range(len(whole[1]) * 8):
            flipped = bytearray(whole[1])
            flipped[bit // 8] ^= 1 << bit % 8
            log.write(whole[0], flipped, whole[2])
            damaged = log.damage()
            assert damaged.file == str(log.path())
            # A larger offset or epoch makes sense until the next batch contradicts it.
            late = bit // 8 in OFFSET_AND_EPOCH
            expected = {len(whole[0]), len(whole[0] + whole[1])} if late else {len(whole[0])}
            assert damaged.position in expected

    def test_segments_overlap(self, log: Log) -> None:
        """The reader refuses a segment that starts at an offset that the one before it has."""
        log.write(*batches([4]))
        log.write(*batches([1], first=3), base_offset=3)
        damaged = log.damage()
        assert (damaged.file, damaged.position) == (str(log.path(3)), 0)

    def test_batch_before_its_segment(self, log: Log) -> None:
        """The reader refuses a batch whose offset is lower than its file's name."""
        log.write(*batches([1], first=4), base_offset=5)
        assert "offset 4, expected 5" in log.damage().reason

    def test_offset_that_no_segment_reaches(self, log: Log) -> None:
        """The reader refuses an offset so far from the file's name that Kafka couldn't index it."""
        log.write(*batches([1], first=7), *batches([1], first=7 + 2**31 - 2), base_offset=7)
        assert log.read().next_offset == 7 + 2**31 - 1
        log.write(*batches([1], first=7), *batches([1], first=7 + 2**31 - 1), base_offset=7)
        assert "too far" in log.damage().reason

    def test_epoch_falls(self, log: Log) -> None:
        """The reader refuses a former owner's batch behind a later owner's, in one segment and across two."""
        log.write(*batches([1]), *batches([1], first=1, epoch=EPOCH - 1))
        assert "epoch 2" in log.damage().reason
        log.write(*batches([1]))
        log.write(*batches([1], first=1, epoch=EPOCH - 1), base_offset=1)
        assert log.damage().file == str(log.path(1))

    def test_records_that_contradict_themselves(self, log: Log) -> None:
        """The reader refuses a batch that has a right CRC and doesn't decode, even the last: it was written so."""
        broken = bytearray((GOLDEN / "gzip.bin").read_bytes())
        broken[100] ^= 1
        broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
        log.write(broken, base_offset=42)
        assert "gzip" in log.damage().reason

    def test_marker_without_a_meaning(self, log: Log) -> None:
        """The reader refuses a control record with a right CRC whose key is too short to have a type."""
        marker = bytearray(encode_batch([Record(b"\0\0\0", b"", 1)], 0, EPOCH))
        marker[22] = 0x30  # transactional, control
        log.write(with_crc(marker))
        assert "marker" in log.damage().reason


class TestTransactions:
    """Transactional commits count once their transaction commits, in the order of their records."""

    def test_golden_transaction(self, log: Log) -> None:
        """In a golden log of Kafka's, records wait for their marker; a commit brings them, an abort drops them."""
        waiting, marker = (GOLDEN / "transactional.bin").read_bytes(), (GOLDEN / "control.bin").read_bytes()
        log.write(waiting, base_offset=42)
        reader = log.read()
        assert (log.records, reader.next_offset) == ([], 44)
        assert (reader.transactions.open_count, reader.transactions.waiting_count) == (1, 2)
        log.write(waiting, marker, base_offset=42)
        reader = log.read()
        assert [found.key for found in log.records] == [b"first", b"tombstone"]
        assert (reader.next_offset, reader.transactions.open_count) == (45, 0)
        log.write(waiting, with_crc(marker.replace(b"\x08\0\0\0\1", b"\x08\0\0\0\0")), base_offset=42)
        reader = log.read()
        assert (log.records, reader.next_offset, reader.transactions.open_count) == ([], 45, 0)

    def test_plain_commit_in_between(self, log: Log) -> None:
        """A later plain record wins over a transaction's record, though the transaction's marker is later still."""
        waiting, marker = (GOLDEN / "transactional.bin").read_bytes(), (GOLDEN / "control.bin").read_bytes()
        plain = encode_batch([Record(b"first", b"plain", 1)], 44, 7)
        log.write(waiting, plain, at_offset(marker, 45), base_offset=42)
        log.read()
        assert [(found.key, found.value) for found in log.records] == [(b"first", b"plain"), (b"tombstone", None)]
        log.write(at_offset(plain, 42), at_offset(waiting, 43), at_offset(marker, 45), base_offset=42)
        log.read()
        assert [(found.key, found.value) for found in log.records] == [(b"first", b"value"), (b"tombstone", None)]

    def test_across_segments(self, log: Log) -> None:
        """A transaction may begin in one segment and end in the next."""
        waiting, marker = (GOLDEN / "transactional.bin").read_bytes(), (GOLDEN / "control.bin").read_bytes()
        log.write(waiting, base_offset=42)
        log.write(marker, base_offset=44)
        log.read()
        assert [found.key for found in log.records] == [b"first", b"tombstone"]
