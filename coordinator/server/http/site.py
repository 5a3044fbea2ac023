"""The routes, and the server behind them: Starlette on uvicorn, on the loop that the coordinator runs on.

A route of groups asks the cluster by a client of its own on a thread, at most THREADS_MAX at a time; the rest wait.
Errors are JSON with one line, `error`: 404 no such group, 500 a mistake of ours, which is in the log, 502 the cluster
said no, 504 it didn't answer. /openapi.json says what there is (openapi.py).

House rule: GET only, and no header that lets other sites read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import traceback
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from coordinator.client.errors import Refused, Unreachable
from coordinator.client.groups import Group, describe_groups, group_json, list_groups, listed_json
from coordinator.server.http.feed import Feed, Listener
from coordinator.server.http.overview import overview
from coordinator.server.telemetry.metrics import exposition
from coordinator.timeline.entries import Timeline
from coordinator.timeline.lanes import lane_json, lanes_of
from coordinator.timeline.runs import run_json, runs
from coordinator.timeline.words import entry_lines, waiting_lines
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from starlette.requests import Request

    from coordinator.client.client import Client
    from coordinator.server.telemetry.lines import Lines
    from coordinator.server.telemetry.metrics import Metrics

THREADS_MAX = 4
"""Requests about groups that are answered at a time."""

ALIVE_S = 15.0
"""A stream of events says something at least so often, so that whoever stands between keeps it open."""

GAP = '{"text":"events may be missing between the last that you had and those that follow"}'
"""What a listener is told whose id leads to events that are not in memory, or is of none that is known."""

PAGE = (
    ("/", "page.html", "text/html; charset=utf-8"),
    ("/page.css", "page.css", "text/css; charset=utf-8"),
    ("/page.js", "page.js", "text/javascript; charset=utf-8"),
)
POLICY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""The page loads nothing from elsewhere, and runs nothing but its own script, whatever a group is called."""

LOGGER = logging.getLogger("uvicorn.error")
"""To which uvicorn says what it can't tell a client: errors of ours, and requests that are no HTTP."""

STOP_WITHIN_S = 1
"""How long a stop waits for answers that are being written."""


class Shown(Protocol):
    """What is asked of a server directly; see app.Server."""

    loaded: asyncio.Event
    failed: asyncio.Event


class Teller(logging.Handler):
    """Makes what is logged a line of the server's."""

    def __init__(self, lines: Lines) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        tell = self._lines.error if record.levelno >= logging.ERROR else self._lines.warn
        tell("http_broke", f"HTTP: {record.getMessage().strip()}" + (f": {trace}" if trace else ""))


