"""What consumers tell each other, of each version and of none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.consumer import decode_assignment, decode_subscription, decode_versioned
from protocol.errors import ProtocolError
from protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, encode

NEWEST = ConsumerProtocolSubscription.VERSIONS[1]


def subscription(version: int, more: bytes = b"") -> bytes:
    """A subscription to one topic that claims `version`."""
    said = ConsumerProtocolSubscription(topics=["orders"], user_data=None)
    return struct.pack(">h", version) + encode(said, min(version, NEWEST)) + more


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_each_version(version: int) -> None:
    """It says which it was."""
    claimed, told = decode_versioned(ConsumerProtocolSubscription, subscription(version))
    assert (claimed, told.topics) == (version, ["orders"])


def test_a_newer_version_is_read_as_the_newest() -> None:
    """What it appends is left out."""
    claimed, told = decode_versioned(ConsumerProtocolSubscription, subscription(NEWEST + 1, b"more"))
    assert (claimed, told.topics) == (NEWEST + 1, ["orders"])


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\1"], ids=["none", "half", "-1", "cut"])
def test_bytes_that_say_nothing(data: bytes) -> None:
    """They are refused, and nothing else happens."""
    with pytest.raises(ProtocolError):
        decode_versioned(ConsumerProtocolAssignment, data)


def assignment(version: int, *topics: tuple[str, list[int]], announced: int | None = None) -> bytes:
    """The bytes of an assignment, whose version in front may be a lie."""
    partition = ConsumerProtocolAssignment.TopicPartition
    body = ConsumerProtocolAssignment(
        assigned_partitions=[partition(topic=topic, partitions=partitions) for topic, partitions in topics]
    )
    return struct.pack(">h", version if announced is None else announced) + encode(body, version)


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_an_assignment_is_read(version: int) -> None:
    """Topics and partitions come in order, whatever the order they were written in."""
    data = assignment(version, ("b", [3, 1]), ("a", [0]))
    assert decode_assignment("consumer", data) == {"a": [0], "b": [1, 3]}


def test_newer_version_is_read_as_the_newest_known() -> None:
    """Later versions append (KIP-429's rule), so what stands behind is left alone."""
    assert decode_assignment("consumer", assignment(3, ("t", [1]), announced=9) + b"new") == {"t": [1]}


def test_nothing_assigned() -> None:
    """No bytes at all is what the coordinator holds before the leader has assigned anything."""
    assert decode_assignment("consumer", b"") == {}
    assert decode_assignment("consumer", assignment(0)) == {}


def test_topic_that_is_named_twice() -> None:
    """Partitions of one topic are joined."""
    assert decode_assignment("consumer", assignment(1, ("t", [2]), ("t", [0]))) == {"t": [0, 2]}


def test_other_protocol_types_keep_their_secret() -> None:
    """Kafka Connect's bytes mean something else, even where they could be read."""
    assert decode_assignment("connect", assignment(1, ("t", [0]))) is None
    assert decode_assignment("connect", b"") == {}


@pytest.mark.parametrize(
    "data", [b"\0", b"\xff\xff\0\0\0\0", b"\0\0", b"\0\0\x7f\xff\xff\xff", assignment(0, ("t", [0]))[:-6]]
)
def test_unreadable_bytes_are_none(data: bytes) -> None:
    """Half a version, a negative one, no body, an absurd length, a cut: unreadable, no exception."""
    assert decode_assignment("consumer", data) is None


@given(st.binary(max_size=200))
def test_odd_bytes_never_raise(data: bytes) -> None:
    """Whatever a leader wrote, an admin can describe the group."""
    decode_assignment("consumer", data)


def test_a_subscription_is_its_topics() -> None:
    """Of a consumer; bytes of others, or none, are unknown."""
    data = b"\x00\x01" + encode(ConsumerProtocolSubscription(topics=["b", "a"], user_data=None), 1)
    assert decode_subscription("consumer", data) == frozenset({"a", "b"})
    assert decode_subscription("connect", data) is None
    assert decode_subscription("consumer", b"") is None
