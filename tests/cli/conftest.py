"""A cluster with groups, and a way to run commands against it: on Tenure, and the same on Apache Kafka.

`pytest -m oracle` runs the Apache half. The members of the groups are confluent-kafka's. A static member keeps its seat
after its consumer closed, which is just what an admin finds.

House rule: each test has a group of its own, so that one cluster serves all tests.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
import typer
from confluent_kafka import Consumer, TopicPartition
from typer.main import get_command
from typer.testing import CliRunner

from coordinator.cli import main
from coordinator.cli.exit_codes import ExitCode
from tests.support.apache import ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until
from tests.support.topics import make_topics

SETTINGS = {"group.initial.rebalance.delay.ms": "300", "group.min.session.timeout.ms": "1000"}
TOPIC = "orders"
PARTITION_COUNT = 4


class Ran(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, str]]:
        """Standard output as a table without blanks in its cells: each row by heading."""
        headings, *lines = (line.split() for line in self.out.splitlines())
        return [dict(zip(headings, line, strict=True)) for line in lines]


Run = Callable[..., Ran]
MakeGroup = Callable[[Sequence[str]], str]


@pytest.fixture(scope="session", params=["tenure", pytest.param("apache", marks=pytest.mark.oracle)])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """HOST:PORT of a cluster of one node, with a topic."""
    server: Tenure | ApacheKafka = Tenure(SETTINGS) if request.param == "tenure" else ApacheKafka(SETTINGS)
    with server:
        make_topics(server.bootstrap, {TOPIC: PARTITION_COUNT})
        yield server.bootstrap


def at(bootstrap: str) -> list[str]:
    """The options of a command for a cluster on a busy machine."""
    return ["--bootstrap-server", bootstrap, "--timeout", str(WITHIN_S)]


typer.testing._get_command = cache(get_command)  # type: ignore[attr-defined]
make_app = cache(main.make_app)
"""`tenure` with a command, made once: that takes longer than a run, and a run leaves nothing in it."""


def run_app(app: typer.Typer, *arguments: str) -> Ran:
    """Run a command in this process; any exception but an exit fails the test."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def run_out_of_time(
    app: typer.Typer,
    seconds: float,
    *arguments: str,
    until: Callable[[Ran], bool] = lambda ran: ran.code != ExitCode.UNREACHABLE,
) -> tuple[Ran, str]:
    """Run a command that waits until its time is over, and return that time too.

    On a busy machine no server answers in so few seconds: then it runs again, with twice as many.
    """
    while not until(ran := run_app(app, *arguments, "--timeout", f"{seconds:g}")):
        assert seconds < WITHIN_S, ran
        seconds *= 2
    return ran, f"{seconds:g} s"


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Run a command against the cluster."""
    return lambda app, *arguments: run_app(app, *arguments, *at(bootstrap))


@pytest.fixture
def make_group(bootstrap: str) -> MakeGroup:
    """Make a group of static members that share the topic, and close their consumers; returns the group id.

    The first member, by instance id, has committed offset 0 of its first partition.
    """

    def make(instance_ids: Sequence[str]) -> str:
        group_id = f"group-{uuid.uuid4().hex[:8]}"
        consumers = {
            instance_id: Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": group_id,
                    "group.instance.id": instance_id,
                    "client.id": f"client-{instance_id}",
                    "session.timeout.ms": 300_000,
                    "heartbeat.interval.ms": 200,
                }
            )
            for instance_id in instance_ids
        }
        try:
            for consumer in consumers.values():
                consumer.subscribe([TOPIC])

            def shared() -> bool:
                for consumer in consumers.values():
                    consumer.poll(0.02)
                owned = [consumer.assignment() for consumer in consumers.values()]
                return all(owned) and sum(map(len, owned)) == PARTITION_COUNT

            wait_until(shared, f"{group_id} shares the topic", WITHIN_S)
            consumers[min(instance_ids)].commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
        finally:
            for consumer in consumers.values():
                consumer.close()
        return group_id

    return make
