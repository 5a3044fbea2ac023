"""Kafka's command line, of any release: many commands in one JVM (Tools.java).

House rule: a command is its script's name and arguments; the class behind it stands here and nowhere else.
"""

from __future__ import annotations

import json
import signal
import subprocess
from typing import NamedTuple

from tests.interop.java.programs import command
from tests.support.apache import VERSION, VERSION_44, jars
from tests.support.started import Closes

CLASSES = {
    "acls": "kafka.admin.AclCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "kafka.tools.ConsoleProducer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "dump-log": "kafka.tools.DumpLogSegments",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}

MOVED = {
    "configs": "org.apache.kafka.tools.ConfigCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
}
"""The classes that Kafka 4.4 has elsewhere."""


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class Tools(Closes):
    """A JVM that runs commands: `with Tools() as tools: tools.run("topics", "--bootstrap-server", ...)`."""

    def __init__(self, version: str = VERSION) -> None:
        self._classes = CLASSES | MOVED if version == VERSION_44 else CLASSES
        self._process = subprocess.Popen(
            command("Tools", jars(version), heap="-Xmx256m"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        """End the JVM."""
        self._process.kill()
        self._process.communicate()

    def send_signal(self, number: signal.Signals) -> None:
        """Freeze the JVM, or let it go on."""
        self._process.send_signal(number)

    def run(self, script: str, *arguments: str, text: str = "") -> Done:
        """Run kafka-SCRIPT to its end; text: what it reads from its standard input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"class": self._classes[script], "arguments": arguments, "input": text}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        done = Done(**json.loads(self._process.stdout.readline()))
        assert "ClassNotFoundException" not in done.err, done.err
        return done
