"""More oracles: kafka-python for versions that Kafka 4 dropped, kafka-protocol for two messages, and bytes by hand.

kafka-python keeps its older classes (kafka.protocol.old), written by hand: a message is a tuple of values in the order
of the wire. kafka-protocol has a generated class per version of ApiVersions and Metadata. Neither has the records of
the server, nor the first AlterReplicaLogDirs; for these the bytes are written by hand.
"""

from __future__ import annotations

import io
import warnings
from importlib import import_module
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from protocol.definition import Struct
from protocol.messages import (
    ApiVersionsResponse,
    GroupMetadataValue,
    OffsetCommitValue,
    TransactionLogValue,
    definition,
    encode,
)
from tests.protocol.consumer_group_records import RECORDS, SHARE, STREAMS, TOPIC_ID, by_hand
from tests.protocol.strategies import any_message, message_class, share
from tests.protocol.test_kio import WITHOUT_KIO
from tests.support.decoded import decode_from

with warnings.catch_warnings():
    # Importing kafka-python calls a function that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.old import admin, commit, list_offsets, offset_for_leader_epoch, produce

OLD = {
    ("ProduceRequest", 0): produce.ProduceRequest_v0,
    ("ProduceRequest", 1): produce.ProduceRequest_v1,
    ("ProduceRequest", 2): produce.ProduceRequest_v2,
    ("ProduceResponse", 0): produce.ProduceResponse_v0,
    ("ProduceResponse", 1): produce.ProduceResponse_v1,
    ("ProduceResponse", 2): produce.ProduceResponse_v2,
    ("OffsetCommitRequest", 0): commit.OffsetCommitRequest_v0,
    ("OffsetCommitRequest", 1): commit.OffsetCommitRequest_v1,
    ("OffsetCommitResponse", 0): commit.OffsetCommitResponse_v0,
    ("OffsetCommitResponse", 1): commit.OffsetCommitResponse_v1,
    ("OffsetFetchRequest", 0): commit.OffsetFetchRequest_v0,
    ("OffsetFetchResponse", 0): commit.OffsetFetchResponse_v0,
    ("ListOffsetsRequest", 0): list_offsets.ListOffsetsRequest_v0,
    ("ListOffsetsResponse", 0): list_offsets.ListOffsetsResponse_v0,
    ("OffsetForLeaderEpochRequest", 0): offset_for_leader_epoch.OffsetForLeaderEpochRequest_v0,
    ("OffsetForLeaderEpochRequest", 1): offset_for_leader_epoch.OffsetForLeaderEpochRequest_v1,
    ("OffsetForLeaderEpochResponse", 0): offset_for_leader_epoch.OffsetForLeaderEpochResponse_v0,
    ("OffsetForLeaderEpochResponse", 1): offset_for_leader_epoch.OffsetForLeaderEpochResponse_v1,
    ("CreateTopicsRequest", 0): admin.CreateTopicsRequest_v0,
    ("CreateTopicsRequest", 1): admin.CreateTopicsRequest_v1,
    ("CreateTopicsResponse", 0): admin.CreateTopicsResponse_v0,
    ("CreateTopicsResponse", 1): admin.CreateTopicsResponse_v1,
    ("DeleteTopicsRequest", 0): admin.DeleteTopicsRequest_v0,
    ("DeleteTopicsResponse", 0): admin.DeleteTopicsResponse_v0,
    ("CreateAclsRequest", 0): admin.CreateAclsRequest_v0,
    ("CreateAclsResponse", 0): admin.CreateAclsResponse_v0,
    ("DeleteAclsRequest", 0): admin.DeleteAclsRequest_v0,
    ("DeleteAclsResponse", 0): admin.DeleteAclsResponse_v0,
    ("DescribeAclsRequest", 0): admin.DescribeAclsRequest_v0,
    ("DescribeAclsResponse", 0): admin.DescribeAclsResponse_v0,
    ("DescribeConfigsRequest", 0): admin.DescribeConfigsRequest_v0,
    ("DescribeConfigsResponse", 0): admin.DescribeConfigsResponse_v0,
    ("DescribeLogDirsResponse", 0): admin.DescribeLogDirsResponse_v0,
}
"""kafka-python's class for each version that kio lacks, but for those in BY_HAND."""

