"""Plays the scripted histories on a server, a few at a time: groups don't disturb each other.

House rule: a script that doesn't end as it is written says so, and what happened until then is a history too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaException

from coordinator.client.errors import ClientError
from tests.observe.histories import SCRIPTS, Script
from tests.observe.stage import History, Server, Stage
from tests.support.apache import VERSION, VERSION_43, ApacheKafka
from tests.support.tenure import Tenure

AT_ONCE = 6
SETTINGS = {"group.initial.rebalance.delay.ms": "500", "group.min.session.timeout.ms": "1000"}
CONSUMER_SETTINGS = {
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
}
SERVERS = ("kafka-3.9", "kafka-4.3", "tenure")


def server_of(name: str) -> Server:
    """A server, not started yet."""
    if name == "tenure":
        return Tenure(SETTINGS | CONSUMER_SETTINGS)
    if name == "kafka-3.9":
        return ApacheKafka(SETTINGS, version=VERSION)
    return ApacheKafka(
        SETTINGS | CONSUMER_SETTINGS,
        version=VERSION_43,
        # Only at this level does Kafka 4 say that a member subscribed to other topics.
        loggers={"org.apache.kafka.coordinator.group.GroupMetadataManager": "DEBUG"},
    )


def scripts_for(server: str, names: Sequence[str] = ()) -> list[Script]:
    """The scripts that a server can play."""
    return [
        script
        for script in SCRIPTS
        if (script.protocol == "classic" or server != "kafka-3.9") and (not names or script.name in names)
    ]


def play(
    server_name: str,
    names: Sequence[str],
    keep: Callable[[History], object],
    say: Callable[[str], object],
    at_once: int = AT_ONCE,
) -> None:
    """Play scripts on a new server, all by default. Each history goes to `keep`, and lines for people to `say`."""
    scripts = scripts_for(server_name, names)
    with server_of(server_name) as server, ThreadPoolExecutor(at_once) as pool:
        for history in pool.map(lambda script: _play(server, server_name, script, say), scripts):
            keep(history)


def _play(server: Server, server_name: str, script: Script, say: Callable[[str], object]) -> History:
    started = time.monotonic()
    with Stage(server, script.name, protocol=script.protocol, client=script.client) as stage:
        try:
            script.play(stage)
        except (AssertionError, ClientError, KafkaException, OSError) as error:
            say(f"{server_name} {script.name} did not end as written: {error}")
        history = stage.history(server, server_name)
    say(f"{server_name} {script.name}: {time.monotonic() - started:.0f} s")
    return history
