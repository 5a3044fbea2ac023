"""Tests the journal's format: which windows count, what is damage, and how they get back into the segments."""

from __future__ import annotations

import itertools
import os
import struct
from pathlib import Path

import pytest

from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.journal import (
    EXTENT_SIZE,
    PAGE_SIZE,
    WINDOWS_AT,
    Extent,
    Journals,
    _left_among,
    encode_window,
    file_head,
    fitting,
    journal_path,
    leave,
    left_path,
    most_bytes,
    read_files,
    recover,
    redo,
    redo_left,
    window_size,
)
from coordinator.log.segments.segment import CHUNK_SIZE, partition_folder, segment_at
from protocol.records.batch import encode_batch
from tests.log.calls import record
from tests.log.disks import FailingDisk, fail_one
from tests.log.segments.test_segment import CountingDisk

SALT = bytes(range(16))


def left_partitions(data_dir: Path) -> list[int]:
    """Return the partitions for which something is left in files of their own."""
    return sorted(_left_among(data_dir, Disk().list_folder(data_dir)))


def batch(number: int, size: int = 100) -> bytes:
    """Return a batch of one record, whose offset is its number."""
    return encode_batch([record(number, size)], number, 0)


SIZE = len(batch(1))


def extents_of(sequence: int, *sizes: int) -> list[Extent]:
    """Return a window's extents, one for each partition from 0 on."""
    return [Extent(partition, 0, 1_000 * sequence, [batch(sequence, size)]) for partition, size in enumerate(sizes)]


def written(path: Path, *windows: tuple[int, int, list[Extent]], pages: int = 20) -> list[int]:
    """Write a file of windows (sequence number, needed, extents); return where each begins, and the end."""
    content = bytearray(file_head(SALT, pages * PAGE_SIZE))
    starts = []
    for sequence, needed, extents in windows:
        starts.append(len(content))
        content += b"".join(encode_window(SALT, sequence, needed, extents)[0])
    starts.append(len(content))
    assert len(content) <= pages * PAGE_SIZE
    path.write_bytes(content.ljust(pages * PAGE_SIZE, b"\0"))
    return starts


