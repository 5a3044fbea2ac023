"""kio as oracle: another project encodes every message and version to the same bytes, in both directions.

kio has a class per version, made from Kafka's definitions by its own generator. The tests turn our message into kio's
by the field names; then both encode to the same bytes, and each decodes them to its own message again.

`WITHOUT_KIO` lists the versions that kio doesn't have; test_other_oracles.py tests those.
"""

from __future__ import annotations

import dataclasses
import io
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeader2
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from protocol.header import encode_request, encode_response
from protocol.messages import API_KEYS, definition, encode
from schemas.api import module_name
from tests.protocol.strategies import MESSAGES, any_message, full_message, is_flexible, message_class, share
from tests.support.cases import each
from tests.support.decoded import decode_from

if TYPE_CHECKING:
    from protocol.definition import Struct

DROPPED = "Kafka 4 dropped this version (KIP-896), and kio follows Kafka 4"
NEWER = "a version of Kafka 4.4, which is newer than kio"
SERVER = "a record of the server, which kio leaves out"
WITHOUT_KIO = {
    "ApiVersionsRequest": ((5,), NEWER),
    "ApiVersionsResponse": ((5,), NEWER),
    "DeleteGroupsRequest": ((3,), NEWER),
    "DeleteGroupsResponse": ((3,), NEWER),
    "TxnOffsetCommitRequest": ((6,), NEWER),
    "TxnOffsetCommitResponse": ((6,), NEWER),
    "ProduceRequest": ((0, 1, 2), DROPPED),
    "ProduceResponse": ((0, 1, 2), DROPPED),
    "OffsetCommitRequest": ((0, 1), DROPPED),
    "OffsetCommitResponse": ((0, 1), DROPPED),
    "OffsetFetchRequest": ((0,), DROPPED),
    "OffsetFetchResponse": ((0,), DROPPED),
    "ListOffsetsRequest": ((0,), DROPPED),
    "ListOffsetsResponse": ((0,), DROPPED),
    "OffsetForLeaderEpochRequest": ((0, 1), DROPPED),
    "OffsetForLeaderEpochResponse": ((0, 1), DROPPED),
    "CreateTopicsRequest": ((0, 1), DROPPED),
    "CreateTopicsResponse": ((0, 1), DROPPED),
    "DeleteTopicsRequest": ((0,), DROPPED),
    "DeleteTopicsResponse": ((0,), DROPPED),
    "AlterReplicaLogDirsRequest": ((0,), DROPPED),
    "AlterReplicaLogDirsResponse": ((0,), DROPPED),
    "DescribeLogDirsRequest": ((0,), DROPPED),
    "DescribeLogDirsResponse": ((0,), DROPPED),
    "DescribeConfigsRequest": ((0,), DROPPED),
    "DescribeConfigsResponse": ((0,), DROPPED),
    "CreateAclsRequest": ((0,), DROPPED),
    "CreateAclsResponse": ((0,), DROPPED),
    "DeleteAclsRequest": ((0,), DROPPED),
    "DeleteAclsResponse": ((0,), DROPPED),
    "DescribeAclsRequest": ((0,), DROPPED),
    "DescribeAclsResponse": ((0,), DROPPED),
    "GroupMetadataKey": ((2,), SERVER),
    "GroupMetadataValue": ((0, 1, 2, 3, 4), SERVER),
    "ConsumerGroupMetadataKey": ((3,), SERVER),
    "ConsumerGroupMetadataValue": ((0,), SERVER),
    "ConsumerGroupPartitionMetadataKey": ((4,), SERVER),
    "ConsumerGroupPartitionMetadataValue": ((0,), SERVER),
    "ConsumerGroupMemberMetadataKey": ((5,), SERVER),
    "ConsumerGroupMemberMetadataValue": ((0,), SERVER),
    "ConsumerGroupTargetAssignmentMetadataKey": ((6,), SERVER),
    "ConsumerGroupTargetAssignmentMetadataValue": ((0,), SERVER),
    "ConsumerGroupTargetAssignmentMemberKey": ((7,), SERVER),
    "ConsumerGroupTargetAssignmentMemberValue": ((0,), SERVER),
    "ConsumerGroupCurrentMemberAssignmentKey": ((8,), SERVER),
    "ConsumerGroupCurrentMemberAssignmentValue": ((0,), SERVER),
    "ConsumerGroupRegularExpressionKey": ((16,), SERVER),
    "ConsumerGroupRegularExpressionValue": ((0,), SERVER),
    "ShareGroupMetadataValue": ((0,), SERVER),
    "ShareGroupMemberMetadataValue": ((0,), SERVER),
    "ShareGroupCurrentMemberAssignmentValue": ((0,), SERVER),
    "ShareGroupStatePartitionMetadataValue": ((0,), SERVER),
    "StreamsGroupMetadataValue": ((0,), SERVER),
    "StreamsGroupMemberMetadataValue": ((0,), SERVER),
    "StreamsGroupTargetAssignmentMemberValue": ((0,), SERVER),
    "StreamsGroupCurrentMemberAssignmentValue": ((0,), SERVER),
    "StreamsGroupTopologyValue": ((0,), SERVER),
    "OffsetCommitKey": ((0, 1), SERVER),
    "OffsetCommitValue": ((0, 1, 2, 3, 4), SERVER),
    "TransactionLogKey": ((0,), SERVER),
    "TransactionLogValue": ((0, 1), SERVER),
}
"""Versions that have no class in kio, with the reason."""

