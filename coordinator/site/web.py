"""A web server on the running loop: Starlette on uvicorn. The site has one, and so has the control of a test.

Each request passes the check of its Host header (guard.py), and each answer waits for its turn (loop/pace.py). A path
that no route has gets status 404, and an exception of a route 500, in JSON. uvicorn's own log becomes lines of the
server.

House rule: this knows no route.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.site.body import PIECES
from coordinator.site.guard import NO_HTTP, Guard, HostCheck

if TYPE_CHECKING:
    import socket

    from coordinator.loop.lines import Lines

LOGGER = logging.getLogger("uvicorn.error")
"""uvicorn's log of the server's faults."""

STOP_WITHIN_S = 1
"""How long a stop waits for answers that are being written."""


class LogHandler(logging.Handler):
    """Writes uvicorn's log as lines of the server."""

    def __init__(self, lines: Lines) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler. Guard has a better line about clients that don't speak HTTP."""
        if record.msg == NO_HTTP:
            return
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        write = self._lines.error if record.levelno >= logging.ERROR else self._lines.warn
        write("http_broke", f"HTTP: {record.getMessage().strip()}" + (f": {trace}" if trace else ""))


class InTurn:
    """Has `app` begin an answer, and write each further part of it, when it is its turn.

    A request needs no turn of its own: it was read in one, or it was behind another whose answer had one.
    The message that begins an answer in pieces (body.py) has them all. guard: counts them until the client has them.
    """

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI."""
        guard = self._guard

        async def send_in_turn(message: Message) -> None:
            if message["type"] == "http.response.start" or message.get("more_body"):
                await guard.pace.next()
            if PIECES in message:
                guard.begin(scope["client"], message[PIECES])
            await send(message)

        await self._app(scope, receive, send_in_turn)


class Web:
    """A web server. guard: its connections. hosts: names that a Host header may have. further: checks of a request."""

    def __init__(self, guard: Guard, hosts: Collection[str], lines: Lines, further: Sequence[Middleware] = ()) -> None:
        self._guard = guard
        self._checks = [Middleware(HostCheck, names=hosts), *further]
        self._handler = LogHandler(lines)
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket, routes: Sequence[Route]) -> None:
        """Answer requests on a bound socket."""
        app = Starlette(
            routes=routes,
            exception_handlers={Exception: _broke, HTTPException: _refused, ClientDisconnect: _gone},
            middleware=self._checks,
        )
        config = uvicorn.Config(
            InTurn(app, self._guard),
            http=self._guard.protocol,  # type: ignore[arg-type] # it makes what uvicorn's classes make
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # X-Forwarded-For would name another peer in log lines
            timeout_graceful_shutdown=STOP_WITHIN_S,
        )
        config.load()
        # Step by step, because `serve` would take over the process's signals.
        self._server = server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        LOGGER.addHandler(self._handler)
        await server.startup([listening])
        self._serving = asyncio.create_task(server.main_loop())

    async def stop(self) -> None:
        """Finish the answers under way, and stop."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
            await self._server.shutdown()
            LOGGER.removeHandler(self._handler)


def error(status: int, text: str) -> Response:
    """An answer that says what is wrong."""
    return JSONResponse({"error": text}, status_code=status)


async def _refused(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return error(problem.status_code, problem.detail)


async def _gone(_: Request, __: Exception) -> Response:
    # Nobody gets this. Without it each client that closes inside a request is a traceback in the log.
    return error(400, "the request has no end")


async def _broke(_: Request, __: Exception) -> Response:
    return error(500, "a fault of this server: its log says more")
