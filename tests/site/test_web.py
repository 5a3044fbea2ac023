"""The web server alone: its own answers are JSON, its log goes on as lines, and a stop closes its port."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from contextlib import suppress
from io import StringIO

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coordinator.config import Listener
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.loop.unsent import TAKEN_WITHIN_MS
from coordinator.server.wire.listener import bind
from coordinator.site.body import InPieces
from coordinator.site.guard import UNSENT_BYTES_MAX, Guard
from coordinator.site.web import Web, error
from tests.server.harness import ManualClock
from tests.support.patience import WITHIN_S

MB = 1024 * 1024

BODY_BYTES = 40 * MB
"""HTTP has room for one body of so many bytes."""


async def _breaks(_: Request) -> Response:
    raise ZeroDivisionError("a fault of ours")


async def _refuses(_: Request) -> Response:
    return error(418, "a teapot")


def ask(port: int, method: str, path: str, host: str = "localhost") -> tuple[int, object]:
    """Return status and JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


async def test_its_own_answers_are_json_and_it_ends() -> None:
    """Unknown paths and methods, faults and foreign hosts get an error in JSON; a stop closes the port."""
    log, clock = StringIO(), ManualClock()
    lines = Lines(log, "text", 1, clock)
    web = Web(Guard(clock, lines, 10, 1_000, Pace(clock, asyncio.get_running_loop().call_soon)), ("ours",), lines)
    listening = bind(Listener("HTTP", "127.0.0.1", 0))
    port = listening.getsockname()[1]
    await web.start(listening, [Route("/breaks", _breaks), Route("/refuses", _refuses)])
    asked = [
        await asyncio.to_thread(ask, port, method, path, host)
        for method, path, host in (
            ("GET", "/none", "ours"),
            ("POST", "/refuses", "localhost"),
            ("GET", "/refuses", "127.0.0.1"),
            ("GET", "/breaks", "ours"),
            ("GET", "/refuses", "theirs"),
        )
    ]
    assert asked[:4] == [
        (404, {"error": "Not Found"}),
        (405, {"error": "Method Not Allowed"}),
        (418, {"error": "a teapot"}),
        (500, {"error": "a fault of this server: its log says more"}),
    ]
    assert asked[4][0] == 421
    assert "ZeroDivisionError: a fault of ours" in log.getvalue()
    await web.stop()
    listening.close()
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0


async def test_a_request_whose_body_does_not_come_is_closed() -> None:
    """A byte now and then doesn't keep it open, and no line tells of it; a whole request has time for its answer."""
    log, clock = StringIO(), ManualClock()
    lines = Lines(log, "text", 1, clock)
    web = Web(Guard(clock, lines, 10, 1_000, Pace(clock, asyncio.get_running_loop().call_soon)), (), lines)
    listening = bind(Listener("HTTP", "127.0.0.1", 0))
    came: asyncio.Queue[bytes] = asyncio.Queue()
    goes_on = asyncio.Event()

    async def reads(request: Request) -> Response:
        async for part in request.stream():
            came.put_nowait(part)
        await goes_on.wait()
        return Response("whole")

    await web.start(listening, [Route("/", reads, methods=["POST"])])
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
    slow, quick = [await asyncio.open_connection(*listening.getsockname()) for _ in range(2)]
    for (_, writer), start in ((slow, head + b"1"), (quick, head + b"12")):
        writer.write(start)
        assert await asyncio.wait_for(came.get(), WITHIN_S) == start.removeprefix(head)
    assert await asyncio.wait_for(came.get(), WITHIN_S) == b""
    clock.advance(1_000)
    assert await asyncio.wait_for(slow[0].read(), WITHIN_S) == b""
    goes_on.set()
    assert (await asyncio.wait_for(quick[0].readuntil(b"whole"), WITHIN_S)).startswith(b"HTTP/1.1 200 ")
    for _, writer in (slow, quick):
        writer.close()
    await web.stop()
    listening.close()
    assert not log.getvalue()


async def test_answers_that_nobody_takes_have_a_common_bound() -> None:
    """The connection with the oldest one is closed, with a line. A body that several clients get counts once."""
    log, clock = StringIO(), ManualClock()
    lines = Lines(log, "text", 1, clock)
    pace = Pace(clock, asyncio.get_running_loop().call_soon)
    web = Web(Guard(clock, lines, 10, 2 * TAKEN_WITHIN_MS, pace), (), lines)
    listening = bind(Listener("HTTP", "127.0.0.1", 0))
    shared = [bytes(MB) for _ in range(BODY_BYTES // MB)]

    async def own(_: Request) -> Response:
        return InPieces([bytes(MB) for _ in range(BODY_BYTES // MB)])

    async def same(_: Request) -> Response:
        return InPieces(shared)

    async def begun(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client that has taken the head of its answer."""
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WITHIN_S)
        return reader, writer

    async def taken(reader: asyncio.StreamReader) -> int:
        """How many bytes of its body a client gets from then on."""
        size = 0
        with suppress(ConnectionResetError):
            while data := await asyncio.wait_for(reader.read(MB), WITHIN_S):
                size += len(data)
        return size

    assert BODY_BYTES < UNSENT_BYTES_MAX < 2 * BODY_BYTES
    await web.start(listening, [Route("/own", own), Route("/same", same)])
    oldest = await begun("/own")
    sharers = [await begun("/same") for _ in range(3)]
    assert await taken(oldest[0]) < BODY_BYTES
    peer = "{}:{}".format(*oldest[1].get_extra_info("sockname"))
    assert f"HTTP: closed 1 connection, from {peer}: it takes its answer too slowly" in log.getvalue()
    assert [await taken(reader) for reader, _ in sharers] == [BODY_BYTES] * 3
    last = await begun("/own")
    assert await taken(last[0]) == BODY_BYTES
    late = await begun("/same")
    clock.advance(TAKEN_WITHIN_MS)
    assert await taken(late[0]) < BODY_BYTES
    for _, writer in (oldest, *sharers, last, late):
        writer.close()
    await web.stop()
    listening.close()


async def test_a_stop_before_a_start_does_nothing() -> None:
    """A server that could not start may be stopped."""
    clock = ManualClock()
    lines = Lines(StringIO(), "text", 1, clock)
    web = Web(Guard(clock, lines, 10, 1_000, Pace(clock, asyncio.get_running_loop().call_soon)), (), lines)
    await web.stop()
    assert not lines.has_fields
