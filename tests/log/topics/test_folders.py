"""Tests folders of topic partitions: a topic gives up only its own folders, and strays are found."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import partition_folder
from coordinator.log.topics.folders import (
    OWNER_NAME,
    deleted_folders,
    find_strays,
    is_anothers,
    owner_of,
    set_aside_deleted,
    set_aside_stray,
)
from coordinator.log.topics.list import Topic, kafka_id

OURS, THEIRS = UUID(int=1), UUID(int=2)


def made(data_dir: Path, name: str, topic_id: UUID | None = OURS) -> Path:
    """Make a folder with or without its topic's id."""
    (data_dir / name).mkdir()
    if topic_id is not None:
        (data_dir / name / OWNER_NAME).write_text(f"version: 0\ntopic_id: {kafka_id(topic_id)}\n")
    return data_dir / name


def test_whose_a_folder_is(tmp_path: Path) -> None:
    """A folder belongs to the topic whose id it has, or to any if it has none; a damaged id raises Damaged."""
    assert owner_of(made(tmp_path, "a-0")) == kafka_id(OURS)
    assert [is_anothers(tmp_path / "a-0", each) for each in (OURS, THEIRS)] == [False, True]
    assert owner_of(made(tmp_path, "a-1", None)) is None
    assert not is_anothers(tmp_path / "a-1", OURS)
    assert not is_anothers(tmp_path / "absent-0", OURS)
    (tmp_path / "a-0" / OWNER_NAME).write_bytes(b"topic_id: \xff\n")
    with pytest.raises(Damaged):
        owner_of(tmp_path / "a-0")


def test_a_topic_gives_up_its_own_folder_only(tmp_path: Path) -> None:
    """A topic sets aside all of its folders for removal, and none of another topic."""
    for name, topic_id in (("a-0", OURS), ("a-1", THEIRS), ("a-2", None)):
        made(tmp_path, name, topic_id)
    for partition in range(4):
        set_aside_deleted(Disk(), partition_folder(tmp_path, partition, "a"), OURS)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["a-1"]
    assert len(deleted_folders(Disk(), tmp_path)) == 2


def test_a_stray_is_kept(tmp_path: Path) -> None:
    """A stray folder is kept under another name, even if its name is long."""
    folder = made(tmp_path, "x" * 249 + "-0")
    stray = set_aside_stray(Disk(), folder)
    assert list(tmp_path.iterdir()) == [stray]
    assert owner_of(stray) == kafka_id(OURS)
    assert find_strays(Disk(), tmp_path, []) == []


def test_strays_are_found(tmp_path: Path) -> None:
    """The search finds folders of no topic, and partitions that a topic doesn't have, but no internal topic's."""
    for name in ("a-0", "a-2", "a-b-1", "gone-0", "__consumer_offsets-0", "note"):
        made(tmp_path, name)
    made(tmp_path, "plain-0", None)
    (tmp_path / "file-0").write_text("")
    topics = [Topic("a", OURS, 2), Topic("a-b", THEIRS, 2)]
    assert [path.name for path in find_strays(Disk(), tmp_path, topics)] == ["a-2", "gone-0"]
