"""A record as plain values: every record that Kafka writes, and any other bytes without an exception."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.audit.read.batches import MARKER_KIND, read_marker
from coordinator.audit.read.parse import parse_record
from coordinator.cli.log.decoded import Fields, decode_marker, decode_record, decode_transactional_id, is_odd
from coordinator.group.records import NEWER_KINDS, group_key, group_record, offset_key
from coordinator.story.records.consumer import READ_VERSIONS
from coordinator.story.records.values import GROUP_KIND, OFFSET_KIND, UNKNOWN_KIND, UNREADABLE_KIND
from coordinator.transaction.records import record_of
from coordinator.transaction.state import Status, TopicPartition, TransactionalId
from protocol.messages import (
    ConsumerGroupMemberMetadataValue,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode,
)
from protocol.records.batch import Record
from tests.cli.log.conftest import (
    WALL_MS,
    assignment,
    consumer_group_of,
    group_of,
    make_group,
    offset_of,
    subscription,
    tombstone_of,
)
from tests.protocol.consumer_group_records import RECORDS, SHARE, STREAMS

TOPIC = "AAECAwQFBgcICQoLDA0ODw"
"""The topic id in RECORDS, as Kafka's tools write it."""
KAFKA_NAMES = {
    3: "ConsumerGroupMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    16: "ConsumerGroupRegularExpression",
}
"""Key version -> what the names of key and value begin with."""


def group_fields(value: bytes | None) -> Fields:
    """The decoded value of a group's record."""
    decoded = decode_record(Record(group_key("g"), value, WALL_MS))
    assert decoded.kind == GROUP_KIND
    assert decoded.value is not None
    return decoded.value


def member_with(version: int, metadata: bytes, assigned: bytes, protocol_type: str = "consumer") -> Fields:
    """The decoded member of a group value of that version."""
    member = GroupMetadataValue.MemberMetadata(
        member_id="m",
        group_instance_id="i" if version >= 3 else None,
        client_id="c",
        client_host="/h",
        rebalance_timeout=6 if version >= 1 else -1,
        session_timeout=5,
        subscription=metadata,
        assignment=assigned,
    )
    value = GroupMetadataValue(
        protocol_type=protocol_type, generation=3, protocol="range", leader="m", members=[member]
    )
    fields = group_fields(struct.pack(">h", version) + encode(value, version))
    (decoded,) = fields["members"]
    result: Fields = decoded
    return result


def problem_of(record: Record) -> str | None:
    """Why no coordinator can load a record, by the rules of verify and the audit."""
    return next((str(row[9]) for row in parse_record(0, 0, record)["other"] if row[5] == UNREADABLE_KIND), None)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_is_read(version: int) -> None:
    """A group value v0-4 has the fields of its version, and the bytes of its member are decoded."""
    member = member_with(version, subscription(["orders"]), assignment("orders", [1, 2]))
    assert ("group_instance_id" in member) == (version >= 3)
    assert ("rebalance_timeout_ms" in member) == (version >= 1)
    assert member["subscription"]["topics"] == ["orders"]
    assert member["assignment"]["assigned_partitions"] == [{"topic": "orders", "partitions": [1, 2]}]


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_the_consumer_protocol_is_read(version: int) -> None:
    """Subscription and assignment v0-3 are decoded; a newer one is read as v3."""
    member = member_with(3, subscription(["orders"], version), assignment("orders", [0], version))
    assert member["subscription"]["version"] == version
    assert member["subscription"]["user_data_hex"] == "0102"
    assert ("owned_partitions" in member["subscription"]) == (version >= 1)
    assert ("rack_id" in member["subscription"]) == (version >= 3)
    newer = b"\0\x09" + subscription(["orders"], 3)[2:] + b"more"
    assert member_with(3, newer, b"")["subscription"]["topics"] == ["orders"]


@pytest.mark.parametrize(
    ("data", "protocol_type", "reason"),
    [
        (b"\0", "consumer", "1 bytes"),
        (b"\xff\xff\0\0", "consumer", "version -1"),
        (b"\0\1\x7f\xff\xff\xff", "consumer", "ConsumerProtocol"),
        (b"\0\1\0\0", "connect", "'connect'"),
    ],
)
def test_odd_bytes_of_a_member_are_shown_as_they_are(data: bytes, protocol_type: str, reason: str) -> None:
    """Bytes that are no consumer protocol are shown in hex with the reason; for no bytes the field is None."""
    member = member_with(3, data, b"", protocol_type)
    assert is_odd(member["subscription"])
    assert member["subscription"]["hex"] == data.hex()
    assert reason in member["subscription"]["reason"]
    assert member["assignment"] is None


