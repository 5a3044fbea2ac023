"""meta.properties of the data folder: whose it is, under the names that Kafka uses, so that Kafka can take it over.

The cluster id is made once, at the first start, and stays. A folder is refused to a server with another node id, or
with another number of partitions of `__consumer_offsets`: its groups would be looked for on partitions they are not on.

House rule: for whoever holds the lock of the folder.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from coordinator.config import ConfigError, parse_properties
from coordinator.log.disk import Disk, write_all

if TYPE_CHECKING:
    from coordinator.config import Config

FILE_NAME = "meta.properties"
PARTITIONS = "tenure.offsets.topic.num.partitions"


def claim_folder(data_dir: Path, config: Config, fresh_id: Callable[[], UUID]) -> str:
    """The cluster id of the folder, which is from now on that of the server that `config` describes.

    Raises ConfigError if it is another's already, OSError if it can't be read or written.
    """
    path = data_dir / FILE_NAME
    held = parse_properties(path.read_text(encoding="latin-1")) if path.exists() else {}
    for key, name, value in (
        ("node.id", "node.id", config.node_id),
        (PARTITIONS, "offsets.topic.num.partitions", config.offsets_topic_num_partitions),
    ):
        if held.get(key, str(value)) != str(value):
            raise ConfigError(f"{name}: {value}, but the data folder {data_dir} was made with {held[key]}")
    meant = {
        "version": "1",
        "cluster.id": held.get("cluster.id") or kafka_id(fresh_id()),
        "node.id": str(config.node_id),
        "directory.id": held.get("directory.id") or kafka_id(fresh_id()),
        PARTITIONS: str(config.offsets_topic_num_partitions),
    }
    if held != held | meant:
        _replace(path, held | meant)
    return meant["cluster.id"]


def noted_partition_count(data_dir: Path) -> int | None:
    """How many partitions of `__consumer_offsets` the folder was made with, None if it doesn't say. Raises OSError."""
    path = data_dir / FILE_NAME
    noted = parse_properties(path.read_text(encoding="latin-1")).get(PARTITIONS, "") if path.exists() else ""
    return int(noted) if noted.isdecimal() else None


def note_partition_count(data_dir: Path, count: int) -> None:
    """Let a folder that no server has claimed yet be for that many partitions. Raises OSError."""
    _replace(data_dir / FILE_NAME, {PARTITIONS: str(count)})


def kafka_id(fresh: UUID) -> str:
    """A UUID as Kafka writes it, in base 64; never with a dash in front, which its tools would take for an option."""
    text = urlsafe_b64encode(fresh.bytes).decode().rstrip("=")
    return f"_{text[1:]}" if text.startswith("-") else text


def _replace(path: Path, properties: dict[str, str]) -> None:
    content = "".join(f"{name}={value}\n" for name, value in properties.items()).encode("latin-1")
    disk, new_path = Disk(), path.with_suffix(".new")
    descriptor = disk.open(new_path, create=True)
    try:
        disk.truncate(descriptor, 0)
        write_all(disk, descriptor, [content], 0)
        disk.fdatasync(descriptor)
    finally:
        with suppress(OSError):  # all of it is durable, or the error is on its way
            disk.close(descriptor)
    disk.rename(new_path, path)
    disk.sync_folder(path.parent)
