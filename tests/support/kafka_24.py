"""Apache Kafka 2.4.1, the oldest release with LeaveGroup version 3 (KIP-345), and the ZooKeeper that it needs.

    with Kafka24({"group.initial.rebalance.delay.ms": "500"}) as kafka:
        kafka.bootstrap

House rule: only processes that this module started get signals, by pid.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.apache import JVM_FLAGS, LOG4J, ApacheKafkaError, jars
from tests.support.patience import WITHIN_S
from tests.support.ports import reserved_port
from tests.support.started import Started
from tests.support.tenure import wait_until

VERSION_24 = "2.4.1"
POM = Path(__file__).with_name("kafka-2.4.pom.xml")
SETTINGS = {
    "broker.id": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Kafka24(Started):
    """A broker. bootstrap: HOST:PORT. log_file: its log."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._jars = jars(VERSION_24, POM)
        self._folder = Path(tempfile.mkdtemp(prefix="kafka-24-"))
        self._held = [reserved_port() for _ in range(2)]
        port, keeper = (held.getsockname()[1] for held in self._held)
        self.bootstrap = f"127.0.0.1:{port}"
        self.log_file = self._folder / "kafka.log"
        self._keeper = {
            "dataDir": str(self._folder / "zookeeper"),
            "clientPort": str(keeper),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }
        self._settings = SETTINGS | {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "zookeeper.connect": f"127.0.0.1:{keeper}",
            "log.dirs": str(self._folder / "data"),
            **settings,
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the broker on the data that there are, and ZooKeeper before it unless it runs."""
        if "zookeeper" not in self._processes:
            (self._folder / "log4j.properties").write_text(LOG4J)
            self._run("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", self._keeper, "binding to port")
        self._run("kafka", "kafka.Kafka", self._settings, "started (kafka.server.KafkaServer)")

    def kill(self) -> None:
        """End the broker with SIGKILL."""
        self._end("kafka")

    def close(self) -> None:
        """End both, and remove their data."""
        self._end("kafka")
        self._end("zookeeper")
        for held in self._held:
            held.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait(WITHIN_S)

    def _run(self, name: str, main: str, settings: Mapping[str, str], said: str) -> None:
        """Start a program, and wait until its log says that it has started."""
        properties = self._folder / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        path = self._folder / f"{name}.log"
        since = path.stat().st_size if path.exists() else 0
        log4j = f"-Dlog4j.configuration=file:{self._folder / 'log4j.properties'}"
        command = ["java", *JVM_FLAGS, "-Xmx512m", log4j, "-cp", f"{self._jars}/*", main, str(properties)]
        with path.open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes[name] = process
        atexit.register(process.kill)

        def started() -> bool:
            text = path.read_bytes()[since:].decode(errors="replace")
            if process.poll() is not None:
                raise ApacheKafkaError(f"{name} ended:\n{text[-2000:]}")
            return said in text

        wait_until(started, f"{name} starts", WITHIN_S)
