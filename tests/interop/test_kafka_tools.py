"""Records with Kafka's own programs, in Java: produced, consumed, looked at; the same on both servers.

Kafka's formatter reads committed offsets from `__consumer_offsets`, and its tool for log files finds nothing wrong with
Tenure's.

House rule: conftest.py's; these need Java on either server.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.interop.brokers import ApacheBroker, Broker, TenureBroker, create_topic
from tests.support.apache import run_tool

pytestmark = pytest.mark.oracle

COUNT = 5_000
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.fixture
def servers(apache_kafka: ApacheBroker, tenure_server: TenureBroker) -> Sequence[Broker]:
    """Both."""
    return apache_kafka, tenure_server


@pytest.fixture
def topic(servers: Sequence[Broker]) -> str:
    """A topic of this test's own, with records in it."""
    name = f"tools-{uuid.uuid4().hex[:8]}"
    for server in servers:
        create_topic(server.bootstrap, name, 2)
        produced = run_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", name, "--num-records", str(COUNT), "--record-size", "100", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={server.bootstrap}", "acks=all", "compression.type=lz4"),
        )
        assert produced.returncode == 0, produced.stderr
        assert f"{COUNT} records sent" in produced.stdout
    return name


def console(server: Broker, topic: str, *arguments: str) -> list[str]:
    """What the console consumer prints of a topic, from its beginning until nothing more comes."""
    read = run_tool(
        CONSOLE,
        *("--bootstrap-server", server.bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", "8000"),
        *arguments,
    )
    return read.stdout.splitlines()


def test_what_java_produces_java_consumes(servers: Sequence[Broker], topic: str) -> None:
    """All of it, once; with properties of each record."""
    for server in servers:
        properties = ("--property", "print.timestamp=true", "--property", "print.partition=true")
        lines = console(server, topic, *properties, "--property", "print.offset=true")
        assert len(lines) == COUNT
        places = {re.search(r"Partition:(\d)\tOffset:(\d+)", line).groups() for line in lines}  # type: ignore[union-attr]
        assert len(places) == COUNT


def test_offsets_of_topics(servers: Sequence[Broker], topic: str) -> None:
    """Ends, beginnings and times, as Kafka's tool prints them."""
    said = []
    for server in servers:
        of_this = []
        for time in ("-1", "-2", "-3", "0"):
            found = run_tool(
                "org.apache.kafka.tools.GetOffsetShell",
                *("--bootstrap-server", server.bootstrap, "--topic", topic, "--time", time),
            )
            assert found.returncode == 0, found.stderr
            lines = found.stdout.splitlines()
            assert sum(int(line.rpartition(":")[2]) for line in lines) == (COUNT if time == "-1" else 0) or time == "-3"
            of_this.append([line.rpartition(":")[0] for line in lines])
        said.append(of_this)
    assert said[0] == said[1]


def test_committed_offsets_are_read_by_kafkas_formatter(servers: Sequence[Broker], topic: str) -> None:
    """From the topic where they are kept."""
    group = f"group-{topic}"
    said = []
    for server in servers:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group, "log_level": 0})
        consumer.commit(offsets=[TopicPartition(topic, 0, 17), TopicPartition(topic, 1, 4)], asynchronous=False)
        consumer.close()
        lines = console(
            server, "__consumer_offsets", "--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
        )
        # It prints one behind the other, without an end of line.
        ours = sorted(found for found in re.findall(r'\{"key":.*?\}\}\}', "".join(lines)) if group in found)
        said.append([re.sub(r'"(commit|expire)Timestamp":-?\d+', "", found) for found in ours])
    assert len(said[0]) == 2
    assert said[0] == said[1]


def test_kafkas_tool_reads_the_files(tenure_server: TenureBroker, topic: str) -> None:
    """Every batch of every segment is valid, and none is missing."""
    data = Path(tenure_server.tenure.data_dir)
    segments = sorted(each for index in (0, 1) for each in (data / f"{topic}-{index}").glob("*.log"))
    dumped = run_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, segments)))
    assert dumped.returncode == 0, dumped.stderr
    batches = [line for line in dumped.stdout.splitlines() if line.startswith("baseOffset:")]
    assert all("isvalid: true" in line for line in batches)
    assert sum(int(count) for count in re.findall(r" count: (\d+) ", dumped.stdout)) == COUNT
