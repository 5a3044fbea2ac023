"""Runs a server over files in the test's process."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from coordinator.server.app import Server
from tests.server.harness import ManualClock, Peer, Serving, config_of


@asynccontextmanager
async def running(data_dir: Path, *settings: str) -> AsyncIterator[tuple[Serving, Peer]]:
    """Serve that folder, with a single partition, until it is loaded or refused; yield the server and a client."""
    log, clock = io.StringIO(), ManualClock()
    server = Server(
        config_of(f"log.dirs={data_dir}", "offsets.topic.num.partitions=1", *settings), clock=clock, log=log
    )
    await server.start()
    serving = Serving(server, clock, log)
    await serving.loaded()
    try:
        yield serving, await serving.peer()
    finally:
        serving.close_peers()
        await server.stop()
