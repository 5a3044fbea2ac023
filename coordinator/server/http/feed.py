"""The cluster's newest events in memory, and who is told of further ones.

One thread reads `__rebalance_events` like any consumer, from the first request that needs events until the end; it
hands what it reads to the loop, where the newest EVENTS_KEPT stay. A listener that doesn't take what it is told is let
go of: it may come again and say what it had last.

House rule: the loop never waits for the thread, and the thread only for the cluster.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from coordinator.client.client import Client
from coordinator.client.errors import ClientError
from coordinator.client.events import EventReader, NoEvents
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.client.events import Event

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


class Numbered(NamedTuple):
    """An event with its number in this process, from 1 on."""

    number: int
    event: Event


class Listener:
    """Somebody who is told of events; see `Feed.listen`. is_gone: it is told nothing more."""

    def __init__(self, behind: list[Numbered]) -> None:
        self._waiting = deque(behind)
        self._news = asyncio.Event()
        self.is_gone = False

    def tell(self, news: list[Numbered]) -> None:
        """Put events in line."""
        self._waiting.extend(news)
        if len(self._waiting) > LISTENER_MAX:
            self.is_gone = True
        self._news.set()

    def close(self) -> None:
        """Let go of it."""
        self.is_gone = True
        self._news.set()

    async def next(self, within_s: float) -> Numbered | None:
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

    bootstrap: HOST:PORT. problem: why there are no events, "" if there are. is_read: set once all that was there has
    been read, or couldn't be.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._events: deque[Numbered] = deque(maxlen=EVENTS_KEPT)
        self._last = 0
        self._listeners: set[Listener] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self.problem = ""
        self.is_read = asyncio.Event()

    async def events(self) -> list[Numbered]:
        """The newest events, in the order of time; `problem` says why if there are none."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._read, name="events", daemon=True)
            self._thread.start()
        await self.is_read.wait()
        return list(self._events)

    async def listen(self, after: int | None) -> Listener:
        """Somebody to be told: of what comes, and first of what came after event number `after`."""
        there = await self.events()
        behind = [] if after is None or after > self._last else [each for each in there if each.number > after]
        listener = Listener(behind)
        self._listeners.add(listener)
        return listener

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
        with Client(self._bootstrap, client_id="tenure-http") as client:
            while not self._stopping.is_set():
                try:
                    reader = EventReader(client)
                    reader.begin_with(EVENTS_KEPT)
                    self._hand_over(reader.read(), anew=True)
                    while not self._stopping.is_set():
                        self._hand_over(reader.poll(WAIT_MS))
                except NoEvents as error:
                    self._hop(partial(self._set_problem, str(error)))
                    return
                except (ClientError, ProtocolError) as error:
                    self._hop(partial(self._set_problem, str(error)))
                    self._stopping.wait(PAUSE_S)

    def _hand_over(self, events: list[Event], *, anew: bool = False) -> None:
        if events or anew:
            self._hop(partial(self._take, events, anew=anew))

    def _hop(self, call: Callable[[], None]) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(call)

    # On the loop.

    def _set_problem(self, problem: str) -> None:
        self.problem = problem
        self.is_read.set()

    def _take(self, events: list[Event], *, anew: bool) -> None:
        """Keep events, and tell of them. anew: these are all there are, as after a lost connection."""
        self.problem = ""
        if anew and self._events:
            known = {_key(each.event) for each in self._events}
            events = [event for event in events if _key(event) not in known]
        first = self._last + 1
        news = [Numbered(number, event) for number, event in enumerate(events, first)]
        self._last += len(news)
        self._events.extend(news)
        self.is_read.set()
        for listener in list(self._listeners):
            listener.tell(news)
            if listener.is_gone:
                self._listeners.discard(listener)


def _key(event: Event) -> tuple[object, ...]:
    """What tells an event from others when all are read again."""
    return tuple(event.get(name) for name in ("at_ms", "node", "type", "group", "generation", "member_id"))