class Site:
    """What HTTP shows of `server`.

    ask: opens a client of the cluster. metrics: of the server. lines: where trouble is told. wall_ms:
    Unix time.
    """

    def __init__(
        self, server: Shown, ask: Callable[[], Client], metrics: Metrics, lines: Lines, wall_ms: Callable[[], int]
    ) -> None:
        self._shown = server
        self._ask = ask
        self._metrics = metrics
        self._teller = Teller(lines)
        self._feed = Feed(ask)
        self._wall_ms = wall_ms
        self._limiter = CapacityLimiter(THREADS_MAX)
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket) -> None:
        """Answer on a socket that is bound."""
        config = uvicorn.Config(
            Starlette(routes=self.routes(), exception_handlers={Exception: _broke}),
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
        LOGGER.addHandler(self._teller)
        await server.startup([listening])
        self._serving = asyncio.create_task(server.main_loop())

    async def stop(self) -> None:
        """Answer what is being answered, and end."""
        await self._feed.stop()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
            await self._server.shutdown()
            LOGGER.removeHandler(self._teller)

    def routes(self) -> list[Route]:
        """What there is."""
        return [
            Route("/openapi.json", _openapi),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._exposition),
            Route("/overview", self._overview),
            Route("/groups", self._groups),
            Route("/groups/{group_id:path}/events", self._group_events),
            Route("/groups/{group_id:path}", self._group),
            Route("/events", self._events),
            *(Route(path, partial(_page, name, media_type)) for path, name, media_type in PAGE),
        ]

    async def _healthz(self, _: Request) -> Response:
        return _state(self._trouble())

    async def _readyz(self, _: Request) -> Response:
        return _state(self._trouble() or ("" if self._shown.loaded.is_set() else "groups are being loaded"))

    def _trouble(self) -> str:
        """Why the server should be restarted; empty if it shouldn't."""
        return "the log can't be written any more" if self._shown.failed.is_set() else ""

    async def _exposition(self, request: Request) -> Response:
        text, content_type = exposition(await self._metrics.now(), request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    async def _groups(self, _: Request) -> Response:
        def ask(client: Client) -> Any:
            return [listed_json(group) for group in list_groups(client)]

        return await self._asked(ask)

    async def _group(self, request: Request) -> Response:
        group_id: str = request.path_params["group_id"]

        def ask(client: Client) -> Any:
            found = found_group(client, group_id)
            body = group_json(found)
            if body["waiting"] is not None:
                body["waiting"]["text"] = list(waiting_lines(found.state, body["waiting"]))
            return body

        return await self._asked(ask)

    async def _overview(self, _: Request) -> Response:
        """For the page: groups with what they went through in the last hour."""
        told = await self._feed.events()

        def ask(client: Client) -> Any:
            return overview(list_groups(client), [each.event for each in told], self._wall_ms())

        return await self._asked(ask)

    async def _group_events(self, request: Request) -> Response:
        """The entries in memory, as `tenure explain --output json` has them, with their words, runs and lanes."""
        group_id: str = request.path_params["group_id"]
        events = [each.event for each in await self._feed.events()]
        if self._feed.problem:
            return _error(404, self._feed.problem)
        entries = Timeline(group_id).add_all(events).entries
        found = runs(group_id, entries, self._wall_ms())
        is_known = any(event["group"] == group_id for event in events)

        def ask(client: Client) -> Any:
            try:
                members = found_group(client, group_id).members
            except (Refused, Unreachable):
                if not is_known:
                    raise
                members = []
            seats = [member.group_instance_id or member.member_id for member in members]
            return {
                "group_id": group_id,
                "timeline": [entry | {"text": list(entry_lines(entry))} for entry in entries],
                "runs": [run_json(run) for run in found],
                "lanes": [lane_json(name, lane) for name, lane in lanes_of(entries, found, seats).items()],
            }

        return await self._asked(ask)

    async def _events(self, request: Request) -> Response:
        """Events as they come, as server-sent events: of one group with ?group=, from behind Last-Event-ID on."""
        listener = await self._feed.listen(request.headers.get("last-event-id", ""))
        if self._feed.problem:
            self._feed.forget(listener)
            return _error(404, self._feed.problem)
        return StreamingResponse(
            self._stream(listener, request.query_params.get("group")),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def _stream(self, listener: Listener, group: str | None) -> AsyncIterator[str]:
        try:
            # Who is cut off before the first event comes has an id to come again with, too.
            yield f": events follow\nid: {listener.begins}\n\n"
            if listener.is_gapped:
                yield f"event: gap\ndata: {GAP}\n\n"
            while not listener.is_gone:
                told = await listener.next(ALIVE_S)
                if told is None:
                    yield ": nothing new\n\n"
                elif group is None or told.event["group"] in {None, group}:
                    data = json.dumps(told.event, ensure_ascii=False, separators=(",", ":"))
                    yield f"id: {told.id}\ndata: {data}\n\n"
        finally:
            self._feed.forget(listener)

    async def _asked(self, ask: Callable[[Client], Any]) -> Response:
        """What the cluster says, as JSON."""

        def on_thread() -> Any:
            with self._ask() as client:
                return ask(client)

        try:
            return JSONResponse(await to_thread.run_sync(on_thread, limiter=self._limiter))
        except Refused as refused:
            absent = refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            return _error(404 if absent else 502, "no such group" if absent else str(refused))
        except Unreachable as error:
            return _error(504, str(error))


def found_group(client: Client, group_id: str) -> Group:
    """What the coordinator says of a group; raises Refused if there is none."""
    found = describe_groups(client, [group_id])[group_id]
    if isinstance(found, Refused):
        raise found
    assert isinstance(found, Group)
    return found


async def _openapi(_: Request) -> Response:
    from coordinator.server.http.openapi import document  # noqa: PLC0415 - only who asks pays for it

    return JSONResponse(document(version("tenure")))


async def _page(name: str, media_type: str, _: Request) -> Response:
    content = (Path(__file__).parent / name).read_bytes()
    return Response(content, headers={**POLICY, "content-type": media_type})


async def _broke(_: Request, __: Exception) -> Response:
    return _error(500, "the server's own fault: its log says more")


def _state(trouble: str) -> Response:
    return PlainTextResponse(f"{trouble or 'ok'}\n", status_code=503 if trouble else 200)


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status)
