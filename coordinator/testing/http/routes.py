"""The routes of a control: a request becomes the call of an operation on a thread, and its result an answer.

Every error is JSON with one field, `error`. An operation holds a thread. Those that wait for members have threads of
their own, so that all others go on meanwhile, and they end as soon as their client closes its connection.

A control moves time and ends servers, so few requests may get in. With a token only those that bring it do
(site/access.py). Requests of a page in a browser never do: it could reach the loopback from any site.

House rule: nothing here knows an operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from anyio import CancelScope, CapacityLimiter, from_thread, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.client.errors import Refused, Unreachable
from coordinator.server.app import StartFailed
from coordinator.site.web import error
from coordinator.testing.http.given import body_fields, check, query_fields
from coordinator.testing.http.openapi import document
from coordinator.testing.http.operations import OPERATIONS, Desk, Operation
from coordinator.testing.member import NotSeated
from coordinator.testing.tenure import NotRunning, Tenure

if TYPE_CHECKING:
    Run = Callable[[Request, Callable[..., Any]], Awaitable[Any]]

THREADS_MAX = 64
"""Operations at the same time, and as many that wait: a test waits for a few groups, and looks at others meanwhile."""

BODY_BYTES_MAX = 1_048_576
"""The largest body of a request; the assignments of 1,000 members fit in."""

CAN_NOT_BE = (AssertionError, NotSeated, NotRunning, StartFailed, Refused, RuntimeError, CancelledError)
"""A failed assertion, a wait in vain, or a server that can't do that now. A loop that ends raises the last two."""

STATUSES: list[tuple[type[Exception] | tuple[type[Exception], ...], int]] = [
    (CAN_NOT_BE, 409),
    ((TimeoutError, Unreachable), 504),
    (LookupError, 404),
    (ValueError, 400),
]
"""Errors of operations, and their status. All others are faults of ours."""


class NoBrowsers:
    """Lets a request through to `app` unless a page in a browser sent it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI."""
        if scope["type"] == "http" and any(_is_of_a_page(name, value) for name, value in scope["headers"]):
            refusal = error(403, "a page in a browser sent this request: the control is for tests alone")
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _is_of_a_page(name: bytes, value: bytes) -> bool:
    """Whether a browser sends this header for a page. It sends no Origin to load an image, say, but tells so.

    Sec-Fetch-Site is "none" if a person typed the address.
    """
    return name == b"origin" or (name == b"sec-fetch-site" and value != b"none")


def routes(tenure: Tenure) -> list[Route]:
    """All routes of the control of `tenure`."""
    desk = Desk(tenure)
    work = partial(_work, CapacityLimiter(THREADS_MAX))
    wait = partial(_wait, CapacityLimiter(THREADS_MAX))
    return [
        Route("/openapi.json", _openapi),
        *(
            Route(_path(each.path), partial(_answer, each, desk, wait if each.waits else work), methods=[each.method])
            for each in OPERATIONS
        ),
    ]


def _path(path: str) -> str:
    """The path of an operation as Starlette has it. A group id may have slashes."""
    return path.replace("{group_id}", "{group_id:path}")


async def _openapi(_: Request) -> Response:
    return JSONResponse(document(version("tenure")))


async def _answer(each: Operation, desk: Desk, run: Run, request: Request) -> Response:
    """The answer to a request for this operation."""
    try:
        named = query_fields(request.path_params, each.parameters)
        check(named, each.parameters, each.parameters)
        texts = request.query_params
        given = body_fields(await _body(request)) if each.has_body else query_fields(texts, each.fields)
        check(given, each.fields, each.needed)
        result: Any = await run(request, partial(each.run, desk, **named, **given))
    except Exception as problem:
        for kinds, status in STATUSES:
            if isinstance(problem, kinds):
                return error(status, str(problem) or type(problem).__name__)
        raise
    return PlainTextResponse(result) if isinstance(result, str) else JSONResponse(result)


async def _work(limiter: CapacityLimiter, _: Request, work: Callable[..., Any]) -> Any:
    """Call `work` on a thread."""
    return await to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)


async def _wait(limiter: CapacityLimiter, request: Request, work: Callable[..., Any]) -> Any:
    """Call `work`, which waits, on a thread: its guard ends it when the client has closed its connection."""
    with CancelScope() as scope:
        watching = asyncio.create_task(_cancel_when_gone(request, scope))
        try:
            return await _work(limiter, request, partial(work, guard=from_thread.check_cancelled))
        finally:
            watching.cancel()
    raise ClientDisconnect


async def _cancel_when_gone(request: Request, scope: CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _body(request: Request) -> bytes:
    """The body of a request. Raises HTTPException if it is too large."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > BODY_BYTES_MAX:
            raise HTTPException(413, f"a body has at most {BODY_BYTES_MAX} bytes")
    return bytes(content)
