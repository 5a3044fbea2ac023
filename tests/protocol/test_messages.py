"""Every message in every version comes back from its bytes, and other bytes raise ProtocolError only."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from protocol import messages
from protocol.errors import ProtocolError, UnknownApi
from protocol.messages import (
    API_KEYS,
    NAMES,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupRequest,
    api_schema,
    decode,
    definition,
    encode,
    writer,
)
from tests.protocol.strategies import (
    KNOWN_TAGS,
    MESSAGES,
    any_message,
    full_message,
    is_flexible,
    message_class,
    share,
    unknown_tags,
)
from tests.support.cases import each
from tests.support.decoded import decode_from

VERSIONS = {name: [version for other, version in MESSAGES if other == name] for name, _ in MESSAGES}
EACH_NAME = pytest.mark.parametrize("name", VERSIONS)
"""For tests that draw a version as well."""


@each("name, version", MESSAGES)
def test_round_trip_of_each_version(name: str, version: int) -> None:
    """A message with all fields of its version, and one without values, come back equal, with the same bytes."""
    for message in (full_message(name, version), message_class(name)()):
        data = encode(message, version)
        assert come_back(data, name, version) == (message, len(data), data)


@EACH_NAME
@share(3)
@given(data=st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    """The decoder returns an equal message, at any offset and with other bytes behind, and its bytes are the same.

    A writer that gets a message's values alone writes what the encoder writes, except tagged fields.
    """
    version = data.draw(st.sampled_from(VERSIONS[name]))
    message = data.draw(any_message(name, version))
    before, behind = (data.draw(st.binary(max_size=3)) for _ in range(2))
    encoded = encode(message, version)
    assert come_back(encoded, name, version, before, behind) == (message, len(encoded), encoded)
    message.unknown_tagged_fields = {}
    values = []
    for field in definition(name).struct.fields:
        if field.tag is not None:
            setattr(message, field.name, getattr(message_class(name)(), field.name))
        elif version in field.versions:
            values.append(getattr(message, field.name))
    # mypy takes the class for one of its instances, which have no hash.
    write = writer(message_class(name), version)  # type: ignore[arg-type]
    assert write(*values) == encode(message, version)


def come_back(
    data: bytes, name: str, version: int, before: bytes = b"\7", behind: bytes = b"\7"
) -> tuple[Any, int, bytes]:
    """The message between other bytes, its size, and the bytes that the encoder makes of it."""
    decoded, end = decode_from(message_class(name), before + data + behind, version, len(before))
    return decoded, end - len(before), encode(decoded, version)


@each("name, version", MESSAGES)
def test_truncation_at_every_byte(name: str, version: int) -> None:
    """The decoder refuses a message that ends too early, wherever it ends."""
    encoded = encode(full_message(name, version), version)
    cls = message_class(name)
    assert [size for size in range(len(encoded)) if not is_refused(cls, encoded[:size], version)] == []


def is_refused(cls: type[Any], data: bytes, version: int) -> bool:
    """Whether the decoder refuses bytes; pytest.raises would take most of the time of so many calls."""
    try:
        decode(cls, data, version)
    except ProtocolError:
        return True
    return False


@EACH_NAME
@share(3)
@given(data=st.data())
def test_random_bytes(name: str, data: st.DataObject) -> None:
    """The decoder refuses random bytes, or reads a message that survives a round trip."""
    version = data.draw(st.sampled_from(VERSIONS[name]))
    garbage = data.draw(st.binary(max_size=64))
    try:
        message = decode(message_class(name), garbage, version)
    except ProtocolError:
        return
    assert repr(decode(message_class(name), encode(message, version), version)) == repr(message)  # NaN is not NaN


@EACH_NAME
@share(3)
@given(data=st.data())
def test_damaged_bytes(name: str, data: st.DataObject) -> None:
    """The decoder refuses a damaged message, or reads a message that survives a round trip."""
    version = data.draw(st.sampled_from(VERSIONS[name]))
    encoded = bytearray(encode(full_message(name, version), version))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(encoded)))
        end = data.draw(st.integers(start, min(start + 4, len(encoded))))
        encoded[start:end] = data.draw(st.binary(max_size=4) | st.just(b"\x7f\xff\xff\xff") | st.just(b"\xff" * 4))
    try:
        message = decode(message_class(name), bytes(encoded), version)
    except ProtocolError:
        return
    assert repr(decode(message_class(name), encode(message, version), version)) == repr(message)  # NaN is not NaN


@pytest.mark.parametrize("name", [name for name, versions in VERSIONS.items() if is_flexible(name, versions[-1])])
@share(3)
@given(data=st.data())
def test_unknown_tagged_fields_are_kept(name: str, data: st.DataObject) -> None:
    """A tagged field that no schema has comes back byte for byte."""
    version = data.draw(st.sampled_from([version for version in VERSIONS[name] if is_flexible(name, version)]))
    tags = data.draw(unknown_tags(min_size=1, max_size=3))
    message = full_message(name, version)
    message.unknown_tagged_fields = tags
    decoded = decode(message_class(name), encode(message, version), version)
    assert decoded.unknown_tagged_fields == tags
    assert decoded == message


@given(tags=unknown_tags(first=9_998, last=10_002))
def test_unknown_tags_are_in_no_schema(tags: dict[int, bytes]) -> None:
    """The tests above draw no tag of a known field as an unknown one, such as DescribeGroups' 10000."""
    assert 10_000 in KNOWN_TAGS
    assert KNOWN_TAGS.isdisjoint(tags)


