"""An observer shares the turns of its loop among those who ask it, as a server does."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from coordinator.client.client import Cluster
from coordinator.config import HTTP, Listener, load
from coordinator.loop.clock import LoopClock
from coordinator.observe.observer import Observer, Options
from coordinator.server.wire.listener import bind
from tests.observe.conftest import Written
from tests.site.test_turns import CLIENTS, REQUESTS, TURN_CALLS_MAX, Work, WorkClock, counting_ends
from tests.support.patience import WITHIN_S

__all__ = ["counting_ends"]


async def test_many_requests_at_once_make_no_turn_long(written: Written) -> None:
    """Clients send many requests in one go, and another one, a probe of its health, waits for a turn only."""
    work = Work()
    config, _ = load(flags={"tenure.http": ("--http", "127.0.0.1:0")}, sets=[], environment={})
    clock = cast("LoopClock", WorkClock(work))
    observer = Observer(Options(Cluster("127.0.0.1:1"), 0.1, config), written.lines, clock)
    await observer.start(bind(Listener(HTTP, "127.0.0.1", 0)))
    assert observer.address is not None
    clients = [socket.create_connection(observer.address, WITHIN_S) for _ in range(CLIENTS)]
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    clients[0].sendall(request)
    assert await asyncio.to_thread(clients[0].recv, 15) == b"HTTP/1.1 200 OK"
    work.begin()
    for client in clients:
        client.sendall(request * REQUESTS)
    answered = [await asyncio.to_thread(client.recv, 9) for client in clients[1:]]
    work.end()
    assert set(answered) == {b"HTTP/1.1 "}
    assert sum(work.turns) > TURN_CALLS_MAX, "else the bound says nothing"
    assert max(work.turns) < TURN_CALLS_MAX
    for client in clients:
        client.close()
    await observer.stop()
