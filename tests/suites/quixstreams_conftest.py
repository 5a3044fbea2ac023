"""A conftest.py for quixstreams' tests, in the folder below their own, which starts a server in Docker.

SUITE_SERVER is the HOST:PORT of the server under test, SUITE_SECOND_SERVER that of another one, from which some tests
copy. Tests that ask no server are left out, and so is the one that SUITE_LEFT_OUT names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest


class Server(NamedTuple):
    """Has the attributes that the tests read."""

    broker_address: str
    internal_broker_address: str


@pytest.fixture(scope="session")
def kafka_container() -> Server:
    """Return the server under test."""
    return Server(os.environ["SUITE_SERVER"], os.environ["SUITE_SERVER"])


@pytest.fixture(scope="session")
def kafka_container_factory() -> Callable[[], Iterator[Server]]:
    """Return a function that yields the second server."""

    def second() -> Iterator[Server]:
        yield Server(os.environ["SUITE_SECOND_SERVER"], os.environ["SUITE_SECOND_SERVER"])

    return second


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests out that ask no server, and the named one: `--deselect` would take all whose names begin so."""
    out = [
        item
        for item in items
        if "kafka_container" not in getattr(item, "fixturenames", ())
        or item.nodeid.endswith(f"/{os.environ['SUITE_LEFT_OUT']}")
    ]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
