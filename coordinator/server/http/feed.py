"""The cluster's newest events in memory, and who is told of further ones.

One thread reads `__rebalance_events` like any consumer, from the first request that needs events until the end; it
hands what it reads to the loop, where the newest EVENTS_KEPT stay. A listener that doesn't take what it is told is let
go of: it may come again and say what it had last.

An event's id is the topic's and, for each partition, the offset behind the last event that was told. So it says what a
listener has had whoever it had it from: an earlier run of this server, or another node.

House rule: the loop never waits for the thread, and the thread only for the cluster.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from coordinator.client.errors import ClientError
from coordinator.client.events import EventReader, NoEvents, Placed
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.client.client import Client
    from coordinator.timeline.schema import RebalanceEvent

EVENTS_KEPT = 10_000
"""Some ten or twenty MB at most; `tenure explain` reads all there are."""

WAIT_MS = 500
"""How long one look at the topic may wait for more."""

STOP_WITHIN_S = 1.0
"""How long a stop waits for the thread: it may be trying to reach one node after the other that is stopping, too."""

PAUSE_S = 1.0
"""Between two tries to reach a cluster that doesn't answer."""

LISTENER_MAX = 1_000
"""Events that a listener may leave waiting."""


ID = re.compile(r"(?P<topic>[0-9a-f]{32})(?P<offsets>(?:-[0-9]{1,9}\.[0-9]{1,19})*)")


class Told(NamedTuple):
    """An event, and the id of a listener that has had it and all before."""

    id: str
    placed: Placed

    @property
    def event(self) -> RebalanceEvent:
        """What happened."""
        return self.placed.event


class Listener:
    """Somebody who is told of events; see `Feed.listen`.

    begins: the id of who has had all that came before. is_gapped: events may be missing between what it had and what
    it is told. is_gone: it is told nothing more.
    """

    def __init__(self, begins: str, behind: list[Told], *, is_gapped: bool) -> None:
        self.begins = begins
        self.is_gapped = is_gapped
        self._waiting = deque(behind)
        self._news = asyncio.Event()
        self.is_gone = False

    def tell(self, news: list[Told]) -> None:
        """Put events in line."""
        self._waiting.extend(news)
        if len(self._waiting) > LISTENER_MAX:
            self.is_gone = True
        self._news.set()

    def close(self) -> None:
        """Let go of it."""
        self.is_gone = True
        self._news.set()

    async def next(self, within_s: float) -> Told | None:
        """The next event; None if none comes in time, or if it is let go of."""
        if not self._waiting and not self.is_gone:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), within_s)
            except TimeoutError:
                return None
        return self._waiting.popleft() if self._waiting and not self.is_gone else None


