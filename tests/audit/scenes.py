"""Logs of a few groups, written for a test: by the real encoders, in folders as a server has them.

A `Scene` is a log that grows: it knows the next offset and the time, and each call appends a batch. `member` makes a
member of a group of consumers.

House rule: nothing in this module comes from the audit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cramjam

from coordinator.group.partition import partition_for
from coordinator.story.records.consumer import read_consumer_value
from protocol.messages import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    ShareGroupMetadataValue,
    encode,
)
from protocol.records.batch import HEADER_SIZE, Record, encode_batch
from protocol.records.codecs import Codec
from tests.group.consumer.play import Play
from tests.support.batches import with_crc

START_MS = 1_700_000_000_000
SECOND_MS = 1_000
HOUR_MS = 3_600_000
PARTITION_COUNT = 4
TRANSACTIONAL = 0x10
CONTROL = 0x20

Member = GroupMetadataValue.MemberMetadata


def versioned(version: int, body: bytes) -> bytes:
    """Put the version in front of the bytes."""
    return struct.pack(">h", version) + body


def subscription(topics: Sequence[str], version: int = 1, owned: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """Encode a subscription; owned: the partitions of a consumer with cooperative-sticky."""
    entries = [
        ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=list(partitions))
        for topic, partitions in (owned or {}).items()
    ]
    fields = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=entries)
    return versioned(version, encode(fields, version))


def assignment(parts: Mapping[str, Sequence[int]], version: int = 1) -> bytes:
    """Encode a consumer's assignment: topic -> partitions."""
    entries = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
        for topic, partitions in parts.items()
    ]
    return versioned(version, encode(ConsumerProtocolAssignment(assigned_partitions=entries), version))


def member(
    name: str,
    parts: Mapping[str, Sequence[int]] | None = None,
    *,
    instance_id: str | None = None,
    topics: Sequence[str] = ("orders",),
    session_ms: int = 10_000,
    client_id: str = "client",
    owned: Mapping[str, Sequence[int]] | None = None,
) -> Member:
    """Make a member with that member id; without parts it has no assignment."""
    return Member(
        member_id=name,
        group_instance_id=instance_id,
        client_id=client_id,
        client_host="/127.0.0.1",
        rebalance_timeout=60_000,
        session_timeout=session_ms,
        subscription=subscription(topics, owned=owned),
        assignment=assignment(parts) if parts else b"",
    )


def static(seat: str, life: int, parts: Mapping[str, Sequence[int]], **fields: object) -> Member:
    """Make the static member of that instance id; its restarts count in `life`."""
    made = member(f"{seat}-{life}", parts, instance_id=seat)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def group_key(group_id: str) -> bytes:
    """Return the key of a group's record."""
    return versioned(2, encode(GroupMetadataKey(group=group_id), 2))


def newer_key(group_id: str, version: int = 3) -> bytes:
    """Return a key of the newer group protocols; 3: the record of a group of the consumer protocol (KIP-848)."""
    return versioned(version, encode(GroupMetadataKey(group=group_id), 2))


def consumer_member(group_id: str, member_id: str = "m", **fields: Any) -> tuple[bytes, bytes]:
    """The record of a member of a group of the consumer protocol (key version 5)."""
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None, **fields)
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return versioned(5, encode(key, 5)), versioned(0, encode(value, 0))


def newer_value(epoch: int = 1) -> bytes:
    """Return the value of such a group: its epoch (ConsumerGroupMetadataValue v0, without tags)."""
    return struct.pack(">hiB", 0, epoch, 0)


def share_value(epoch: int = 1) -> bytes:
    """Return the value of a share group, whose key has version 11."""
    return versioned(0, encode(ShareGroupMetadataValue(epoch=epoch), 0))


def group_value(
    members: Sequence[Member],
    generation: int,
    *,
    leader: str | None = None,
    protocol_type: str = "consumer",
    protocol: str = "range",
    since_ms: int = START_MS,
    version: int = 3,
) -> bytes:
    """Return the value of a group; without `leader` the first member leads."""
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol if members else None,
        leader=leader if leader is not None or not members else members[0].member_id,
        current_state_timestamp=since_ms,
        members=list(members),
    )
    return versioned(version, encode(value, version))


