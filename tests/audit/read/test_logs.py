"""Files become ranges and ranges become pieces, the same ones for any range size and any damage."""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.audit.read import logs
from coordinator.audit.read.columns import read_tables
from coordinator.audit.read.logs import (
    ROOM,
    FilePart,
    Piece,
    Replaced,
    look,
    pieces,
    plan,
    read_into,
    read_range,
)
from coordinator.log.files import read_regular
from coordinator.log.segments import damage
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.outside import BATCH_READ_MAX
from coordinator.log.segments.swap import cleaned_path, swap_in
from protocol.checksum import crc32c
from tests.audit.scenes import PARTITION_COUNT, Scene, clean


def pieces_of(path: Path, range_size: int) -> list[Piece]:
    """Return the pieces of all ranges of a log."""
    return [piece for of in plan(path, range_size=range_size).ranges for piece in read_range(of)[1]]


def sizes(scene: Scene) -> list[tuple[int, int]]:
    """Return the start and the end of each batch of a scene."""
    ends = [sum(map(len, scene.batches[:number])) for number in range(len(scene.batches) + 1)]
    return list(pairwise(ends))


@pytest.mark.parametrize("range_size", [1, 500, 10**6])
def test_ranges_together_are_the_file(scene: Scene, tmp_path: Path, range_size: int) -> None:
    """The ranges have each batch once, in order."""
    found = pieces_of(scene.write(tmp_path), range_size)
    assert [(piece.position, piece.end) for piece in found] == sizes(scene)
    assert {piece.reason for piece in found} == {None}


def test_plan_says_what_a_range_can_not_know(tmp_path: Path) -> None:
    """The plan gives each range the sizes, the partitions, the newest segment and the ends of transactions."""
    scene = clean().transacted(3, producer_id=7)
    scene.end_transaction(7, committed=True).transacted(4, producer_id=7).end_transaction(7, committed=False)
    later = Scene(base_offset=scene.next_offset).commit(99)
    later.write(scene.write(tmp_path))
    for partition in range(1, PARTITION_COUNT):
        (tmp_path / f"__consumer_offsets-{partition}").mkdir()
    planned = plan(tmp_path)
    assert planned.sizes == {0: sum(map(len, [*scene.batches, *later.batches]))} | dict.fromkeys(
        range(1, PARTITION_COUNT), 0
    )
    assert planned.partition_count == PARTITION_COUNT
    assert planned.uncleaned_from == {0: later.base_offset}
    first = scene.next_offset - 4
    assert planned.markers == {0: {7: [(first + 1, True), (first + 3, False)]}}
    assert planned.counts(0, 7, first)
    assert not planned.counts(0, 7, first + 2)
    assert not planned.counts(0, 7, first + 4)
    assert not planned.counts(0, 8, first)


def test_partitions_that_others_have_are_not_counted(tmp_path: Path) -> None:
    """A folder of a broker doesn't show the number of partitions: the broker may have replicas of only some."""
    clean().write(tmp_path)
    (tmp_path / "__consumer_offsets-7").mkdir()
    assert plan(tmp_path).partition_count is None


def test_folder_of_a_partition_is_a_log(tmp_path: Path) -> None:
    """The folder of one partition is a log, and doesn't show the number of partitions."""
    folder = clean().write(tmp_path) / "__consumer_offsets-0"
    planned = plan(folder)
    assert list(planned.sizes) == [0]
    assert planned.partition_count is None
    assert plan(folder, 4).partition_count == 4


