"""Folders of topic partitions in the data folder: the topic that owns a folder, and how a folder is renamed.

A folder is named for its topic and partition. A topic that is deleted and created again has the same name but another
id. The file `partition.metadata`, which Kafka keeps as well, holds the id of the owner. Only the topic with that id may
give up the folder.

    orders-0                        the topic's
    .<chance>-delete                of a deleted topic, to be removed
    orders-0.<chance>-stray         of a topic that isn't in the list: kept as Kafka does, under a name that isn't read

House rule: one rename takes a name away; then the folder is synced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from coordinator.log.engine import Damaged
from coordinator.log.files import read_regular
from coordinator.log.segments.disk import Disk
from coordinator.log.topics.list import Topic, kafka_id

OWNER_NAME = "partition.metadata"
DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
NAME_KEPT = 200
"""A new name begins with so many characters of the old one; the rest of it still fits a file name."""

INTERNAL = "__"
"""The names of internal topics begin with this."""

_FOLDER_NAME = re.compile(r"(.+)-([0-9]+)")


def partitions_of(data_dir: Path, topic: str) -> int:
    """The number of partitions that a topic's folders suggest: one more than the highest number, or 0."""
    numbers = [folder.name.removeprefix(f"{topic}-") for folder in data_dir.glob(f"{topic}-*")]
    return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)


def owner_of(folder: Path) -> str | None:
    """The id of the topic that owns the folder, as Kafka writes ids; None without a file. Raises Damaged, OSError."""
    try:
        lines = read_regular(folder / OWNER_NAME, flags=os.O_NOFOLLOW).decode("ascii").splitlines()
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Damaged(str(folder / OWNER_NAME), 0, "it doesn't say whose folder this is") from error
    return next((line.partition(": ")[2] for line in lines if line.startswith("topic_id: ")), None)


def is_anothers(folder: Path, topic_id: UUID) -> bool:
    """Whether the folder's `partition.metadata` names another topic. Raises Damaged, OSError."""
    owner = owner_of(folder)
    return owner is not None and owner != kafka_id(topic_id)


def set_aside_deleted(disk: Disk, folder: Path, topic_id: UUID) -> None:
    """Rename the folder for its removal, durably, if that topic owns it. Raises Damaged, OSError."""
    if folder.exists() and not is_anothers(folder, topic_id):
        disk.rename(folder, folder.with_name(f".{os.urandom(8).hex()}{DELETED_SUFFIX}"))
        disk.sync_folder(folder.parent)


def set_aside_stray(disk: Disk, folder: Path) -> Path:
    """Rename the folder so that no log reads it; return the new path. Raises OSError."""
    stray = folder.with_name(f"{folder.name[:NAME_KEPT]}.{os.urandom(8).hex()}{STRAY_SUFFIX}")
    disk.rename(folder, stray)
    disk.sync_folder(folder.parent)
    return stray


def find_strays(disk: Disk, data_dir: Path, topics: Iterable[Topic]) -> list[Path]:
    """The folders with a `partition.metadata` that belong to no topic in `topics`, by name. Raises OSError.

    Internal topics, ours and Kafka's, are in no list; their folders aren't strays.
    """
    counts = {topic.name: topic.partition_count for topic in topics}
    strays = []
    for name in sorted(disk.list_folder(data_dir)):
        found = None if name.startswith(INTERNAL) else _FOLDER_NAME.fullmatch(name)
        if found and int(found[2]) >= counts.get(found[1], 0) and (data_dir / name / OWNER_NAME).exists():
            strays.append(data_dir / name)
    return strays


def deleted_folders(disk: Disk, data_dir: Path) -> list[Path]:
    """Return the folders of deleted topics, which may be removed. Raises OSError."""
    names = disk.list_folder(data_dir)
    return [data_dir / name for name in names if name.startswith(".") and name.endswith(DELETED_SUFFIX)]
