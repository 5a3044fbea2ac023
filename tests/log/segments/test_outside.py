"""Reads a log from outside: finds it in each kind of folder, as of one moment, and reads on behind damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.log.embedded import journal
from coordinator.log.segments import outside
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.journal import (
    WINDOWS_AT,
    Extent,
    encode_window,
    file_head,
    journal_path,
    left_path,
    recover,
)
from coordinator.log.segments.outside import JournalsBeside, Log, NoBatch, find_logs, opened, read_segment, size_of
from coordinator.log.segments.segment import CHUNK_SIZE, Frame, segment_at
from coordinator.log.segments.swap import cleaned_path, recover_swaps, swap_in
from protocol.records.batch import encode_batch
from protocol.records.walk import decode_batches
from tests.cli.log.conftest import group_of, make_data_dir, offset_of, write_segment
from tests.log.calls import append, record
from tests.log.calls import opened as engine_opened
from tests.log.disks import FailingDisk
from tests.log.embedded.journaling import journaling, kill
from tests.support.batches import old_messages

BATCHES = [
    encode_batch([group_of("a")], 0, 1),
    encode_batch([offset_of("a"), offset_of("b")], 1, 1),
    encode_batch([group_of("b")], 3, 2),
]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A sound data folder: in each partition a segment of three batches from offset 0 on, and one from offset 4 on."""
    return make_data_dir(tmp_path / "data")


def read(path: Path) -> list[Frame | NoBatch]:
    """Return the batches and the gaps of a log's last segment."""
    (log,) = find_logs(path)
    with opened(log) as segments:
        return list(read_segment(segments[-1]))


def positions(path: Path) -> list[tuple[str, int]]:
    """Return the kinds and the positions of all that a file has."""
    return [("batch" if isinstance(found, Frame) else "gap", found.position) for found in read(path)]


def names(log: Log) -> list[str]:
    """Return the names of a log's segments."""
    with opened(log) as segments:
        return [segment.path.name for segment in segments]


def test_logs_are_found_in_each_kind_of_path(data_dir: Path) -> None:
    """A data folder lists its partitions in order; a partition's folder and a segment are logs by themselves."""
    (data_dir / "orders-0").mkdir()
    (data_dir / "__consumer_offsets-1" / "00000000000000000000.index").touch()
    assert [log.partition for log in find_logs(data_dir)] == [0, 1, 2, 3]
    folder = data_dir / "__consumer_offsets-2"
    assert [(log.partition, len(names(log))) for log in find_logs(folder)] == [(2, 2)]
    (log,) = find_logs(folder / "00000000000000000004.log")
    with opened(log) as segments:
        assert (log.partition, [segment.base_offset for segment in segments]) == (2, [4])
    assert size_of(find_logs(data_dir)) == sum(path.stat().st_size for path in data_dir.rglob("*.log"))


def test_where_there_is_no_log_the_system_says_so(tmp_path: Path) -> None:
    """A missing path, and a folder without a partition, raise OSError."""
    with pytest.raises(FileNotFoundError):
        find_logs(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="no __consumer_offsets"):
        find_logs(tmp_path)


def test_reading_goes_on_behind_damage(tmp_path: Path) -> None:
    """A flipped bit, even in a length, hides its own batch only."""
    first, second, _third = map(len, BATCHES)
    for position in (first + 40, first + 9):
        path = write_segment(tmp_path, 0, BATCHES)
        content = bytearray(path.read_bytes())
        content[position] ^= 4
        path.write_bytes(content)
        assert positions(path) == [("batch", 0), ("gap", first), ("batch", first + second)]
        gap = next(found for found in read(path) if isinstance(found, NoBatch))
        assert (gap.end, gap.at_end) == (first + second, False)


