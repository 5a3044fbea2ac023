"""Reads keys and values of the records of groups of the newer protocols (KIP-848, 932, 1071), within limits.

The decoders are those of the coordinator: protocol.messages, in the versions that `consumer_group.py`, `share_group.py`
and `streams_group.py` of `schemas/records` list. A key names its group, and in most kinds something of it: a member, or
an expression.

House rule: bytes raise ProtocolError, and nothing else.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from coordinator.group.consumer.records import (
    CURRENT,
    EPOCH,
    FORMS,
    MEMBER,
    TARGET,
    TARGET_EPOCH,
)
from coordinator.group.records import NEWER_KINDS
from protocol.compile import Message
from protocol.errors import ProtocolError
from protocol.messages import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTopologyValue,
    decode,
)

SHARE_MEMBER, SHARE_EPOCH, SHARE_TARGET_EPOCH, SHARE_TARGET, SHARE_CURRENT, SHARE_STATE = range(10, 16)
STREAMS_EPOCH, STREAMS_MEMBER, STREAMS_TARGET_EPOCH, STREAMS_TARGET, STREAMS_CURRENT, STREAMS_TOPOLOGY = (
    17, 19, 20, 21, 22, 23,
)  # fmt: skip
"""The versions of further keys; `schemas/records` says what each record is."""

VALUE_SIZE_MAX = 16 * 1024 * 1024
"""Bytes of a value at most: a member with 1,000,000 partitions, their epochs, and as many again to give up.

No real record comes near, as a record is by default 1 MB at most (message.max.bytes).
"""

_int16 = struct.Struct(">h")

Value = TypeVar("Value", bound=Message)


CONSUMER_VERSIONS = {NEWER_KINDS[version]: version for version in FORMS}
"""Kind of a record of a group of the consumer protocol -> the version of its key."""

_SHARE_FORMS = {
    SHARE_MEMBER: FORMS[MEMBER]._replace(value=ShareGroupMemberMetadataValue),
    SHARE_EPOCH: FORMS[EPOCH]._replace(value=ShareGroupMetadataValue),
    SHARE_TARGET_EPOCH: FORMS[TARGET_EPOCH],
    SHARE_TARGET: FORMS[TARGET],
    SHARE_CURRENT: FORMS[CURRENT]._replace(value=ShareGroupCurrentMemberAssignmentValue),
    SHARE_STATE: FORMS[EPOCH]._replace(value=ShareGroupStatePartitionMetadataValue),
}

SHARE_VERSIONS = {NEWER_KINDS[version]: version for version in _SHARE_FORMS}
"""Kind of a record of a share group -> the version of its key."""

_STREAMS_FORMS = {
    STREAMS_EPOCH: FORMS[EPOCH]._replace(value=StreamsGroupMetadataValue),
    STREAMS_MEMBER: FORMS[MEMBER]._replace(value=StreamsGroupMemberMetadataValue),
    STREAMS_TARGET_EPOCH: FORMS[TARGET_EPOCH],
    STREAMS_TARGET: FORMS[TARGET]._replace(value=StreamsGroupTargetAssignmentMemberValue),
    STREAMS_CURRENT: FORMS[CURRENT]._replace(value=StreamsGroupCurrentMemberAssignmentValue),
    STREAMS_TOPOLOGY: FORMS[EPOCH]._replace(value=StreamsGroupTopologyValue),
}

STREAMS_VERSIONS = {NEWER_KINDS[version]: version for version in _STREAMS_FORMS}
"""Kind of a record of a streams group -> the version of its key."""

_FORMS = FORMS | _SHARE_FORMS | _STREAMS_FORMS
READ_VERSIONS = CONSUMER_VERSIONS | SHARE_VERSIONS | STREAMS_VERSIONS


def name_field(version: int) -> str | None:
    """The field of a key of that version that has a name: `member_id`, `regular_expression`, or None if it has none."""
    return _FORMS[version].name


def read_consumer_key(data: bytes, version: int) -> tuple[str, str | None]:
    """The group of a key, and the name in it. Raises ProtocolError."""
    form = _FORMS[version]
    key = decode(form.key, data, form.key.VERSIONS[0], _int16.size)
    group_id: str = key.group_id  # type: ignore[attr-defined]
    return group_id, None if form.name is None else getattr(key, form.name)


def read_consumer_value(data: bytes, version: int) -> tuple[int, Message]:
    """Version and fields of the value behind a key of `version`. Raises ProtocolError; its text is the whole reason."""
    if len(data) > VALUE_SIZE_MAX:
        raise ProtocolError(f"value: {len(data)} bytes, {VALUE_SIZE_MAX} allowed")
    cls = _FORMS[version].value
    first, last = cls.VERSIONS
    return read_value(cls, data, read_version(data, range(first, last + 1)))


def read_version(data: bytes, known: range) -> int:
    """The version that a value begins with. Raises ProtocolError unless it is a known one."""
    if len(data) < _int16.size:
        raise ProtocolError(f"a value of {len(data)} bytes")
    version: int = _int16.unpack_from(data)[0]
    if version not in known:
        raise ProtocolError(f"unknown value version {version}")
    return version


def read_value(cls: type[Value], data: bytes, version: int) -> tuple[int, Value]:
    """Version and fields of a value. Raises ProtocolError."""
    try:
        return version, decode(cls, data, version, _int16.size)
    except ProtocolError as error:
        raise ProtocolError(f"value: {error}") from error
