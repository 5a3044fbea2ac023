"""Topics as entries: nothing is lost on the way, and what isn't known stays."""

from __future__ import annotations

import json
from uuid import UUID

from coordinator.log.topics.entries import entries_of, topic_entry, topic_value, topics_of
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
    entries = {"topic/or_ders": former, "moon/1": b"x", "set/moons:a": b"y"}
    assert topics_of(entries, SETS) == {"or.ders": ORDERS}
    assert json.loads(topic_value(ORDERS, former))["colour"] == "red"