def test_torn_tail_is_told_from_a_whole_batch(tmp_path: Path) -> None:
    """At the end of a file, a cut batch is torn, and a batch with only its length wrong is whole."""
    path = write_segment(tmp_path, 0, [*BATCHES[:2], BATCHES[2][:-1]])
    *_, torn = read(path)
    assert isinstance(torn, NoBatch)
    assert (torn.at_end, torn.whole, torn.end) == (True, False, path.stat().st_size)
    long = bytearray(BATCHES[2])
    long[11] ^= 1
    *_, whole = read(write_segment(tmp_path, 0, [*BATCHES[:2], bytes(long)]))
    assert isinstance(whole, NoBatch)
    assert (whole.at_end, whole.whole) == (True, True)


@given(st.lists(st.binary(max_size=80) | st.sampled_from(BATCHES), max_size=6))
def test_all_bytes_are_covered_once(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    """Batches and gaps cover any file without a hole, and the reader raises nothing."""
    path = write_segment(tmp_path_factory.mktemp("random"), 0, parts)
    at = 0
    for found in read(path):
        assert found.position == at
        at = found.end if isinstance(found, NoBatch) else at + found.header.size
    assert at == path.stat().st_size


def test_compaction_that_was_interrupted_is_taken_as_finished(data_dir: Path) -> None:
    """At each step of a swap the reader finds the same batches, and the new file's once the swap is decided."""
    folder = data_dir / "__consumer_offsets-2"
    log = Log(2, folder)
    first, second, last = (segment_at(folder, offset).path for offset in (0, 4, 8))
    last.write_bytes(encode_batch([offset_of("b")], 8, 3))
    cleaned, swap = cleaned_path(folder, 0), folder / f"{0:020}-{8:020}.swap"
    cleaned.write_bytes(BATCHES[0])
    assert names(log) == [first.name, second.name, last.name]
    cleaned.rename(swap)
    for replaced in (first, second):
        assert names(log) == [swap.name, last.name]
        replaced.unlink()
    with opened(log) as segments:
        assert (segments[0].base_offset, segments[0].size) == (0, len(BATCHES[0]))
    recover_swaps(Disk(), folder)
    assert names(log) == [first.name, last.name]


def test_segments_are_of_one_moment(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader never sees half a swap while it opens files; open files stay readable after the next swap."""
    folder = data_dir / "__consumer_offsets-2"
    log = Log(2, folder)
    before = [each.data for each in read(folder) if isinstance(each, Frame)]
    opened_files = 0

    def open_and_swap(disk: Disk, path: Path) -> int:
        nonlocal opened_files
        descriptor = os.open(path, os.O_RDONLY)
        opened_files += 1
        if opened_files == 1:  # the first segment is open, and the test replaces both before the second is
            for base_offset, next_offset in ((0, 4), (4, 8)):
                cleaned_path(folder, base_offset).write_bytes(encode_batch([offset_of("new")], base_offset, 9))
                assert list(swap_in(Disk(), folder, base_offset, next_offset))
        return descriptor

    monkeypatch.setattr(Disk, "open_to_read", open_and_swap)
    with opened(log) as segments:
        monkeypatch.undo()
        cleaned_path(folder, 0).write_bytes(BATCHES[0])
        assert list(swap_in(Disk(), folder, 0, 4))
        found = [each for segment in segments for each in read_segment(segment)]
    assert before
    assert [each.header.partition_leader_epoch for each in found if isinstance(each, Frame)] == [9, 9]


def test_a_segment_that_is_removed_meanwhile_is_left_out(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine may delete a segment between the reader's list and its open: the reader opens what there is then."""
    log = Log(2, data_dir / "__consumer_offsets-2")

    def remove_and_open(disk: Disk, path: Path) -> int:
        segment_at(log.folder, 0).path.unlink(missing_ok=True)
        return os.open(path, os.O_RDONLY)

    monkeypatch.setattr(Disk, "open_to_read", remove_and_open)
    assert names(log) == [segment_at(log.folder, 4).path.name]


def test_a_segment_that_is_gone_is_not_waited_for(data_dir: Path) -> None:
    """A reader of one segment raises FileNotFoundError when somebody has deleted it: no other takes its place."""
    path = segment_at(data_dir / "__consumer_offsets-2", 4).path
    (log,) = find_logs(path)
    path.unlink()
    with pytest.raises(FileNotFoundError) as raised, opened(log):
        pass
    assert raised.value.filename == str(path)


def test_folder_that_never_rests_is_told(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader gives up on a folder that changes at each attempt, and leaves no descriptor open."""
    log = Log(2, data_dir / "__consumer_offsets-2")
    monkeypatch.setattr(outside, "OPEN_ATTEMPTS", 3)
    held: list[int] = []

    def open_and_grow(disk: Disk, path: Path) -> int:
        segment_at(log.folder, 100 + len(held)).path.touch()
        held.append(os.open(path, os.O_RDONLY))
        return held[-1]

    monkeypatch.setattr(Disk, "open_to_read", open_and_grow)
    with pytest.raises(OSError, match="replaced all the time"), opened(log):
        pass
    for descriptor in held:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


@pytest.mark.parametrize("at_end", [False, True])
def test_messages_of_an_older_format_are_named(tmp_path: Path, at_end: bool) -> None:
    """The reader names messages of an older format wherever they are, not as a torn end, and reads on."""
    old = old_messages(1, 2)
    batches = [BATCHES[0], old, *([] if at_end else BATCHES[1:])]
    path = write_segment(tmp_path, 0, batches)
    gap = next(found for found in read(path) if isinstance(found, NoBatch))
    start = len(BATCHES[0])
    assert gap == NoBatch(start, start + len(old), "message format 1, only 2 is read", at_end=False, whole=False)
    assert [kind for kind, _ in positions(path)] == ["batch", "gap", *["batch"] * (len(batches) - 2)]


def test_a_batch_above_the_limit_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What claims more bytes than a batch that is read may have is a gap up to the next batch, and no memory."""
    large = encode_batch([record(1, CHUNK_SIZE)], 1, 1)
    monkeypatch.setattr(outside, "BATCH_READ_MAX", len(large) - 1)
    path = write_segment(tmp_path, 0, [BATCHES[0], large, encode_batch([group_of("b")], 2, 2)])
    start = len(BATCHES[0])
    assert positions(path) == [("batch", 0), ("gap", start), ("batch", start + len(large))]


def test_a_hole_is_a_gap_at_no_cost(tmp_path: Path) -> None:
    """A hole of 64 GB is one gap, and the reader says how far it is."""
    path = write_segment(tmp_path, 0, [BATCHES[0]])
    with path.open("r+b") as file:
        file.seek(2**36)
        file.write(BATCHES[1])
    passed: list[int] = []
    with opened(Log(0, path.parent)) as segments:
        found = [(type(each), each.position) for each in read_segment(segments[-1], passed.append)]
    assert found == [(Frame, 0), (NoBatch, len(BATCHES[0])), (Frame, 2**36)]
    assert 2**36 - 2**20 < sum(passed) < 2**36 + 2**20


def test_journals_are_read_once_for_all_logs(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a folder of many partitions is linear: its logs are looked for once, its journals are read once."""
    listed: list[Path] = []
    names = Disk.list_folder

    def list_folder(disk: Disk, folder: Path) -> list[str]:
        listed.append(folder)
        return names(disk, folder)

    monkeypatch.setattr(Disk, "list_folder", list_folder)
    logs = find_logs(data_dir)
    journals = JournalsBeside()
    for log in logs:
        with opened(log, journals):
            pass
    assert listed.count(data_dir) == 2
    listed.clear()
    journal_path(data_dir, 1, 0).write_bytes(b"no journal")
    journals = JournalsBeside()
    for log in logs:
        with pytest.raises(OSError, match="it ends within its first page"), opened(log, journals):
            pass
    assert listed.count(data_dir) == outside.JOURNAL_ATTEMPTS + 1


def test_a_journal_that_leads_nowhere_is_refused_at_once(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link without a target isn't a journal that its engine has just removed."""
    monkeypatch.setattr(outside, "OPEN_ATTEMPTS", 1)
    for path in (journal_path(data_dir, 1, 0), left_path(data_dir, 2, 0)):
        path.symlink_to("nowhere")
        with pytest.raises(FileNotFoundError) as caught, opened(find_logs(data_dir)[2]):
            pass
        assert caught.value.filename == str(path)
        path.unlink()


class TestJournal:
    """What only a journal has is read as if it were in its segment; nothing is written."""

    @pytest.fixture(autouse=True)
    def segments_lag(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Logs collect bytes for long."""
        monkeypatch.setattr(journal, "WRITE_S", 600.0)

    def left(self, tmp_path: Path) -> dict[int, list[int]]:
        """Play an engine with a journal whose segments never got their bytes; return the numbers of each partition."""
        disk = FailingDisk()
        engine = journaling(tmp_path, disk, segment_size=1_000)
        owns = [engine_opened(engine, partition)[0] for partition in range(2)]
        for number in range(20):
            assert append(engine, owns[number % 2], record(number, 100)) is None
        kill(engine, disk)
        return {partition: list(range(partition, 20, 2)) for partition in range(2)}

    def numbers(self, path: Path) -> dict[int | None, list[int]]:
        """Return the numbers of the records in all segments of each log."""
        found: dict[int | None, list[int]] = {}
        for log in find_logs(path):
            with opened(log) as segments:
                frames = [frame for segment in segments for frame in read_segment(segment)]
            batches = [frame.data[frame.at :] for frame in frames if isinstance(frame, Frame)]
            assert len(batches) == len(frames)
            records = [record for data in batches for record in next(iter(decode_batches(data))).records]
            found[log.partition] = [int(each.value or b"") for each in records]
        return found

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_before_any_recovery(self, tmp_path: Path) -> None:
        """After a power cut that left nothing in the segments but what was synced, a reader sees all acknowledged."""
        expected = self.left(tmp_path)
        files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        sizes = [path.stat().st_size for path in sorted(tmp_path.rglob("*.log"))]
        assert self.numbers(tmp_path) == expected
        last = max((tmp_path / "__consumer_offsets-0").glob("*.log"))
        assert self.numbers(last)[0][-1] == 18
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
        engine = journaling(tmp_path)
        engine.close()
        assert self.numbers(tmp_path) == expected
        assert [path.stat().st_size for path in sorted(tmp_path.rglob("*.log"))] != sizes

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_what_is_left_for_a_load(self, tmp_path: Path) -> None:
        """What a recovery left in a partition's own file is read as well."""
        expected = self.left(tmp_path)
        folder = tmp_path / "__consumer_offsets-0"
        folder.rename(tmp_path / "away")
        (done,) = recover(Disk(), tmp_path)
        assert done.left == [0]
        (tmp_path / "away").rename(folder)
        assert self.numbers(tmp_path) == expected

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_damaged_journal(self, tmp_path: Path) -> None:
        """A damaged journal is an error of the input that names the file."""
        self.left(tmp_path)
        path = journal_path(tmp_path, 1, 0)
        content = path.read_bytes()
        path.write_bytes(content[:9] + bytes([content[9] ^ 0xFF]) + content[10:])
        with pytest.raises(OSError, match=r"first page.*journal-1\.0"):
            self.numbers(tmp_path)

    def test_a_sparse_segment_stays_sparse(self, tmp_path: Path) -> None:
        """A copy of a segment with what the journal has takes no more of the disk, and no memory, for its holes."""
        end = 2**35
        path = write_segment(tmp_path, 0, [BATCHES[0]])
        os.truncate(path, end)
        parts, size = encode_window(b"s" * 16, 1, 1, [Extent(0, 0, end, [BATCHES[1]])])
        journal_path(tmp_path, 1, 0).write_bytes(b"".join([file_head(b"s" * 16, WINDOWS_AT + size), *parts]))
        with opened(find_logs(tmp_path)[0]) as segments:
            found = [each.position for each in read_segment(segments[-1]) if isinstance(each, Frame)]
            assert os.fstat(segments[-1].descriptor).st_blocks * 512 < 2**20
        assert found == [0, end]
