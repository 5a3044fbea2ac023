"""Shared by the tests of the server: they run on the server's kind of event loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop, as in production."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A server in the tests' own process freezes what it has: let the process collect all objects again."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
