"""A log of Apache Kafka 4.4.0 replayed: after each step the group is as Kafka described it.

`golden/kafka-4.4.0.json` has Kafka's log of a group of the consumer protocol in hex, and Kafka's descriptions:
`python -m tests.oracle.consumer_log` writes it anew. The steps are in that module.

House rule: nobody edits the file.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from coordinator.group.consumer.invariants import broken_rules
from coordinator.group.consumer.records import LastRecords
from coordinator.group.topics import TopicImage, TopicTable, metadata_hash
from coordinator.story.records.consumer import CONSUMER_VERSIONS, read_consumer_value
from coordinator.story.records.values import OFFSET_KIND, read_key, read_offset
from protocol.records.batch import Record
from protocol.records.walk import decode_batches
from tests.group.consumer.play import Play
from tests.oracle.consumer_log import GOLDEN, GROUP, MARK, description

GOLDEN_LOG: dict[str, Any] = json.loads(GOLDEN.read_text())
STEPS: list[dict[str, Any]] = GOLDEN_LOG["steps"]


def records_until(step: int) -> list[Record]:
    """Kafka's records up to the mark of a step."""
    found: list[Record] = []
    for batch in decode_batches(bytes.fromhex(GOLDEN_LOG["log_hex"])):
        for record in batch.records:
            key = read_key(record.key)
            if key.kind == OFFSET_KIND and key.group_id == MARK and record.value is not None:
                if read_offset(record.value)[1].offset == step + 1:
                    return found
            else:
                found.append(record)
    raise AssertionError(step)


def topics_of(step: dict[str, Any]) -> TopicTable:
    """The topics as they were in a step."""
    ids = {name: UUID(each) for name, each in GOLDEN_LOG["topic_ids"].items()}
    return TopicTable(TopicImage(ids[name], name, count) for name, count in step["topics"].items())


@pytest.mark.parametrize("number", range(len(STEPS)), ids=[step["name"] for step in STEPS])
def test_replay_gives_the_group_that_kafka_describes(number: int) -> None:
    """State, epochs, members, subscriptions, assignments and targets are those of Kafka's own description."""
    step = STEPS[number]
    play = Play({})
    play.log = records_until(number)
    play.coordinator.topics = topics_of(step)
    play.restart()
    if step["described"] is None:
        assert GROUP not in play.coordinator.groups
        return
    assert description(play.describe()) == step["described"]
    if number and play.group.members:
        names = set(play.group.subscribed_names())
        assert play.group.metadata_hash == metadata_hash(play.coordinator.topics, names)


def test_records_of_kafka_break_no_rule() -> None:
    """After each step the last records keep the rules that `tenure log verify` and the audit check."""
    for number in range(len(STEPS)):
        last = {record.key: record.value for record in records_until(number)}
        records = LastRecords()
        for key, value in last.items():
            read = read_key(key)
            if value is not None and read.kind in CONSUMER_VERSIONS:
                records.put(read.name, read_consumer_value(value, CONSUMER_VERSIONS[read.kind])[1])
        assert list(broken_rules(records)) == []


def test_committed_offset_is_there() -> None:
    """The group's commit is replayed with it."""
    play = Play({})
    play.log = records_until(len(STEPS) - 2)
    play.restart()
    assert play.group.offsets["t"][0].offset == 5
