"""Plays the scripted histories on a server, a few at a time: groups don't disturb each other.

House rule: a script that doesn't end as it is written says so, and what happened until then is a history too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from typing import NamedTuple

from confluent_kafka import KafkaException

from coordinator.client.errors import ClientError
from tests.observe.histories import SCRIPTS, Script
from tests.observe.random_histories import DEFAULT, Round, traits_of
from tests.observe.stage import BROKER_SESSION_MS, History, Server, Stage
from tests.support.apache import VERSION, VERSION_44, ApacheKafka
from tests.support.tenure import Tenure

AT_ONCE = 6
SETTINGS = {"group.initial.rebalance.delay.ms": "500", "group.min.session.timeout.ms": "1000"}
CONSUMER_SETTINGS = {
    "group.consumer.session.timeout.ms": str(BROKER_SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(BROKER_SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
}
SERVERS = ("kafka-3.9", "kafka-4.4", "tenure")

RANDOM_AT_ONCE = 10
SLOW_ROUNDS = {"classic": 1, "consumer": 1}
"""Random rounds on each server with the clients' default times: each is as long as four others."""


def server_of(name: str) -> Server:
    """A server, not started yet."""
    if name == "tenure":
        return Tenure(SETTINGS | CONSUMER_SETTINGS)
    if name == "kafka-3.9":
        return ApacheKafka(SETTINGS, version=VERSION)
    return ApacheKafka(
        SETTINGS | CONSUMER_SETTINGS,
        version=VERSION_44,
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


def play_random(
    server_names: Sequence[str],
    seed: int,
    rounds: int,
    keep: Callable[[History], object],
    say: Callable[[str], object],
    at_once: int = RANDOM_AT_ONCE,
) -> None:
    """Play so many random rounds of each protocol on each server, and a few with default times; all servers at once."""
    places = [(name, each) for name in server_names for each in _protocols(name)]
    draws = [_Draw(*place, number, is_slow=True) for place in places for number in range(SLOW_ROUNDS[place[1]])]
    draws += [_Draw(*place, number, is_slow=False) for number in range(rounds) for place in places]
    with ExitStack() as stack:

        def started(name: str) -> Server:
            server = server_of(name)
            stack.enter_context(server)
            return server

        with ThreadPoolExecutor(at_once) as pool:
            servers = dict(zip(server_names, pool.map(started, server_names), strict=True))
            list(pool.map(lambda draw: keep(_play_round(servers[draw.server_name], seed, draw, say)), draws))


class _Draw(NamedTuple):
    """What makes a random round, beside the seed. is_slow: with the clients' default times."""

    server_name: str
    protocol: str
    number: int
    is_slow: bool


def _protocols(server_name: str) -> Sequence[str]:
    return ("classic",) if server_name == "kafka-3.9" else ("classic", "consumer")


def _play_round(server: Server, seed: int, draw: _Draw, say: Callable[[str], object]) -> History:
    server_name, protocol, number, is_slow = draw
    name = f"random-{seed}-{protocol}-{'default' if is_slow else 'short'}-{number}"
    chance = random.Random(f"{name} {server_name}")
    traits = traits_of(chance, protocol, default=is_slow)
    started = time.monotonic()
    with Stage(server, name, protocol=protocol, client=traits.client) as stage:
        if is_slow and protocol == "consumer":
            stage.set_session(DEFAULT.session_ms, DEFAULT.heartbeat_ms)
        try:
            Round(stage, traits, chance).play()
        except (AssertionError, ClientError, KafkaException, OSError) as error:
            say(f"{server_name} {name} did not end as drawn: {error!r}")
        history = stage.history(server, server_name)
    history.traits = asdict(traits)
    say(f"{server_name} {name} ({traits.client}): {time.monotonic() - started:.0f} s")
    return history
