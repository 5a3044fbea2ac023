"""kafka-transactions of Kafka 4.4.0, each of its commands, on Kafka 4.4.0 and on Tenure, with workers too: one output.

An open transaction is listed, described and aborted in one of its partitions, which its coordinator doesn't notice. A
transaction that no coordinator knows hangs: on Tenure it is there because somebody put its records into the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from coordinator.group.partition import partition_for
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, list_segments
from tests.interop.java.tools import Tools
from tests.oracle.conftest import CONSUMER_NODES, SAME_NAME
from tests.oracle.producer import START_MS, Producer, producer
from tests.oracle.stage import Stage
from tests.oracle.test_scripts import TRANSACTIONS
from tests.support.apache import VERSION_44, ApacheKafka
from tests.support.batches import batch
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.requests import request
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

NODE_ID = 1
"""Of Kafka, and of the worker that coordinates the transactional id."""
ORDERS = ("--topic", "orders", "--partition", "0")
COMMANDS = (
    ("list",),
    ("list", "--duration-filter", "3600000"),
    ("describe", "--transactional-id", "tool.a"),
    ("describe-producers", *ORDERS),
    ("describe-producers", "--broker-id", "1", *ORDERS),
    ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"),
    ("find-hanging", *ORDERS, "--max-transaction-timeout", "0"),
    ("abort", *ORDERS, "--start-offset", "0"),
    ("describe-producers", *ORDERS),
    ("abort", *ORDERS, "--start-offset", "0"),
    ("forceTerminateTransaction", "--transactionalId", "tool.a"),
    ("describe", "--transactional-id", "tool.a"),
    ("describe", "--transactional-id", "not.there"),
)
EMPTY_ONGOING_TWICE_PREPARED_COMPLETE = 5
"""The records of a transaction with a topic partition and offsets."""

IDS_BEFORE = 100
"""Producer ids that are used up first: Kafka counts them from 0, and a small number could be any other number, too."""

Printed = list[tuple[int, list[str], list[str]]]


@pytest.fixture(scope="module")
def tools(kafka_is_here: None) -> Iterator[Tools]:
    """The commands of Kafka 4.4.0."""
    with Tools(VERSION_44) as made:
        yield made


class Worker(NamedTuple):
    """One of several workers. port: its own."""

    port: int

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"


def printed(tools: Tools, server: ApacheKafka | Tenure | Worker) -> Printed:
    """What each command prints, while a transaction is open. Numbers of ids and times are left out."""
    stage = Stage(server, "tool")
    stage.topic("orders", 1)
    for _ in range(IDS_BEFORE):
        stage.ask_aside(request("InitProducerId", transactional_id=None), 0)
    a = producer(stage, "a", version=2)
    a.init()
    a.send("orders", b"one")
    found = []
    for command in COMMANDS:
        done = tools.run("transactions", "--bootstrap-server", server.bootstrap, *command)
        found.append(
            (done.code, sorted(plain(done.out, a)), [line for line in plain(done.err, a) if "WARN" not in line])
        )
    stage.close()
    return found


def create_orders(worker: Worker) -> None:
    """Create the topic, again and again until its id makes this worker the leader."""
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1}
    with Connection(worker.port) as connection:

        def is_led() -> bool:
            asked = request("Metadata", topics=[{"name": "orders"}])
            found = connection.ask(asked, 12).topics[0]
            if found.error_code:
                connection.ask(request("CreateTopics", topics=[topic], timeout_ms=60_000), 4)
            elif found.partitions[0].leader_id == NODE_ID:
                return True
            else:
                connection.ask(request("DeleteTopics", topics=[{"name": "orders"}], timeout_ms=60_000), 6)
            return False

        wait_until(is_led, "the worker leads the topic", WITHIN_S)


def plain(text: str, a: Producer) -> list[str]:
    """The lines about this producer, in which numbers that differ between two runs are words."""
    lines = [" ".join(line.split()) for line in text.splitlines() if not line.startswith("ready")]
    found = re.sub(rf"\b{a.producer_id}\b", "its-id", "\n".join(lines))
    return re.sub(r"\b\d{13}( \d+\b)?", "time", found).splitlines()


def test_each_command_prints_what_it_prints_on_kafka(tools: Tools) -> None:
    """Its output, its exit code, and its error."""
    settings = CONSUMER_NODES[TRANSACTIONS] | SAME_NAME
    with ApacheKafka(settings, version=VERSION_44) as kafka:
        expected = printed(tools, kafka)
    with Tenure(settings) as tenure:
        found = printed(tools, tenure)
    assert dict(zip(COMMANDS, found, strict=True)) == dict(zip(COMMANDS, expected, strict=True))
    with Tenure(settings | {"node.id": NODE_ID - 1}, arguments=["--workers", "2"]) as tenure:
        worker = Worker(tenure.ports[1])
        create_orders(worker)
        found = printed(tools, worker)
    assert dict(zip(COMMANDS, found, strict=True)) == dict(zip(COMMANDS, expected, strict=True))


def test_a_hanging_transaction_is_found_and_aborted(tools: Tools) -> None:
    """One that no coordinator knows, as in a broker's folder: readers of committed records read on afterwards."""
    with Tenure(CONSUMER_NODES[TRANSACTIONS] | SAME_NAME | {"tenure.topics": "orders:1"}) as tenure:
        stage = Stage(tenure, "tool")
        a = producer(stage, "a", version=2)
        a.init()
        a.send("orders", b"one")
        a.end()
        stage.close()
        tenure.stop()
        hang(tenure.data_dir / "orders-0", at=2)
        tenure.start()
        common = "--bootstrap-server", tenure.bootstrap
        found = tools.run("transactions", *common, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
        assert [line.split()[:3] for line in found.out.splitlines()[1:]] == [["orders", "0", "77"]]
        assert tools.run("transactions", *common, "abort", *ORDERS, "--start-offset", "2").code == 0
        stage = Stage(tenure, "tool")
        reader = producer(stage, "reader")
        reader.ends("orders", 1)
        assert "offset=4 " in str(stage.transcript.comparable()[-1])
        stage.close()


def test_kafkas_decoder_reads_the_log(tools: Tools) -> None:
    """kafka-dump-log decodes each record of `__transaction_state`, and those of pending offsets with their marker."""
    with Tenure(CONSUMER_NODES[TRANSACTIONS] | SAME_NAME) as tenure:
        stage = Stage(tenure, "dumped")
        stage.topic("orders", 1)
        a = producer(stage, "a", version=2)
        a.init()
        a.send("orders", b"one")
        a.commit("orders", 1)
        a.end()
        stage.close()
        tenure.stop()
        ids = segments(tenure, TRANSACTIONS_TOPIC, partition_for("dumped.a", 4))
        offsets = segments(tenure, OFFSETS_TOPIC, partition_for("dumped", 4))
        by_id = tools.run("dump-log", "--transaction-log-decoder", "--files", ids)
        by_offset = tools.run("dump-log", "--offsets-decoder", "--deep-iteration", "--files", offsets)
    assert (by_id.code, by_offset.code) == (0, 0)
    records = [line for line in by_id.out.splitlines() if '"transactionalId":"dumped.a"' in line]
    assert len(records) == EMPTY_ONGOING_TWICE_PREPARED_COMPLETE, by_id.out
    assert "endTxnMarker: COMMIT" in by_offset.out


def segments(server: Tenure, topic: str, number: int) -> str:
    """The newest segment of a log."""
    return str(list_segments(Disk(), server.data_dir / f"{topic}-{number}")[-1].path)


def hang(folder: Path, at: int) -> None:
    """Put a record of a transaction that nobody ends behind a log's last batch, at offset `at`."""
    data = batch([(b"k", b"v", START_MS)], producer_id=77, producer_epoch=3, sequence=0, attributes=16, base_offset=at)
    path = list_segments(Disk(), folder)[-1].path
    path.write_bytes(path.read_bytes() + data)
