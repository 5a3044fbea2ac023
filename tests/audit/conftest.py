"""Logs that real clients made, on Tenure and (marked `oracle`) on Apache Kafka 3.9."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from coordinator.client.client import Client
from coordinator.client.topics import create_topic
from tests.support.apache import ApacheKafka
from tests.support.tenure import Tenure, wait_until

TOPIC = "orders"
PARTITION_COUNT = 4
SETTINGS = {"group.initial.rebalance.delay.ms": "1500", "offsets.topic.num.partitions": str(PARTITION_COUNT)}
WITHIN_S = 30.0


@dataclass
class Script:
    """What was done: a roll of static members, dynamic members that come and go, commits, and a deletion.

    folder: a copy of the log of the stopped server.
    """

    folder: Path
    seats: Sequence[str] = ("a", "b", "c")
    roll: str = "roll"
    storm: str = "storm"
    storm_rounds: int = 3
    deleted: str = "deleted"


def consumer(bootstrap: str, group_id: str, seat: str | None = None) -> Consumer:
    """A consumer of the topic."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group_id,
        "session.timeout.ms": 300_000,
        "heartbeat.interval.ms": 200,
        "enable.auto.commit": False,
    }
    made = Consumer({**settings, **({} if seat is None else {"group.instance.id": seat})})
    made.subscribe([TOPIC])
    return made


def share(consumers: Sequence[Consumer]) -> None:
    """Wait until each has a part of the topic, and all of it is somebody's."""

    def shared() -> bool:
        for each in consumers:
            each.poll(0.02)
        owned = [each.assignment() for each in consumers]
        return all(owned) and sum(map(len, owned)) == PARTITION_COUNT

    wait_until(shared, "the topic is shared", WITHIN_S)


def play(bootstrap: str, script: Script) -> None:
    """Do all of it with real clients."""
    with Client(bootstrap, 10.0) as client:
        create_topic(client, TOPIC, PARTITION_COUNT)
    with ExitStack() as stack:
        seats = {seat: consumer(bootstrap, script.roll, seat) for seat in script.seats}
        stack.callback(_close, seats)
        share(list(seats.values()))
        for number, seat in enumerate(script.seats):
            seats[seat].close()
            seats[seat] = consumer(bootstrap, script.roll, seat)
            share(list(seats.values()))
            commit(seats[seat], 10 + number)
        stays = consumer(bootstrap, script.storm)
        stack.callback(stays.close)
        share([stays])
        for _ in range(script.storm_rounds):
            comes = consumer(bootstrap, script.storm)
            share([stays, comes])
            comes.close()
            share([stays])
        commit(stays, 7)
        gone = consumer(bootstrap, script.deleted)
        share([gone])
        commit(gone, 3)
        gone.close()
        admin = AdminClient({"bootstrap.servers": bootstrap})  # has to live until it is answered
        admin.delete_consumer_groups([script.deleted])[script.deleted].result(WITHIN_S)


def _close(consumers: dict[str, Consumer]) -> None:
    for each in consumers.values():
        each.close()


def commit(of: Consumer, offset: int) -> None:
    """Commit an offset of the topic's first partition."""
    of.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)


@pytest.fixture(scope="session", params=["tenure", pytest.param("apache", marks=pytest.mark.oracle)])
def script(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Script:
    """The script, played on a server that was stopped then."""
    played = Script(tmp_path_factory.mktemp("audit") / "log")
    server: Tenure | ApacheKafka = Tenure(SETTINGS) if request.param == "tenure" else ApacheKafka(SETTINGS)
    with server:
        play(server.bootstrap, played)
        server.stop()
        shutil.copytree(server.data_dir if isinstance(server, Tenure) else server.log_dir, played.folder)
    return played
