"""Topics as entries: nothing is lost on the way, and what isn't known stays."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest

from coordinator.log.topics.entries import (
    declare_in,
    entries_of,
    read_topic,
    topic_entry,
    topic_if_readable,
    topic_value,
    topics_of,
)
from coordinator.log.topics.list import CREDENTIALS, Topic

ORDERS = Topic("or.ders", UUID(int=7), 6, {"retention.ms": "5"})
USERS = Topic("/credentials", CREDENTIALS.topic_id, 0, {"anna/SCRAM:1": "salt=,x", "bob": "y"})
SETS = {"/credentials": CREDENTIALS, "/": Topic("/", UUID(int=0), 0)}


def test_topics_come_back_from_their_entries() -> None:
    """Names, ids, partitions and settings, and the lists that are no topics; an empty one has no entry."""
    brokers = Topic("/", UUID(int=0), 0, {"1/log.retention.ms": "9"})
    topics = {topic.name: topic for topic in (ORDERS, USERS, brokers)}
    entries = {name: value for topic in topics.values() for name, value in entries_of(topic).items()}
    assert sorted(entries) == [
        "set/:1/log.retention.ms",
        "set/credentials:anna/SCRAM:1",
        "set/credentials:bob",
        "topic/or_ders",
    ]
    assert topics_of(entries, SETS) == topics


def test_names_that_metrics_cannot_tell_apart_are_one_entry() -> None:
    """So two nodes can't create both."""
    assert topic_entry("a.b") == topic_entry("a_b") != topic_entry("a-b")


def test_what_a_newer_version_wrote_stays() -> None:
    """An unknown entry is passed over; an unknown field outlives a change."""
    former = json.dumps(json.loads(topic_value(ORDERS)) | {"colour": "red"}).encode()
    entries = {"topic/or_ders": former, "moon/1": b"x", "set/moons:a": b"\xff"}
    assert topics_of(entries, SETS) == {"or.ders": ORDERS}
    assert json.loads(topic_value(ORDERS, former))["colour"] == "red"


FIELDS = {"name": "bad", "topic_id": str(UUID(int=7)), "partition_count": 1, "configs": {}}


@pytest.mark.parametrize(
    "value",
    [
        b"nonsense",
        b"\xff",
        b"[" * 100_000,
        b"7",
        b'{"a": 1}',
        *(
            json.dumps(FIELDS | changed).encode()
            for changed in (
                {"name": "other"},
                {"name": 1},
                {"topic_id": 1},
                {"topic_id": "x"},
                {"topic_id": str(UUID(int=0))},
                {"partition_count": "1"},
                {"partition_count": 0},
                {"configs": None},
                {"configs": {"retention.ms": 5}},
            )
        ),
    ],
    ids=range(14),
)
def test_a_topic_in_another_form_is_refused_and_stays(value: bytes) -> None:
    """Reading raises ValueError and nothing else; the topics of the configuration are declared without it."""
    assert read_topic("topic/bad", json.dumps(FIELDS).encode()) == Topic("bad", UUID(int=7), 1)
    assert topic_if_readable("topic/bad", value) is None
    with pytest.raises(ValueError):  # noqa: PT011 - any of them
        read_topic("topic/bad", value)
    assert list(declare_in({"topic/bad": value}, {"bad": 2, "good": 1}, uuid4)) == ["topic/good"]
