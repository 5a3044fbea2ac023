"""The cluster's newest events in memory, and the subscribers that get further ones.

A source brings the events, on a thread of its own. A server has `TopicSource`: it reads `__rebalance_events` as a
consumer does, from the first request that needs events until the server stops. An observer has one that makes events of
another cluster's records (coordinator.observe). The thread hands the events to the loop, which keeps the newest. A
group that rebalances all day long pushes out its own older events, and not those of quiet groups. A subscriber that
doesn't take its events is dropped; it may subscribe again with the id of its last event. However many subscribers there
are, an event is encoded once.

An event's id is the topic's id and, for each partition, the offset of the next event that a subscriber with this event
needs. So an id means the same after a restart of this server, and on every other node.

House rule: the loop never waits for the thread, and the thread only for the cluster.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from coordinator.client.client import Client
from coordinator.client.errors import ClientError
from coordinator.client.events import EventReader, NoEvents, Placed
from coordinator.loop.pace import Pace
from coordinator.story.events import RebalanceEvent, event_json
from protocol.errors import ProtocolError

EVENTS_KEPT = 10_000
"""Some 55 MB at most, if each has its cause. `tenure explain` reads all events of the topic."""

WAIT_MS = 500
"""How long one read of the topic waits for further events."""

STOP_WITHIN_S = 1.0
"""How long a stop waits for the thread, which may be trying to reach other nodes that are stopping too."""

PAUSE_S = 1.0
"""The pause before the next try to reach a cluster that doesn't answer."""

WAITING_MAX = 1_000
"""A subscriber with more events waiting is dropped."""

TAKEN_AT_ONCE = 100
"""Events that a subscriber takes at once: about 50 KB, or 2 ms if they aren't encoded yet."""

STEP = 50
"""Events that the loop takes from the thread in one step: about 0.5 ms."""

FRAMES_KEPT = 2 * WAITING_MAX
"""Encoded events in memory: all that may wait for a subscriber, unless it asked for older ones."""

Item = TypeVar("Item")

ID = re.compile(r"(?P<topic>[0-9a-f]{32})(?P<offsets>(?:-[0-9]{1,9}\.[0-9]{1,19})*)")


class Bounds(NamedTuple):
    """The most items of all groups together, and of each group; and how much older than the newest an item may be.

    None: no such bound.
    """

    total: int
    of_group: int | None = None
    age_ms: int | None = None


