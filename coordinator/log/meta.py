"""meta.properties of the data folder: the cluster and the server that own it, under the names that Kafka uses.

Kafka can read the file, and so take the folder over. The server makes the cluster id once, at the first start.

A server refuses a folder with another node id. It also refuses a folder with another number of partitions of
`__consumer_offsets`, because it would look for the groups on the wrong partitions. The same goes for
`__transaction_state`, once it has a partition. If the file is lost, the partitions' folders show the least number. A
server also refuses a broker's folder, and a folder with foreign files, before it creates anything: a mistyped path must
not become a data folder.

A server with control (tenure.control) kills itself, moves its time and empties its folder. It takes only an empty
folder, which it marks with MARKER, or one with that marker. Any other server takes the marker away with the folder.

House rule: the caller holds the lock of the folder.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from coordinator.config import TOPIC_PARTITIONS_MAX, Config, ConfigError, parse_properties
from coordinator.log.engine import Damaged
from coordinator.log.files import META_NAME, read_regular
from coordinator.log.segments.disk import FILE_MODE, Disk, replace_file
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_folder
from coordinator.log.topics.folders import partitions_of
from coordinator.log.topics.list import TOPICS_NAME, kafka_id

PARTITIONS = "tenure.offsets.topic.num.partitions"
ID_PARTITIONS = "tenure.transaction.state.log.num.partitions"
MARKER = ".made-by-control"
EMPTY_HAS = frozenset({".lock", "lost+found"})
"""Names in an empty folder: the caller's lock, and a folder of the file system."""

_KNOWN_NAMES = frozenset({META_NAME, f"{META_NAME}.new", f"{TOPICS_NAME}.new", "lost+found"})
"""Names that an unclaimed folder may contain. The file system creates the last one, at the root of a disk."""


class Claim(NamedTuple):
    """A claimed folder. lost: files that are missing although the folder was in use. is_new: nothing was kept there."""

    cluster_id: str
    lost: list[Path]
    is_new: bool


def refuse_foreign(data_dir: Path) -> None:
    """Raise ConfigError if the folder is a broker's, or contains visible files that aren't ours. Raises OSError too.

    This function creates and changes nothing. A folder whose meta.properties says that it is ours may contain any
    files.
    """
    try:
        names = sorted(path.name for path in data_dir.iterdir())
    except FileNotFoundError:
        return
    held = _read(data_dir / META_NAME)
    if (held is not None and PARTITIONS in held) or any(map(_is_mark, names)):
        return
    if held is not None and "cluster.id" in held and any(map(_is_partition, names)):
        raise ConfigError(
            f"{data_dir} is a broker's folder: `tenure log import {data_dir} --data-dir NEW` takes its groups over"
        )
    foreign = [name for name in names if not (name.startswith(".") or _is_partition(name) or name in _KNOWN_NAMES)]
    if foreign:
        raise ConfigError(f"{data_dir} is no data folder and not empty, {foreign[0]!r} is in it")


def claim_folder(data_dir: Path, config: Config, fresh_id: Callable[[], UUID]) -> Claim:
    """Make the folder belong to the server that `config` describes.

    Raises ConfigError if the folder belongs to another server, Damaged if its meta.properties is invalid, and OSError
    if a file can't be read or written.
    """
    path = data_dir / META_NAME
    held = _read_own(path)
    _mark(data_dir, config)
    if held is not None and "cluster.id" not in held and PARTITIONS not in held:
        raise Damaged(str(path), 0, "it doesn't say whose folder this is, there is no cluster.id in it")
    count, id_count = config.offsets_topic_num_partitions, config.transaction_state_log_num_partitions
    known = held or {}
    partitions, of_ids = partitions_of(data_dir, OFFSETS_TOPIC), partitions_of(data_dir, TRANSACTIONS_TOPIC)
    for key, value, name, counted, there in (
        ("node.id", config.node_id, "node.id", "", 0),
        (PARTITIONS, count, "offsets.topic.num.partitions", OFFSETS_TOPIC, partitions),
        (ID_PARTITIONS, id_count, "transaction.state.log.num.partitions", TRANSACTIONS_TOPIC, of_ids),
    ):
        if known.get(key, str(value)) != str(value) and (key != ID_PARTITIONS or of_ids):
            raise ConfigError(f"{name}: {value}, but the data folder {data_dir} was made with {known[key]}")
        if there > value:
            raise ConfigError(f"{name}: {value}, but there is {partition_folder(data_dir, there - 1, counted)}")
    lost = [path] if partitions and held is None else []
    if known.keys() >= {"cluster.id", PARTITIONS} and not (data_dir / TOPICS_NAME).exists():
        lost.append(data_dir / TOPICS_NAME)
    meant = {
        "version": "1",
        "cluster.id": known.get("cluster.id") or kafka_id(fresh_id()),
        "node.id": str(config.node_id),
        "directory.id": known.get("directory.id") or kafka_id(fresh_id()),
        PARTITIONS: str(count),
        ID_PARTITIONS: str(id_count),
    }
    if known != known | meant:
        _write(path, known | meant)
    return Claim(meant["cluster.id"], lost, is_new=held is None and not partitions)