class Feed:
    """See the module.

    ask: opens a client of the cluster. problem: why there are no events, "" if there are. is_read: set once all that
    was there has been read, or couldn't be.
    """

    def __init__(self, ask: Callable[[], Client]) -> None:
        self._ask = ask
        self._events: deque[Told] = deque()
        self._topic = ""
        self._first: dict[int, int] = {}
        """From which offset of each partition on all events are kept."""
        self._reached: dict[int, int] = {}
        """From which on nothing has been read."""
        self._listeners: set[Listener] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self.problem = ""
        self.is_read = asyncio.Event()

    async def events(self) -> list[Told]:
        """The newest events, in the order of time; `problem` says why if there are none."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._read, name="events", daemon=True)
            self._thread.start()
        await self.is_read.wait()
        return list(self._events)

    async def listen(self, after: str) -> Listener:
        """Somebody to be told: of what comes, and, unless `after` is empty, first of what came after that id.

        All that is kept came after an id that can't be of this topic.
        """
        there = await self.events()
        had = self._offsets(after)
        if had is None:
            had = self._first if after else self._reached
            is_gapped = bool(after)
        else:
            is_gapped = any(had.get(partition, 0) < first for partition, first in self._first.items())
        behind = [each for each in there if each.placed.offset >= had.get(each.placed.partition, 0)]
        listener = Listener(self._id(had), behind, is_gapped=is_gapped)
        self._listeners.add(listener)
        return listener

    def _id(self, reached: dict[int, int]) -> str:
        return self._topic + "".join(f"-{partition}.{offset}" for partition, offset in sorted(reached.items()))

    def _offsets(self, told: str) -> dict[int, int] | None:
        """What an id says of each partition; None if it is of another topic, or of more than there is."""
        found = ID.fullmatch(told)
        if found is None or found["topic"] != self._topic:
            return None
        places = (place.split(".") for place in found["offsets"].split("-")[1:])
        offsets = {int(partition): int(offset) for partition, offset in places}
        return offsets if all(offset <= self._reached.get(each, 0) for each, offset in offsets.items()) else None

    def forget(self, listener: Listener) -> None:
        """Tell it nothing more."""
        self._listeners.discard(listener)

    async def stop(self) -> None:
        """End the thread and let go of all listeners; a thread that still waits for the cluster ends behind this."""
        self._stopping.set()
        for listener in self._listeners:
            listener.close()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_WITHIN_S)

    # On the thread.

    def _read(self) -> None:
        with self._ask() as client:
            while not self._stopping.is_set():
                try:
                    reader = EventReader(client)
                    reader.begin_with(EVENTS_KEPT)
                    events = reader.read_placed()
                    self._hop(partial(self._take_anew, reader.topic_id.hex, reader.reached, events))
                    while not self._stopping.is_set():
                        events = reader.poll_placed(WAIT_MS)
                        if events:
                            self._hop(partial(self._take, events))
                except NoEvents as error:
                    self._hop(partial(self._set_problem, str(error)))
                    return
                except (ClientError, ProtocolError) as error:
                    self._hop(partial(self._set_problem, str(error)))
                    self._stopping.wait(PAUSE_S)

    def _hop(self, call: Callable[[], None]) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(call)

    # On the loop.

    def _set_problem(self, problem: str) -> None:
        self.problem = problem
        self.is_read.set()

    def _take_anew(self, topic: str, reached: dict[int, int], events: list[Placed]) -> None:
        """All that the topic has, or the newest of it, as at the start and after a lost connection.

        reached: the offset behind the last of each partition.
        """
        first = dict(reached)
        for each in events:
            first[each.partition] = min(first[each.partition], each.offset)
        if topic != self._topic or any(reached.get(each, 0) < offset for each, offset in self._reached.items()):
            # Another log; nothing that was kept is in it.
            self._topic, self._first, self._reached = topic, first, {}
            self._events.clear()
        for partition, offset in first.items():
            if offset > self._reached.get(partition, 0):  # what lies between was never read
                self._first[partition] = offset
            self._first.setdefault(partition, offset)
        news = [each for each in events if each.offset >= self._reached.get(each.partition, 0)]
        self._reached = reached
        self._take(news)

    def _take(self, events: list[Placed]) -> None:
        """Keep events, in the order of time, and tell of them."""
        self.problem = ""
        ends: dict[int, int] = {}
        for each in events:
            ends[each.partition] = max(ends.get(each.partition, 0), each.offset + 1)
        self._reached |= ends
        # A gap is told late, so that time has another order than offsets: an id says no more than was told by then.
        behind = dict(self._reached)
        news: list[Told] = []
        for each in reversed(events):
            news.append(Told(self._id(behind), each))
            behind[each.partition] = min(behind[each.partition], each.offset)
        news.reverse()
        self._events.extend(news)
        while len(self._events) > EVENTS_KEPT:
            gone = self._events.popleft().placed
            self._first[gone.partition] = max(self._first.get(gone.partition, 0), gone.offset + 1)
        self.is_read.set()
        for listener in list(self._listeners):
            listener.tell(news)
            if listener.is_gone:
                self._listeners.discard(listener)
