"""No answer of HTTP leaves a reference cycle: only a look of Python's garbage collector could free it."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from itertools import count

from coordinator.site.site import LAGS_MAX
from tests.site.test_site import Asked, asked
from tests.support.left import left
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

__all__ = ["asked"]

GROUPS = ("g", "h")
"""The groups that are there."""

ASKED = {
    "/openapi.json": [""],
    "/healthz": [""],
    "/readyz": [""],
    "/metrics": [""],
    "/overview": [""],
    "/findings": [""],
    "/lag": ["", "?group=g", "?group=absent"],
    "/lags": ["", "?group=g&group=h&group=absent", "?" + "&".join(f"group={number}" for number in range(LAGS_MAX + 1))],
    "/sums": [""],
    "/alive": ["", "?group=g", "?group=g&instance_id=seat", "?group=absent&instance_id=seat"],
    "/nodes": [""],
    "/groups": [""],
    "/groups/{group_id:path}/events": ["g", "absent"],
    "/groups/{group_id:path}": ["g", "absent", "g" * 40_000],
    "/events": ["", "?group=g"],
}
"""By route, what follows its path, or is the group of it."""

UNANSWERED = [
    b"hello\r\n\r\n\r\n",
    b"GET /gro\0ups HTTP/1.1\r\n\r\n",
    b"GET /groups HTTP/1.1\r\nHost: 127.0.0.1\r\nx: " + bytes(200_000),
    b"GET /groups HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"POST /groups HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-length: 3\r\n\r\nabc",
    b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /groups HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-length: 9\r\n\r\nabc",
    b"GET /groups HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"",
]
"""Bytes of a client that closes its connection behind them."""


def targets(path: str) -> list[str]:
    """The targets for a route. A file of the page needs no line in the table."""
    found = ASKED[path] if path in ASKED else [""] if path == "/" or path.startswith("/page") else []
    if "{" in path:
        return [path.replace("{group_id:path}", each) for each in found]
    return [path + each for each in found]


def get(address: tuple[str, int], target: str) -> bytes:
    """The answer to a GET."""
    with socket.create_connection(address, WITHIN_S) as client:
        head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        client.sendall(head.encode())
        return b"".join(iter(partial(client.recv, 65_536), b""))


def send(address: tuple[str, int], data: bytes) -> None:
    """Send bytes, and close."""
    with socket.create_connection(address, WITHIN_S) as client:
        client.sendall(data)


async def closed(server: Asked) -> None:
    """Wait until no connection of HTTP is open."""
    site = server.server._site
    assert site is not None
    await asyncio.to_thread(wait_until, lambda: not site._guard.count, "the connections are closed", WITHIN_S)


async def test_no_answer_leaves_a_cycle(asked: Asked) -> None:
    """Each route is asked for groups that are there and groups that aren't, and left by a client before its answer."""
    address = address_of(asked)
    assert asked.server._site is not None
    for group in GROUPS:
        await asyncio.to_thread(asked.join, group)
    # A turn of the loop has time for one step or two: some answers come later.
    asked.server._api._services.pace.ms = count().__next__
    paths = [route.path for route in asked.server._site.routes()]
    assert [path for path in paths if not targets(path)] == []
    for is_first in (True, False):
        with left() as found:
            for target in [target for path in paths for target in targets(path)]:
                answer = await asyncio.to_thread(get, address, target)
                assert answer.startswith(b"HTTP/1.1 "), target
                await asyncio.to_thread(send, address, f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                # One after the other: those above the server's limit would be reset.
                await closed(asked)
        assert is_first or not found  # the first time imports modules


async def test_what_is_no_request_leaves_no_cycle(asked: Asked) -> None:
    """Whatever a client sends before it closes its connection, nothing of it stays."""
    for is_first in (True, False):
        with left() as found:
            for data in UNANSWERED:
                await asyncio.to_thread(send, address_of(asked), data)
            await closed(asked)
        assert is_first or not found


def address_of(server: Asked) -> tuple[str, int]:
    """Host and port of the listener for HTTP."""
    host, _, port = server.url.strip("/").rpartition("//")[2].rpartition(":")
    return host, int(port)
