"""Logs made by hand, in the format of record batches, sound or with planted faults.

House rule: protocol.records writes each log byte by byte; the commands under test never write one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import cramjam
import pytest
from crc32c import crc32c

from coordinator.group.any_group import CommittedOffset
from coordinator.group.group import Group, Member
from coordinator.group.partition import partition_for
from coordinator.group.records import group_key, group_record, group_tombstone, offset_record
from coordinator.group.state import State
from coordinator.transaction.records import record_of
from coordinator.transaction.state import Status, TopicPartition, TransactionalId
from protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, GroupMetadataValue, encode
from protocol.records.batch import Record, encode_batch
from protocol.records.codecs import Codec
from tests.audit.scenes import compressed, group_on, with_attributes
from tests.group.consumer.play import Play
from tests.support.peak import peak_of
from tests.support.tenure import tenure_command

PARTITION_COUNT = 4
WALL_MS = 1_700_000_000_000

TRANSACTIONAL = 0x10
CONTROL = 0x20


def subscription(topics: Sequence[str], version: int = 3) -> bytes:
    """The metadata that a member of a consumer group sends."""
    body = ConsumerProtocolSubscription(topics=list(topics), user_data=b"\1\2")
    return struct.pack(">h", version) + encode(body, version)


def assignment(topic: str, partitions: Sequence[int], version: int = 3) -> bytes:
    """The assignment that a leader sends for a member of a consumer group."""
    entry = ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
    body = ConsumerProtocolAssignment(assigned_partitions=[entry])
    return struct.pack(">h", version) + encode(body, version)


def make_group(group_id: str, generation: int = 1, *, protocol_type: str = "consumer") -> Group:
    """A Stable group of two static members."""
    group = Group(group_id, WALL_MS)
    group.protocol_type = protocol_type
    group.protocol_name = "range"
    group.generation = generation
    group.state = State.STABLE
    for number in range(2):
        group.add(
            Member(
                f"worker-{number}-id",
                f"worker-{number}",
                "client",
                "/127.0.0.1",
                60_000,
                10_000,
                [("range", subscription(["orders"]))],
                assignment("orders", [number]),
            )
        )
    return group


def group_of(group_id: str, generation: int = 1) -> Record:
    """The record of `make_group`."""
    return group_record(make_group(group_id, generation), WALL_MS, WALL_MS)


def offset_of(group_id: str, offset: int = 5) -> Record:
    """The record of a committed offset of orders-0."""
    return offset_record(group_id, "orders", 0, CommittedOffset(offset, 2, "note", WALL_MS, None), WALL_MS)


def tombstone_of(group_id: str) -> Record:
    """The record that deletes a group."""
    return group_tombstone(group_id, WALL_MS)


def consumer_group_of(group_id: str) -> list[Record]:
    """The records of a group of the consumer protocol: a member, a static one that is away, a regular expression."""
    play = Play()
    play.join("m", group=group_id)
    play.join("n", instance_id="seat", group=group_id)
    play.beat("m", 2, {"t": [0, 1, 2, 3]}, group=group_id)
    play.beat("m", 2, {"t": [0, 1]}, group=group_id)
    play.beat("n", 3, {}, group=group_id)
    play.beat("n", -2, instance_id="seat", group=group_id)
    play.beat("m", 3, {"t": [0, 1]}, topics=["t"], regex="t.*", timeout_ms=10_000, group=group_id)
    play.resolve(**{"t.*": ["t"]})
    return play.log


def marker(base_offset: int, producer_id: int, *, commit: bool, epoch: int = 0) -> bytes:
    """A control batch that ends a transaction."""
    record = Record(struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 7), WALL_MS)
    return with_attributes(encode_batch([record], base_offset, epoch), TRANSACTIONAL | CONTROL, producer_id)


def transactional(records: Sequence[Record], base_offset: int, producer_id: int, epoch: int = 0) -> bytes:
    """A batch of a transaction."""
    return with_attributes(encode_batch(records, base_offset, epoch), TRANSACTIONAL, producer_id)


def write_segment(data_dir: Path, partition: int, batches: Iterable[bytes], base_offset: int = 0) -> Path:
    """Write a segment and return its path."""
    folder = data_dir / f"__consumer_offsets-{partition}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020}.log"
    path.write_bytes(b"".join(batches))
    return path


def write_id(data_dir: Path, transactional_id: str, status: Status, partition: int | None = None) -> Path:
    """Write a log of `__transaction_state` with one id, in the partition where it belongs; return its segment."""
    right = partition_for(transactional_id, PARTITION_COUNT)
    for each in range(PARTITION_COUNT):
        (data_dir / f"__transaction_state-{each}").mkdir(parents=True)
    path = data_dir / f"__transaction_state-{right if partition is None else partition}" / f"{0:020}.log"
    known = TransactionalId(transactional_id, 77, 0, 60_000, status, {TopicPartition("__consumer_offsets", 0)})
    path.write_bytes(encode_batch([record_of(known, WALL_MS)], 0, 1))
    return path


def make_data_dir(folder: Path) -> Path:
    """Make a sound data folder of PARTITION_COUNT partitions: groups, offsets, a deleted group, three owners."""
    for partition in range(PARTITION_COUNT):
        group_id, other, gone = (group_on(partition, name) for name in ("group", "other", "gone"))
        write_segment(
            folder,
            partition,
            [
                encode_batch([group_of(group_id)], 0, 1),
                encode_batch([offset_of(group_id, 1), offset_of(group_id, 2)], 1, 1),
                encode_batch([group_of(gone)], 3, 2),
            ],
        )
        write_segment(
            folder,
            partition,
            [encode_batch([group_of(group_id, 2), tombstone_of(gone), offset_of(other)], 4, 3)],
            base_offset=4,
        )
    return folder


def beyond_limits(folder: Path) -> Path:
    """A log of few bytes: a batch of three million records, and a group of two million members, both in zstd."""
    count = 3_000_000
    # Length, attributes, both deltas, an empty key, no value, no headers.
    records = with_attributes(
        encode_batch([Record(b"", None, WALL_MS)], 0, 1), Codec.ZSTD,
        body=bytes(cramjam.zstd.compress(b"\x0e\0\0\0\0\1\0" * count)),
    )  # fmt: skip
    changed = bytearray(records)
    struct.pack_into(">i", changed, 23, count - 1)
    struct.pack_into(">i", changed, 57, count)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    members = 2_000_000
    empty = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m", members=[])
    value = b"\0\3" + encode(empty, 3)[:-4] + struct.pack(">i", members)
    value += encode(GroupMetadataValue.MemberMetadata(), 3) * members
    group = compressed(encode_batch([Record(group_key(group_on(0)), value, WALL_MS)], count, 1), Codec.ZSTD)
    write_segment(folder, 0, [bytes(changed), group])
    return folder


MEMORY_KIB_MAX = 1_000_000
"""The most memory of a process that reads `beyond_limits`. It needs about 180,000."""


class Peak(NamedTuple):
    """The exit code of a command, its output, and the most memory that it used."""

    code: int
    kib: int
    out: str


def run_measured(folder: Path, *arguments: str) -> Peak:
    """Run the program; its output goes through a file in `folder`."""
    path = folder / "printed"
    code, kib = peak_of(path, Path(os.devnull), *tenure_command(), *arguments)
    return Peak(code, kib, path.read_text())


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A folder made by `make_data_dir`."""
    return make_data_dir(tmp_path / "data")
