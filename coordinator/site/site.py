"""The routes of the site; web.py is the web server behind them, on the coordinator's own loop.

A route about groups asks the cluster with a client of its own, and makes its body (body.py), on a thread; at most
THREADS_MAX such requests run, the others wait. Connections have limits (guard.py). An error is JSON with one line,
`error`: 404 no such group; 421 the Host header is another's; 500 a fault of the server, which the log names; 502 the
cluster refused; 504 the cluster did not answer. /openapi.json describes all routes (openapi.py).

House rule: GET only, and no header that lets other sites read.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from anyio import CapacityLimiter, to_thread
from prometheus_client import PROCESS_COLLECTOR, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from coordinator.client.client import Client
from coordinator.client.errors import OtherKind, Refused, Unauthenticated, Unreachable
from coordinator.client.examination import holding_back, look, look_at_lag, members_at_work
from coordinator.client.groups import described_group, list_groups, listed_json, topics_of
from coordinator.client.lag import group_lag_json, offset_lines
from coordinator.client.topics import Leaders, owners_json, partition_owners
from coordinator.config import Config
from coordinator.loop.clock import Clock
from coordinator.loop.cycles import drop_trace
from coordinator.site.access import PROBES, RefusedTokens, TokenCheck
from coordinator.site.body import InPieces, pieces_of
from coordinator.site.examined import examined
from coordinator.site.feed import Feed, FeedEvent, Subscriber, TopicSource
from coordinator.site.guard import Guard
from coordinator.site.kept import Kept
from coordinator.site.overview import TimelineJson, counted, lags, overview
from coordinator.site.sums import Sums
from coordinator.site.web import Web, error
from coordinator.story.described import SHARE, Group, group_json
from coordinator.story.diagnosis import Case, worst_first
from coordinator.story.entries import Timeline
from coordinator.story.group_diagnosis import group_findings
from coordinator.story.lag_time import LagTimes
from coordinator.story.lanes import Lane, lane_json, lanes_of
from coordinator.story.progress import Progress
from coordinator.story.progress_diagnosis import Work
from coordinator.story.runs import run_json, runs
from coordinator.story.schema import STREAMS
from coordinator.story.words import RECONCILING, expects_lines, held_up_lines, timeline_json, waiting_lines
from protocol.primitives import STRING_SIZE_MAX
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from coordinator.loop.lines import Lines
    from coordinator.loop.pace import Pace
    from coordinator.site.guard import Secure

    Answering = Callable[[Request], Coroutine[Any, Any, Response]]

OVERVIEW_MS, FINDINGS_MS, LAG_MS, LAGS_MS, SUMS_MS = 1_000, 10_000, 2_000, 5_000, 1_000
"""How long an answer about all groups, or about offsets, is good."""

OPENAPI_MS = 60_000
"""How long the description of all routes stays in memory. It never changes, but hardly anybody reads it."""

QUESTIONS_OF_A_LAG = 3
"""Questions about the ages of records in an answer about lag; further answers come nearer."""

LAGS_MAX = 50
"""The most groups of one question about lag: a page of the list."""

TOO_LONG = "a name of more bytes than a group can have"

THREADS_MAX = 4
"""Requests about groups that run at the same time."""

END_S = 0.5
"""How long a stop leaves requests of the page to a cluster that is silent."""

ALIVE_S = 15.0
"""A stream of events sends something at least so often, so that proxies keep it open."""

GAP = '{"text":"events may be missing between the last that you had and those that follow"}'
"""The message for a subscriber whose id is unknown, or points to events that are not in memory."""

HERE = Path(__file__).parent

PAGE = (
    ("/", "page.html", "text/html; charset=utf-8"),
    ("/page.css", "page.css", "text/css; charset=utf-8"),
    *((f"/{path.name}", path.name, "text/javascript; charset=utf-8") for path in sorted(HERE.glob("page*.js"))),
)
POLICY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""The page loads nothing from other hosts and runs only its own script, whatever name a group has."""


PROBLEMS = (Refused, Unauthenticated, Unreachable)


class Health(Protocol):
    """The state of a server, or of an observer."""

    @property
    def trouble(self) -> str:
        """The reason that it needs a restart; empty if it needs none."""

    @property
    def not_ready(self) -> str:
        """The reason that it can't do all its work now; empty if it can."""