def sequences(path: Path) -> list[int]:
    """Return the numbers of the windows that count, from the positions of partition 0's extents."""
    return [extent.position // 1_000 for extent in read_files(Disk(), [path]).extents.get(0, [])]


def test_windows_that_count(tmp_path: Path) -> None:
    """All windows count from the first needed number of the last on, across both files, in their order."""
    first, second = journal_path(tmp_path, 1, 0), journal_path(tmp_path, 1, 1)
    written(first, (5, 3, extents_of(5, 10)), (6, 4, extents_of(6, 10)), (1, 1, extents_of(1, 10)))
    written(second, (3, 1, extents_of(3, 10)), (4, 1, extents_of(4, 10, 10)))
    contents = read_files(Disk(), [first, second])
    assert [extent.position for extent in contents.extents[0]] == [4_000, 5_000, 6_000]
    assert contents.extents[1] == [Extent(1, 0, 4_000, [batch(4, 10)], source=second)]
    assert contents.paths == [first, second]
    assert contents.torn is None
    assert contents.damaged == {}


def test_size_of_a_window(tmp_path: Path) -> None:
    """A window takes the bytes that window_size says, whole pages, and most_bytes fills them."""
    for size in (0, 1, 3_900, 4_000, 4_096, 9_000):
        extents = [Extent(0, 0, 0, [bytes(size)]), Extent(7, 0, 0, [b"a", b"b"])]
        parts, taken = encode_window(SALT, 1, 1, extents)
        counted = size + 2 + 2 * EXTENT_SIZE
        assert window_size(counted) == taken == len(b"".join(parts))
        assert window_size(most_bytes(taken)) == taken < window_size(most_bytes(taken) + 1)
        assert taken % PAGE_SIZE == 0
    starts = written(tmp_path / "file", (1, 1, extents_of(1, 10)))
    assert starts == [WINDOWS_AT, WINDOWS_AT + PAGE_SIZE]


@pytest.mark.parametrize("behind", ["zeros", "an older window"])
def test_written_up_to_each_byte(tmp_path: Path, behind: str) -> None:
    """Wherever in its last three windows a write ended, exactly the windows count that are whole by then."""
    path = tmp_path / "file"
    windows = [(number, 1, extents_of(10 + number, 100, 150)) for number in (1, 2, 3, 4)]
    starts = written(path, *windows, pages=5)
    sizes = [sum(map(len, encode_window(SALT, *window)[0][:-1])) for window in windows]
    content = path.read_bytes()
    old = bytes(starts[-1])
    if behind == "an older window":
        page = b"".join(encode_window(SALT, 0, 0, extents_of(0, 100, 150))[0])
        old = content[:PAGE_SIZE] + page * 4
    for start, size in zip(starts[1:], sizes[1:], strict=False):
        for end in range(start, start + size + 10):
            cut = content[:end] + old[end:]
            path.write_bytes(cut)
            ends = [start + size for start, size in zip(starts, sizes, strict=False)]
            whole = [number for number, end in enumerate(ends, 11) if cut[:end] == content[:end]]
            assert sequences(path) == whole
            contents = read_files(Disk(), [path])
            assert contents.damaged == {}
            if contents.torn is not None:
                assert contents.torn.position == starts[len(whole)]


def test_pages_lost_in_every_subset(tmp_path: Path) -> None:
    """Whichever pages of the last window's write are lost, of up to 8, it counts as a whole or nothing of it does."""
    path = tmp_path / "file"
    for pages, is_reused in itertools.product(range(1, 9), (False, True)):
        last = extents_of(12, *[(pages - 1) * 1_000] * 4, 300)
        starts = written(path, (1, 1, extents_of(11, 5_000)), (2, 1, last), pages=11)
        assert starts[2] - starts[1] == pages * PAGE_SIZE
        new = path.read_bytes()
        old = bytearray(new[: starts[1]]).ljust(len(new), b"\0")
        if is_reused:  # small windows of the file's former turn are there
            for at in range(starts[1], starts[2], PAGE_SIZE):
                old[at : at + PAGE_SIZE] = b"".join(encode_window(SALT, 0, 0, extents_of(10, 10))[0])
        for kept in itertools.product((False, True), repeat=pages):
            content = bytearray(old)
            for page, is_kept in enumerate(kept):
                at = starts[1] + page * PAGE_SIZE
                content[at : at + PAGE_SIZE] = (new if is_kept else old)[at : at + PAGE_SIZE]
            path.write_bytes(content)
            assert sequences(path) == ([11, 12] if all(kept) else [11])


def test_damage_before_the_last_window(tmp_path: Path) -> None:
    """A flipped bit in a window that is needed is damage: of the partition whose batches it is in, else of all."""
    path = tmp_path / "file"
    starts = written(path, *[(number, 1, extents_of(number, 200, 300)) for number in (1, 2, 3)], pages=4)
    content = path.read_bytes()
    head = len(encode_window(SALT, 2, 1, extents_of(2, 200, 300))[0][0])
    first = len(batch(2, 200))
    refused = []
    for at in range(starts[1], starts[1] + head + first + len(batch(2, 300))):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        if at < starts[1] + head:
            with pytest.raises(Damaged) as caught:
                read_files(Disk(), [path])
            assert (caught.value.file, caught.value.position) == (str(path), starts[1])
        else:
            (partition,) = read_files(Disk(), [path]).damaged
            refused.append(partition)
    assert refused == [0] * first + [1] * len(batch(2, 300))


def test_first_page_is_checked(tmp_path: Path) -> None:
    """A file with a damaged first page is refused, because its salt decides about all windows."""
    path = tmp_path / "file"
    written(path, (1, 1, extents_of(1, 10)))
    content = path.read_bytes()
    for at in (0, 9, 13):
        path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        with pytest.raises(Damaged, match="first page"):
            read_files(Disk(), [path])
    path.write_bytes(content[:100])
    with pytest.raises(Damaged, match="first page"):
        read_files(Disk(), [path])


@pytest.mark.parametrize("size", [0, 1, PAGE_SIZE - 1, PAGE_SIZE, 2 * PAGE_SIZE + 1, 19 * PAGE_SIZE, 2**33])
def test_a_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    """A file that was cut or grew is refused before its windows are read: acknowledged ones may have been behind."""
    path = tmp_path / "file"
    written(path, (1, 1, extents_of(1, 10)))
    os.truncate(path, size)
    with pytest.raises(Damaged) as caught:
        read_files(Disk(), [path])
    words = {0: "it is empty", PAGE_SIZE: f"it has {PAGE_SIZE} bytes, and was made with {20 * PAGE_SIZE}"}
    assert caught.value.reason == words.get(size, caught.value.reason)


def test_another_salt_is_no_window(tmp_path: Path) -> None:
    """A window of another file's salt is none: no client can guess it, and no removed file's block is taken for it."""
    path = tmp_path / "file"
    written(path, (1, 1, extents_of(1, 10)))
    content = path.read_bytes()
    path.write_bytes(file_head(os.urandom(16), len(content)) + content[PAGE_SIZE:])
    assert read_files(Disk(), [path]).extents == {}


def segment(data_dir: Path, content: bytes, base_offset: int = 0, partition: int = 0) -> Path:
    """Write a segment."""
    path = segment_at(partition_folder(data_dir, partition), base_offset).path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


class TestRedo:
    """An extent gets to its place in the newest segment."""

    def test_whatever_was_there(self, tmp_path: Path) -> None:
        """Nothing, a part, zeros before a whole batch, or all of it: afterwards all of it is there, and synced."""
        batches = [batch(number) for number in range(4)]
        whole = b"".join(batches)
        at = len(batches[0])
        extents = [
            Extent(0, 0, at, [batches[1]]),
            Extent(0, 0, 2 * at, batches[2:]),
        ]
        for there in (
            whole[:at],
            whole[: at + 20],
            whole[:at] + bytes(at) + whole[2 * at :],
            whole[:at] + bytes(8) + whole[at + 8 :],  # what no CRC covers was in another page
            whole,
            whole + whole[:30],
        ):
            disk = FailingDisk()
            path = segment(tmp_path, there)
            redo(disk, tmp_path, 0, extents)
            assert path.read_bytes()[: len(whole)] == whole
            assert disk.calls["fdatasync"] == 1
            assert disk.calls["write"] == 2  # equal bytes too: a page may be one that an fdatasync failed for
            assert not disk.descriptors

    def test_older_segments_are_over(self, tmp_path: Path) -> None:
        """Extents of a segment that isn't the newest change nothing: it was synced before the next one began."""
        old = segment(tmp_path, b"compacted")
        segment(tmp_path, b"", 9)
        redo(Disk(), tmp_path, 0, [Extent(0, 0, 3, [batch(0)]), Extent(0, 9, 0, [batch(9)])])
        assert old.read_bytes() == b"compacted"
        assert segment_at(old.parent, 9).path.read_bytes() == batch(9)

    def test_damage_is_refused(self, tmp_path: Path) -> None:
        """A missing file, missing durable bytes, and another whole batch are refused by name; nothing changes."""
        with pytest.raises(Damaged, match="the file is gone"):
            redo(Disk(), tmp_path, 0, [Extent(0, 0, 0, [batch(0)])])
        path = segment(tmp_path, batch(0))
        with pytest.raises(Damaged, match="ends here"):
            redo(Disk(), tmp_path, 0, [Extent(0, 0, 1_000, [batch(1)])])
        with pytest.raises(Damaged, match="a whole batch"):
            redo(Disk(), tmp_path, 0, [Extent(0, 0, 0, [batch(7)])])
        with pytest.raises(Damaged, match="the file is gone"):
            redo(Disk(), tmp_path, 0, [Extent(0, 0, 0, [batch(0)]), Extent(0, 1, 0, [batch(1)])])
        assert path.read_bytes() == batch(0)

    def test_another_batch_that_is_longer_is_refused(self, tmp_path: Path) -> None:
        """A whole batch that ends behind the extent isn't in it."""
        longer = batch(0, 500)
        path = segment(tmp_path, longer)
        with pytest.raises(Damaged, match="a whole batch"):
            redo(Disk(), tmp_path, 0, [Extent(0, 0, 0, [batch(0)])])
        assert path.read_bytes() == longer

    def test_a_claim_over_a_hole_is_not_read(self, tmp_path: Path) -> None:
        """What is in the place of an extent may look like a batch of 1.9 GB: to see that it is none costs no memory."""
        claims = bytearray(batch(0))
        claims[8:12] = (1_900_000_000 - 12).to_bytes(4)
        path = segment(tmp_path, bytes(claims))
        os.truncate(path, 1_900_000_000)
        disk = CountingDisk()
        redo(disk, tmp_path, 0, [Extent(0, 0, 0, [batch(0)])])
        assert disk.largest <= CHUNK_SIZE
        with path.open("rb") as file:
            assert file.read(len(batch(0))) == batch(0)


class TestRecover:
    """What engines left is brought back before anything is loaded."""

    def test_all_nodes_or_one(self, tmp_path: Path) -> None:
        """A start brings back the journals of all nodes, whoever owns the partitions from now on, or one node's."""
        paths = [segment(tmp_path, b"", partition=partition) for partition in range(2)]
        written(journal_path(tmp_path, 1, 0), (1, 1, [Extent(0, 0, 0, [batch(0)])]))
        written(journal_path(tmp_path, 2, 1), (1, 1, [Extent(1, 0, 0, [batch(5)])]))
        journal_path(tmp_path, 2, 0).with_suffix(".0.new").write_bytes(b"unfinished")
        assert [done.node_id for done in recover(Disk(), tmp_path, 1)] == [1]
        assert [path.read_bytes() for path in paths] == [batch(0), b""]
        assert [done.partitions for done in recover(Disk(), tmp_path)] == [[1]]
        assert [path.read_bytes() for path in paths] == [batch(0), batch(5)]
        assert not list(tmp_path.glob(".journal*"))

    def test_each_call_fails(self, tmp_path: Path) -> None:
        """Whichever call of the disk fails, a partition has its bytes, or they wait for its load; none are lost."""
        for name in ("open", "write", "fdatasync", "open_to_read", "read", "rename", "remove", "sync_folder", "close"):
            for number in range(1, 8):
                data_dir = tmp_path / f"{name}-{number}"
                paths = [segment(data_dir, b"", partition=partition) for partition in range(2)]
                extents = [Extent(partition, 0, 0, [batch(partition)]) for partition in range(2)]
                written(journal_path(data_dir, 1, 0), (1, 1, extents[:1]))
                written(journal_path(data_dir, 1, 1), (2, 1, extents[1:]))
                try:
                    recover(FailingDisk(fail_one(name, number)), data_dir)
                except OSError:
                    recover(Disk(), data_dir)
                for partition in left_partitions(data_dir):
                    redo_left(Disk(), data_dir, partition)
                assert [path.read_bytes() for path in paths] == [batch(0), batch(1)]
                assert not list(data_dir.glob(".journal*"))

    def test_damaged_partition_waits(self, tmp_path: Path) -> None:
        """A partition that can't take its extents keeps them in a file, and is refused; the others get theirs."""
        good = segment(tmp_path, b"", partition=1)
        journal = journal_path(tmp_path, 1, 0)
        written(journal, (1, 1, [Extent(0, 0, 0, [batch(0)]), Extent(1, 0, 0, [batch(1)])]))
        (done,) = recover(Disk(), tmp_path)
        assert done.left == [0]
        assert good.read_bytes() == batch(1)
        assert not journal.exists()
        with pytest.raises(Damaged, match="the file is gone"):
            redo_left(Disk(), tmp_path, 0)
        path = segment(tmp_path, b"")  # somebody brings it back
        redo_left(Disk(), tmp_path, 0)
        assert path.read_bytes() == batch(0)
        assert left_partitions(tmp_path) == []

    def test_damaged_extent_stays_damaged(self, tmp_path: Path) -> None:
        """An extent with a wrong CRC is kept as it is, and refuses its partition alone."""
        for partition in range(2):
            segment(tmp_path, b"", partition=partition)
        journal = journal_path(tmp_path, 1, 0)
        extents = [Extent(0, 0, 0, [batch(0)]), Extent(1, 0, 0, [batch(1)])]
        written(journal, (1, 1, extents), (2, 1, []))
        content = bytearray(journal.read_bytes())
        content[WINDOWS_AT + len(encode_window(SALT, 1, 1, extents)[0][0]) + 70] ^= 1
        journal.write_bytes(content)
        with pytest.raises(Damaged, match="checksum of partition 0"):
            Journals(Disk(), tmp_path).of(0)
        (done,) = recover(Disk(), tmp_path)
        assert done.left == [0]
        with pytest.raises(Damaged) as caught:
            redo_left(Disk(), tmp_path, 0)
        assert caught.value.file == str(left_path(tmp_path, 0, 0))

    def test_left_twice(self, tmp_path: Path) -> None:
        """What is left a second time is kept behind what was left before."""
        path = segment(tmp_path, b"")
        leave(Disk(), tmp_path, 0, [Extent(0, 0, 0, [batch(0)])])
        leave(Disk(), tmp_path, 0, [Extent(0, 0, len(batch(0)), [batch(1)])])
        assert len(Journals(Disk(), tmp_path).of(0)) == 2
        redo_left(Disk(), tmp_path, 0)
        assert path.read_bytes() == batch(0) + batch(1)


class TestDamagedLeft:
    """A damaged file of what is left for a partition costs that partition alone, and nothing of it changes."""

    @staticmethod
    def _refused(data_dir: Path, content: bytes) -> Damaged | None:
        """Recover a folder with a journal for two partitions beside that file for the first; return why it is refused.

        The second must get its batch, and the first what its segment can't take yet in another file.
        """
        data_dir.mkdir()
        first = segment(data_dir, batch(0))
        good = segment(data_dir, b"", partition=1)
        left = left_path(data_dir, 0, 0)
        left.write_bytes(content)
        end = 2 * len(batch(0))
        journal = journal_path(data_dir, 1, 0)
        written(journal, (1, 1, [Extent(0, 0, end, [batch(2)]), Extent(1, 0, 0, [batch(5)])]), pages=3)
        (done,) = recover(FailingDisk(), data_dir)
        assert done.left == [0]
        assert good.read_bytes() == batch(5)
        assert left.read_bytes() == content
        assert not journal.exists()
        try:
            redo_left(FailingDisk(), data_dir, 0)
        except Damaged as damage:
            with pytest.raises(Damaged):
                Journals(FailingDisk(), data_dir).of(0)
            assert left.read_bytes() == content
            assert first.read_bytes() == batch(0)
            left.unlink()
            assert [extent.data for extent in Journals(FailingDisk(), data_dir).of(0)] == [[batch(2)]]
            return damage
        assert first.read_bytes() == batch(0) + batch(1) + batch(2)
        assert left_partitions(data_dir) == []
        return None

    @staticmethod
    def _content(tmp_path: Path) -> tuple[bytes, int, int]:
        """Return a file with a batch for partition 0; where its batch begins; and where it ends."""
        leave(FailingDisk(), tmp_path, 0, [Extent(0, 0, len(batch(0)), [batch(1)])])
        path = left_path(tmp_path, 0, 0)
        content = path.read_bytes()
        path.unlink()
        begin = content.index(batch(1))
        return content, begin, begin + len(batch(1))

    def test_flipped_bit(self, tmp_path: Path) -> None:
        """A flipped bit in the first page, the head, the table or the batches is refused by file and reason."""
        content, begin, end = self._content(tmp_path)
        for at in [*range(32), *range(WINDOWS_AT, end)]:
            flipped = bytearray(content)
            flipped[at] ^= 1 << at % 8
            damage = self._refused(tmp_path / f"{at}", bytes(flipped))
            assert damage is not None
            assert damage.file == str(left_path(tmp_path / f"{at}", 0, 0))
            if at < WINDOWS_AT:
                assert (damage.position, damage.reason) == (0, "its first page is no journal's")
            elif at < begin:
                assert (damage.position, damage.reason) == (WINDOWS_AT, "a checksum is wrong")
            else:
                wanted = (begin, "the checksum of partition 0's batches is wrong")
                assert (damage.position, damage.reason) == wanted
        for at in (32, WINDOWS_AT - 1, end, len(content) - 1):  # zeros that nobody reads
            flipped = bytearray(content)
            flipped[at] ^= 1
            assert self._refused(tmp_path / f"{at}", bytes(flipped)) is None

    def test_cut(self, tmp_path: Path) -> None:
        """A file that lacks any of its bytes is refused, also if the last zeros alone are missing."""
        content, _, end = self._content(tmp_path)
        for size in [0, 1, 31, 32, WINDOWS_AT - 1, *range(WINDOWS_AT, end + 2), len(content) - 1]:
            damage = self._refused(tmp_path / f"{size}", content[:size])
            assert damage is not None
            assert damage.position == size
            if size < WINDOWS_AT:
                assert damage.reason == ("it ends within its first page" if size else "it is empty")
            else:
                assert damage.reason == f"it has {size} bytes, and was made with {len(content)}"


class TestDamagedLastWindow:
    """A last window that was durable and changed later counts if a segment proves it; without a proof it is torn."""

    @staticmethod
    def _flipped(data_dir: Path, at: int) -> None:
        """Write a journal of two windows for two partitions, and flip a bit of the last, `at` bytes behind its head."""
        windows = []
        for number in (1, 2):
            extents = [Extent(partition, 0, (number - 1) * SIZE, [batch(number)]) for partition in range(2)]
            windows.append((number, 1, extents))
        path = journal_path(data_dir, 1, 0)
        starts = written(path, *windows, pages=4)
        head = len(encode_window(SALT, *windows[1])[0][0])
        content = bytearray(path.read_bytes())
        content[starts[1] + head + at] ^= 1 << at % 8
        path.write_bytes(content)

    def test_segment_has_the_damaged_batch(self, tmp_path: Path) -> None:
        """A segment's bytes take the place of damaged ones, and the other partition gets its batch from the window."""
        whole = batch(1) + batch(2)
        for at in range(SIZE):
            data_dir = tmp_path / f"{at}"
            paths = [segment(data_dir, whole), segment(data_dir, batch(1), partition=1)]
            self._flipped(data_dir, at)
            assert [b"".join(extent.data) for extent in Journals(FailingDisk(), data_dir).of(1)] == [batch(1), batch(2)]
            disk = FailingDisk()
            (done,) = recover(disk, data_dir)
            assert (done.left, done.torn) == ([], None)
            assert [path.read_bytes() for path in paths] == [whole, whole]
            assert disk.calls["write"] == 4  # equal bytes too

    def test_another_segment_has_its_batch(self, tmp_path: Path) -> None:
        """A partition whose batch is damaged, and missing in its segment, is refused: it was acknowledged."""
        for at in range(SIZE):
            data_dir = tmp_path / f"{at}"
            paths = [segment(data_dir, batch(1)), segment(data_dir, batch(1) + batch(2), partition=1)]
            self._flipped(data_dir, at)
            with pytest.raises(Damaged, match="checksum of partition 0"):
                Journals(FailingDisk(), data_dir).of(0)
            (done,) = recover(FailingDisk(), data_dir)
            assert (done.left, done.torn) == ([0], None)
            assert [path.read_bytes() for path in paths] == [batch(1), batch(1) + batch(2)]
            with pytest.raises(Damaged) as caught:
                redo_left(FailingDisk(), data_dir, 0)
            assert caught.value.file == str(left_path(data_dir, 0, 0))

    def test_no_segment_has_anything(self, tmp_path: Path) -> None:
        """If no segment has a whole batch of it, the window is torn, and nothing of it comes back."""
        for number, there in enumerate((b"", batch(2)[:-1], bytes(SIZE), batch(3))):
            data_dir = tmp_path / f"{number}"
            paths = [segment(data_dir, batch(1) + there, partition=partition) for partition in range(2)]
            self._flipped(data_dir, 70)
            assert len(Journals(FailingDisk(), data_dir).of(1)) == 1
            (done,) = recover(FailingDisk(), data_dir)
            assert done.left == []
            assert done.torn is not None
            assert done.torn.position == WINDOWS_AT + PAGE_SIZE
            assert [path.read_bytes() for path in paths] == [batch(1) + there] * 2

    def test_unreadable_segment(self, tmp_path: Path) -> None:
        """A segment that can't be read proves nothing, and keeps no other partition from its batch."""
        whole = batch(1) + batch(2)
        paths = [segment(tmp_path, whole), segment(tmp_path, batch(1), partition=1)]
        self._flipped(tmp_path, SIZE)  # partition 1's batch
        paths[1].unlink()
        (done,) = recover(FailingDisk(), tmp_path)
        assert (done.left, done.torn) == ([1], None)
        assert paths[0].read_bytes() == whole


def false_heads(pages: int) -> bytes:
    """Return pages as clients might choose them: each begins with the head of a window that claims all the rest."""
    heads = []
    for left in range(pages * PAGE_SIZE, 0, -PAGE_SIZE):
        extents = left // EXTENT_SIZE - 2
        heads.append(struct.pack(">8sIQQII", b"tenurejw", 1, 9, 1, left, extents).ljust(PAGE_SIZE, b"x"))
    return b"".join(heads)


@pytest.mark.parametrize("hole", [0, 1_000])
def test_reading_is_linear_in_what_a_file_has(tmp_path: Path, hole: int) -> None:
    """False heads cost no more reading than other bytes, and hide no window; a table has any size."""
    many = extents_of(2, *[1] * 500)
    pages = 1_000
    path = tmp_path / "file"
    written(path, (1, 1, extents_of(1, 10)), pages=pages + hole)
    with path.open("r+b") as file:
        file.seek(20 * PAGE_SIZE)
        file.write(false_heads(500))
        file.seek((520 + hole) * PAGE_SIZE)
        file.write(b"".join(encode_window(SALT, 2, 1, many)[0]))
    os.truncate(path, (pages + hole) * PAGE_SIZE)
    disk = CountingDisk()
    contents = read_files(disk, [path])
    assert contents.extents[499] == [many[-1]._replace(source=path)]
    assert sequences(path) == [1, 2]
    assert disk.bytes_read < 4 * pages * PAGE_SIZE
    assert disk.calls["read"] < 4 * pages


def test_windows_that_overlap_are_refused(tmp_path: Path) -> None:
    """No engine writes them, and to read a window in each page that reaches to the end would cost a square."""
    pages = 100
    path = tmp_path / "file"
    content = bytearray(file_head(SALT, pages * PAGE_SIZE)) + bytes((pages - 1) * PAGE_SIZE)
    for number, at in enumerate(range(WINDOWS_AT, len(content), PAGE_SIZE)):
        rest = Extent(0, 0, 0, [bytes(len(content) - at - 100)], is_damaged=True)
        content[at : at + 100] = encode_window(SALT, number, 1, [rest])[0][0].ljust(100, b"\0")
    path.write_bytes(content)
    disk = CountingDisk()
    with pytest.raises(Damaged, match="its windows overlap"):
        read_files(disk, [path])
    assert disk.bytes_read < 4 * pages * PAGE_SIZE


def test_a_batch_that_a_server_is_writing_is_no_other_one(tmp_path: Path) -> None:
    """A reader beside a server sees its beginning, and the rest a moment later: the journal has the same batch."""
    data = encode_batch([record(1, 5_000)], 0, 0)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data[:3_000])

    class Growing(Disk):
        def read(self, descriptor: int, size: int, position: int) -> bytes:
            """Read what is there; after that the server writes the rest."""
            there = super().read(descriptor, size, position)
            path.write_bytes(data)
            return there

    disk = Growing()
    descriptor = disk.open(path)
    assert fitting(disk, path, descriptor, 0, [Extent(0, 0, 0, [data])]) == [(0, data)]
    disk.close(descriptor)