def offset_key(group_id: str, topic: str = "orders", partition: int = 0, version: int = 1) -> bytes:
    """Return the key of a committed offset's record."""
    return versioned(version, encode(OffsetCommitKey(group=group_id, topic=topic, partition=partition), version))


def offset_value(offset: int, commit_ms: int = START_MS, version: int = 3, expire_ms: int = -1) -> bytes:
    """Return the value of a committed offset; expire_ms: when it expires, a field of version 1 alone."""
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=commit_ms, expire_timestamp=expire_ms)
    return versioned(version, encode(value, version))


def with_attributes(
    batch: bytes, attributes: int, producer_id: int = -1, body: bytes | None = None, *, producer_epoch: int = -1
) -> bytes:
    """Return the batch with other attributes, producer and records; CRC and length match."""
    changed = bytearray(batch if body is None else batch[:HEADER_SIZE] + body)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    struct.pack_into(">h", changed, 21, attributes)
    struct.pack_into(">qh", changed, 43, producer_id, producer_epoch)
    return with_crc(changed)


def compressed(batch: bytes, codec: Codec) -> bytes:
    """Return the batch as a broker with offsets.topic.compression.codec writes it."""
    compress: dict[Codec, Callable[[bytes], Any]] = {
        Codec.GZIP: cramjam.gzip.compress,
        Codec.SNAPPY: cramjam.snappy.compress_raw,
        Codec.LZ4: cramjam.lz4.compress,
        Codec.ZSTD: cramjam.zstd.compress,
    }
    return with_attributes(batch, codec, body=bytes(compress[codec](batch[HEADER_SIZE:])))


def group_on(partition: int, name: str = "group") -> str:
    """Return a group id that belongs to that partition of PARTITION_COUNT."""
    number = 0
    while partition_for(f"{name}-{number}", PARTITION_COUNT) != partition:
        number += 1
    return f"{name}-{number}"


GROUP = group_on(0)


class Scene:
    """The log of one partition: batches, one after the other; `tick` moves the time."""

    def __init__(self, partition: int = 0, base_offset: int = 0) -> None:
        self.partition = partition
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.now_ms = START_MS
        self.epoch = 1
        self.batches: list[bytes] = []

    def tick(self, ms: int = SECOND_MS) -> Scene:
        """Move the time."""
        self.now_ms += ms
        return self

    def append(self, *records: tuple[bytes, bytes | None]) -> Scene:
        """Append a batch of keys and values."""
        made = [Record(key, value, self.now_ms) for key, value in records]
        self.raw(encode_batch(made, self.next_offset, self.epoch), len(made))
        return self.tick()

    def raw(self, batch: bytes, count: int = 1) -> Scene:
        """Append a batch as it is, with that many offsets."""
        self.batches.append(batch)
        self.next_offset += count
        return self

    def group(self, members: Sequence[Member], generation: int, group_id: str = GROUP, **fields: object) -> Scene:
        """Append a group's record; fields: as in `group_value`."""
        value = group_value(members, generation, **{"since_ms": self.now_ms, **fields})  # type: ignore[arg-type]
        return self.append((group_key(group_id), value))

    def commit(self, offset: int, group_id: str = GROUP, topic: str = "orders", partition: int = 0) -> Scene:
        """Append a committed offset."""
        return self.append((offset_key(group_id, topic, partition), offset_value(offset, self.now_ms)))

    def transacted(self, offset: int, producer_id: int) -> Scene:
        """Append a committed offset as part of a producer's transaction."""
        record = Record(offset_key(GROUP), offset_value(offset, self.now_ms), self.now_ms)
        batch = encode_batch([record], self.next_offset, self.epoch)
        return self.raw(with_attributes(batch, TRANSACTIONAL, producer_id, producer_epoch=0))

    def end_transaction(self, producer_id: int, epoch: int = 0, *, committed: bool) -> Scene:
        """Append the marker that ends a producer's transaction."""
        record = Record(struct.pack(">hh", 0, committed), struct.pack(">hi", 0, 1), self.now_ms)
        batch = encode_batch([record], self.next_offset, self.epoch)
        return self.raw(with_attributes(batch, TRANSACTIONAL | CONTROL, producer_id, producer_epoch=epoch))

    def delete(self, group_id: str = GROUP) -> Scene:
        """Append a group's tombstone."""
        return self.append((group_key(group_id), None))

    def write(self, folder: Path, partition_count: int = PARTITION_COUNT) -> Path:
        """Write the segment into the data folder, which has a lock per partition as Tenure's; returns the folder."""
        self.segment_path(folder).parent.mkdir(parents=True, exist_ok=True)
        self.segment_path(folder).write_bytes(b"".join(self.batches))
        for partition in range(partition_count):
            (folder / f".lock-{partition}").touch()
        return folder

    def segment_path(self, folder: Path) -> Path:
        """The file of the segment."""
        return folder / f"__consumer_offsets-{self.partition}" / f"{self.base_offset:020}.log"


