"""What consumers tell each other, of each version and of none."""

from __future__ import annotations

import struct

import pytest

from protocol.consumer import decode_told
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
    claimed, told = decode_told(ConsumerProtocolSubscription, subscription(version))
    assert (claimed, told.topics) == (version, ["orders"])


def test_a_newer_version_is_read_as_the_newest() -> None:
    """What it appends is left out."""
    claimed, told = decode_told(ConsumerProtocolSubscription, subscription(NEWEST + 1, b"more"))
    assert (claimed, told.topics) == (NEWEST + 1, ["orders"])


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\1"], ids=["none", "half", "-1", "cut"])
def test_bytes_that_say_nothing(data: bytes) -> None:
    """They are refused, and nothing else happens."""
    with pytest.raises(ProtocolError):
        decode_told(ConsumerProtocolAssignment, data)
