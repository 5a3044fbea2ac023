"""Topics as the consumer protocol sees them: names, ids, numbers of partitions.

A coordinator has one `Topics` value and gets another when topics change (`events.TopicsChanged`). Groups remember a
hash of the topics that they subscribe to, as Kafka does, and write it to the log: a coordinator that loads the group
then knows whether a topic changed meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple, Protocol
from uuid import UUID

MAGIC = b"\0"
"""The first byte of what is hashed of a topic (Kafka: Utils.TOPIC_HASH_MAGIC_BYTE)."""

HASHES_CACHED_MAX = 16_384
"""Hashes of topics in the cache: a few hundred bytes each, and 4 us to make one of twelve partitions."""

NAME = attrgetter("name")


class TopicImage(NamedTuple):
    """A topic at one moment."""

    topic_id: UUID
    name: str
    partitions: int


class Topics(Protocol):
    """All topics at one moment.

    version: grows with each change. created_version: the version at the last creation of a topic.
    """

    version: int
    created_version: int

    def find(self, names: Iterable[str]) -> list[TopicImage]:
        """The topics of these names, as far as they exist; a request may name very many that don't."""

    def by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of this id."""

    def names(self) -> Collection[str]:
        """The names of all topics."""


class TopicTable:
    """The topics of a table in memory."""

    def __init__(self, topics: Iterable[TopicImage] = (), version: int = 0, created_version: int = 0) -> None:
        self._by_name = {topic.name: topic for topic in topics}
        self._by_id = {topic.topic_id: topic for topic in self._by_name.values()}
        self.version = version
        self.created_version = created_version

    def find(self, names: Iterable[str]) -> list[TopicImage]:
        """The topics of these names."""
        return list(filter(None, map(self._by_name.get, names)))

    def by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of this id."""
        return self._by_id.get(topic_id)

    def names(self) -> Collection[str]:
        """The names of all topics."""
        return self._by_name.keys()


NO_TOPICS = TopicTable()


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """The hash of those of these topics that exist, as a signed 64-bit number (Kafka: Utils.computeGroupHash).

    Without any it is 0. Racks of partitions are left out: a node of ours has none.
    """
    import xxhash  # noqa: PLC0415 - executors of an audit don't have it (docs/ask-why/audit.md)

    found = sorted(topics.find(set(names)), key=NAME)
    return int.from_bytes(xxhash.xxh3_64_digest(b"".join(map(topic_hash, found))), signed=True) if found else 0


@lru_cache(HASHES_CACHED_MAX)
def topic_hash(topic: TopicImage) -> bytes:
    """The hash of a topic, as eight bytes in the order that `metadata_hash` hashes them in."""
    import xxhash  # noqa: PLC0415 - executors of an audit don't have it (docs/ask-why/audit.md)

    id_bytes = topic.topic_id.bytes
    # hash4j's streams write numbers little-endian, and behind a string its length in UTF-16 units.
    name = topic.name.encode("utf-16-le")
    parts = [
        MAGIC,
        id_bytes[7::-1],
        id_bytes[:7:-1],
        name,
        (len(name) // 2).to_bytes(4, "little"),
        topic.partitions.to_bytes(4, "little"),
        struct.pack(f"<{topic.partitions}I", *range(topic.partitions)),
    ]
    return xxhash.xxh3_64_intdigest(b"".join(parts)).to_bytes(8, "little")