def test_range_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range has an absolute path, because the workers of Spark run in another folder."""
    clean().write(tmp_path / "log")
    monkeypatch.chdir(tmp_path)
    planned = [*plan(Path("log")).ranges, *plan(Path("log/__consumer_offsets-0")).ranges]
    monkeypatch.chdir("/")
    first, second = [read_range(each)[1] for each in planned]
    assert first == second
    assert len(first) == len(clean().batches)


def test_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    """A folder without a log is an error, never a result without findings."""
    with pytest.raises(FileNotFoundError):
        plan(tmp_path)
    with pytest.raises(FileNotFoundError):
        plan(tmp_path / "nowhere")


def test_batch_behind_damage_is_found(scene: Scene, tmp_path: Path) -> None:
    """A wrong length costs one batch; the audit reads the batches behind it."""
    scene.batches[2] = scene.batches[2][:8] + b"\x7f\xff\xff\xff" + scene.batches[2][12:]
    found = pieces_of(scene.write(tmp_path), 1)
    assert [(piece.position, piece.end) for piece in found] == sizes(scene)
    assert [number for number, piece in enumerate(found) if piece.reason] == [2]


def test_zeros_behind_the_end_are_no_batch(scene: Scene, tmp_path: Path) -> None:
    """Zeros at the end of a file are one piece and no batch."""
    scene.batches.append(b"\0" * 3_000_000)
    found = pieces_of(scene.write(tmp_path), 10**6)
    assert [(piece.position, piece.end) for piece in found] == sizes(scene)
    assert found[-1].reason == ROOM


def test_random_bytes_are_passed_over_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A false header in random bytes doesn't make the audit compute a CRC over the length that it claims."""
    taken = 0

    def counting(data: bytes, crc: int = 0) -> int:
        nonlocal taken
        taken += len(data)
        return crc32c(data, crc)

    monkeypatch.setattr(damage, "crc32c", counting)
    size = 20_000_000
    scene = clean()
    scene.batches.append(random.Random(1).randbytes(size))
    found = pieces_of(scene.write(tmp_path), 10**9)
    assert [piece.end - piece.position for piece in found if piece.reason] == [size]
    assert taken < size


def test_bytes_that_are_no_batch_are_not_held(scene: Scene, tmp_path: Path) -> None:
    """Many bytes between batches don't make a range large; the range keeps only their position and size."""
    claims = bytearray(scene.batches[0])
    claims[8:12] = (BATCH_READ_MAX + 1).to_bytes(4, "big")
    scene.batches[4:4] = [bytes(claims) + b"\0" * (BATCH_READ_MAX + 1)]
    of_file = plan(scene.write(tmp_path), range_size=10**6).ranges
    assert [each.end - each.start > 10**6 for each in of_file] == [False, True, False]
    (gap,) = of_file[1].gaps
    assert (gap.position, gap.end) == (of_file[1].start, of_file[1].end)
    assert gap.reason == f"a batch of {BATCH_READ_MAX + 13} bytes, {BATCH_READ_MAX} allowed"
    window, found = read_range(of_file[1])
    assert (window.data, found) == (b"", [gap])


def test_small_gaps_are_part_of_a_range(scene: Scene, tmp_path: Path) -> None:
    """Small gaps are parts of a range, so that a file with many gaps has no more ranges than another."""
    scene.batches = [part for batch in scene.batches for part in (batch, b"???")]
    (of,) = plan(scene.write(tmp_path)).ranges
    assert len(of.gaps) == len(scene.batches) // 2
    assert read_range(of)[1] == pieces_of(tmp_path, 1)


def test_compaction_that_was_interrupted_is_taken_as_finished(scene: Scene, tmp_path: Path) -> None:
    """After an interrupted compaction the audit reads the new segment and ignores the ones that it replaces."""
    folder = scene.segment_path(scene.write(tmp_path)).parent
    Scene(base_offset=scene.next_offset).commit(99).write(tmp_path)
    kept = b"".join(scene.batches[3:])
    cleaned_path(folder, 0).write_bytes(kept)
    next(swap_in(Disk(), folder, 0, scene.next_offset))
    first, last = plan(tmp_path).ranges
    assert (first.segment, last.segment) == (0, scene.next_offset)
    assert read_range(first)[0].data == kept


def test_file_that_was_replaced_is_not_read(scene: Scene, tmp_path: Path) -> None:
    """If a file was replaced, removed, cut or changed after the plan, the audit doesn't read it as planned."""
    path = scene.segment_path(scene.write(tmp_path))
    (of,) = plan(tmp_path).ranges
    whole = path.read_bytes()
    read = bytearray(of.end)
    read_into(of, memoryview(read))
    assert read == whole
    path.write_bytes(whole[len(scene.batches[0]) :])
    with pytest.raises(Replaced):
        read_range(of)
    path.write_bytes(b"\0" * len(whole))
    for reader in (read_range, lambda range_: list(read_tables(range_))):
        with pytest.raises(Replaced):
            reader(of)
    path.write_bytes(whole)
    read_range(of)
    path.rename(path.with_suffix(".old"))
    with pytest.raises(Replaced):
        read_range(of)
    path.write_bytes(whole)
    with pytest.raises(Replaced):
        read_range(of)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_ranges_change_nothing_about_damage(tmp_path: Path, data: st.DataObject) -> None:
    """The pieces of a damaged file don't depend on the size of the ranges."""
    whole = bytearray(b"".join(clean().batches))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if kind == "flip":
            whole[at] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del whole[at : at + data.draw(st.integers(1, 200))]
        else:
            whole[at:at] = data.draw(st.binary(min_size=1, max_size=100))
    scene = Scene()
    scene.batches = [bytes(whole)]
    scene.write(tmp_path)
    as_one = pieces_of(tmp_path, 10**9)
    assert pieces_of(tmp_path, 1) == as_one
    assert [piece.position for piece in as_one[1:]] == [piece.end for piece in as_one[:-1]]
    assert as_one[-1].end == len(whole)


