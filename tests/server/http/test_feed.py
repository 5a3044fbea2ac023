"""Who listens gets each event once and in order; who doesn't take them is let go of."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from coordinator.server.http import feed as feeds
from coordinator.server.http.feed import EVENTS_KEPT, LISTENER_MAX, Feed


def event(number: int) -> dict[str, Any]:
    """An event like no other."""
    return {"version": 1, "type": "rebalance_started", "at_ms": number, "group": "g", "generation": number, "node": 1}


class Fed(Feed):
    """A feed that a test feeds, in place of the thread."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        self._thread = threading.Thread(target=lambda: None)
        self._thread.start()
        self._set_problem("")

    def feed(self, *numbers: int, anew: bool = False) -> None:
        """What the thread would have read."""
        self._take([event(number) for number in numbers], anew=anew)

    async def numbers(self) -> list[int]:
        """The events that are kept."""
        return [each.event["at_ms"] for each in await self.events()]


async def test_a_listener_gets_what_comes_after_it_came() -> None:
    """Once, in order, also if it comes in the middle."""
    feed = Fed()
    feed.feed(1, 2)
    listener = await feed.listen(None)
    assert await listener.next(0.0) is None
    feed.feed(3)
    feed.feed(4)
    told = [await listener.next(1.0) for _ in range(2)]
    assert [each.event["at_ms"] for each in told if each] == [3, 4]
    assert await listener.next(0.0) is None


async def test_a_listener_that_was_cut_off_goes_on_where_it_was() -> None:
    """With the number of the last that it had; a number that never was begins with what comes."""
    feed = Fed()
    feed.feed(1, 2, 3)
    listener = await feed.listen(after=1)
    told = [await listener.next(0.0) for _ in range(2)]
    assert [(each.number, each.event["at_ms"]) for each in told if each] == [(2, 2), (3, 3)]
    assert await (await feed.listen(after=99)).next(0.0) is None


async def test_a_listener_waits_until_something_comes() -> None:
    """And is woken by it."""
    feed = Fed()
    listener = await feed.listen(None)
    asyncio.get_running_loop().call_soon(feed.feed, 1)
    told = await listener.next(10.0)
    assert told is not None
    assert told.event["at_ms"] == 1


async def test_a_listener_that_takes_nothing_is_let_go_of() -> None:
    """It costs nobody anything any more."""
    feed = Fed()
    listener = await feed.listen(None)
    feed.feed(*range(LISTENER_MAX))
    gone = [listener.is_gone]
    feed.feed(LISTENER_MAX)
    assert [*gone, listener.is_gone] == [False, True]
    assert await listener.next(1.0) is None


async def test_what_is_kept_has_an_end() -> None:
    """The oldest go."""
    feed = Fed()
    feed.feed(*range(EVENTS_KEPT + 5))
    assert await feed.numbers() == list(range(5, EVENTS_KEPT + 5))


async def test_after_a_lost_connection_nothing_is_told_twice() -> None:
    """All is read again; what was known is passed over, what came meanwhile is told."""
    feed = Fed()
    feed.feed(1, 2, anew=True)
    listener = await feed.listen(None)
    feed.feed(1, 2, 3, anew=True)
    told = await listener.next(0.0)
    assert told is not None
    assert told.event["at_ms"] == 3
    assert await listener.next(0.0) is None
    assert await feed.numbers() == [1, 2, 3]


async def test_a_stop_lets_go_of_all_listeners() -> None:
    """Also of one that waits."""
    feed = Fed()
    told, _ = await asyncio.gather((await feed.listen(None)).next(10.0), feed.stop())
    assert told is None


async def test_a_stop_does_not_wait_for_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is left to itself, and tells nobody anything any more."""
    monkeypatch.setattr(feeds, "STOP_WITHIN_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        feed = Feed(f"127.0.0.1:{silent.getsockname()[1]}")
        asked = asyncio.create_task(feed.events())
        connection, _ = await asyncio.to_thread(silent.accept)
        await feed.stop()
        thread = feed._thread
        assert thread is not None
        assert thread.is_alive()
        with connection:
            connection.sendall(b"\xff\xff\xff\xff")
            await asyncio.to_thread(thread.join)
    assert not asked.done()
    assert not feed.is_read.is_set()
    asked.cancel()
