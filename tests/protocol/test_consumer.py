"""The bytes that consumers send each other, subscriptions and assignments, in each version and damaged."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.consumer import decode_assignment, decode_generation, decode_subscription, decode_versioned
from protocol.errors import ProtocolError
from protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, encode

NEWEST = ConsumerProtocolSubscription.VERSIONS[1]


def subscription(version: int, more: bytes = b"") -> bytes:
    """Return a subscription to one topic that claims `version`."""
    said = ConsumerProtocolSubscription(topics=["orders"], user_data=None)
    return struct.pack(">h", version) + encode(said, min(version, NEWEST)) + more


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_each_version(version: int) -> None:
    """The reader gets topics and version of a subscription in each version."""
    claimed, told = decode_versioned(ConsumerProtocolSubscription, subscription(version))
    assert (claimed, told.topics) == (version, ["orders"])


def test_a_newer_version_is_read_as_the_newest() -> None:
    """The reader reads a newer version as the newest it knows, and ignores the appended bytes."""
    claimed, told = decode_versioned(ConsumerProtocolSubscription, subscription(NEWEST + 1, b"more"))
    assert (claimed, told.topics) == (NEWEST + 1, ["orders"])


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\1"], ids=["none", "half", "-1", "cut"])
def test_bytes_that_say_nothing(data: bytes) -> None:
    """The reader refuses damaged bytes, and raises no other error."""
    with pytest.raises(ProtocolError):
        decode_versioned(ConsumerProtocolAssignment, data)


def test_generation_of_a_consumer_is_read_since_version_2() -> None:
    """Older metadata name none, and damaged ones neither (KIP-792)."""
    said = ConsumerProtocolSubscription(topics=["orders"], user_data=None, generation_id=7)
    data = {version: struct.pack(">h", version) + encode(said, min(version, 1)) for version in (0, 1)}
    data |= {version: struct.pack(">h", version) + encode(said, min(version, NEWEST)) for version in (2, NEWEST + 1)}
    assert {version: decode_generation(said) for version, said in data.items()} == {0: None, 1: None, 2: 7, 4: 7}
    assert decode_generation(b"\0\2\0\0\0\1") is None


def assignment(version: int, *topics: tuple[str, list[int]], announced: int | None = None) -> bytes:
    """Return the bytes of an assignment; `announced` is a wrong version in front."""
    partition = ConsumerProtocolAssignment.TopicPartition
    body = ConsumerProtocolAssignment(
        assigned_partitions=[partition(topic=topic, partitions=partitions) for topic, partitions in topics]
    )
    return struct.pack(">h", version if announced is None else announced) + encode(body, version)


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_an_assignment_is_read(version: int) -> None:
    """The reader returns topics and partitions in order, in whatever order they were written."""
    data = assignment(version, ("b", [3, 1]), ("a", [0]))
    assert decode_assignment("consumer", data) == {"a": [0], "b": [1, 3]}


def test_newer_version_is_read_as_the_newest_known() -> None:
    """Later versions append fields (KIP-429's rule), so the reader ignores the bytes behind those it knows."""
    assert decode_assignment("consumer", assignment(3, ("t", [1]), announced=9) + b"new") == {"t": [1]}


def test_nothing_assigned() -> None:
    """Empty bytes mean no partitions: the coordinator has them before the leader assigns."""
    assert decode_assignment("consumer", b"") == {}
    assert decode_assignment("consumer", assignment(0)) == {}


def test_topic_that_is_named_twice() -> None:
    """The reader joins the partitions of a topic that appears twice."""
    assert decode_assignment("consumer", assignment(1, ("t", [2]), ("t", [0]))) == {"t": [0, 2]}


def test_other_protocol_types_keep_their_secret() -> None:
    """The reader doesn't read bytes of another protocol type, such as Kafka Connect's."""
    assert decode_assignment("connect", assignment(1, ("t", [0]))) is None
    assert decode_assignment("connect", b"") == {}


@pytest.mark.parametrize(
    "data", [b"\0", b"\xff\xff\0\0\0\0", b"\0\0", b"\0\0\x7f\xff\xff\xff", assignment(0, ("t", [0]))[:-6]]
)
def test_unreadable_bytes_are_none(data: bytes) -> None:
    """For damaged bytes (incomplete, negative version, absurd length) the reader returns None, without an error."""
    assert decode_assignment("consumer", data) is None


@given(st.binary(max_size=200))
def test_odd_bytes_never_raise(data: bytes) -> None:
    """The reader raises nothing, whatever bytes a leader sent, so an admin can describe every group."""
    found = decode_assignment("consumer", data)
    assert found is None or all(indexes == sorted(indexes) for indexes in found.values())


def test_a_subscription_is_its_topics() -> None:
    """A consumer's subscription gives its topics; bytes of another protocol type, or no bytes, give None."""
    data = b"\x00\x01" + encode(ConsumerProtocolSubscription(topics=["b", "a"], user_data=None), 1)
    assert decode_subscription("consumer", data) == frozenset({"a", "b"})
    assert decode_subscription("connect", data) is None
    assert decode_subscription("consumer", b"") is None