class Newest(Generic[Item]):
    """Items in the order in which they came, within `bounds`. To add one takes the same time however many there are.

    An item that goes because of a bound is the oldest of all, or of its group.

    wall_ms: Unix time. An item from the future counts as of this moment, so that it makes no other one old.
    """

    def __init__(self, bounds: Bounds, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._bounds = bounds
        self._wall_ms = wall_ms
        self._items: OrderedDict[int, tuple[str | None, int, Item]] = OrderedDict()
        self._of_group: dict[str | None, deque[int]] = {}
        self._next = 0
        self._newest_ms = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return (item for _, _, item in self._items.values())

    def clear(self) -> None:
        """Drop all items."""
        self._items.clear()
        self._of_group.clear()

    def add(self, group: str | None, at_ms: int, item: Item) -> list[Item]:
        """Keep an item of a group, with its time; returns the items that had to go for it."""
        bounds = self._bounds
        own = self._of_group.setdefault(group, deque())
        own.append(self._next)
        self._items[self._next] = group, at_ms, item
        self._next += 1
        if at_ms > self._newest_ms:
            self._newest_ms = max(self._newest_ms, min(at_ms, self._wall_ms()))
        gone: list[Item] = []
        if bounds.of_group is not None and len(own) > bounds.of_group:
            gone.append(self._drop(own[0]))
        while len(self._items) > bounds.total or self._is_too_old(bounds.age_ms):
            gone.append(self._drop(next(iter(self._items))))
        return gone

    def _is_too_old(self, age_ms: int | None) -> bool:
        """Whether the first item is. One item stays in any case: it is the newest."""
        if age_ms is None or len(self._items) == 1:
            return False
        _, at_ms, _ = next(iter(self._items.values()))
        return at_ms < self._newest_ms - age_ms

    def _drop(self, number: int) -> Item:
        group, _, item = self._items.pop(number)
        own = self._of_group[group]
        own.popleft()  # of a group, the first one goes first
        if not own:
            del self._of_group[group]
        return item


class FeedEvent(NamedTuple):
    """An event, and the id of a subscriber that has it and all events before it."""

    id: str
    placed: Placed

    @property
    def event(self) -> RebalanceEvent:
        """The event itself."""
        return self.placed.event


class Subscriber:
    """Gets events; see `Feed.subscribe`. Each takes them in a turn of its own: an event wakes all subscribers at once.

    begins: the id before its first event. is_gapped: events may be missing between its last event, which it had before
    it subscribed, and the next. is_closed: it gets no more events.
    """

    def __init__(self, pace: Pace, begins: str, behind: list[FeedEvent], *, is_gapped: bool) -> None:
        self._pace = pace
        self.begins = begins
        self.is_gapped = is_gapped
        self._waiting = deque(behind)
        self._waits: asyncio.Future[None] | None = None
        self.is_closed = False

    def put(self, news: list[FeedEvent]) -> None:
        """Queue events; close the subscriber if too many wait."""
        self._waiting.extend(news)
        if len(self._waiting) > WAITING_MAX:
            self.is_closed = True
        self._wake()

    def close(self) -> None:
        """Give it no more events, and wake it."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    async def next(self, within_s: float) -> list[FeedEvent]:
        """The next events, TAKEN_AT_ONCE at most; none if none comes in time, or if the subscriber is closed."""
        if not self._waiting and not self.is_closed:
            self._waits = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(within_s):
                    await self._waits
            except TimeoutError:
                return []
        await self._pace.next()
        if self.is_closed:
            return []
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), TAKEN_AT_ONCE))]


class News(Protocol):
    """Takes the events of a source, on the source's thread."""

    def begin(self, topic: str, reached: dict[int, int], events: list[Placed]) -> None:
        """Take the newest events of a topic, at the start and after a lost connection.

        topic: its id in 32 hexadecimal digits: offsets are valid for this topic. reached: the offset in each partition
        behind the last event that was read. events: in the order of time.
        """

    def put(self, events: list[Placed]) -> None:
        """Take further events, in the order of time."""

    def miss(self, problem: str) -> None:
        """Take the reason why no events come for now."""


class EventSource(Protocol):
    """Where events come from."""

    def follow(self, news: News, stopping: threading.Event) -> None:
        """Bring events until `stopping` is set; the feed calls this once, on a thread of its own."""


class TopicSource:
    """Reads the topic of events. ask: opens a client of the cluster."""

    def __init__(self, ask: Callable[[], Client]) -> None:
        self._ask = ask

    def follow(self, news: News, stopping: threading.Event) -> None:
        """As EventSource."""
        with self._ask() as client:
            while not stopping.is_set():
                try:
                    reader = EventReader(client)
                    reader.begin_with(EVENTS_KEPT)
                    events = reader.read_placed()
                    news.begin(reader.topic_id.hex, reader.reached, events)
                    while not stopping.is_set():
                        events = reader.poll_placed(WAIT_MS)
                        if events:
                            news.put(events)
                except NoEvents as error:
                    news.miss(str(error))
                    return
                except (ClientError, ProtocolError) as error:
                    news.miss(str(error))
                    stopping.wait(PAUSE_S)


class Feed:
    """See the module.

    bounds: of the events in memory. pace: of the loop, which takes events in steps. problem: why there are no events,
    "" if there are. is_read: set when the first read of the source has ended or failed. thread: the source's, None
    before the start.
    """

    def __init__(self, source: EventSource, pace: Pace, bounds: Bounds | None = None) -> None:
        self._source = source
        self._events: Newest[FeedEvent] = Newest(bounds or Bounds(EVENTS_KEPT))
        self._topic = ""
        self._first: dict[int, int] = {}
        """The offset in each partition from which on all events are in memory."""
        self._reached: dict[int, int] = {}
        """The offset in each partition behind the last event that was read."""
        self._told: dict[int, int] = {}
        """The offset in each partition of the first event that subscribers did not get yet."""
        self._pace = pace
        self._coming: deque[Iterator[None]] = deque()
        """Steps that take what the thread brought, one after the other."""
        self._is_taking = False
        self._subscribers: set[Subscriber] = set()
        self._frames: dict[tuple[str, int, int], bytes] = {}
        self._stopping = threading.Event()
        self.thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self.problem = ""
        self.is_read = asyncio.Event()

    async def events(self) -> list[FeedEvent]:
        """The newest events, in the order of time; `problem` says why if there are none."""
        await self._is_ready()
        return list(self._events)

    async def _is_ready(self) -> None:
        """Wait for the first read, and for a turn: many requests may wait for that read."""
        self.start()
        await self.is_read.wait()
        await self._pace.next()

    def start(self) -> None:
        """Start the source, if it hasn't started."""
        if self.thread is None:
            self._loop = asyncio.get_running_loop()
            self.thread = threading.Thread(
                target=self._source.follow, args=(self, self._stopping), name="events", daemon=True
            )
            self.thread.start()

    async def subscribe(self, after: str) -> Subscriber:
        """Subscribe to all further events and, unless `after` is empty, first to those behind that id.

        If the id can't be of this topic, the subscriber first gets all events in memory.
        """
        await self._is_ready()
        had = self._offsets(after)
        if had is None:
            had = self._first if after else self._told
            is_gapped = bool(after)
        else:
            is_gapped = any(had.get(partition, 0) < first for partition, first in self._first.items())
        behind: list[FeedEvent] = []
        if had != self._reached:
            behind = [each for each in self._events if each.placed.offset >= had.get(each.placed.partition, 0)]
        subscriber = Subscriber(self._pace, self._id(had), behind, is_gapped=is_gapped)
        self._subscribers.add(subscriber)
        return subscriber

    def _id(self, reached: dict[int, int]) -> str:
        return self._topic + "".join(f"-{partition}.{offset}" for partition, offset in sorted(reached.items()))

    def _offsets(self, text: str) -> dict[int, int] | None:
        """The offset of each partition in an id; None if it is of another topic, or beyond the end of this one."""
        found = ID.fullmatch(text)
        if found is None or found["topic"] != self._topic:
            return None
        pairs = (pair.split(".") for pair in found["offsets"].split("-")[1:])
        offsets = {int(partition): int(offset) for partition, offset in pairs}
        return offsets if all(offset <= self._reached.get(each, 0) for each, offset in offsets.items()) else None

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Give a subscriber no more events."""
        self._subscribers.discard(subscriber)

    def frame(self, event: FeedEvent) -> bytes:
        """An event as a message of a stream."""
        key = event.id, event.placed.partition, event.placed.offset
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = b"id: %b\ndata: %b\n\n" % (event.id.encode(), event_json(event.event))
            if len(self._frames) > FRAMES_KEPT:
                del self._frames[next(iter(self._frames))]
        return found

    async def stop(self) -> None:
        """End the thread and close all subscribers. A thread that waits for the cluster may end a little later."""
        self._stopping.set()
        for subscriber in self._subscribers:
            subscriber.close()
        if self.thread is not None:
            await asyncio.to_thread(self.thread.join, STOP_WITHIN_S)

    # On the source's thread.

    def begin(self, topic: str, reached: dict[int, int], events: list[Placed]) -> None:
        """As News."""
        self._hop(self._take_anew(topic, reached, events))

    def put(self, events: list[Placed]) -> None:
        """As News."""
        self._hop(self._take(events))

    def miss(self, problem: str) -> None:
        """As News."""
        self._hop(self._set_problem(problem))

    def _hop(self, steps: Iterator[None]) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._line_up, steps)

    # On the loop.

    def _line_up(self, steps: Iterator[None]) -> None:
        """Do these steps behind all earlier ones."""
        self._coming.append(steps)
        if not self._is_taking:
            self._is_taking = True
            self._pace.work(self._in_order())

    def _in_order(self) -> Iterator[None]:
        try:
            while self._coming:
                yield from self._coming.popleft()
        finally:  # after an error the next steps go on
            self._is_taking = False

    def _set_problem(self, problem: str) -> Iterator[None]:
        self.problem = problem
        self.is_read.set()
        yield

    def _take_anew(self, topic: str, reached: dict[int, int], events: list[Placed]) -> Iterator[None]:
        """See News.begin."""
        first = dict(reached)
        for each in events:
            first[each.partition] = min(first[each.partition], each.offset)
        if topic != self._topic or any(reached.get(each, 0) < offset for each, offset in self._reached.items()):
            # This is another log: it has none of the events in memory.
            self._topic, self._first, self._reached, self._told = topic, first, {}, {}
            self._events.clear()
        for partition, offset in first.items():
            if offset > self._reached.get(partition, 0):  # the events in between were never read
                self._first[partition] = offset
            self._first.setdefault(partition, offset)
        news = [each for each in events if each.offset >= self._reached.get(each.partition, 0)]
        self._reached = reached
        yield
        yield from self._take(news)

    def _take(self, events: list[Placed]) -> Iterator[None]:
        """Keep events, which come in the order of time, and give them to all subscribers."""
        self.problem = ""
        ends: dict[int, int] = {}
        for each in events:
            ends[each.partition] = max(ends.get(each.partition, 0), each.offset + 1)
        self._reached |= ends
        # Events in the order of time may be out of the order of offsets, because the topic gets a gap's event late. So
        # an id has, for each partition, the smallest offset among the events that are still to come.
        behind = dict(self._reached)
        parts: list[tuple[list[FeedEvent], dict[int, int]]] = []
        for start in reversed(range(0, len(events), STEP)):
            news: list[FeedEvent] = []
            parts.append((news, dict(behind)))
            for each in reversed(events[start : start + STEP]):
                news.append(FeedEvent(self._id(behind), each))
                behind[each.partition] = min(behind[each.partition], each.offset)
            news.reverse()
            yield
        for news, told in reversed(parts):
            for kept in news:
                for gone in self._events.add(kept.event.group, kept.event.at_ms, kept):
                    placed = gone.placed
                    self._first[placed.partition] = max(self._first.get(placed.partition, 0), placed.offset + 1)
            self._told = told
            for subscriber in list(self._subscribers):
                subscriber.put(news)
                if subscriber.is_closed:
                    self._subscribers.discard(subscriber)
            yield
        self._told = dict(self._reached)
        self.is_read.set()