@pytest.mark.parametrize("key_version", [0, 1])
@pytest.mark.parametrize("version", range(5))
def test_every_version_of_an_offset_is_read(key_version: int, version: int) -> None:
    """A committed offset has group, topic partition and the fields of its version."""
    key = struct.pack(">h", key_version) + encode(OffsetCommitKey(group="g", topic="t", partition=7), key_version)
    value = OffsetCommitValue(offset=9, metadata="m", commit_timestamp=1)
    record = Record(key, struct.pack(">h", version) + encode(value, version), WALL_MS)
    decoded = decode_record(record)
    assert (decoded.kind, decoded.key_version, decoded.value_version) == (OFFSET_KIND, key_version, version)
    assert decoded.key == {"group_id": "g", "topic": "t", "partition": 7}
    assert decoded.value is not None
    assert decoded.value["offset"] == 9
    assert ("expire_timestamp_ms" in decoded.value) == (version == 1)
    assert problem_of(record) is None


def test_tombstone_has_a_key_and_no_value() -> None:
    """A tombstone has the key of the record that it deletes."""
    decoded = decode_record(tombstone_of("g"))
    assert (decoded.kind, decoded.group_id, decoded.value, problem_of(tombstone_of("g"))) == (
        GROUP_KIND, "g", None, None,
    )  # fmt: skip


@pytest.mark.parametrize(("version", "kind"), [item for item in NEWER_KINDS.items() if item[1] not in READ_VERSIONS])
def test_newer_group_protocols_are_named(version: int, kind: str) -> None:
    """A record that only older share groups have has its name and its group, and is no problem."""
    key = struct.pack(">h", version) + group_key("g")[2:] + b"\0\1m"
    record = Record(key, b"\0\0more", WALL_MS)
    decoded = decode_record(record)
    assert (decoded.kind, decoded.group_id, problem_of(record)) == (kind, "g", None)


@pytest.mark.parametrize(
    ("version", "key", "value"),
    [
        (3, {}, {"epoch": 3, "metadata_hash": 7}),
        (5, {"member_id": "m"}, {"instance_id": "i", "rack_id": None, "server_assignor": "uniform"}),
        (6, {}, {"assignment_epoch": 3, "assignment_timestamp": 1000}),
        (7, {"member_id": "m"}, {"topic_partitions": [{"topic_id": TOPIC, "partitions": [4, 5]}]}),
        (
            8,
            {"member_id": "m"},
            {
                "member_epoch": 3,
                "previous_member_epoch": 2,
                "state": "UNREVOKED_PARTITIONS",
                "assigned_partitions": [{"topic_id": TOPIC, "partitions": [4, 5], "assignment_epochs": [2, 3]}],
                "partitions_pending_revocation": [],
            },
        ),
        (16, {"regular_expression": "t.*"}, {"topics": ["t1", "t2"], "version": 5, "timestamp": 1000}),
    ],
)
def test_groups_of_the_consumer_protocol_are_decoded(version: int, key: Fields, value: Fields) -> None:
    """Keys name the member or the regular expression; values have Kafka's fields, and topic ids in Kafka's form."""
    kind = NEWER_KINDS[version]
    data = {name: data for name, _, (_, data) in reversed(RECORDS) if name.startswith(KAFKA_NAMES[version])}
    record = Record(
        struct.pack(">h", version) + data[f"{KAFKA_NAMES[version]}Key"],
        b"\0\0" + data[f"{KAFKA_NAMES[version]}Value"],
        WALL_MS,
    )
    decoded = decode_record(record)
    assert (decoded.kind, decoded.key_version, decoded.group_id, decoded.value_version) == (kind, version, "g", 0)
    assert decoded.key == {"group_id": "g", **key}
    assert decoded.value is not None
    assert {name: decoded.value[name] for name in value} == value
    assert problem_of(record) is None


def test_streams_groups_are_decoded() -> None:
    """Keys name the group and the member; values have Kafka's fields."""
    value = next(data for name, _, (_, data) in STREAMS if name == "StreamsGroupCurrentMemberAssignmentValue")
    record = Record(struct.pack(">h", 22) + group_key("g")[2:] + b"\0\1m", b"\0\0" + value, WALL_MS)
    decoded = decode_record(record)
    assert (decoded.kind, decoded.key) == (NEWER_KINDS[22], {"group_id": "g", "member_id": "m"})
    assert decoded.value is not None
    assert decoded.value["state"] == "UNREVOKED_TASKS"
    assert decoded.value["active_tasks"] == [{"subtopology_id": "0", "partitions": [4, 5], "assignment_epochs": [2, 3]}]
    assert problem_of(record) is None


def test_share_groups_are_decoded() -> None:
    """Keys name the group and the member; values have Kafka's fields, and topic ids in Kafka's form."""
    value = next(data for name, _, (_, data) in SHARE if name == "ShareGroupCurrentMemberAssignmentValue")
    record = Record(struct.pack(">h", 14) + group_key("g")[2:] + b"\0\1m", b"\0\0" + value, WALL_MS)
    decoded = decode_record(record)
    assert (decoded.kind, decoded.key) == (NEWER_KINDS[14], {"group_id": "g", "member_id": "m"})
    assert decoded.value == {
        "member_epoch": 3,
        "previous_member_epoch": 2,
        "state": "STABLE",
        "assigned_partitions": [{"topic_id": TOPIC, "partitions": [4, 5]}],
    }
    assert problem_of(record) is None