class Site:
    """The HTTP side of `server`.

    config: has limits and host names. ask: opens a client of the cluster. lines: gets uvicorn's log. pace: of the loop.
    secure: as of Guard. feed: brings events; by default it reads the cluster's topic of events. spare: as of Sums.
    progress, lag_times: earlier looks at how far groups are.
    """

    def __init__(
        self,
        config: Config,
        server: Health,
        ask: Callable[[], Client],
        metrics: Callable[[], Awaitable[list[Metric]]],
        lines: Lines,
        clock: Clock,
        pace: Pace,
        secure: Secure | None = None,
        feed: Feed | None = None,
        spare: Callable[[], bool] = lambda: True,
        progress: Progress | None = None,
        lag_times: LagTimes | None = None,
    ) -> None:
        self._guard = Guard(clock, lines, config.http_max_connections, config.http_idle_timeout_ms, pace, secure)
        self._health = server
        self._ask = ask
        self._metrics = metrics
        token = Middleware(
            TokenCheck,
            token=config.http_token,
            setting="tenure.http.token",
            refused=RefusedTokens("HTTP", clock, lines),
            open_paths=PROBES,
        )
        self._web = Web(self._guard, config.http_hosts, lines, [token])
        self._feed = feed or Feed(TopicSource(ask), pace)
        self._clock = clock
        self._kept = Kept(clock)
        self._progress = Progress() if progress is None else progress
        self._lag_times = LagTimes() if lag_times is None else lag_times
        self._limiter = CapacityLimiter(THREADS_MAX)
        self._sums = Sums(self._question, partial(lags, self._lag_times), clock, spare)
        self._ending = asyncio.Event()

    async def start(self, listening: socket.socket) -> None:
        """Answer requests on a bound socket."""
        await self._web.start(listening, self.routes())

    async def stop(self) -> None:
        """Finish the answers under way, and stop. An answer that waits for a cluster says after END_S that it can't."""
        end = asyncio.get_running_loop().call_later(END_S, self._ending.set)
        await self._feed.stop()
        await self._sums.stop()
        await self._web.stop()
        end.cancel()

    def routes(self) -> list[Route]:
        """All routes."""
        return [
            Route("/openapi.json", self._openapi),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._exposition),
            *(
                Route(path, self._before_end(answer))
                for path, answer in (
                    ("/overview", self._overview),
                    ("/findings", self._findings),
                    ("/alive", self._alive),
                    ("/lag", self._lag),
                    ("/lags", self._lags),
                    ("/sums", self._all_sums),
                    ("/nodes", self._nodes),
                    ("/groups", self._groups),
                    ("/groups/{group_id:path}/events", self._group_events),
                    ("/groups/{group_id:path}", self._group),
                    ("/events", self._events),
                )
            ),
            *(Route(path, partial(_page, name, media_type)) for path, name, media_type in PAGE),
        ]

    def _before_end(self, answer: Answering) -> Answering:
        """`answer`, for a route; a request that still waits for a cluster when this server stops gets an error."""

        async def answering(request: Request) -> Response:
            working, ends = asyncio.create_task(answer(request)), asyncio.create_task(self._ending.wait())
            try:
                await asyncio.wait((working, ends), return_when=asyncio.FIRST_COMPLETED)
                return working.result() if working.done() else error(504, "no answer came before this server stopped")
            finally:
                working.cancel()
                ends.cancel()

        return answering

    async def _healthz(self, _: Request) -> Response:
        return _state(self._health.trouble)

    async def _readyz(self, _: Request) -> Response:
        return _state(self._health.trouble or self._health.not_ready)

    async def _exposition(self, request: Request) -> Response:
        """With many groups a text takes long. So a thread makes it, and requests that come meanwhile share it."""
        accept = request.headers.get("accept", "")
        content_type = choose_encoder(accept)[1]

        async def make() -> list[bytes]:
            return [(await to_thread.run_sync(exposition, await self._metrics(), accept))[0]]

        return InPieces(await self._kept.get(("metrics", content_type), "", 0, make), content_type)

    async def _openapi(self, _: Request) -> Response:
        return InPieces(await self._kept.get("openapi", "", OPENAPI_MS, partial(to_thread.run_sync, _description)))

    async def _nodes(self, _: Request) -> Response:
        return await self._asked(lambda client: owners_json(partition_owners(client)))

    async def _groups(self, _: Request) -> Response:
        return await self._asked(lambda client: [listed_json(group) for group in list_groups(client)])

    async def _group(self, request: Request) -> Response:
        group_id: str = request.path_params["group_id"]

        def ask(client: Client) -> Any:
            found = found_group(client, group_id)
            held_up: Iterable[str] = ()
            if found.waiting is not None:
                found.waiting.text = list(waiting_lines(found.state, found.waiting))
            if found.expects is not None:
                found.expects.text = list(expects_lines(found.expects))
            if found.consumer is not None and found.state in RECONCILING:
                held_up = held_up_lines(found.state, found.consumer)
            return group_json(found, held_up)

        return await self._asked(ask)

    async def _overview(self, _: Request) -> Response:
        """For the page: all groups with their rebalances and restarts of the last hour."""
        events = await self._feed.events()

        def ask(client: Client) -> Any:
            return overview(list_groups(client), [each.event for each in events], self._clock.wall_ms())

        newest = events[-1].id if events else ""
        return await self._answered(self._kept.get("overview", newest, OVERVIEW_MS, partial(self._on_thread, ask)))

    async def _findings(self, _: Request) -> Response:
        """For the page: the findings of `tenure doctor --all`, as far as the events in memory show them."""
        events = await self._feed.events()

        def ask(client: Client) -> Any:
            return examined(client, [each.event for each in events], self._clock.wall_ms(), self._progress)

        return await self._answered(self._kept.get("findings", "", FINDINGS_MS, partial(self._on_thread, ask)))

    async def _lag(self, request: Request) -> Response:
        """The topics of one group, with committed offsets and the ends of the logs."""
        group_id = request.query_params.get("group", "")

        def ask(client: Client) -> Any:
            group, now_ms = found_group(client, group_id), self._clock.wall_ms()
            looks = look_at_lag(client, [group], self._progress, self._lag_times, now_ms, QUESTIONS_OF_A_LAG)
            lines = looks[group_id].lines
            if lines is None:
                lines = offset_lines(client, [group])[group_id]
            if isinstance(lines, Refused):
                raise lines
            return group_lag_json(group_id, lines, self._lag_times.of(group_id))

        return await self._answered(self._kept.get(("lag", group_id), "", LAG_MS, partial(self._on_thread, ask)))

    async def _alive(self, request: Request) -> Response:
        """As `tenure members alive`, at one look: earlier looks show whether a member stands still."""
        group_id, instance_id = (request.query_params.get(name, "") for name in ("group", "instance-id"))

        def ask(client: Client) -> dict[str, Work]:
            group = found_group(client, group_id, besides=(SHARE, STREAMS))
            return members_at_work(client, group, self._progress, self._clock.wall_ms())

        try:
            work = (await self._question(ask)).get(instance_id, Work("the group has no such member"))
            return _state(work.why) if work.is_known else error(502, work.why)
        except PROBLEMS as problem:
            return _failed(problem)

    async def _lags(self, request: Request) -> Response:
        """For the page: the sums of some groups."""
        names = tuple(sorted(set(request.query_params.getlist("group"))))
        if len(names) > LAGS_MAX:
            return error(400, f"at most {LAGS_MAX} groups")
        if not all(map(_can_be_named, names)):
            return error(400, TOO_LONG)
        work = self._kept.get(
            ("lags", names), "", LAGS_MS, partial(self._on_thread, partial(lags, self._lag_times, names))
        )
        return await self._answered(work)

    async def _all_sums(self, _: Request) -> Response:
        """For the page: the sums of all groups, as far as they are known."""

        async def make() -> list[bytes]:
            return await to_thread.run_sync(pieces_of, self._sums.now(), limiter=self._limiter)

        return await self._answered(self._kept.get("sums", "", SUMS_MS, make))

    async def _group_events(self, request: Request) -> Response:
        """The entries in memory, as in `tenure explain --output json`, with their texts, runs and lanes."""
        group_id: str = request.path_params["group_id"]
        events = await self._feed.events()
        if self._feed.problem:
            return error(404, self._feed.problem)
        # Requests that come while a timeline is made share it.
        newest = events[-1].id if events else ""
        ask = partial(self._timeline, group_id, events)
        return await self._answered(self._kept.get(("events", group_id), newest, 0, partial(self._on_thread, ask)))

    def _timeline(self, group_id: str, events: list[FeedEvent], client: Client) -> TimelineJson:
        """The body of `_group_events`, on a thread."""
        own = [each.event for each in events]
        entries = Timeline(group_id).add_all(own).entries
        group = None
        try:
            group = found_group(client, group_id)
        except (Refused, Unreachable):
            if not any(event.group == group_id for event in own):
                raise
        now_ms = self._clock.wall_ms()
        found = runs(group_id, entries, now_ms)
        members = [] if group is None else group.members
        leaders = Leaders()
        counts = {} if group is None else leaders.counts(client, topics_of([group]))
        names = {member.group_instance_id or member.member_id: member.standby_ms for member in members}
        waits = {name: now_ms - waited_ms for name, waited_ms in names.items() if waited_ms is not None}
        lanes = lanes_of(entries, found, names.keys() - waits.keys())
        looks = look(client, [] if group is None else [group], counts, self._progress, now_ms, leaders)
        seen = None if group is None else looks[group_id].progress
        holding = [] if group is None else holding_back(client, group)
        case = Case(group_id, entries, group, counts, now_ms, seen, holding)
        problems = [] if group is None else group_findings(case)
        drawn = sorted(waits.keys() | lanes.keys())
        return TimelineJson(
            group_id,
            timeline_json(entries),
            counted(entries, found),
            worst_first(problems),
            [run_json(run) for run in found],
            [lane_json(name, lanes.get(name, Lane()), waits.get(name)) for name in drawn],
        )

    async def _events(self, request: Request) -> Response:
        """Events as they happen, as server-sent events: of one group with ?group=, and on from Last-Event-ID."""
        subscriber = await self._feed.subscribe(request.headers.get("last-event-id", ""))
        if self._feed.problem:
            self._feed.unsubscribe(subscriber)
            return error(404, self._feed.problem)
        return StreamingResponse(
            self._stream(subscriber, request.query_params.get("group")),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def _stream(self, subscriber: Subscriber, group: str | None) -> AsyncIterator[str | bytes]:
        try:
            # A client that loses its connection before its first event needs an id to come back with.
            yield f": events follow\nid: {subscriber.begins}\n\n"
            if subscriber.is_gapped:
                yield f"event: gap\ndata: {GAP}\n\n"
            while not subscriber.is_closed:
                news = await subscriber.next(ALIVE_S)
                if not news:
                    yield ": nothing new\n\n"
                wanted = [each for each in news if group is None or each.event.group in {None, group}]
                if wanted:
                    yield b"".join(map(self._feed.frame, wanted))
        finally:
            self._feed.unsubscribe(subscriber)

    async def _asked(self, ask: Callable[[Client], Any]) -> Response:
        """The answer of the cluster to `ask`, as JSON."""
        return await self._answered(self._on_thread(ask))

    async def _on_thread(self, ask: Callable[[Client], Any]) -> list[bytes]:
        """The pieces of the body that `ask` returns."""
        return cast("list[bytes]", await self._question(lambda client: pieces_of(ask(client))))

    async def _question(self, ask: Callable[[Client], Any]) -> Any:
        """The value that `ask` returns."""

        def run() -> Any:
            with self._ask() as client:
                return ask(client)

        return await to_thread.run_sync(run, limiter=self._limiter, abandon_on_cancel=True)

    async def _answered(self, work: Awaitable[list[bytes]]) -> Response:
        """The answer with the body that `work` makes, or with its error."""
        try:
            return InPieces(await work)
        except PROBLEMS as problem:
            return _failed(problem)


def _failed(problem: Refused | Unauthenticated | Unreachable) -> Response:
    """The answer to a question that the cluster refused, or didn't answer."""
    drop_trace(problem)
    if isinstance(problem, Unreachable):
        return error(504, str(problem))
    if isinstance(problem, OtherKind):
        return error(501, str(problem))
    absent = isinstance(problem, Refused) and problem.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    return error(404 if absent else 502, "no such group" if absent else str(problem))


def found_group(client: Client, group_id: str, besides: Collection[str] = ()) -> Group:
    """As `described_group`."""
    if not _can_be_named(group_id):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, TOO_LONG)
    return described_group(client, group_id, besides)


