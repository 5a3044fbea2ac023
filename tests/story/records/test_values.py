"""Keys and values are read within limits."""

from __future__ import annotations

import struct

import pytest

from coordinator.audit.read.parse import parse_record
from coordinator.story.records import values as module
from coordinator.story.records.values import read_assignment, read_key, read_subscription
from protocol.records.batch import Record
from tests.audit.read.test_parse import named
from tests.audit.scenes import GROUP, assignment, group_key, group_value, member, offset_key, subscription


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 99])
def test_consumer_protocol_of_every_version(version: int) -> None:
    """The audit reads the known fields of a newer version of the consumer protocol, which only appends fields."""
    known = min(version, 3)
    owned = {"a": [1], "b": []}
    data = struct.pack(">h", version) + subscription(["b", "a"], known, owned)[2:] + (b"more" if version > 3 else b"")
    assert read_subscription(data) == (("b", "a"), ("a",) if version > 0 else ())
    data = struct.pack(">h", version) + assignment({"t": [2, 1]}, known)[2:]
    assert read_assignment(data) == (("t", (2, 1)),)


@pytest.mark.parametrize("data", [b"\0", b"\0\1", b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\7", b"\0\0\x7f\xff\xff\xff"])
def test_what_is_no_consumer_protocol_is_none(data: bytes) -> None:
    """Bytes that aren't the consumer protocol give nothing and raise nothing."""
    assert read_subscription(data) is None
    assert read_assignment(data) is None
    assert (read_subscription(b""), read_assignment(b"")) == (((), ()), ())


@pytest.mark.parametrize("version", range(5))
def test_group_beyond_all_use_is_not_believed(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with more members or partitions than the limit is undecodable; a group at the limit is read.

    The members are counted before any of them is decoded.
    """
    members = [member(name, {"orders": [number]}) for number, name in enumerate("abc")]
    record = Record(group_key("g"), group_value(members, 1, version=version), 0)
    for name, what in (("MEMBERS_MAX", "members"), ("PARTITIONS_MAX", "topic partitions assigned")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, 3)
            assert len(parse_record(0, 0, record)["members"]) == 3
            patched.setattr(module, name, 2)
            rows = parse_record(0, 0, record)
        assert [named("other", row)["reason"] for row in rows["other"]] == [f"value: 3 {what}, 2 allowed"]
        assert not any(of_table for table, of_table in rows.items() if table != "other")


def test_what_takes_much_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache keeps no large key or value, and the decoder reads only a limited number of partitions."""
    data = assignment({"orders": list(range(300))})
    assert read_assignment(data) is not read_assignment(data)
    assert read_assignment(data[:0]) == ()
    monkeypatch.setattr(module, "MEMBER_DATA_SIZE_MAX", len(data) - 1)
    assert read_assignment(data) is None


def test_key_is_read_once() -> None:
    """A key that comes again isn't decoded again."""
    assert read_key(offset_key(GROUP)) is read_key(offset_key(GROUP))
