"""The feed: each subscriber gets each event once and in order; a subscriber that takes none is dropped."""

from __future__ import annotations

import asyncio
import socket
import threading
from functools import partial
from typing import Any

import pytest

from coordinator.client.client import Client
from coordinator.client.events import Placed
from coordinator.server.http import feed as feeds
from coordinator.server.http.feed import EVENTS_KEPT, WAITING_MAX, Feed

TOPIC = "0" * 31 + "a"


def event(number: int) -> dict[str, Any]:
    """An event like no other."""
    return {"version": 1, "type": "rebalance_started", "at_ms": number, "group": "g", "generation": number, "node": 1}


class Fed(Feed):
    """A feed that a test feeds, in place of the thread."""

    def __init__(self) -> None:
        super().__init__(partial(Client, "127.0.0.1:1"))
        self._thread = threading.Thread(target=lambda: None)
        self._thread.start()
        self._set_problem("")

    def feed(self, *numbers: int) -> None:
        """Take events as from the thread: the topic has one partition, and event n has offset n."""
        self._take([Placed(0, number, event(number)) for number in numbers])

    def feed_anew(self, *numbers: int, topic: str = TOPIC) -> None:
        """Likewise, of all that is there."""
        self._take_anew(topic, {0: numbers[-1] + 1}, [Placed(0, number, event(number)) for number in numbers])

    async def numbers(self) -> list[int]:
        """The events that are kept."""
        return [each.event["at_ms"] for each in await self.events()]


async def test_a_listener_gets_what_comes_after_it_came() -> None:
    """Once, in order, also if it comes in the middle."""
    feed = Fed()
    feed.feed(1, 2)
    subscriber = await feed.subscribe("")
    assert await subscriber.next(0.0) is None
    feed.feed(3)
    feed.feed(4)
    told = [await subscriber.next(1.0) for _ in range(2)]
    assert [each.event["at_ms"] for each in told if each] == [3, 4]
    assert await subscriber.next(0.0) is None


async def told_after(feed: Feed, after: str) -> tuple[list[str], list[int], bool]:
    """Subscribe with this id; returns ids, events, and whether some may be missing."""
    subscriber = await feed.subscribe(after)
    told = []
    while (each := await subscriber.next(0.0)) is not None:
        told.append(each)
    feed.unsubscribe(subscriber)
    return [each.id for each in told], [each.event["at_ms"] for each in told], subscriber.is_gapped


async def test_a_listener_that_was_cut_off_goes_on_where_it_was() -> None:
    """With the id of the last that it had, or that it was given when it came, also from another run or node."""
    first = Fed()
    first.feed_anew(0, 1)
    begins = (await first.subscribe("")).begins
    first.feed(2, 3)
    ids, events, _ = await told_after(first, begins)
    assert events == [2, 3]
    second = Fed()
    second.feed_anew(0, 1, 2, 3, 4, 5)
    assert await told_after(second, begins) == ([*ids, f"{TOPIC}-0.5", f"{TOPIC}-0.6"], [2, 3, 4, 5], False)
    assert (await told_after(second, ids[0]))[1:] == ([3, 4, 5], False)
    assert (await told_after(second, f"{TOPIC}-0.6"))[1:] == ([], False)


@pytest.mark.parametrize("after", ["else", "b" * 32 + "-0.3", TOPIC + "-0.99", TOPIC + "-1.1", "f91ab2-17"])
async def test_a_listener_of_what_is_not_known_gets_all_that_is_kept(after: str) -> None:
    """Of another topic, of a log that was longer, of no such partition, or of no form: it hears that there is a gap."""
    feed = Fed()
    feed.feed_anew(0, 1, 2)
    assert (await told_after(feed, after))[1:] == ([0, 1, 2], True)