def test_classic_member_of_a_consumer_group_shows_its_subscription() -> None:
    """A member of the classic protocol in such a group has its protocols, with their subscriptions decoded."""
    classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=9,
        supported_protocols=[
            ConsumerGroupMemberMetadataValue.ClassicProtocol(name="range", metadata=subscription(["orders"]))
        ],
    )
    value = b"\0\0" + encode(ConsumerGroupMemberMetadataValue(classic_member_metadata=classic), 0)
    decoded = decode_record(Record(b"\0\5\0\1g\0\1m", value, WALL_MS))
    assert decoded.value is not None
    (protocol,) = decoded.value["classic_member_metadata"]["supported_protocols"]
    assert (protocol["name"], protocol["metadata"]["topics"]) == ("range", ["orders"])


def test_unknown_record_is_no_problem() -> None:
    """An unknown key version is for a later coordinator (KIP-915), so it is no problem."""
    record = Record(b"\x12\x34rest", b"", WALL_MS)
    decoded = decode_record(record)
    assert (decoded.kind, decoded.key_version, problem_of(record)) == (UNKNOWN_KIND, 0x1234, None)


@pytest.mark.parametrize(
    ("record", "kind", "problem"),
    [
        (Record(b"", None, 0), UNREADABLE_KIND, "a key of 0 bytes"),
        (Record(group_key("g")[:-1], None, 0), UNREADABLE_KIND, "key:"),
        (Record(group_key("g"), b"\0", 0), GROUP_KIND, "a value of 1 bytes"),
        (Record(group_key("g"), b"\0\x63", 0), GROUP_KIND, "unknown value version 99"),
        (Record(offset_key("g", "t", 0), b"\0\3\0", 0), OFFSET_KIND, "value:"),
    ],
)
def test_what_no_coordinator_can_read_is_a_problem(record: Record, kind: str, problem: str) -> None:
    """A key or value that would stop a load is reported with the reason."""
    decoded = decode_record(record)
    assert decoded.kind == kind
    assert problem in (problem_of(record) or "")


@pytest.mark.parametrize(("number", "name"), [(0, "abort"), (1, "commit")])
def test_markers_are_read(number: int, name: str) -> None:
    """A control record says whether the transaction was committed or aborted."""
    record = Record(struct.pack(">hh", 0, number), struct.pack(">hi", 0, 4), WALL_MS)
    decoded = decode_marker(record)
    assert decoded.kind == MARKER_KIND
    assert decoded.key == {"marker": name}
    assert decoded.value == {"coordinator_epoch": 4}
    assert read_marker(record).reason is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0", b"\0\0\0\0\0\0"), (b"\0\0\0\5", b"\0\0\0\0\0\0"), (b"\0\0\0\1", b""), (b"\0\0\0\1", None)],
)
def test_odd_markers_are_a_problem(key: bytes, value: bytes | None) -> None:
    """A marker is a problem if it is neither commit nor abort, or if its value is short."""
    record = Record(key, value, WALL_MS)
    assert read_marker(record).reason
    assert is_odd(decode_marker(record).key) or is_odd(decode_marker(record).value) or key == b"\0\0\0\5"


SOUND = [
    *consumer_group_of("g"),
    group_of("g"),
    offset_of("g"),
    group_record(make_group("g", protocol_type="connect"), 1, 1),
]


def flipped(data: bytes, bits: list[int]) -> bytes:
    """The bytes with some of their bits changed."""
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8 % len(changed)] ^= 1 << bit % 8
    return bytes(changed)


@given(st.binary(max_size=200), st.none() | st.binary(max_size=200))
def test_random_bytes_never_raise(key: bytes, value: bytes | None) -> None:
    """Any bytes of a record decode to something, without an exception."""
    assert decode_record(Record(key, value, 0)).kind
    assert decode_marker(Record(key, value, 0)).kind == MARKER_KIND
    for version in (*range(9), 16):
        assert decode_record(Record(struct.pack(">h", version) + key, value, 0)).kind


@given(st.sampled_from(SOUND), st.lists(st.integers(0, 10_000), min_size=1, max_size=4), st.booleans())
def test_flipped_bits_never_raise(record: Record, bits: list[int], in_key: bool) -> None:
    """A sound record with a few changed bits decodes to something, without an exception."""
    assert record.value is not None
    changed: Any = (
        record._replace(key=flipped(record.key, bits)) if in_key else record._replace(value=flipped(record.value, bits))
    )
    assert decode_record(changed).kind


def test_transactional_ids() -> None:
    """A record of `__transaction_state` has Kafka's names of fields; a wrong one has its bytes."""
    known = TransactionalId("t", 680, 3, 60_000, Status.ONGOING, {TopicPartition("orders", 1)}, 5, 6)
    decoded = decode_transactional_id(record_of(known, 7))
    assert (decoded.kind, decoded.key, decoded.value_version) == ("transaction", {"transactional_id": "t"}, 1)
    assert decoded.value is not None
    assert decoded.value["transaction_status"] == "Ongoing"
    assert decoded.value["transaction_partitions"] == ["orders-1"]
    assert is_odd(decode_transactional_id(Record(b"\0\7x", b"\0\7", 1)).key)
    assert is_odd(decode_transactional_id(Record(b"\0\7x", b"\0\7", 1)).value)
