"""Files of a log: found in each kind of folder, read on behind damage, and never written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cli.log.files import Gap, find_logs, read_file
from coordinator.log.segment import Frame
from protocol.record_batch import encode_batch
from tests.cli.log.conftest import group_of, offset_of, write_segment

BATCHES = [
    encode_batch([group_of("a")], 0, 1),
    encode_batch([offset_of("a"), offset_of("b")], 1, 1),
    encode_batch([group_of("b")], 3, 2),
]


def positions(path: Path) -> list[tuple[str, int]]:
    """What is found in a file, and where."""
    return [("batch" if isinstance(found, Frame) else "gap", found.position) for found in read_file(path)]


def test_logs_are_found_in_each_kind_of_path(data_dir: Path) -> None:
    """A data folder has its partitions in order; a partition's folder and a segment are logs by themselves."""
    (data_dir / "orders-0").mkdir()
    (data_dir / "__consumer_offsets-1" / "00000000000000000000.index").touch()
    assert [log.partition for log in find_logs(data_dir)] == [0, 1, 2, 3]
    folder = data_dir / "__consumer_offsets-2"
    assert [(log.partition, len(log.segments)) for log in find_logs(folder)] == [(2, 2)]
    (log,) = find_logs(folder / "00000000000000000004.log")
    assert (log.partition, [segment.base_offset for segment in log.segments]) == (2, [4])


def test_where_there_is_no_log_the_system_says_so(tmp_path: Path) -> None:
    """A path that isn't there, and a folder without a partition, raise OSError."""
    with pytest.raises(FileNotFoundError):
        find_logs(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="no __consumer_offsets"):
        find_logs(tmp_path)


def test_reading_goes_on_behind_damage(tmp_path: Path) -> None:
    """A flipped bit hides its own batch only, in a length too."""
    first, second, _third = map(len, BATCHES)
    for position in (first + 40, first + 9):
        path = write_segment(tmp_path, 0, BATCHES)
        content = bytearray(path.read_bytes())
        content[position] ^= 4
        path.write_bytes(content)
        assert positions(path) == [("batch", 0), ("gap", first), ("batch", first + second)]
        gap = next(found for found in read_file(path) if isinstance(found, Gap))
        assert (gap.end, gap.at_end) == (first + second, False)


def test_torn_tail_is_told_from_a_whole_batch(tmp_path: Path) -> None:
    """At the end of a file: a cut batch is torn, one whose length alone is wrong is whole."""
    path = write_segment(tmp_path, 0, [*BATCHES[:2], BATCHES[2][:-1]])
    *_, torn = read_file(path)
    assert isinstance(torn, Gap)
    assert (torn.at_end, torn.whole, torn.end) == (True, False, path.stat().st_size)
    long = bytearray(BATCHES[2])
    long[11] ^= 1
    *_, whole = read_file(write_segment(tmp_path, 0, [*BATCHES[:2], bytes(long)]))
    assert isinstance(whole, Gap)
    assert (whole.at_end, whole.whole) == (True, True)


@given(st.lists(st.binary(max_size=80) | st.sampled_from(BATCHES), max_size=6))
def test_all_bytes_are_covered_once(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    """Whatever a file holds, batches and gaps follow each other without a hole, and nothing is raised."""
    path = write_segment(tmp_path_factory.mktemp("random"), 0, parts)
    at = 0
    for found in read_file(path):
        assert found.position == at
        at = found.end if isinstance(found, Gap) else at + found.header.size
    assert at == path.stat().st_size