async def test_a_listener_hears_of_what_is_no_longer_kept() -> None:
    """As retention took it, or as too much came since."""
    feed = Fed()
    feed.feed_anew(5, 6)
    assert (await told_after(feed, f"{TOPIC}-0.4"))[1:] == ([5, 6], True)
    assert (await told_after(feed, f"{TOPIC}-0.5"))[1:] == ([5, 6], False)
    feed.feed(*range(7, EVENTS_KEPT + 7))
    assert (await told_after(feed, f"{TOPIC}-0.6"))[2]
    assert not (await told_after(feed, f"{TOPIC}-0.7"))[2]
    feed.feed_anew(EVENTS_KEPT + 100)
    _, events, is_gapped = await told_after(feed, f"{TOPIC}-0.{EVENTS_KEPT}")
    assert (events[-1], is_gapped) == (EVENTS_KEPT + 100, True), "what lies between was never read"


async def test_an_id_says_no_more_than_was_told() -> None:
    """Several partitions, one that says late what was early: at worst something comes twice."""
    feed = Fed()
    late = [Placed(0, 1, event(10)), Placed(1, 7, event(20)), Placed(0, 0, event(30)), Placed(1, 8, event(40))]
    feed._take_anew(TOPIC, {0: 2, 1: 9}, late)
    ids, events, _ = await told_after(feed, f"{TOPIC}-0.0-1.7")
    assert (ids, events) == (
        [f"{TOPIC}-{place}" for place in ("0.0-1.7", "0.0-1.8", "0.2-1.8", "0.2-1.9")],
        [10, 20, 30, 40],
    )
    assert [(await told_after(feed, each))[1] for each in ids] == [[10, 20, 30, 40], [10, 30, 40], [40], []]


async def test_another_topic_has_all_to_tell() -> None:
    """Or the same, put back to what it was: told twice rather than nothing any more."""
    feed = Fed()
    feed.feed_anew(0, 1, 2)
    subscriber = await feed.subscribe("")
    feed.feed_anew(0, topic="b" * 32)
    feed.feed(1)
    feed.feed_anew(0, topic="b" * 32)
    told = [await subscriber.next(0.0) for _ in range(4)]
    assert [each and each.event["at_ms"] for each in told] == [0, 1, 0, None]
    assert await feed.numbers() == [0]


async def test_a_listener_waits_until_something_comes() -> None:
    """And is woken by it."""
    feed = Fed()
    subscriber = await feed.subscribe("")
    asyncio.get_running_loop().call_soon(feed.feed, 1)
    told = await subscriber.next(10.0)
    assert told is not None
    assert told.event["at_ms"] == 1


async def test_a_listener_that_takes_nothing_is_let_go_of() -> None:
    """It costs nobody anything any more."""
    feed = Fed()
    subscriber = await feed.subscribe("")
    feed.feed(*range(WAITING_MAX))
    gone = [subscriber.is_closed]
    feed.feed(WAITING_MAX)
    assert [*gone, subscriber.is_closed] == [False, True]
    assert await subscriber.next(1.0) is None


async def test_what_is_kept_has_an_end() -> None:
    """The oldest go."""
    feed = Fed()
    feed.feed(*range(EVENTS_KEPT + 5))
    assert await feed.numbers() == list(range(5, EVENTS_KEPT + 5))


async def test_after_a_lost_connection_nothing_is_told_twice() -> None:
    """The thread reads everything again: subscribers get the new events, and no known event twice."""
    feed = Fed()
    feed.feed_anew(1, 2)
    subscriber = await feed.subscribe("")
    feed.feed_anew(1, 2, 3)
    told = await subscriber.next(0.0)
    assert told is not None
    assert told.event["at_ms"] == 3
    assert await subscriber.next(0.0) is None
    assert await feed.numbers() == [1, 2, 3]


async def test_a_stop_lets_go_of_all_subscribers() -> None:
    """Also of one that waits."""
    feed = Fed()
    told, _ = await asyncio.gather((await feed.subscribe("")).next(10.0), feed.stop())
    assert told is None


async def test_a_stop_does_not_wait_for_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is left to itself, and tells nobody anything any more."""
    monkeypatch.setattr(feeds, "STOP_WITHIN_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        feed = Feed(partial(Client, f"127.0.0.1:{silent.getsockname()[1]}"))
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
