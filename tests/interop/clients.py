"""All clients under test.

A scenario names the abilities that it needs (`clients_that`). A client that lacks one has no test of that scenario: the
table of docs/start/clients.md shows n/a and the reason. A client that needs more than Python has the marker
`toolchain`; without its programs it is skipped, by name.

A scenario also names the clients that `make test` and `make test-long` play it with; `make nightly` plays it with each
client, and `make test-interop` too. A client that needs more than Python has no part in the first two.

To add the clients of a language: a folder whose clients.py has CLIENTS, a tuple of Client, and a word in CLIENTS below.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence

import pytest
from _pytest.mark import ParameterSet

from tests.interop.client import CLASSIC_ONLY, Ability, Client
from tests.interop.go import clients as go
from tests.interop.java import clients as java
from tests.interop.node import clients as node


def python_worker(module: str) -> Callable[[], Sequence[str]]:
    """Return the command of a worker in Python, run by this interpreter."""
    return lambda: (sys.executable, "-m", f"tests.interop.{module}")


PYTHON = (
    Client(
        "aiokafka",
        python_worker("worker_aiokafka"),
        cannot={
            Ability.FENCE: "its Heartbeat (v1) carries no instance id, and it doesn't know FENCED_INSTANCE_ID",
            Ability.COOPERATIVE: "no cooperative assignor",
            Ability.WAIT: "its start() raises when no server answers",
            Ability.CONSUMER_PROTOCOL: CLASSIC_ONLY,
        },
    ),
    Client("confluent-kafka", python_worker("worker_confluent")),
    Client(
        "kafka-python",
        python_worker("worker_kafka_python"),
        cannot={Ability.CONSUMER_PROTOCOL: CLASSIC_ONLY},
        joins_twice=True,
    ),
)

KCAT = Client(
    "kcat",
    python_worker("worker_kcat"),
    ("kcat", "setpriv"),
    cannot={
        Ability.COMMIT: "it commits what it has printed, and nothing else",
        Ability.METADATA: "it commits without metadata",
        Ability.BEYOND: "it commits what it has printed, and nothing else",
        Ability.OUTLIVE: "it ends when no server answers",
        Ability.WAIT: "it ends when no server answers",
        Ability.CONSUMER_PROTOCOL: "its librdkafka 2.0 is older than the protocol",
        Ability.HEADERS: "the headers it produces are those of its command line, and null is the same as empty",
    },
)

PYTHON_NAMES = frozenset(client.name for client in PYTHON)

CLIENTS = {client.name: client for client in (*PYTHON, KCAT, *go.CLIENTS, *java.CLIENTS, *node.CLIENTS)}


def clients_that(
    *abilities: Ability, often: Collection[str] | None = None, long: Collection[str] = ()
) -> list[ParameterSet]:
    """Return parameters of the fixture `client`, for indirect=True: all clients with these abilities.

    often: the clients of `make test`. long: further clients of `make test-long`. By default one and the others in
    Python.
    """
    able = [name for name, client in CLIENTS.items() if not client.cannot.keys() & set(abilities)]
    return clients_named(*able, often=often, long=long)


def clients_named(*names: str, often: Collection[str] | None = None, long: Collection[str] = ()) -> list[ParameterSet]:
    """Return the same for clients by name."""
    if often is None:
        often, long = {"confluent-kafka"}, PYTHON_NAMES
    unknown = {*often, *long} - PYTHON_NAMES
    assert not unknown, f"{unknown}: no client in Python"

    def marks(name: str) -> list[pytest.MarkDecorator]:
        if CLIENTS[name].programs:
            return [pytest.mark.toolchain]
        return [] if name in often else [pytest.mark.long if name in long else pytest.mark.nightly]

    return [pytest.param(name, marks=marks(name)) for name in sorted(names)]