def _can_be_named(group_id: str) -> bool:
    """Whether a request can name a group."""
    return len(group_id.encode()) <= STRING_SIZE_MAX


def _description() -> list[bytes]:
    from coordinator.site.openapi import document  # noqa: PLC0415 - only its readers need it

    return pieces_of(document(version("tenure")))


async def _page(name: str, media_type: str, _: Request) -> Response:
    return _file(name, media_type)


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


@lru_cache(len(PAGE))
def _file(name: str, media_type: str) -> Response:
    text = _text(name).replace("<!-- page_marks.html -->", _text("page_marks.html"))
    return Response(text, headers={**POLICY, "content-type": media_type})


def _state(trouble: str) -> Response:
    return PlainTextResponse(f"{trouble or 'ok'}\n", status_code=503 if trouble else 200)


def exposition(made: list[Metric], accept: str) -> tuple[bytes, str]:
    """The text of a scrape in the format that it accepts, and the content type of that format."""
    registry = CollectorRegistry()
    registry.register(_Families(made))
    registry.register(PROCESS_COLLECTOR)
    encode, content_type = choose_encoder(accept)
    text: bytes = encode(registry)
    return text, content_type


class _Families(Collector):
    """The metrics of one scrape, as the library wants them."""

    def __init__(self, made: list[Metric]) -> None:
        self._made = made

    def collect(self) -> Iterable[Metric]:
        """See Collector."""
        return self._made
