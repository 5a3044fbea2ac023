"""Finds records in a log by offset and by time, and reads a limited number of bytes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from coordinator.group.transactions import marker
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.view import INDEX_INTERVAL, OutsideView, Rejected, View
from coordinator.log.topics.log import TopicLog, Written
from protocol.records.batch import Batch, CorruptBatch, Record, check_crc, encode_batch, peek_header
from protocol.records.walk import UNPACKED_SIZE_MAX
from schemas.errors import ErrorCode
from tests.log.topics.test_log import LIMITS, NOW_MS
from tests.support.batches import batch

COUNT = 900
STEP_MS = 10


def times() -> list[int]:
    """Return each record's time; times rise, but not always."""
    chance = Random(3)
    return [1_000 + at * STEP_MS + chance.randint(-40, 40) for at in range(COUNT)]


@pytest.fixture(scope="module", params=["as written", "opened anew"])
def view(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> View:
    """Return a view of records of 1000 bytes, three to a batch, in segments with more than one index entry each."""
    folder = tmp_path_factory.mktemp("view") / "t-0"
    log = TopicLog(Disk(), folder, UUID(int=5), 0, lambda *_: None)
    log.open()
    when = times()
    limits = LIMITS._replace(segment_bytes=5 * INDEX_INTERVAL)
    for at in range(0, COUNT, 3):
        data = batch([(None, b"x" * 1_000, when[number]) for number in range(at, at + 3)])
        assert log.append_batches([data], limits, NOW_MS) == [Written(at, -1, 0)]
    if request.param == "opened anew":
        log.close("the test opens it anew")
        log.open()
    assert len(log.view.parts) > 2
    assert len(log.view.parts[0].offsets) > 3
    return log.view


def test_each_offset_is_found(view: View) -> None:
    """A read begins with the batch that has the offset, and has as many bytes as it may, within its segment."""
    for offset in range(COUNT):
        data = view.read_from(offset, 10_000, whole=True)
        header = peek_header(data)
        check_crc(data, 0, header)
        assert header.base_offset <= offset < header.next_offset
        assert header.size <= len(data) <= 10_000


def test_a_batch_goes_whole_only_where_it_has_to(view: View) -> None:
    """A first batch that doesn't fit comes whole if the caller insists, else not; a later one is cut."""
    assert len(view.read_from(7, 100, whole=True)) == peek_header(view.read_from(7, 100, whole=True)).size
    assert view.read_from(7, 100, whole=False) == b""
    size = peek_header(view.read_from(7, 100, whole=True)).size
    cut = view.read_from(7, size + 100, whole=False)
    assert len(cut) == size + 100
    check_crc(cut, 0, peek_header(cut))
    with pytest.raises(CorruptBatch):
        check_crc(cut, size, peek_header(cut, size))


def test_the_end_has_nothing_and_what_is_behind_is_refused(view: View) -> None:
    """An offset behind the end, or before the start, is OFFSET_OUT_OF_RANGE; the end itself has no records."""
    assert view.ends() == (0, COUNT, COUNT)
    assert view.read_from(COUNT, 100, whole=True) == b""
    assert view.available(COUNT, 100) == 0
    for offset in (-1, COUNT + 1):
        for ask in (view.available, lambda at, size: view.read_from(at, size, whole=True)):
            with pytest.raises(Rejected) as refused:
                ask(offset, 100)
            assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_how_much_there_is(view: View) -> None:
    """The view counts the bytes that reads from there on bring, to the byte, up to the requested limit."""
    assert view.available(0, 5_000) == 5_000
    for offset in range(0, COUNT, 7):
        there, at = 0, offset
        while at < COUNT:
            data = view.read_from(at, 10**9, whole=True)
            position = 0
            while position < len(data):
                header = peek_header(data, position)
                position += header.size
                at = header.next_offset
            there += len(data)
        assert view.available(offset, 10**9) == there
        assert view.available(offset, there - 1) == there - 1
        assert view.available(offset, there + 1) == there


def test_each_time_is_found(view: View) -> None:
    """The view finds the first record that isn't older than a time, and none behind the latest."""
    when = times()
    for asked in range(0, max(when) + 2, 7):
        first = next(((at, each) for at, each in enumerate(when) if each >= asked), None)
        assert view.offset_of_time(asked) == first
    assert view.offset_of_time(max(when) + 1) is None


def test_the_latest_time(view: View) -> None:
    """The latest time is that of the first record that has it."""
    when = times()
    assert view.latest_time() == (when.index(max(when)), max(when))


def test_an_empty_log_has_no_times() -> None:
    """An empty log has no time."""
    view = View(Disk())
    assert view.latest_time() is None
    assert view.offset_of_time(0) is None
    assert view.read_from(0, 1, whole=True) == b""
    assert view.available(0, 1) == 0


def test_a_batch_that_can_not_be_looked_into_is_found_by_its_header(tmp_path: Path) -> None:
    """The view finds a batch that doesn't unpack by its first offset and its time, so a consumer misses nothing."""
    log = TopicLog(Disk(), tmp_path / "t-0", UUID(int=5), 10_000, lambda *_: None)
    log.open()
    data = batch([(None, b"x" * UNPACKED_SIZE_MAX, 10), (None, b"", 20)], zipped=True)
    assert log.append_batches([batch([(None, b"", 5)]), data], LIMITS._replace(segment_bytes=10**9), NOW_MS)
    assert log.view.offset_of_time(15) == (1, 20)


def test_what_is_before_the_start_is_not_found_by_its_time(tmp_path: Path) -> None:
    """A search by time finds no record before the start, even if DeleteRecords left the front of a batch."""
    log = TopicLog(Disk(), tmp_path / "t-0", UUID(int=5), 10_000, lambda *_: None)
    log.open()
    log.append_batches([batch([(None, b"", at) for at in (10, 20, 30)])], LIMITS, NOW_MS)
    log.delete_before(1)
    assert log.view.offset_of_time(0) == (1, 20)
    assert log.view.offset_of_time(25) == (2, 30)
    with pytest.raises(Rejected):
        log.view.read_from(0, 100, whole=True)


def test_a_reader_gets_the_aborted_transactions_of_what_it_reads(tmp_path: Path) -> None:
    """Up to the next entry of the index, in its segment: not all that come later."""
    log = TopicLog(Disk(), tmp_path / "t-0", UUID(int=5), 0, lambda *_: None)
    log.open()
    limits = LIMITS._replace(segment_bytes=4 * INDEX_INTERVAL)
    for sequence in range(12):
        data = batch([(None, b"x" * 30_000, NOW_MS)], producer_id=7, producer_epoch=0, sequence=sequence, attributes=16)
        log.append_batches([data], limits, NOW_MS)
        log.append_marker(marker(7, 0, is_commit=False, coordinator_epoch=0, wall_ms=NOW_MS), limits)
    view = log.view
    assert [part.segment.base_offset for part in view.parts] == [0, 16]
    assert view.parts[0].offsets.tolist() == [0, 5, 11]

    def found(offset: int, size: int) -> list[int]:
        return [each.first_offset for each in view.aborted_within(offset, size)]

    assert found(0, 0) == []
    assert found(0, 1) == [0, 2, 4, 6, 8, 10]
    assert found(3, 1) == [2, 4, 6, 8, 10]
    assert found(0, 4 * INDEX_INTERVAL) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert found(16, 1) == [16, 18, 20, 22]


def a_batch(number: int) -> bytes:
    """Return a batch of a group's partition."""
    return encode_batch([Record(b"key %d" % number, b"x" * 50, 1_000 + number)], number, 0)


def seen(view: OutsideView) -> list[int]:
    """Return the offsets that a view has, read one by one."""
    view.look()
    found, offset = [], view.start
    while offset < view.end:
        header = peek_header(view.read_from(offset, 1, whole=True))
        found.append(header.base_offset)
        offset = header.next_offset
    return found


def test_what_somebody_else_writes_is_seen(tmp_path: Path) -> None:
    """A view from outside sees each new batch and segment of a growing log, and no half-written batch."""
    view = OutsideView(Disk(), tmp_path)
    assert (seen(view), view.ends()) == ([], (0, 0, 0))
    first, second = tmp_path / f"{0:020}.log", tmp_path / f"{3:020}.log"
    first.write_bytes(a_batch(0) + a_batch(1)[:-1])
    assert (seen(view), view.ends()) == ([0], (0, 1, 1))
    first.write_bytes(a_batch(0) + a_batch(1) + a_batch(2))
    assert seen(view) == [0, 1, 2]
    second.write_bytes(b"")
    assert (seen(view), view.ends()) == ([0, 1, 2], (0, 3, 3))
    second.write_bytes(a_batch(3))
    assert (seen(view), view.ends()) == ([0, 1, 2, 3], (0, 4, 4))


@pytest.mark.parametrize("left", [[2], [0, 5], [], [1, 2, 3, 4, 5, 6, 8]])
def test_what_somebody_else_compacts_is_seen_anew(tmp_path: Path, left: list[int]) -> None:
    """A view reads a compacted file anew, whether it is shorter or longer than the old one."""
    view = OutsideView(Disk(), tmp_path)
    first, second = tmp_path / f"{0:020}.log", tmp_path / f"{9:020}.log"
    first.write_bytes(b"".join(a_batch(number) for number in range(3)))
    assert seen(view) == [0, 1, 2]
    first.write_bytes(b"".join(map(a_batch, left)))
    second.write_bytes(a_batch(9))
    assert (seen(view), view.end) == ([*left, 9], 10)


def test_a_segment_that_goes_while_it_is_looked_at_is_an_error(tmp_path: Path) -> None:
    """A segment that goes during a look raises the disk's error; the next look sees the new files."""

    class Vanishing(Disk):
        def list_folder(self, folder: Path) -> list[str]:
            names = super().list_folder(folder)
            (folder / f"{0:020}.log").unlink(missing_ok=True)
            return names

    (tmp_path / f"{0:020}.log").write_bytes(a_batch(0))
    (tmp_path / f"{3:020}.log").write_bytes(a_batch(3))
    view = OutsideView(Vanishing(), tmp_path)
    with pytest.raises(FileNotFoundError):
        view.look()
    assert seen(view) == [3]


def written(producer_id: int, number: int) -> bytes:
    """Return a batch of a producer's transaction in a group's partition."""
    return encode_batch(Batch([Record(b"key", b"x", 1_000)], producer_id, 0), number, 0)


def ended(producer_id: int, number: int, *, is_commit: bool) -> bytes:
    """Return the marker of its end."""
    return encode_batch(marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, wall_ms=0), number, 0)