def test_each_message_is_full_in_some_version() -> None:
    """For each field there is a version in which the full message has it."""
    for name in NAMES:
        present = definition(name).struct.fields
        versions = [version for other, version in MESSAGES if other == name]
        assert all(any(version in field.versions for version in versions) for field in present), name


def test_join_reason_is_a_tagged_field_that_others_skip() -> None:
    """KIP-423's field has tag 423 and one byte, from version 6; absent means unknown, older versions drop it."""
    silent, speaking = JoinGroupRequest(group_id="g"), JoinGroupRequest(group_id="g", join_reason=2)
    for version in range(6, 10):
        without = encode(silent, version)
        assert without.endswith(b"\0")
        assert encode(speaking, version) == without[:-1] + b"\1" + b"\xa7\3" + b"\1\2"
        assert decode(JoinGroupRequest, encode(speaking, version), version).join_reason == 2
        assert decode(JoinGroupRequest, without, version).join_reason == -1
    for version in range(6):
        assert encode(speaking, version) == encode(silent, version)


def test_waiting_is_a_tagged_field_that_only_who_asks_for_it_sees() -> None:
    """From version 5 DescribeGroups can have `waiting`; without it the bytes are Kafka's; older versions drop it."""
    waiting = DescribeGroupsResponse.GroupWaiting(
        since_ms=7, members=[DescribeGroupsResponse.GroupAwaitedMember(member_id="m", client_id="c", client_host="/h")]
    )
    told = DescribeGroupsResponse(groups=[DescribeGroupsResponse.DescribedGroup(group_id="g", waiting=waiting)])
    untold = DescribeGroupsResponse(groups=[DescribeGroupsResponse.DescribedGroup(group_id="g")])
    for version in (5, 6):
        assert decode(DescribeGroupsResponse, encode(told, version), version).groups[0].waiting == waiting
        without = encode(untold, version)
        assert without.endswith(b"\0\0"), "no tagged field, neither of the group nor of the answer"
        assert decode(DescribeGroupsResponse, without, version).groups[0].waiting.since_ms == -1
        assert encode(DescribeGroupsRequest(groups=["g"]), version).endswith(b"\0\0")
    for version in range(5):
        assert encode(told, version) == encode(untold, version)


def test_request_and_response_by_api_key() -> None:
    """An API key leads to the classes of its request and response."""
    for api, key in API_KEYS.items():
        assert messages.request_class(key) is getattr(messages, f"{api}Request")
        assert messages.response_class(key) is getattr(messages, f"{api}Response")
        assert messages.request_class(key).API_KEY == messages.response_class(key).API_KEY == key
        assert messages.request_class(key).VERSIONS == api_schema(key).VERSIONS


@pytest.mark.parametrize("key", [-1, 4, 99])
def test_unknown_api_key(key: int) -> None:
    """A key without a schema raises UnknownApi with the key."""
    for function in (api_schema, messages.request_class, messages.response_class):
        with pytest.raises(UnknownApi) as raised:
            function(key)
        assert raised.value.api_key == key


@pytest.mark.parametrize("name", ["NoSuchRequest", "JoinGroup", "Request", "JoinGroupResponseRequest"])
def test_no_such_message(name: str) -> None:
    """A name that isn't a message raises AttributeError, as in any module."""
    with pytest.raises(AttributeError, match=name):
        getattr(messages, name)


def test_all_names_are_listed() -> None:
    """`dir` lists all messages, also those whose class doesn't exist yet."""
    assert set(NAMES) <= set(dir(messages))


def test_a_class_is_made_once() -> None:
    """Two imports of a message give the same class."""
    assert messages.JoinGroupRequest is JoinGroupRequest


def test_naming_one_message_imports_one_schema() -> None:
    """A new process imports the schema of the one message it uses, and the uuid module only if a field needs it."""
    script = (
        "import sys; from protocol.messages import HeartbeatRequest, encode; encode(HeartbeatRequest(), 4);"
        "print(*sorted(n for n in sys.modules if n.startswith('schemas.api.') or n == 'uuid'))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["schemas.api.heartbeat"]
