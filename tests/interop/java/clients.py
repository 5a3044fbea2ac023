"""kafka-clients, Kafka's own client in Java: the release that Apache Kafka is measured in, and one of Kafka 4.

House rule: ../worker.py's; the same source for both.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence

from tests.interop.client import Ability, Client
from tests.interop.java.programs import Training, command
from tests.interop.worker import Settings
from tests.support.apache import VERSION, VERSION_44, jars

NOWHERE = "127.0.0.1:1"
TRAINING = Training((json.dumps(dataclasses.asdict(Settings(NOWHERE, "group", "topic"))),), '{"do": "close"}')
"""A consumer that finds no server loads most of what one needs."""


def worker(version: str) -> Callable[[], Sequence[str]]:
    """The command of Worker.java with that release; the jars are fetched when they aren't there yet."""
    return lambda: command("Worker", jars(version), training=TRAINING)


CLIENTS = (
    Client(
        "kafka-clients-3",
        worker(VERSION),
        ("java", "javac", "mvn"),
        cannot={Ability.PATTERN: "its patterns are its own"},
    ),
    Client("kafka-clients-4", worker(VERSION_44), ("java", "javac", "mvn")),
)
