"""Folders of topic partitions in the data folder: whose one is, and taking its name away.

A folder is named for its topic and partition, and a topic that is deleted and created again has the same name but
another id. Whose a folder is stands in `partition.metadata`, which Kafka keeps as well. Only the topic whose id it has
may give it up.

    orders-0                        the topic's
    .<chance>-delete                of a topic that was deleted: nobody's, to be removed
    orders-0.<chance>-stray         of a topic that isn't in the list: kept as Kafka does, where nobody reads it

House rule: a name is taken away by one rename, and then it is durable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.topics.list import Topic, kafka_id

OWNER_NAME = "partition.metadata"
DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
NAME_KEPT = 200
"""Characters of a folder's name that its new one begins with: what comes behind still fits a file name."""

INTERNAL = "__"
"""What the names of internal topics begin with."""

_FOLDER_NAME = re.compile(r"(.+)-([0-9]+)")


def folder_of(data_dir: Path, topic: str, partition: int) -> Path:
    """Return the folder of a topic partition."""
    return data_dir / f"{topic}-{partition}"


def partitions_of(data_dir: Path, topic: str) -> int:
    """How many partitions of a topic there are room for in its folders: one more than the highest number, or 0."""
    numbers = [folder.name.removeprefix(f"{topic}-") for folder in data_dir.glob(f"{topic}-*")]
    return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)


def owner_of(folder: Path) -> str | None:
    """The id of the topic whose folder it is, as Kafka writes ids; None if nothing says so. Raises Damaged, OSError."""
    try:
        lines = (folder / OWNER_NAME).read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Damaged(str(folder / OWNER_NAME), 0, "it doesn't say whose folder this is") from error
    return next((line.partition(": ")[2] for line in lines if line.startswith("topic_id: ")), None)


def is_anothers(folder: Path, topic_id: UUID) -> bool:
    """Whether its `partition.metadata` names another topic. Raises Damaged, OSError."""
    owner = owner_of(folder)
    return owner is not None and owner != kafka_id(topic_id)


def set_aside_deleted(disk: Disk, folder: Path, topic_id: UUID) -> None:
    """Let the folder be nobody's, durably, if it is that topic's. Raises Damaged, OSError."""
    if folder.exists() and not is_anothers(folder, topic_id):
        disk.rename(folder, folder.with_name(f".{os.urandom(8).hex()}{DELETED_SUFFIX}"))
        disk.sync_folder(folder.parent)


def set_aside_stray(disk: Disk, folder: Path) -> Path:
    """Keep it under a name that nobody reads, which is returned. Raises OSError."""
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
