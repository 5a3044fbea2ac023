"""Records of groups of the consumer protocol are read as Kafka defines them; odd bytes are refused with a reason."""

from __future__ import annotations

import struct
from copy import copy

import pytest

from coordinator.group.consumer.records import EPOCH
from coordinator.story.records.consumer import (
    CONSUMER_VERSIONS,
    VALUE_SIZE_MAX,
    name_field,
    read_consumer_key,
    read_consumer_value,
)
from protocol.errors import ProtocolError
from protocol.messages import Message, encode
from tests.protocol.consumer_group_records import RECORDS

KEY_VERSIONS = {name.removesuffix("Key"): version for name, version, _ in RECORDS if name.endswith("Key")}
KEYS = [(version, data) for name, version, (_, data) in RECORDS if name.endswith("Key")]


@pytest.mark.parametrize(("version", "data"), KEYS)
def test_keys_have_a_group_and_a_name(version: int, data: bytes) -> None:
    """Each key names its group; a member or a regular expression is its second field."""
    group_id, name = read_consumer_key(struct.pack(">h", version) + data, version)
    names = {None: None, "member_id": "m", "regular_expression": "t.*"}
    assert (group_id, name) == ("g", names[name_field(version)])
    with pytest.raises(ProtocolError):
        read_consumer_key(struct.pack(">h", version) + data[:-1], version)


def test_every_kind_has_its_version() -> None:
    """The kinds are those of Kafka's records of such groups."""
    assert sorted(CONSUMER_VERSIONS.values()) == sorted(version for version, _ in KEYS)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, _, (value, _) in RECORDS if name.endswith("Value")]
)
def test_a_tagged_field_of_a_later_kafka_is_kept(name: str, value: Message) -> None:
    """A value with a field that nobody here knows is read, and is written with the field."""
    value = copy(value)
    value.unknown_tagged_fields = {9_999: b"later"}
    data = b"\0\0" + encode(value, 0)
    assert data.endswith(b"\x05later")
    _, read = read_consumer_value(data, KEY_VERSIONS[name.removesuffix("Value")])
    assert read.unknown_tagged_fields == {9_999: b"later"}
    assert encode(read, 0) == data[2:]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0", "a value of 1 bytes"),
        (b"\0\1", "unknown value version 1"),
        (b"\0\0\0", "value: "),
        (b"\0\0" + b"\0" * VALUE_SIZE_MAX, "allowed"),
    ],
)
def test_odd_values_are_refused(data: bytes, reason: str) -> None:
    """A value that is cut, from a later version, or larger than any real one is refused; the text says why."""
    with pytest.raises(ProtocolError, match=reason):
        read_consumer_value(data, EPOCH)
