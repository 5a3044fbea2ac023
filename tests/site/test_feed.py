"""The feed gives each subscriber each event once and in order, and drops a subscriber that takes none.

It keeps the newest events, within bounds for all, for each group and in time.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import pytest

from coordinator.client.client import Client
from coordinator.client.events import Placed
from coordinator.loop.pace import TURN_MAX_MS, Pace
from coordinator.site import feed as feeds
from coordinator.site.feed import STEP, WAITING_MAX, Bounds, Feed, FeedEvent, Newest, TopicSource
from coordinator.story.events import RebalanceEvent, event_json
from tests.server.harness import ManualClock
from tests.support.told import told

TOPIC = "0" * 31 + "a"


def event(number: int) -> RebalanceEvent:
    """Return an event with that number as its time."""
    made: RebalanceEvent = told("rebalance_started", at_ms=number, generation=number)
    return made


class Fed(Feed):
    """A feed that the test feeds in place of the thread."""

    def __init__(self, pace: Pace | None = None, bounds: Bounds | None = None) -> None:
        pace = pace or Pace(ManualClock(), lambda _: None)
        super().__init__(TopicSource(partial(Client, "127.0.0.1:1")), pace, bounds)
        self.thread = threading.Thread(target=lambda: None)
        self.thread.start()
        self._line_up(self._set_problem(""))

    def feed(self, *numbers: int) -> None:
        """Take events as from the thread: the topic has one partition, and event n has offset n."""
        self._line_up(self._take([Placed(0, number, event(number)) for number in numbers]))

    def feed_anew(self, *numbers: int, topic: str = TOPIC) -> None:
        """Take events as from a thread that reads everything again."""
        events = [Placed(0, number, event(number)) for number in numbers]
        self._line_up(self._take_anew(topic, {0: numbers[-1] + 1}, events))

    async def numbers(self) -> list[int]:
        """Return the numbers of the kept events."""
        return [each.event.at_ms for each in await self.events()]


@pytest.fixture
def feed() -> Fed:
    """Return a feed without events."""
    return Fed()


async def a_turn() -> None:
    """Let the loop begin what is ready."""
    ended = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(ended.set_result, None)
    await ended


async def test_a_listener_gets_what_comes_after_it_came(feed: Fed) -> None:
    """A subscriber gets each event once and in order, also if it comes in the middle."""
    feed.feed(1, 2)
    subscriber = await feed.subscribe("")
    assert not await subscriber.next(0.0)
    feed.feed(3)
    feed.feed(4)
    assert [each.event.at_ms for each in await subscriber.next(1.0)] == [3, 4]
    assert not await subscriber.next(0.0)


@pytest.mark.parametrize("after", ["", f"{TOPIC}-0.0"])
async def test_listeners_that_come_together_share_out_their_work(monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """Each subscribes in a turn of its own if a turn has no time; and only an older id makes it look at all events."""
    subscribed, looked = [0], [0]

    def turn() -> None:
        subscribed.append(0)
        asyncio.get_running_loop().call_soon(turn)

    class Slow(ManualClock):
        def ms(self) -> int:
            self.advance(TURN_MAX_MS)
            return super().ms()

    def look(self: Newest[FeedEvent]) -> Iterator[FeedEvent]:
        looked[0] += 1
        return original(self)

    async def subscribe() -> None:
        subscriber = await feed.subscribe(after)
        subscribed[-1] += 1
        assert len(await subscriber.next(0.0)) == (3 if after else 0)

    original = Newest.__iter__
    monkeypatch.setattr(Newest, "__iter__", look)
    feed = Fed(Pace(Slow(), asyncio.get_running_loop().call_soon))
    feed.is_read.clear()
    waiting = [asyncio.create_task(subscribe()) for _ in range(30)]
    await a_turn()
    feed.feed_anew(0, 1, 2)
    turn()
    await asyncio.gather(*waiting)
    assert sum(subscribed) == 30
    assert max(subscribed) <= 2
    assert looked[0] == (30 if after else 0)


async def events_after(feed: Feed, after: str) -> tuple[list[str], list[int], bool]:
    """Subscribe with this id; returns ids, events, and whether some may be missing."""
    subscriber = await feed.subscribe(after)
    received = []
    while some := await subscriber.next(0.0):
        received += some
    feed.unsubscribe(subscriber)
    return [each.id for each in received], [each.event.at_ms for each in received], subscriber.is_gapped


async def test_a_listener_that_was_cut_off_goes_on_where_it_was() -> None:
    """A subscriber goes on behind the id of its last event, or behind its first id, also at another run or node."""
    first = Fed()
    first.feed_anew(0, 1)
    begins = (await first.subscribe("")).begins
    first.feed(2, 3)
    ids, events, _ = await events_after(first, begins)
    assert events == [2, 3]
    second = Fed()
    second.feed_anew(0, 1, 2, 3, 4, 5)
    assert await events_after(second, begins) == ([*ids, f"{TOPIC}-0.5", f"{TOPIC}-0.6"], [2, 3, 4, 5], False)
    assert (await events_after(second, ids[0]))[1:] == ([3, 4, 5], False)
    assert (await events_after(second, f"{TOPIC}-0.6"))[1:] == ([], False)


@pytest.mark.parametrize("after", ["else", "b" * 32 + "-0.3", TOPIC + "-0.99", TOPIC + "-1.1", "f91ab2-17"])
async def test_a_listener_of_what_is_not_known_gets_all_that_is_kept(feed: Fed, after: str) -> None:
    """For an id of another topic, log or partition, or an invalid one, it gets all kept events and a gap."""
    feed.feed_anew(0, 1, 2)
    assert (await events_after(feed, after))[1:] == ([0, 1, 2], True)


async def test_a_listener_hears_of_what_is_no_longer_kept() -> None:
    """A subscriber gets a gap if retention removed events behind its id, or too many came."""
    feed = Fed(bounds=Bounds(100))
    feed.feed_anew(5, 6)
    assert (await events_after(feed, f"{TOPIC}-0.4"))[1:] == ([5, 6], True)
    assert (await events_after(feed, f"{TOPIC}-0.5"))[1:] == ([5, 6], False)
    feed.feed(*range(7, 107))
    assert (await events_after(feed, f"{TOPIC}-0.6"))[2]
    assert not (await events_after(feed, f"{TOPIC}-0.7"))[2]
    feed.feed_anew(200)
    _, events, is_gapped = await events_after(feed, f"{TOPIC}-0.100")
    assert (events[-1], is_gapped) == (200, True), "what lies between was never read"


async def test_an_id_skips_no_event(feed: Fed) -> None:
    """With several partitions, of which one is late, an id never skips an event; one may come twice."""
    late = [Placed(0, 1, event(10)), Placed(1, 7, event(20)), Placed(0, 0, event(30)), Placed(1, 8, event(40))]
    feed._line_up(feed._take_anew(TOPIC, {0: 2, 1: 9}, late))
    ids, events, _ = await events_after(feed, f"{TOPIC}-0.0-1.7")
    assert (ids, events) == (
        [f"{TOPIC}-{place}" for place in ("0.0-1.7", "0.0-1.8", "0.2-1.8", "0.2-1.9")],
        [10, 20, 30, 40],
    )
    assert [(await events_after(feed, each))[1] for each in ids] == [[10, 20, 30, 40], [10, 30, 40], [40], []]


async def test_another_topic_is_sent_from_its_start(feed: Fed) -> None:
    """After a change of the topic, or its reset, subscribers get its events again: no event is lost."""
    feed.feed_anew(0, 1, 2)
    subscriber = await feed.subscribe("")
    feed.feed_anew(0, topic="b" * 32)
    feed.feed(1)
    feed.feed_anew(0, topic="b" * 32)
    assert [each.event.at_ms for each in await subscriber.next(0.0)] == [0, 1, 0]
    assert not await subscriber.next(0.0)
    assert await feed.numbers() == [0]


async def test_a_listener_waits_until_something_comes(feed: Fed) -> None:
    """A subscriber waits for an event, and the event wakes it."""
    subscriber = await feed.subscribe("")
    asyncio.get_running_loop().call_soon(feed.feed, 1)
    assert [each.event.at_ms for each in await subscriber.next(10.0)] == [1]


async def test_a_listener_that_takes_nothing_is_let_go_of(feed: Fed) -> None:
    """The feed drops a subscriber that takes no events, and keeps nothing for it."""
    subscriber = await feed.subscribe("")
    feed.feed(*range(WAITING_MAX))
    gone = [subscriber.is_closed]
    feed.feed(WAITING_MAX)
    assert [*gone, subscriber.is_closed] == [False, True]
    assert not await subscriber.next(1.0)


async def test_what_is_kept_has_an_end() -> None:
    """The feed keeps a limited number of events and drops the oldest."""
    feed = Fed(bounds=Bounds(100))
    feed.feed(*range(105))
    assert await feed.numbers() == list(range(5, 105))


async def test_after_a_lost_connection_nothing_is_sent_twice(feed: Fed) -> None:
    """The thread reads everything again: subscribers get the new events, and no known event twice."""
    feed.feed_anew(1, 2)
    subscriber = await feed.subscribe("")
    feed.feed_anew(1, 2, 3)
    assert [each.event.at_ms for each in await subscriber.next(0.0)] == [3]
    assert not await subscriber.next(0.0)
    assert await feed.numbers() == [1, 2, 3]


async def test_many_events_are_taken_in_steps_and_in_order() -> None:
    """No turn takes more than a few; who subscribes in between misses none and gets none twice."""
    turns: list[Callable[[], None]] = []
    clock = ManualClock()

    def passing_ms() -> int:
        clock.advance(1)
        return clock.ms()

    pace = Pace(clock, turns.append)
    pace.ms = passing_ms
    feed = Fed(pace)
    first = await feed.subscribe("")
    feed.feed_anew(*range(WAITING_MAX))
    feed.feed(WAITING_MAX)
    kept, waiting = [0], None
    while turns:
        turns.pop(0)()
        kept.append(len(feed._events))
        if waiting is None and kept[-1] > WAITING_MAX // 2:
            waiting = asyncio.create_task(feed.subscribe(""))
        await a_turn()
    assert max(after - before for before, after in pairwise(kept)) <= TURN_MAX_MS * STEP
    assert kept[-1] == WAITING_MAX + 1
    assert first.is_closed, "it took none"
    assert waiting is not None
    between = await waiting

    def turn() -> None:
        while turns:
            turns.pop(0)()
        asyncio.get_running_loop().call_soon(turn)

    turn()  # from here on the loop turns by itself
    behind, ids, _ = await events_after(feed, between.begins)
    got: list[int] = []
    while some := await between.next(0.0):
        got += [each.event.at_ms for each in some]
    assert got == list(range(WAITING_MAX + 1 - len(got), WAITING_MAX + 1))
    assert (len(behind), ids) == (len(got), got)


async def test_a_stop_lets_go_of_all_subscribers(feed: Fed) -> None:
    """A stop ends all subscribers, also one that waits."""
    received, _ = await asyncio.gather((await feed.subscribe("")).next(10.0), feed.stop())
    assert not received


async def test_an_event_is_encoded_once_for_all_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten subscribers get the same bytes; a limited number of them stays in memory."""
    waiting, kept_max = 100, 200
    monkeypatch.setattr(feeds, "WAITING_MAX", waiting)
    monkeypatch.setattr(feeds, "FRAMES_KEPT", kept_max)
    encoded: list[int] = []

    def encode(value: RebalanceEvent) -> bytes:
        encoded.append(value.at_ms)
        return event_json(value)

    monkeypatch.setattr(feeds, "event_json", encode)
    feed = Fed()
    subscribers = [await feed.subscribe("") for _ in range(10)]
    feed.feed(*range(waiting))
    got: list[bytes] = []
    for each in subscribers:
        while some := await each.next(0.0):
            got += map(feed.frame, some)
    assert len(got) == 10 * waiting
    assert encoded == list(range(waiting))
    assert len(set(map(id, got))) == waiting
    assert got[0] == b"id: -0.1\ndata: %b\n\n" % event_json(event(0))
    feed.feed(*range(waiting, 3 * kept_max))
    for kept in await feed.events():
        feed.frame(kept)
    assert len(feed._frames) == kept_max


