"""Shared by the tests of the server: they run on the server's kind of event loop, and most of them on one server."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest
import uvloop

from coordinator.server.telemetry.measures import Measures
from tests.server.harness import Peer, Serving, serving


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop, as in production."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Let the process look at all objects again where a server in it has frozen what it has.

    What was frozen before stays so: a look at the objects of all tests takes longer than most of them.
    """
    thresholds = gc.get_threshold()
    yield
    if gc.get_threshold() != thresholds:  # of coordinator.loop.cycles.settle
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        gc.collect()
        gc.freeze()


@pytest.fixture
def measures() -> Measures:
    """Return counters that are all 0."""
    return Measures()


@pytest.fixture
async def server() -> AsyncIterator[Serving]:
    """Yield a server in memory, with the settings of tests."""
    async with serving() as made:
        yield made


@pytest.fixture
async def peer(server: Serving) -> Peer:
    """Return a connection to the server."""
    return await server.peer()
