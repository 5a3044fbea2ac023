"""The routes, and the server behind them: Starlette on uvicorn, on the loop that the coordinator runs on.

A route of groups asks the cluster by a client of its own on a thread, at most THREADS_MAX at a time; the rest wait.
Errors are JSON with one line, `error`: 404 no such group, 502 the cluster said no, 504 it didn't answer.

House rule: GET only, and no header that lets other sites read.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from coordinator.client.client import Client
from coordinator.client.errors import Refused, Unreachable
from coordinator.client.groups import Group, describe_groups, group_json, list_groups, listed_json
from coordinator.server.http.metrics import Around, exposition
from coordinator.server.measures import census
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from starlette.requests import Request

    from coordinator.server.events import Events
    from coordinator.server.listener import Connections
    from coordinator.server.measures import Measures
    from coordinator.server.runtime import Runtime

THREADS_MAX = 4
"""Requests about groups that are answered at a time."""

STOP_WITHIN_S = 1
"""How long a stop waits for answers that are being written."""


class Shown(Protocol):
    """What is asked of a server directly; see app.Server."""

    loaded: asyncio.Event
    failed: asyncio.Event
    runtime: Runtime
    connections: Connections
    events: Events


class Site:
    """What HTTP shows of `server`. bootstrap: HOST:PORT at which the cluster is asked. measures: of the server."""

    def __init__(self, server: Shown, bootstrap: str, measures: Measures) -> None:
        self._shown = server
        self._bootstrap = bootstrap
        self._measures = measures
        self._limiter = CapacityLimiter(THREADS_MAX)
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket) -> None:
        """Answer on a socket that is bound."""
        config = uvicorn.Config(
            Starlette(routes=self.routes()),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=STOP_WITHIN_S,
        )
        config.load()
        # Step by step, because `serve` takes signals that belong to whoever runs the loop.
        self._server = server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup([listening])
        self._serving = asyncio.create_task(server.main_loop())

    async def stop(self) -> None:
        """Answer what is being answered, and end."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
            await self._server.shutdown()

    def routes(self) -> list[Route]:
        """What there is."""
        return [
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
            Route("/groups", self._groups),
            Route("/groups/{group_id:path}", self._group),
        ]

    async def _healthz(self, _: Request) -> Response:
        return _state(self._trouble())

    async def _readyz(self, _: Request) -> Response:
        return _state(self._trouble() or ("" if self._shown.loaded.is_set() else "groups are being loaded"))

    def _trouble(self) -> str:
        """Why the server should be restarted; empty if it shouldn't."""
        return "the log can't be written any more" if self._shown.failed.is_set() else ""

    async def _metrics(self, request: Request) -> Response:
        coordinators = [partition.coordinator for partition in self._shown.runtime.served()]
        now = await census(coordinators, self._measures.by_group)
        around = Around(
            connections=len(self._shown.connections),
            events_dropped=self._shown.events.dropped,
            partitions=Counter(partition.standing.value for partition in self._shown.runtime.partitions),
        )
        text, content_type = exposition(self._measures, now, around, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    async def _groups(self, _: Request) -> Response:
        def ask(client: Client) -> Any:
            return [listed_json(group) for group in list_groups(client)]

        return await self._asked(ask)

    async def _group(self, request: Request) -> Response:
        group_id: str = request.path_params["group_id"]

        def ask(client: Client) -> Any:
            found = describe_groups(client, [group_id])[group_id]
            if isinstance(found, Refused):
                raise found
            assert isinstance(found, Group)
            return group_json(found)

        return await self._asked(ask)

    async def _asked(self, ask: Callable[[Client], Any]) -> Response:
        """What the cluster says, as JSON."""

        def on_thread() -> Any:
            with Client(self._bootstrap, client_id="tenure-http") as client:
                return ask(client)

        try:
            return JSONResponse(await to_thread.run_sync(on_thread, limiter=self._limiter))
        except Refused as refused:
            absent = refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            return _error(404 if absent else 502, "no such group" if absent else str(refused))
        except Unreachable as error:
            return _error(504, str(error))


def _state(trouble: str) -> Response:
    return PlainTextResponse(f"{trouble or 'ok'}\n", status_code=503 if trouble else 200)


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status)
