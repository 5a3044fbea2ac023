"""The list of topics, kept across restarts in one small file of the data folder.

The first line of `topics.json` has the format and the CRC-32C of the other lines. Then there is a line for each topic,
by name, and one for the changed settings of brokers (BROKERS). The file is replaced as a whole, so it is
always the former list or the new one. After `save` returns, the new list is durable.

House rule: a file that isn't exactly what was saved is refused; a line that can't be read never drops a topic.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.log.advice import explain
from coordinator.log.engine import Damaged, Unavailable
from coordinator.log.segments.disk import Disk, closing, replace_file
from protocol.checksum import crc32c

FORMAT = 1
TOPICS_NAME = "topics.json"

SIZE_MAX = 1024 * 1024 * 1024
"""Bytes of a list: one with more can't be read at once."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that was created or declared; `configs` holds its settings by Kafka's names."""

    name: str
    topic_id: UUID
    partition_count: int
    configs: dict[str, str] = field(default_factory=dict)


CREDENTIALS = Topic("/credentials", UUID(int=2**128 - 2), 0)
"""Keeps the SCRAM credentials. It is no topic, as none of ENTRIES is."""

BROKERS = Topic("/", UUID(int=0), 0)
"""Keeps the changed settings of brokers: NODE/NAME is a setting of one node, /NAME one of all."""

ACLS = Topic("/acls", UUID(int=2**128 - 1), 0)
"""Keeps the ACLs."""

QUOTAS = Topic("/quotas", UUID(int=2**128 - 3), 0)
"""Keeps the quotas of clients."""

GROUPS = Topic("/groups", UUID(int=2**128 - 4), 0)
"""Keeps the settings of groups: GROUP/NAME is a setting of one group."""

ENTRIES = {entry.topic_id: entry for entry in (BROKERS, ACLS, CREDENTIALS, QUOTAS, GROUPS)}
"""The entries that are no topics, by their ids, before anybody changed them. No topic can have their names."""


class Declared(NamedTuple):
    """The differences between the topics and the configuration.

    changed: topics that were missing, or had fewer partitions than declared. too_few: topics that have more, with the
    declared number; they stay unchanged.
    """

    changed: list[Topic]
    too_few: list[tuple[Topic, int]]


def declare(topics: Mapping[str, Topic], counts: Mapping[str, int], fresh_id: Callable[[], UUID]) -> Declared:
    """Compare topics with the configuration's `counts`: the number of partitions by name."""
    declared = Declared([], [])
    for name, count in counts.items():
        topic = topics.get(name)
        if topic is None:
            declared.changed.append(Topic(name, fresh_id(), count))
        elif topic.partition_count < count:
            declared.changed.append(Topic(name, topic.topic_id, count, topic.configs))
        elif topic.partition_count > count:
            declared.too_few.append((topic, count))
    return declared


class TopicsFile:
    """The list in `data_dir`; the caller holds the lock of that folder. The methods wait for the disk."""

    def __init__(self, data_dir: Path, disk: Disk | None = None) -> None:
        self._path = data_dir / TOPICS_NAME
        self._disk = disk or Disk()

    def load(self) -> dict[str, Topic] | None:
        """Return the topics by name, None if there is no list. Raises Damaged or Unavailable."""
        try:
            content = self._read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(explain(error)) from error
        head, _, body = content.partition(b"\n")
        if head != _head(body):
            raise Damaged(str(self._path), 0, "the first line isn't the checksum of the others")
        return {topic.name: topic for topic in map(from_fields, map(json.loads, body.splitlines()))}

    def save(self, topics: Iterable[Topic]) -> None:
        """Replace the list, durably.

        Raises Unavailable: then a restart may find the former list or this one, until a `save` succeeds again.
        """
        ordered = sorted(topics, key=lambda topic: topic.name)
        body = b"".join(json.dumps(to_fields(topic)).encode() + b"\n" for topic in ordered)
        try:
            replace_file(self._disk, self._path, _head(body) + b"\n" + body)
        except OSError as error:
            raise Unavailable(f"{error.strerror}: {self._path}") from error

    def _read(self) -> bytes:
        with closing(self._disk, self._disk.open(self._path)) as descriptor:
            size = self._disk.size(descriptor)
            if size > SIZE_MAX:
                raise Damaged(str(self._path), SIZE_MAX, f"it has {size} bytes, more than a list can have")
            return self._disk.read(descriptor, size, 0)


def kafka_id(fresh: UUID) -> str:
    """A UUID as Kafka writes it, in base 64; never with a dash in front, which its tools would read as an option."""
    text = urlsafe_b64encode(fresh.bytes).decode().rstrip("=")
    return f"_{text[1:]}" if text.startswith("-") else text


def _head(body: bytes) -> bytes:
    return json.dumps({"format": FORMAT, "crc32c": f"{crc32c(body):08x}"}).encode()


def to_fields(topic: Topic) -> dict[str, Any]:
    """A topic as a JSON object."""
    return {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "partition_count": topic.partition_count,
        "configs": topic.configs,
    }


def from_fields(fields: Mapping[str, Any]) -> Topic:
    """The topic that `to_fields` wrote."""
    return Topic(fields["name"], UUID(fields["topic_id"]), fields["partition_count"], fields["configs"])