class ConsumerScene:
    """The log of a group of the consumer protocol, as the core writes it; each step is a batch.

    play: the core. scene: the log so far.
    """

    def __init__(self, **topics: int) -> None:
        self.play = Play(topics or {"t": 4})
        self.scene = Scene()
        self._written = 0

    def join(self, member_id: str, **others: Any) -> ConsumerScene:
        """Let a member join; its rebalance timeout is ten seconds."""
        self.play.join(member_id, group=GROUP, **others)
        return self.end()

    def beat(
        self, member_id: str, epoch: int, owned: dict[str, list[int]] | None = None, **others: Any
    ) -> ConsumerScene:
        """Send a heartbeat."""
        self.play.beat(member_id, epoch, owned, group=GROUP, **others)
        return self.end()

    def end(self) -> ConsumerScene:
        """Append what the core wrote."""
        new = self.play.log[self._written :]
        self._written = len(self.play.log)
        if new:
            self.scene.append(*((record.key, record.value) for record in new))
        return self

    def append_changed(self, member_id: str, version: int, change: Callable[[Any], None]) -> Scene:
        """Append a member's last record of that key version once more, with a changed value."""
        wanted = member_id.encode()
        records = [each for each in self.play.log if each.key[1] == version and each.key.endswith(wanted)]
        value = read_consumer_value(records[-1].value or b"", version)[1]
        change(value)
        return self.scene.append((records[-1].key, versioned(0, encode(value, 0))))


def two_consumers() -> ConsumerScene:
    """Two members of a group of the consumer protocol share a topic; the second one is static."""
    made = ConsumerScene().join("m").join("n", instance_id="seat")
    made.beat("m", 2, {"t": [0, 1, 2, 3]}).beat("m", 2, {"t": [0, 1]})
    return made.beat("n", 3, {})


PARTS = {"a": {"orders": [0, 1]}, "b": {"orders": [2]}, "c": {"orders": [3]}}
"""Each member's partitions, in most scenes."""


def static_members(**lives: int) -> list[Member]:
    """Make static members with these instance ids and lives, each with its PARTS."""
    return [static(seat, life, PARTS[seat]) for seat, life in lives.items()]


def clean() -> Scene:
    """A correct group: it forms, commits, restarts twice, grows, empties, is deleted and comes anew."""
    scene = Scene()
    scene.group(static_members(a=1, b=1), 1).commit(5).commit(9)
    scene.group(static_members(a=2, b=1), 1)
    scene.tick(HOUR_MS)
    scene.group(static_members(a=2, b=2), 1).commit(12)
    scene.group(static_members(a=2, b=2, c=1), 2)
    scene.group([], 3)
    scene.append((offset_key(GROUP), None), (group_key(GROUP), None))
    scene.group(static_members(a=3, b=3), 1)
    return scene
