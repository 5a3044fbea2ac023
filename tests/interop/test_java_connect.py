"""Kafka Connect 3.9.1, unmodified: two distributed workers in one group, with connectors that read and write files.

The group's protocol type is `connect`, not `consumer`. Connectors, offsets of sources and states of tasks are kept in
three compacted topics, and the sink's two tasks are a consumer group of their own.

House rule: conftest.py's.
"""

from __future__ import annotations

import functools
import json
import socket
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.messages import DescribeGroupsRequest
from tests.interop.brokers import Broker, create_topic, settings_of
from tests.interop.java.process import WAIT_S, JavaProcess
from tests.interop.java.programs import FOLDER
from tests.support.apache import JVM_FLAGS, TOOL_LOG4J, VERSION, jars
from tests.support.patience import WITHIN_S
from tests.support.ports import port_of
from tests.support.raw import ask
from tests.support.tenure import wait_until

pytestmark = pytest.mark.toolchain

PARTITIONS = 2
LINES = 200
REQUEST_S = 20.0
WORKER = """\
bootstrap.servers={bootstrap}
group.id={name}
listeners=http://127.0.0.1:{port}
config.storage.topic={name}-configs
offset.storage.topic={name}-offsets
status.storage.topic={name}-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=2
status.storage.partitions=2
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
plugin.discovery=service_load
session.timeout.ms=6000
heartbeat.interval.ms=500
# What a worker had is given to another one as soon as it is gone, instead of after five minutes.
scheduled.rebalance.max.delay.ms=0
offset.flush.interval.ms=500
"""


class Worker:
    """A worker of the cluster: a process, and its REST interface at a port that is its own."""

    def __init__(self, broker: Broker, name: str, folder: Path) -> None:
        self._port_holder = socket.socket()
        # Bound but not listening, and Jetty sets this too: nobody else is given the port.
        self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port_holder.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._port_holder.getsockname()[1]}"
        folder.mkdir()
        (folder / "log4j.properties").write_text(TOOL_LOG4J)
        port = self.address.rpartition(":")[2]
        (folder / "worker.properties").write_text(WORKER.format(bootstrap=broker.bootstrap, name=name, port=port))
        self._command = [
            *("java", *JVM_FLAGS, "-Xmx256m", f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}"),
            *("-cp", f"{jars(VERSION, FOLDER / 'pom.xml')}/*"),
            *("org.apache.kafka.connect.cli.ConnectDistributed", str(folder / "worker.properties")),
        ]
        self._process: JavaProcess | None = None

    def start(self) -> None:
        """Start the process."""
        self._process = JavaProcess(self._command)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def close(self) -> None:
        """End the process and give up the port."""
        self.kill()
        self._port_holder.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to its REST interface; returns None without an answer, or with another status."""
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as response:
                return json.loads(response.read())
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            return None


class Cluster:
    """Two workers, a source that reads a file into a topic, and a sink of two tasks that writes the topic to a file."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.name = f"connect-{uuid.uuid4().hex[:8]}"
        self.topic = f"lines-{self.name}"
        self.workers = [Worker(broker, self.name, folder / f"worker-{number}") for number in range(2)]
        self._from, self._to = folder / "from.txt", folder / "to.txt"
        self._written = 0
        self._bootstrap = broker.bootstrap

    def connect(self) -> None:
        """Make both connectors, through the first worker."""
        self._from.touch()
        source = {"connector.class": "FileStreamSource", "file": str(self._from), "topic": self.topic}
        sink = {"connector.class": "FileStreamSink", "file": str(self._to), "topics": self.topic, "tasks.max": "2"}
        for name, settings in (("source", source), ("sink", sink)):
            path = f"/connectors/{name}/config"
            # A worker that is rebalancing says so (409), and is asked again.
            wait_until(functools.partial(self.workers[0].ask, "PUT", path, settings), f"{name} is made", WAIT_S)

    def write(self) -> None:
        """More lines for the source."""
        with self._from.open("a") as lines:
            lines.writelines(f"line {number}\n" for number in range(self._written, self._written + LINES))
        self._written += LINES

    def runs_on(self, worker: Worker) -> dict[str, str] | None:
        """Which worker each task runs on, as this one says; None unless all three run."""
        found: dict[str, str] = {}
        for connector in ("source", "sink"):
            status = worker.ask("GET", f"/connectors/{connector}/status")
            for task in (status or {}).get("tasks", ()):
                if task["state"] == "RUNNING":
                    found[f"{connector}-{task['id']}"] = task["worker_id"]
        return found if len(found) == 3 else None

    def is_through(self) -> bool:
        """Whether all lines are where the sink writes them, and the source has stored how far it has read."""
        arrived = set(self._to.read_text().splitlines()) if self._to.exists() else set()
        if arrived != {f"line {number}" for number in range(self._written)}:
            return False
        stored = next(
            found for worker in self.workers if (found := worker.ask("GET", "/connectors/source/offsets")) is not None
        )
        return bool(stored["offsets"] and stored["offsets"][0]["offset"]["position"] == self._from.stat().st_size)

    def produced(self) -> int:
        """How many records the source's topic has."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "nobody", "log_level": 0})
        try:
            asked = [TopicPartition(self.topic, index) for index in range(PARTITIONS)]
            return sum(consumer.get_watermark_offsets(each, timeout=WITHIN_S)[1] for each in asked)
        finally:
            consumer.close()


@pytest.fixture
def cluster(broker: Broker, java: None, tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster with both workers started."""
    cluster = Cluster(broker, tmp_path)
    create_topic(broker.bootstrap, cluster.topic, PARTITIONS)
    with ExitStack() as stack:
        for worker in cluster.workers:
            stack.callback(worker.close)
            worker.start()
        yield cluster


def test_a_worker_takes_over_from_one_that_is_killed(broker: Broker, cluster: Cluster) -> None:
    """Tasks run on both workers; one is killed, the other goes on with all of them, and shares them when it is back.

    Every line arrives, and the source reads none a second time: how far it was is in the topic of offsets.
    """
    first, second = cluster.workers
    cluster.connect()

    def shared() -> dict[str, str] | None:
        found = cluster.runs_on(first)
        return found if found and len(set(found.values())) == 2 else None

    where = wait_until(shared, "tasks run on both", WAIT_S)
    cluster.write()
    wait_until(cluster.is_through, "all lines are through", WAIT_S)

    answer = ask(port_of(broker.bootstrap), DescribeGroupsRequest(groups=[cluster.name]), 5)
    (group,) = answer.groups
    assert (group.protocol_type, group.protocol_data, group.group_state) == ("connect", "sessioned", "Stable")
    assert len(group.members) == 2
    for topic in ("configs", "offsets", "status"):
        assert settings_of(broker.bootstrap, f"{cluster.name}-{topic}") == {"cleanup.policy": "compact"}

    killed, other = (first, second) if where["source-0"] == first.address else (second, first)
    killed.kill()
    cluster.write()
    wait_until(
        lambda: set((cluster.runs_on(other) or {}).values()) == {other.address}, "the other runs all tasks", WAIT_S
    )
    wait_until(cluster.is_through, "all lines are through without it", WAIT_S)
    assert cluster.produced() == 2 * LINES

    killed.start()
    wait_until(shared, "tasks run on both again", WAIT_S)
    cluster.write()
    wait_until(cluster.is_through, "all lines are through again", WAIT_S)
    assert cluster.produced() == 3 * LINES