SMALL = {
    (name, version): getattr(import_module(f"kafkaprotocol.{module}"), name)
    for name, module, versions in [
        ("ApiVersionsRequest", "api_versions_request", range(4)),
        ("ApiVersionsResponse", "api_versions_response", range(4)),
        ("MetadataRequest", "metadata_request", range(10)),
        ("MetadataResponse", "metadata_response", range(10)),
    ]
    for version in versions
}
"""kafka-protocol's classes. It has no ApiVersions v4, and its UUID (Metadata v10 and later) packs sixteen numbers."""


def values_of(message: Any, struct: Struct, version: int) -> tuple[Any, ...]:
    """Return a message in kafka-python's form: nested tuples in the order of the wire."""
    values = []
    for field in struct.fields:
        if version in field.versions and field.tag is None:
            value = getattr(message, field.name)
            if field.struct is not None and value is not None:
                value = [values_of(element, field.struct, version) for element in value]
            values.append(value)
    return tuple(values)


def dict_of(message: Any, struct: Struct, version: int) -> dict[str, Any]:
    """Return a message in kafka-protocol's form: dicts by field name, tagged fields as bytes."""
    values: dict[str, Any] = {}
    for field in struct.fields:
        if version in field.versions and field.tag is None:
            value = getattr(message, field.name)
            if field.struct is not None and value is not None:
                value = [dict_of(element, field.struct, version) for element in value]
            values[field.name] = value
    if message.FLEXIBLE is not None and version >= message.FLEXIBLE:
        values["_tagged_fields"] = message.unknown_tagged_fields
    return values


def make_sayable(message: Any, struct: Struct, version: int) -> None:
    """Change the values that kafka-protocol can't write.

    It fails on empty strings. In compact form it writes null as another varint than Kafka. It takes known tagged fields
    as bytes only, and writes them in the given order.
    """
    compact = message.FLEXIBLE is not None and version >= message.FLEXIBLE
    for field in struct.fields:
        value = getattr(message, field.name)
        if version not in field.versions:
            continue
        if field.tag is not None:
            setattr(message, field.name, getattr(type(message)(), field.name))
        elif value == "" or (value is None and compact and field.type == "string"):
            setattr(message, field.name, "x")
        elif value is None and compact:
            setattr(message, field.name, [])
        elif field.struct is not None and value is not None:
            for element in value:
                make_sayable(element, field.struct, version)
    message.unknown_tagged_fields = dict(sorted(message.unknown_tagged_fields.items()))


def test_every_version_without_kio_has_another_oracle() -> None:
    """Each version that kio doesn't have is tested with another oracle."""
    missing = {(name, version) for name, (versions, _) in WITHOUT_KIO.items() for version in versions}
    assert missing == {*OLD, *((name, version) for name, version, _ in BY_HAND)}


@pytest.mark.parametrize(("name", "version"), OLD)
@share(4)
@given(data=st.data())
def test_same_bytes_as_kafka_python(name: str, version: int, data: st.DataObject) -> None:
    """Our codec and kafka-python encode any message to the same bytes, and read the same from them."""
    message = data.draw(any_message(name, version))
    values = values_of(message, definition(name).struct, version)
    encoded = encode(message, version)
    assert OLD[name, version](*values).encode() == encoded
    assert OLD[name, version].decode(encoded).encode() == encoded
    assert decode_from(message_class(name), encoded, version) == (message, len(encoded))


@pytest.mark.parametrize(("name", "version"), SMALL)
@share(4)
@given(data=st.data())
def test_same_bytes_as_kafka_protocol(name: str, version: int, data: st.DataObject) -> None:
    """Our codec and kafka-protocol encode any message to the same bytes, and read the same from them."""
    message = data.draw(any_message(name, version))
    make_sayable(message, definition(name).struct, version)
    theirs = SMALL[name, version][version]
    encoded = encode(message, version)
    assert theirs.pack(theirs(**dict_of(message, definition(name).struct, version))) == encoded
    assert theirs.pack(theirs.unpack(io.BytesIO(encoded))) == encoded
    assert decode_from(message_class(name), encoded, version) == (message, len(encoded))


def test_tagged_fields_of_apiversions_by_hand() -> None:
    """The answer's tagged fields have the expected bytes, which kafka-protocol doesn't look into."""
    response = ApiVersionsResponse(
        supported_features=[ApiVersionsResponse.SupportedFeatureKey(name="ab", min_version=0, max_version=1)],
        finalized_features_epoch=5,
        zk_migration_ready=True,
    )
    assert (
        encode(response, 3)
        == (
            b"\0\0"  # error code
            b"\1"  # no API keys
            b"\0\0\0\0"  # throttle time
            b"\3"  # three tagged fields
            b"\0\x09" + b"\2" + b"\3ab" + b"\0\0" + b"\0\1" + b"\0"  # 0: supported features
            b"\1\x08" + b"\0\0\0\0\0\0\0\5"  # 1: epoch
            b"\3\1" + b"\1"  # 3: ready
        )
    )