COMMON = {
    "V3AndBelowTopic": "AddPartitionsToTxnTopic",
    "V3AndBelowTopicResult": "AddPartitionsToTxnTopicResult",
    "V3AndBelowPartitionResult": "AddPartitionsToTxnPartitionResult",
}
"""Structs that two fields of Kafka's definition share, by the name of ours for the second one."""

OURS_ALONE = {
    "JoinGroupRequest": {"join_reason"},
    "DescribeGroupsRequest": {"include_waiting"},
    "DescribedGroup": {"waiting", "expects", "target_size"},
    "DescribedGroupMember": {"session_timeout_ms", "silent_ms", "standby_ms", "client_software"},
    "Member": {"session_timeout_ms", "silent_ms"},
    "ConsumerGroupDescribeRequest": {"include_waiting"},
    "DescribeClusterRequest": {"include_failing_logs"},
    "DescribeClusterResponse": {"failing_logs", "failing_log_count", "store"},
}
"""Fields that are ours alone: Kafka's definitions don't have them."""

COMPARED = [(name, version) for name, version in MESSAGES if version not in WITHOUT_KIO.get(name, ((), ""))[0]]

ERROR_CODES = list(KioErrorCode)


@cache
def kio_module(name: str, version: int) -> Any:
    """Return kio's module with a message's classes for a version. Raises ImportError if there is none."""
    for kind in ("Request", "Response"):
        if name.removesuffix(kind) in API_KEYS:
            return import_module(f"kio.schema.{module_name(name.removesuffix(kind))}.v{version}.{kind.lower()}")
    return import_module(f"kio.schema.{module_name(name)}.v{version}.data")


def our_name(field: dataclasses.Field[Any]) -> str:
    """Return our name of kio's field: kio leaves the unit out of the names of times."""
    return f"{field.name}_ms" if re.match("timedelta|datetime", field.metadata.get("kafka_type", "")) else field.name


def pair(message: Any, struct: Struct, version: int, module: Any) -> Any:
    """Return kio's message with the same values.

    kio can't hold some values: error codes that Kafka doesn't have, 64-bit times, our own fields. The function changes
    them in `message`.
    """
    ours_alone = OURS_ALONE.get(struct.name, set()) & {field.name for field in struct.fields}
    for name in ours_alone:
        setattr(message, name, getattr(type(message)(), name))
    cls = getattr(module, COMMON.get(struct.name, struct.name))
    ours = {field.name: field for field in struct.fields if version in field.versions}
    theirs = {our_name(field): field for field in dataclasses.fields(cls)}
    assert set(theirs) == set(ours) - ours_alone
    values: dict[str, Any] = {}
    for name, field in theirs.items():
        value = getattr(message, name)
        nested = ours[name].struct
        if value is None:
            pass
        elif nested is not None and ours[name].array:
            value = tuple(pair(element, nested, version, module) for element in value)
        elif nested is not None:
            value = pair(value, nested, version, module)
        elif ours[name].array:
            value = tuple(value)
        else:
            value = in_kio(message, name, value, field.metadata["kafka_type"])
        values[field.name] = value
    return cls(**values)