def test_window_moves_on_and_back(scene: Scene, tmp_path: Path) -> None:
    """The window returns the same bytes with small chunks as with one large chunk."""
    path = scene.segment_path(scene.write(tmp_path))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = path.stat().st_size
        small = list(pieces(FilePart(descriptor, size, 64), 0, size))
        assert small == list(pieces(FilePart(descriptor, size), 0, size))
        window = FilePart(descriptor, size, 64)
        last = window.index(size - 10, 10)
        assert window.data[last : last + 10] == path.read_bytes()[-10:]
        first = window.index(0, 10)
        assert window.data[first : first + 10] == path.read_bytes()[:10]
    finally:
        os.close(descriptor)


def test_checkpoint_is_read_once_for_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a broker's folder is linear; a checkpoint that the broker replaced is read again."""
    read: list[Path] = []

    def counted(path: Path, size_max: int) -> bytes:
        read.append(path)
        return read_regular(path, size_max)

    monkeypatch.setattr(logs, "read_regular", counted)
    for partition in range(3):
        for base_offset in (0, 5):
            Scene(partition, base_offset).commit(5).write(tmp_path)
    for number in (0, 3):
        new = tmp_path / "new"
        new.write_text("0\n3\n" + "".join(f"__consumer_offsets {partition} {number}\n" for partition in range(3)))
        new.replace(tmp_path / "cleaner-offset-checkpoint")
        assert plan(tmp_path).uncleaned_from == dict.fromkeys(range(3), number)
    assert len(read) == 2


@pytest.mark.parametrize("line", ["__consumer_offsets 0 " + "9" * 5_000, "\xff", "__consumer_offsets 0 \u0661"])
def test_checkpoint_that_says_nothing_costs_nothing(tmp_path: Path, line: str) -> None:
    """A line that isn't a broker's is passed over, whatever it is."""
    Scene(0).commit(5).write(tmp_path)
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\n{line}\n", encoding="latin-1", errors="replace")
    assert plan(tmp_path).uncleaned_from == {0: 0}


@pytest.mark.parametrize("odd", ["fifo", "sparse"])
def test_checkpoint_that_is_no_file_is_not_read(tmp_path: Path, odd: str) -> None:
    """The audit reads a folder as if it had no checkpoint, if a fifo has its name, or it has 8 GB."""
    for base_offset in (0, 5):
        Scene(0, base_offset).commit(5).write(tmp_path)
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    if odd == "fifo":
        os.mkfifo(checkpoint)
    else:
        checkpoint.write_text("0\n1\n__consumer_offsets 0 3\n")
        os.truncate(checkpoint, 2**33)
    assert plan(tmp_path).uncleaned_from == {0: 5}


def test_only_partitions_of_a_log_count(tmp_path: Path) -> None:
    """A folder or a lock whose number is no partition's is passed over: it would fit no table."""
    Scene(0).commit(5).write(tmp_path)
    for name in (f"__consumer_offsets-{10**23}", "__consumer_offsets-01"):
        (tmp_path / name).mkdir()
    (tmp_path / f".lock-{10**23}").touch()
    planned = plan(tmp_path)
    assert (list(planned.sizes), planned.partition_count) == ([0], PARTITION_COUNT)


def test_folder_with_locks_is_tenures(tmp_path: Path) -> None:
    """A log with Tenure's lock files is no copy of another broker's; nor is the log of one of its partitions."""
    clean().write(tmp_path / "ours")
    clean().write(tmp_path / "theirs", 0)
    folders = [tmp_path / name / part for name in ("ours", "theirs") for part in ("", "__consumer_offsets-0")]
    assert [look(folder).is_replica for folder in folders] == [False, False, True, True]
