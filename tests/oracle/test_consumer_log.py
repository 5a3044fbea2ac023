"""The log of a group of the consumer protocol: Apache Kafka 4.4.0 and Tenure write the same records.

Tenure gets Kafka's topics through `tenure log import`, so both know them by the same ids. Kafka's tool prints both
logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coordinator.cli.log.command import app
from tests.cli.conftest import run_app
from tests.oracle.consumer_log import GROUP, KAFKA_SETTINGS, MARK, SETTINGS, Step, create_topics, play
from tests.oracle.dumped import DumpedRecord, dump
from tests.support.apache import VERSION_44, ApacheKafka
from tests.support.tenure import Tenure

pytestmark = pytest.mark.oracle

TIMES = {"assignmentTimestamp", "timestamp", "commitTimestamp"}
VERSION_OF_TOPICS = "version"
"""A field of a regular expression's record: each server counts the versions of its topics in its own way."""
TOPIC_ID = "topicId"
"""A field of a committed offset in Kafka 4.4 (version 4). Tenure writes version 3, as Kafka 3.9 does."""


class Played(NamedTuple):
    """A server's descriptions, and its records by step."""

    steps: list[Step]
    records: list[list[DumpedRecord]]


@pytest.fixture(scope="module")
def both(kafka_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Played, Played]]:
    """Kafka and Tenure after the same play."""
    folder = tmp_path_factory.mktemp("tenure")
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(KAFKA_SETTINGS, version=VERSION_44))
        create_topics(kafka.port)
        kafka.stop()
        tenure = Tenure(SETTINGS, directory=folder)
        stack.callback(tenure.close)
        one = ("--set", "offsets.topic.num.partitions=1")
        ran = run_app(app, "import", str(kafka.log_dir), "--data-dir", str(tenure.data_dir), *one)
        assert (ran.code, ran.err) == (0, "")
        kafka.start()
        expected = play(kafka.port)
        kafka.stop()
        tenure.start()
        found = play(tenure.port)
        assert tenure.stop() == 0
        yield Played(expected, by_step(kafka.log_dir)), Played(found, by_step(tenure.data_dir))


def by_step(data_dir: Path) -> list[list[DumpedRecord]]:
    """The group's records, step by step."""
    steps: list[list[DumpedRecord]] = [[]]
    for record in dump(data_dir, VERSION_44):
        if record.group == MARK:
            steps.append([])
        elif record.group == GROUP:
            steps[-1].append(record)
    assert not steps.pop()
    return steps


def comparable(record: DumpedRecord) -> dict[str, Any]:
    """A record without its times, and without the version of topics."""
    payload = record.payload
    if payload is not None:
        left_out = TIMES | ({VERSION_OF_TOPICS} if record.key["type"] == "16" else {TOPIC_ID})
        payload = {name: in_order(value) for name, value in payload["data"].items() if name not in left_out}
    return {"key": record.key, "payload": payload}


def in_order(value: Any) -> Any:
    """A field with its partitions in order, and their epochs with them: Kafka writes them in no order."""
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return value
    found = []
    for topic in value:
        epochs = topic.get("assignmentEpochs", [None] * len(topic["partitions"]))
        found.append((topic["topicId"], sorted(zip(topic["partitions"], epochs, strict=True))))
    return sorted(found)


def test_both_describe_the_group_alike(both: tuple[Played, Played]) -> None:
    """The same requests lead to the same group after each step."""
    assert both[1].steps == both[0].steps


def test_both_write_the_same_records(both: tuple[Played, Played]) -> None:
    """Each step has the same records, field by field, the hash of topics included; tombstones come in the same order.

    Within a step, records of several members come in any order, as in Kafka.
    """
    kafka, tenure = both
    for step, expected, found in zip(kafka.steps, kafka.records, tenure.records, strict=True):
        assert sorted(map(str, map(comparable, found))) == sorted(map(str, map(comparable, expected))), step.name
        gone = [[record.key for record in records if record.payload is None] for records in (expected, found)]
        assert gone[1] == gone[0], step.name