def in_kio(message: Any, name: str, value: Any, kio_type: str) -> Any:
    """Return a value in kio's form; if kio can't hold it, change it in the message too."""
    if kio_type == "error_code":
        code = ERROR_CODES[value % len(ERROR_CODES)]
        setattr(message, name, int(code))
        return code
    if kio_type in {"timedelta_i64", "datetime_i64"}:
        value %= 2**40
        setattr(message, name, value)
    if kio_type.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if kio_type == "datetime_i64":
        return datetime.fromtimestamp(value // 1000, tz=UTC) + timedelta(milliseconds=value % 1000)
    if kio_type == "uuid" and value == UUID(int=0):
        return None
    return value


def kio_bytes(message: Any) -> bytes:
    """Return the bytes that kio makes of its message."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def of_both(message: Any, name: str, version: int) -> tuple[list[Any], list[Any]]:
    """Return the bytes that our codec and kio make of a message, what both read from ours, and what each should be."""
    module = kio_module(name, version)
    theirs = pair(message, definition(name).struct, version, module)
    encoded = encode(message, version)
    ours_read = decode_from(message_class(name), encoded, version)
    theirs_read = entity_reader(getattr(module, name))(encoded, 0)
    size = len(encoded)
    return [encoded, ours_read, theirs_read], [kio_bytes(theirs), (message, size), (theirs, size)]


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in COMPARED))
@share(3)
@given(data=st.data())
def test_same_bytes_as_kio(name: str, data: st.DataObject) -> None:
    """Our codec and kio encode any message to the same bytes, and decode these to it."""
    version = data.draw(st.sampled_from([version for other, version in COMPARED if other == name]))
    found, expected = of_both(data.draw(any_message(name, version, tags=False)), name, version)
    assert found == expected


@each("name, version", COMPARED)
def test_same_bytes_as_kio_with_every_field(name: str, version: int) -> None:
    """The bytes are the same for a message without default values."""
    message = full_message(name, version)
    forget_tags(message)
    found, expected = of_both(message, name, version)
    assert found == expected


def forget_tags(message: Any) -> None:
    """Remove unknown tagged fields, which kio doesn't keep, at every depth."""
    message.unknown_tagged_fields = {}
    for name in type(message).__slots__:
        value = getattr(message, name)
        for element in value if isinstance(value, list) else [value]:
            if hasattr(element, "unknown_tagged_fields"):
                forget_tags(element)


def test_list_of_what_kio_lacks_is_current() -> None:
    """Each version in WITHOUT_KIO really has no class in kio."""
    for name, (versions, _) in WITHOUT_KIO.items():
        for version in versions:
            with pytest.raises(ImportError):
                kio_module(name, version)


@each("name, version", [pair for pair in COMPARED if pair[0].endswith("Request")])
def test_same_request_header_as_kio(name: str, version: int) -> None:
    """Our request has the bytes of the header that kio names for this version."""
    module = kio_module(name, version)
    header_class = getattr(module, name).__header_schema__
    assert header_class is (KioRequestHeader2 if is_flexible(name, version) else KioRequestHeader1)
    message = message_class(name)()
    values: dict[str, Any] = {"request_api_key": message.API_KEY, "request_api_version": version}
    header = header_class(**values, correlation_id=i32(7), client_id="client")
    size = len(encode(message, version))
    assert encode_request(message, version, 7, "client")[4 : -size or None] == kio_bytes(header)


@each("name, version", [pair for pair in COMPARED if pair[0].endswith("Response")])
def test_same_response_header_as_kio(name: str, version: int) -> None:
    """Our response has the bytes of the header that kio names for this version."""
    message = full_message(name, version)
    header = getattr(kio_module(name, version), name).__header_schema__(correlation_id=7)
    size = len(encode(message, version))
    assert encode_response(message.API_KEY, version, 7, message)[4:-size] == kio_bytes(header)
