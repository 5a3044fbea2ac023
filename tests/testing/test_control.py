"""One run of a server, on the loop itself."""

from __future__ import annotations

import asyncio
import io
from concurrent.futures import Future
from functools import partial

import pytest

from coordinator.log.memory import MemoryEngine
from coordinator.log.store import in_memory
from coordinator.server.app import StartFailed
from coordinator.server.faults.faults import Faults
from coordinator.testing.clock import KitClock
from coordinator.testing.control import Control
from coordinator.testing.history import History
from coordinator.testing.requests import Requests
from coordinator.testing.values import Look
from tests.server.harness import config_of
from tests.support.ports import refusing_port


def control(faults: Faults, *settings: str) -> Control:
    """A run in memory."""
    config = config_of(*settings)
    opened = partial(in_memory, MemoryEngine(config.offsets_topic_num_partitions, config.node_id))
    clock = KitClock(asyncio.get_running_loop())
    return Control(config, clock, faults, History(), Requests(), opened=opened, log=io.StringIO())


async def test_a_run_ends_and_another_begins_with_the_same_faults() -> None:
    """Each sees the requests of its own server: after its end nobody watches any more."""
    faults = Faults()
    for end in (Control.stop, Control.kill):
        run = control(faults)
        await run.start()
        looked: Future[Look] = Future()
        run.look("g", looked)
        assert (await asyncio.wrap_future(looked)).state == "Dead"
        await end(run)
        assert faults._watches == []


async def test_a_start_that_fails_leaves_the_faults_as_they_were() -> None:
    """The next run with them isn't counted twice."""
    faults = Faults()
    with refusing_port() as port:
        run = control(faults, f"listeners=PLAINTEXT://127.0.0.1:{port}")
        with pytest.raises(StartFailed):
            await run.start()
    assert faults._watches == []