def noted_partition_count(data_dir: Path, key: str = PARTITIONS) -> int | None:
    """The folder's number of partitions of `__consumer_offsets`, or by ID_PARTITIONS of `__transaction_state`.

    None if no file says it.

    Raises OSError, also if no server can have as many.
    """
    path = data_dir / META_NAME
    noted = (_read(path) or {}).get(key, "")
    if not noted.isdecimal():
        return None
    if len(noted) > len(str(TOPIC_PARTITIONS_MAX)) or not 1 <= int(noted) <= TOPIC_PARTITIONS_MAX:
        raise OSError(errno.EINVAL, f"{key} is not 1 to {TOPIC_PARTITIONS_MAX}", str(path))
    return int(noted)


def noted_cluster_id(data_dir: Path) -> str:
    """The cluster id of the folder, "" if no file says it. Raises OSError."""
    return (_read(data_dir / META_NAME) or {}).get("cluster.id", "")


def note_partition_count(data_dir: Path, count: int, cluster_id: str = "", *, id_count: int = 0) -> None:
    """Note the numbers of partitions, and a cluster id, in a folder that no server has claimed yet. Raises OSError.

    id_count: of `__transaction_state`; 0: the folder has none.
    """
    noted = {PARTITIONS: count, "cluster.id": cluster_id, ID_PARTITIONS: id_count}
    _write(data_dir / META_NAME, {key: str(value) for key, value in noted.items() if value})


def _read(path: Path) -> dict[str, str] | None:
    """The properties in the file, None if there is no file."""
    try:
        return parse_properties(read_regular(path).decode("latin-1"))
    except FileNotFoundError:
        return None


def _read_own(path: Path) -> dict[str, str] | None:
    """As `_read`, of a file that this server is about to write anew. Raises Damaged if its last line was cut."""
    try:
        content = read_regular(path, flags=os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    if not content.endswith(b"\n"):
        raise Damaged(str(path), len(content), "it is cut: its last line doesn't end" if content else "it is empty")
    return parse_properties(content.decode("latin-1"))


def _write(path: Path, properties: dict[str, str]) -> None:
    content = "".join(f"{name}={value}\n" for name, value in properties.items())
    replace_file(Disk(), path, content.encode("latin-1"))


def _mark(data_dir: Path, config: Config) -> None:
    """Set or remove the marker of a folder for tests. Raises ConfigError if a control could destroy other data."""
    marker = data_dir / MARKER
    if not config.control:
        marker.unlink(missing_ok=True)
    elif not marker.exists():
        if any(path.name not in EMPTY_HAS for path in data_dir.iterdir()):
            raise ConfigError(
                f"log.dirs: a server without control made {data_dir}; with tenure.control a folder has to be empty"
            )
        marker.touch(FILE_MODE)


def empty_folder(data_dir: Path) -> None:
    """Empty a folder that a server with control made, down to lock and marker. The caller holds the lock.

    Raises ConfigError for any other folder, which it leaves alone, and OSError.
    """
    if not (data_dir / MARKER).exists():
        raise ConfigError(f"log.dirs: no server with control made {data_dir}, so nothing empties it")
    for path in data_dir.iterdir():
        if path.name in EMPTY_HAS or path.name == MARKER:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _is_mark(name: str) -> bool:
    """Whether only our folders have a file of this name: it identifies them if meta.properties is lost."""
    return name == TOPICS_NAME or re.fullmatch(r"\.lock-\d+", name) is not None


def _is_partition(name: str) -> bool:
    return re.fullmatch(rf"{OFFSETS_TOPIC}-\d+", name) is not None