def known(view: OutsideView) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
    """Return the open transactions, and the aborted ones with their markers."""
    view.look()
    return view.open, [(each.producer_id, each.first_offset, each.marker_offset) for each in view.aborted]


def test_transactions_of_somebody_else_are_seen(tmp_path: Path) -> None:
    """A view from outside knows the last stable offset and the aborted transactions of a growing log."""
    view = OutsideView(Disk(), tmp_path)
    first, second = tmp_path / f"{0:020}.log", tmp_path / f"{3:020}.log"
    first.write_bytes(a_batch(0) + written(7, 1) + written(8, 2))
    assert known(view) == ({7: 1, 8: 2}, [])
    assert view.ends() == (0, 3, 1)
    second.write_bytes(ended(7, 3, is_commit=True))
    assert known(view) == ({8: 2}, [])
    assert view.ends() == (0, 4, 2)
    second.write_bytes(ended(7, 3, is_commit=True) + ended(8, 4, is_commit=False) + ended(9, 5, is_commit=False))
    assert known(view) == ({}, [(8, 2, 4)])
    assert view.ends() == (0, 6, 6)
    assert [each.first_offset for each in view.aborted_within(0, 1)] == [2]


def test_transactions_are_known_once_when_somebody_compacts(tmp_path: Path) -> None:
    """Where a file is read anew, so are its transactions: those before it stay, and none is there twice."""
    view = OutsideView(Disk(), tmp_path)
    files = [tmp_path / f"{number:020}.log" for number in (0, 3, 6, 9)]
    files[0].write_bytes(written(6, 0) + ended(6, 1, is_commit=False) + written(7, 2))
    files[1].write_bytes(a_batch(3) + written(8, 4) + ended(7, 5, is_commit=False))
    files[2].write_bytes(written(9, 6) + ended(9, 7, is_commit=False) + ended(8, 8, is_commit=True))
    files[3].write_bytes(written(7, 9))
    found = known(view)
    assert found == ({7: 9}, [(6, 0, 1), (7, 2, 5), (9, 6, 7)])
    files[1].write_bytes(written(8, 4) + ended(7, 5, is_commit=False))
    assert known(view) == found
    files[1].write_bytes(written(8, 4) + ended(7, 5, is_commit=False) + ended(8, 8, is_commit=True))
    files[2].unlink()
    assert known(view) == ({7: 9}, [(6, 0, 1), (7, 2, 5)])


