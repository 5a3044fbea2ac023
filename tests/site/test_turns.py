"""HTTP shares the loop's turns: work is counted, in calls of functions, so a busy machine changes nothing."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from coordinator.client.events import Placed
from coordinator.loop.pace import TURN_MAX_MS
from coordinator.site import feed, openapi, site
from coordinator.site.feed import News, TopicSource
from coordinator.site.guard import GuardedProtocol
from coordinator.site.kept import Kept
from coordinator.site.site import exposition
from coordinator.story.events import RebalanceEvent, event_json
from tests.server.harness import ManualClock
from tests.site.test_guard import serving
from tests.support.patience import WITHIN_S
from tests.support.told import told

CLIENTS = 40
REQUESTS = 20
"""Of each client, one behind the other."""

LISTENERS = 100

EVENTS = 100

CALLS_PER_MS = 1_000
"""Calls of functions that take a millisecond of the server's clock."""

TURN_CALLS_MAX = 10_000
"""A turn of the pace has TURN_MAX_MS, one piece of HTTP comes behind it, and each task that waits takes a step. All
requests of a test take 46,000 and more.
"""


class Work:
    """Counts the calls on this thread, in each turn of the loop."""

    def __init__(self) -> None:
        self.calls = 0
        self.turns: list[int] = []
        self._began = 0
        self._counting = False

    def begin(self) -> None:
        """Count from here on."""
        self._counting = True
        self._began = self.calls
        sys.setprofile(self._called)
        asyncio.get_running_loop().call_soon(self._turn)

    def end(self) -> None:
        """Count no further."""
        sys.setprofile(None)
        self._counting = False

    def _turn(self) -> None:
        if self._counting:
            self.turns.append(self.calls - self._began)
            self._began = self.calls
            asyncio.get_running_loop().call_soon(self._turn)

    def _called(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.calls += event in {"call", "c_call"}


class WorkClock(ManualClock):
    """A clock that goes on with work."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def ms(self) -> int:
        """As Clock.ms."""
        return super().ms() + self._work.calls // CALLS_PER_MS


@pytest.fixture(autouse=True)
def counting_ends() -> Iterator[None]:
    """A test that fails leaves no count of calls behind."""
    yield
    sys.setprofile(None)


@pytest.mark.parametrize(
    "path", ["/page_group.js", "/metrics", "/openapi.json", "/healthz", "/nothing", "/groups", "/groups/g", "/overview"]
)
async def test_many_requests_at_once_make_no_turn_long(tmp_path: Path, path: str) -> None:
    """Clients send many requests in one go, and are answered in many turns of the loop."""
    work = Work()
    async with serving(tmp_path, "tenure.events.enable=false", clock=WorkClock(work)) as web:
        await web.status("localhost", path)  # imports and compiles what the first request needs
        clients = [web.connect() for _ in range(CLIENTS)]
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * REQUESTS
        work.begin()
        try:
            for client in clients:
                client.sendall(request)
            answered = [await asyncio.to_thread(client.recv, 15) for client in clients]
        finally:
            work.end()
        assert {each[:9] for each in answered} == {b"HTTP/1.1 "}
        assert sum(work.turns) > TURN_CALLS_MAX, "else the bound says nothing"
        assert max(work.turns) < TURN_CALLS_MAX
        for client in clients:
            client.close()


async def test_events_for_a_hundred_listeners_that_read_nothing_make_no_turn_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event is encoded once for all of them, and what they get is spread over many turns."""
    brought: list[News] = []
    encoded: list[int] = []

    def follow(_self: TopicSource, news: News, _stopping: threading.Event) -> None:
        news.begin("0" * 32, {0: 0}, [])
        brought.append(news)

    def encode(event: RebalanceEvent) -> bytes:
        encoded.append(event.at_ms)
        return event_json(event)

    monkeypatch.setattr(TopicSource, "follow", follow)
    monkeypatch.setattr(feed, "event_json", encode)
    events = [Placed(0, number, told("rebalance_started", at_ms=number, generation=number)) for number in range(EVENTS)]
    work = Work()
    async with serving(tmp_path, "tenure.events.enable=false", clock=WorkClock(work)) as web:
        clients = [web.connect(buffer_bytes=4_096) for _ in range(LISTENERS)]
        for client in clients:
            client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await web.until(lambda: len(web.listeners) == LISTENERS and all(each._waits for each in web.listeners))
        work.begin()
        try:
            brought[0].put(events)
            await web.until(lambda: len(encoded) == EVENTS and not any(each._waiting for each in web.listeners))
            await web.until(lambda: not web.guard.pace._pieces)
        finally:
            work.end()
        assert encoded == list(range(EVENTS))
        assert sum(work.turns) > TURN_CALLS_MAX, "else the bound says nothing"
        assert max(work.turns) < TURN_CALLS_MAX
        for client in clients:
            client.close()


async def test_what_many_clients_send_at_once_is_read_in_many_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client whose bytes wait is not read from any more: it could fill the memory."""
    clock, turns, paused = ManualClock(), [0], list[bool]()
    read, read_on = GuardedProtocol._read, GuardedProtocol._read_on

    def taking_time(self: GuardedProtocol, data: bytes) -> None:
        turns[-1] += 1
        clock.advance(1)
        read(self, data)

    def noted(self: GuardedProtocol) -> None:
        paused.append(not self.transport.is_reading())
        read_on(self)
        paused.append(self.transport.is_reading())

    def turn() -> None:
        turns.append(0)
        asyncio.get_running_loop().call_soon(turn)

    monkeypatch.setattr(GuardedProtocol, "_read", taking_time)
    monkeypatch.setattr(GuardedProtocol, "_read_on", noted)
    async with serving(tmp_path, clock=clock) as web:
        clients = [web.connect() for _ in range(CLIENTS)]
        await web.until(lambda: web.guard.count == CLIENTS)
        for client in clients:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        turn()
        assert {await asyncio.to_thread(client.recv, 15) for client in clients} == {b"HTTP/1.1 200 OK"}
        assert sum(turns) == CLIENTS
        assert max(turns) <= TURN_MAX_MS
        assert len(paused) > CLIENTS
        assert all(paused)
        for client in clients:
            client.close()


async def test_the_description_of_the_routes_is_made_once_and_not_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is a text of metrics for scrapes that come at the same time."""
    made: list[tuple[str, bool]] = []
    all_came = threading.Event()
    counting: list[Any] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any) -> Any:
            made.append((name, threading.current_thread() is threading.main_thread()))
            assert all_came.wait(WITHIN_S)
            return function(*arguments)

        return make

    get = Kept.get

    def counted(self: Any, *arguments: Any) -> Any:
        counting.append(arguments)
        return get(self, *arguments)

    monkeypatch.setattr(openapi, "document", noted("document", openapi.document))
    monkeypatch.setattr(site, "exposition", noted("exposition", exposition))
    monkeypatch.setattr(Kept, "get", counted)
    async with serving(tmp_path) as web:
        paths = ["/openapi.json", "/metrics"] * 2
        asked = asyncio.gather(*(web.status("localhost", path) for path in paths))
        await web.until(lambda: len(counting) == len(paths) and len(made) == 2)
        all_came.set()
        assert set(await asked) == {200}
        assert sorted(made) == [("document", False), ("exposition", False)]