def text(value: str) -> bytes:
    """Return a string in the form of records before version 4."""
    return len(value).to_bytes(2, "big") + value.encode()


def member(version: int) -> bytes:
    """Return the bytes of the member below."""
    parts = [text("m-1")]
    parts += [text("i-1")] if version >= 3 else []
    parts += [text("client"), text("/127.0.0.1")]
    parts += [b"\0\0\x75\x30"] if version >= 1 else []
    parts += [b"\0\0\x27\x10", b"\0\0\0\2su", b"\0\0\0\3asg"]
    return b"".join(parts)


def group(version: int) -> tuple[Any, bytes]:
    """Return a group with one member, and its bytes."""
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m-1",
        current_state_timestamp=1_000 if version >= 2 else -1,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id="m-1",
                group_instance_id="i-1" if version >= 3 else None,
                client_id="client",
                client_host="/127.0.0.1",
                rebalance_timeout=30_000 if version >= 1 else -1,
                session_timeout=10_000,
                subscription=b"su",
                assignment=b"asg",
            )
        ],
    )
    if version == 4:
        return value, (
            b"\x09consumer" + b"\0\0\0\3" + b"\6range" + b"\4m-1" + b"\0\0\0\0\0\0\3\xe8"
            b"\2" + b"\4m-1" + b"\4i-1" + b"\7client" + b"\x0b/127.0.0.1" + b"\0\0\x75\x30" + b"\0\0\x27\x10"
            b"\3su" + b"\4asg" + b"\0" + b"\0"
        )
    timestamp = b"\0\0\0\0\0\0\3\xe8" if version >= 2 else b""
    head = text("consumer") + b"\0\0\0\3" + text("range") + text("m-1") + timestamp
    return value, head + b"\0\0\0\1" + member(version)


def offset(version: int) -> tuple[Any, bytes]:
    """Return a committed offset, and its bytes."""
    value = OffsetCommitValue(
        offset=7,
        leader_epoch=2 if version >= 3 else -1,
        metadata="note",
        commit_timestamp=1_000,
        expire_timestamp=2_000 if version == 1 else -1,
    )
    epoch = b"\0\0\0\2" if version >= 3 else b""
    note = b"\5note" if version == 4 else text("note")
    expire = b"\0\0\0\0\0\0\7\xd0" if version == 1 else b""
    tags = b"\0" if version == 4 else b""
    return value, b"\0\0\0\0\0\0\0\7" + epoch + note + b"\0\0\0\0\0\0\3\xe8" + expire + tags


def transaction(version: int) -> tuple[TransactionLogValue, bytes]:
    """A transaction with one topic partition; version 1 has the version of the client, tagged."""
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=1,
        transaction_timeout_ms=1_000,
        transaction_status=1,
        transaction_partitions=[TransactionLogValue.PartitionsSchema(topic="t", partition_ids=[5])],
        transaction_last_update_timestamp_ms=3,
        transaction_start_timestamp_ms=2,
        client_transaction_version=2 if version else 0,
    )
    head = b"\0\0\0\0\0\0\0\7" + b"\0\1" + b"\0\0\3\xe8" + b"\1"
    partitions = b"\2" + b"\2t" + b"\2\0\0\0\5" + b"\0" if version else b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\5"
    tags = b"\1" + b"\2\2\0\2" if version else b""
    return value, head + partitions + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\0\0\0\0\2" + tags