def test_a_joined_file_opens_no_transaction_again(tmp_path: Path) -> None:
    """A file that got the batches of the next one didn't grow: the marker of one of them is in a later file."""
    view = OutsideView(Disk(), tmp_path)
    files = [tmp_path / f"{number:020}.log" for number in (0, 3, 6)]
    files[0].write_bytes(a_batch(0))
    files[1].write_bytes(written(7, 3))
    files[2].write_bytes(ended(7, 6, is_commit=True))
    assert known(view) == ({}, [])
    files[0].write_bytes(a_batch(0) + written(7, 3))
    files[1].unlink()
    assert known(view) == ({}, [])


def test_transactions_are_known_once_after_a_failed_look(tmp_path: Path) -> None:
    """A look that fails in a segment leaves those before it known, and the next look reads on from there."""

    class Failing(Disk):
        fails = False

        def read(self, descriptor: int, size: int, position: int) -> bytes:
            if self.fails and self.size(descriptor) > 200:
                raise OSError(5, "Input/output error")
            return super().read(descriptor, size, position)

    disk = Failing()
    view = OutsideView(disk, tmp_path)
    (tmp_path / f"{0:020}.log").write_bytes(written(7, 0) + ended(7, 1, is_commit=False))
    second = tmp_path / f"{2:020}.log"
    second.write_bytes(written(8, 2) + ended(8, 3, is_commit=False))
    found = known(view)
    assert found == ({}, [(7, 0, 1), (8, 2, 3)])
    second.write_bytes(written(8, 2) + ended(8, 3, is_commit=False) + written(9, 4))
    disk.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        view.look()
    disk.fails = False
    assert known(view) == ({9: 4}, found[1])