async def test_a_stop_does_not_wait_for_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop doesn't wait for a thread whose cluster doesn't answer; that thread's events reach no subscriber."""
    monkeypatch.setattr(feeds, "STOP_WITHIN_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = TopicSource(partial(Client, f"127.0.0.1:{silent.getsockname()[1]}"))
        feed = Feed(source, Pace(ManualClock(), lambda _: None))
        asked = asyncio.create_task(feed.events())
        connection, _ = await asyncio.to_thread(silent.accept)
        await feed.stop()
        thread = feed.thread
        assert thread is not None
        assert thread.is_alive()
        with connection:
            connection.sendall(b"\xff\xff\xff\xff")
            await asyncio.to_thread(thread.join)
    assert not asked.done()
    assert not feed.is_read.is_set()
    asked.cancel()


def test_the_oldest_go_first() -> None:
    """Above the total, the oldest items go, whichever group has them."""
    window: Newest[int] = Newest(Bounds(3))
    gone = [window.add("ab"[number % 2], number, number) for number in range(5)]
    assert gone == [[], [], [], [0], [1]]
    assert list(window) == [2, 3, 4]
    window.clear()
    assert (len(window), list(window)) == (0, [])
    assert [window.add("a", number, number) for number in range(3)] == [[], [], []]


def test_a_noisy_group_pushes_out_its_own() -> None:
    """A group above its own bound loses its oldest items; other groups keep theirs."""
    window: Newest[str] = Newest(Bounds(100, of_group=2))
    window.add("quiet", 0, "quiet 0")
    gone = [window.add("noisy", number, f"noisy {number}") for number in range(4)]
    assert gone == [[], [], ["noisy 0"], ["noisy 1"]]
    assert list(window) == ["quiet 0", "noisy 2", "noisy 3"]


def test_what_is_too_old_goes() -> None:
    """An item goes once it is older than the newest by more than the bound, but the newest stays."""
    window: Newest[int] = Newest(Bounds(100, age_ms=10))
    assert window.add("a", 0, 0) == []
    assert window.add("b", 10, 10) == []
    assert window.add("c", 11, 11) == [0]
    assert window.add("d", 1_000, 1_000) == [10, 11]
    assert list(window) == [1_000]


def test_a_time_in_the_future_pushes_out_nothing() -> None:
    """A broker's clock may have been wrong for a moment: its events make no other one old."""
    window: Newest[str] = Newest(Bounds(100, age_ms=10), wall_ms=lambda: 12)
    window.add("a", 10, "first")
    assert window.add("b", 2**62, "wrong") == []
    assert window.add("a", 12, "last") == []
    assert list(window) == ["first", "wrong", "last"]
