"""A stream over a growing log gives each whole batch once, whatever happens to the files in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.audit.read.tables import to_rows
from coordinator.audit.spark.split import RAW
from coordinator.audit.spark.tail import Offset, TailReader
from tests.audit.scenes import Scene
from tests.support.batches import old_messages

pytestmark = pytest.mark.spark


class Following:
    """A reader with the pieces of its last look; `restart` loses all but the checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = TailReader(folder, RAW)
        self._offset: Offset = self._reader.initialOffset()

    def look(self) -> list[bytes]:
        """Return the new pieces, as Spark would ask for them."""
        end = json.loads(json.dumps(self._reader.latestOffset()))
        splits = self._reader.partitions(self._offset, end)
        self._offset = end
        return [row[3] for split in splits for batch in self._reader.read(split) for row in to_rows(batch)]

    def restart(self) -> None:
        """Lose everything but the checkpoint, as in a crash."""
        self._reader = TailReader(self._folder, RAW)


def made(count: int, base_offset: int = 0) -> Scene:
    """Make that many batches of one commit."""
    scene = Scene(base_offset=base_offset)
    for number in range(count):
        scene.commit(number)
    return scene


def test_only_what_is_new_is_given(tmp_path: Path) -> None:
    """The stream gives only new batches; without any it gives nothing."""
    scene = made(3)
    following = Following(scene.write(tmp_path))
    assert following.look() == scene.batches
    assert following.look() == []
    scene.commit(7).write(tmp_path)
    assert following.look() == scene.batches[3:]


def test_half_written_batch_waits(tmp_path: Path) -> None:
    """A batch is given when its CRC is correct, not when its bytes are there."""
    scene = made(2)
    whole = scene.batches[1]
    scene.batches[1] = whole[:40]
    following = Following(scene.write(tmp_path))
    assert following.look() == scene.batches[:1]
    scene.batches[1] = whole[:-3] + b"\0\0\0"
    scene.write(tmp_path)
    assert following.look() == []
    scene.batches[1] = whole
    scene.write(tmp_path)
    assert following.look() == [whole]


def test_damage_in_the_middle_is_passed_on(tmp_path: Path) -> None:
    """A damaged batch is passed on as soon as another batch stands behind it."""
    scene = made(3)
    scene.batches[1] = scene.batches[1][:-3] + b"\0\0\0"
    assert Following(scene.write(tmp_path)).look() == scene.batches


def test_messages_of_an_older_format_are_passed_on(tmp_path: Path) -> None:
    """Messages of an older format are passed on at the end of the log too, because their CRC proves them complete."""
    scene = made(2)
    scene.raw(old_messages(1, 2), 2)
    following = Following(scene.write(tmp_path))
    assert following.look() == [*scene.batches[:2], b""]
    scene.commit(2).write(tmp_path)
    assert following.look() == scene.batches[3:]


def test_new_segments_and_partitions_are_found(tmp_path: Path) -> None:
    """The stream finds new segments and partitions at any look."""
    scene = made(2)
    following = Following(scene.write(tmp_path))
    following.look()
    scene.commit(2).write(tmp_path)
    later, other = made(2, base_offset=3), made(1)
    other.partition = 3
    later.write(tmp_path)
    other.write(tmp_path)
    assert following.look() == [scene.batches[2], *later.batches, *other.batches]


def test_crash_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """After a crash the stream goes on from its checkpoint, without loss and without repetition."""
    scene = made(2)
    following = Following(scene.write(tmp_path))
    following.look()
    scene.commit(2).write(tmp_path)
    following.restart()
    assert following.look() == scene.batches[2:]


@pytest.mark.parametrize("keeps_segment", [True, False])
def test_compaction_in_between_repeats_nothing(tmp_path: Path, keeps_segment: bool) -> None:
    """After a compaction replaced or joined files, the stream goes on at its offset."""
    first, second = made(4), made(4, base_offset=4)
    following = Following(first.write(tmp_path))
    second_half = second.batches[2:]
    del second.batches[2:]
    second.write(tmp_path)
    following.look()
    second.batches += second_half
    third = made(1, base_offset=8)
    third.write(tmp_path)
    # The compaction keeps the last batch of the first segment and all of the second, in one file or in two.
    path = first.segment_path(tmp_path)
    path.unlink()
    path.write_bytes(b"" if keeps_segment else b"".join([first.batches[3], *second.batches]))
    path = second.segment_path(tmp_path)
    path.unlink()
    if keeps_segment:
        path.with_suffix(".new").write_bytes(b"".join(second.batches[1:]))
        path.with_suffix(".new").rename(path)
    assert following.look() == [*second_half, *third.batches]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 1200), max_size=12), restarts=st.sets(st.integers(0, 12)))
def test_each_batch_is_given_once(tmp_path: Path, cuts: list[int], restarts: set[int]) -> None:
    """The stream gives each batch once, whichever batches are new at each look."""
    scene = made(8)
    data = b"".join(scene.batches)
    path = scene.segment_path(scene.write(tmp_path))
    path.unlink()
    path.touch()
    following = Following(tmp_path)
    given: list[bytes] = []
    for number, size in enumerate([*sorted(cuts), len(data)]):
        with path.open("r+b") as file:
            file.write(data[:size])
        if number in restarts:
            following.restart()
        given += following.look()
    assert given == scene.batches