BY_HAND = [
    *RECORDS,
    *SHARE,
    *STREAMS,
    by_hand("TransactionLogKey", 0, text("t"), transactional_id="t"),
    *(("TransactionLogValue", version, transaction(version)) for version in range(2)),
    by_hand("GroupMetadataKey", 2, text("g-1"), group="g-1"),
    *(("GroupMetadataValue", version, group(version)) for version in range(5)),
    *(
        by_hand("OffsetCommitKey", version, b"\0\1g\0\1t\0\0\0\1", group="g", topic="t", partition=1)
        for version in range(2)
    ),
    *(("OffsetCommitValue", version, offset(version)) for version in range(5)),
    by_hand(
        "DescribeLogDirsRequest",  # kafka-python writes no null for its topics
        0,
        b"\0\0\0\1" + text("t") + b"\0\0\0\1" + b"\0\0\0\5",
        topics=[{"topic": "t", "partitions": [5]}],
    ),
    by_hand(
        "AlterReplicaLogDirsRequest",
        0,
        b"\0\0\0\1" + text("/d") + b"\0\0\0\1" + text("t") + b"\0\0\0\2" + b"\0\0\0\5" + b"\0\0\0\7",
        dirs=[{"path": "/d", "topics": [{"name": "t", "partitions": [5, 7]}]}],
    ),
    by_hand(
        "AlterReplicaLogDirsResponse",
        0,
        b"\0\0\0\x09" + b"\0\0\0\1" + text("t") + b"\0\0\0\1" + b"\0\0\0\5" + b"\0\x39",
        throttle_time_ms=9,
        results=[{"topic_name": "t", "partitions": [{"partition_index": 5, "error_code": 57}]}],
    ),
    by_hand(
        "ApiVersionsRequest",
        5,
        b"\2a" + b"\0021" + b"\3id" + b"\0\0\0\3" + b"\0",
        client_software_name="a",
        client_software_version="1",
        cluster_id="id",
        node_id=3,
    ),
    by_hand(
        "ApiVersionsResponse",
        5,
        b"\0\x81" + b"\2" + b"\0\x12\0\0\0\5\0" + b"\0\0\0\x09" + b"\0",
        error_code=129,
        api_keys=[{"api_key": 18, "min_version": 0, "max_version": 5}],
        throttle_time_ms=9,
    ),
    by_hand("DeleteGroupsRequest", 3, b"\2\2g\0", groups_names=["g"]),
    by_hand(
        "DeleteGroupsResponse",
        3,
        b"\0\0\0\x09" + b"\2" + b"\2g" + b"\0\x44" + b"\3no" + b"\0" + b"\0",
        throttle_time_ms=9,
        results=[{"group_id": "g", "error_code": 68, "error_message": "no"}],
    ),
    by_hand(
        "TxnOffsetCommitRequest",
        6,
        (b"\2t" + b"\2g" + b"\0\0\0\0\0\0\0\5" + b"\0\3" + b"\xff\xff\xff\xff" + b"\1" + b"\0")
        + (b"\2" + TOPIC_ID.bytes)
        + (b"\2" + b"\0\0\0\4" + b"\0\0\0\0\0\0\0\7" + b"\xff\xff\xff\xff" + b"\2m" + b"\0")
        + (b"\0" + b"\0"),
        transactional_id="t",
        group_id="g",
        producer_id=5,
        producer_epoch=3,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            {
                "topic_id": TOPIC_ID,
                "partitions": [{"partition_index": 4, "committed_offset": 7, "committed_metadata": "m"}],
            }
        ],
    ),
    by_hand(
        "TxnOffsetCommitResponse",
        6,
        b"\0\0\0\x09" + b"\2" + TOPIC_ID.bytes + b"\2" + b"\0\0\0\4" + b"\0\x64" + b"\0" + b"\0" + b"\0",
        throttle_time_ms=9,
        topics=[{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 4, "error_code": 100}]}],
    ),
]
"""Records and messages, and their bytes, which a person wrote from the definition."""


@pytest.mark.parametrize(("name", "version", "example"), BY_HAND)
def test_same_bytes_as_by_hand(name: str, version: int, example: tuple[Any, bytes]) -> None:
    """The codec writes a message to the bytes of its definition, and reads them back."""
    message, encoded = example
    assert encode(message, version) == encoded
    assert decode_from(message_class(name), encoded, version) == (message, len(encoded))


def test_topic_id_of_a_committed_offset() -> None:
    """KAFKA-19141: the topic id is tagged field 0 of version 4, with sixteen bytes."""
    encoded = offset(4)[1][:-1] + b"\1\0\x10" + bytes(range(16))
    value, end = decode_from(OffsetCommitValue, encoded, 4)
    assert (value.topic_id.bytes, end) == (bytes(range(16)), len(encoded))
    assert encode(value, 4) == encoded


def test_group_without_members_or_leader() -> None:
    """The record of an emptied group has its protocol type, and null as protocol and leader."""
    encoded = text("consumer") + b"\0\0\0\4" + b"\xff\xff" + b"\xff\xff" + b"\0\0\0\0\0\0\3\xe8" + b"\0\0\0\0"
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol=None, leader=None)
    value.current_state_timestamp = 1_000
    assert encode(value, 3) == encoded
    assert decode_from(GroupMetadataValue, encoded, 3) == (value, len(encoded))
