"""The sums of all groups, so that a list of 10,000 can be sorted by members, topics or lag.

A sum costs coordinators work, so nobody asks for all sums at once. A sweep asks about AT_ONCE groups, pauses for
PAUSE_MS, and goes on with the next ones; the first request begins it. An answer has the sums that are known so far. The
next sweep begins EVERY_MS after the last one ended. If nobody asked for WANTED_MS, the sweep ends, and the sums leave
the memory.

House rule: one question at a time, however many pages ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from msgspec import Struct

from coordinator.client.client import Client
from coordinator.client.errors import ClientError, Refused
from coordinator.client.groups import list_groups
from coordinator.loop.clock import Clock
from coordinator.site.overview import LagsJson, NoLagsJson
from coordinator.story.events import says
from protocol.errors import ProtocolError

AT_ONCE = 100
"""Groups of one question: their answers keep a server's loop busy for a few milliseconds."""

PAUSE_MS = 250
"""Between two questions: 25 s of pauses for 10,000 groups."""

EVERY_MS = 15_000
"""Between two sweeps."""

WANTED_MS = 60_000
"""How long a sweep goes on after the last request: a page asks more often."""

Ask = Callable[[Callable[["Client"], Any]], Awaitable[Any]]
Lags = Callable[[list[str], "Client"], list[LagsJson | NoLagsJson]]


class AllSumsJson(Struct):
    """The sums that are known, as JSON."""

    groups: Annotated[int, says("how many groups there are")]
    is_complete: Annotated[bool, says("whether each of them has been asked about")]
    sums: list[LagsJson | NoLagsJson]


class Sums:
    """See the module.

    ask: puts a question on a thread. lags: the sums of groups. spare: whether the cluster may get a further question.
    """

    def __init__(self, ask: Ask, lags: Lags, clock: Clock, spare: Callable[[], bool]) -> None:
        self._ask = ask
        self._lags = lags
        self._clock = clock
        self._spare = spare
        self._known: dict[str, LagsJson | NoLagsJson] = {}
        self._groups = 0
        self._is_complete = False
        self._wanted_until_ms = 0
        self._sweeping: asyncio.Task[None] | None = None

    def now(self) -> AllSumsJson:
        """The sums that are known, as JSON. Begins a sweep if there is none."""
        self._wanted_until_ms = self._clock.ms() + WANTED_MS
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.ensure_future(self._run())
        return AllSumsJson(self._groups, self._is_complete, list(self._known.values()))

    async def stop(self) -> None:
        """End the sweep."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])

    @property
    def _is_wanted(self) -> bool:
        return self._clock.ms() < self._wanted_until_ms

    async def _run(self) -> None:
        try:
            while self._is_wanted:
                await self._sweep()
                await self._pause(EVERY_MS)
        finally:
            self._known, self._groups, self._is_complete = {}, 0, False

    async def _sweep(self) -> None:
        """Ask about each group once. A cluster that is away ends it: the page says so by its other questions."""
        try:
            listed = await self._ask(list_groups)
            names = [group.group_id for group in listed]
            self._groups = len(names)
            self._known = {name: self._known[name] for name in names if name in self._known}
            for begin in range(0, len(names), AT_ONCE):
                if begin:
                    await self._pause(PAUSE_MS)
                while self._is_wanted and not self._spare():
                    await self._pause(PAUSE_MS)
                if not self._is_wanted:
                    return
                await self._look(names[begin : begin + AT_ONCE])
            self._is_complete = True
        except (ClientError, ProtocolError):
            pass

    async def _look(self, names: list[str]) -> None:
        try:
            found = await self._ask(partial(self._lags, names))
        except Refused:
            return
        for each in found:
            if "error" in each:
                self._known.pop(each["group_id"], None)
            else:
                self._known[each["group_id"]] = each

    async def _pause(self, pause_ms: int) -> None:
        over = asyncio.Event()
        handle = self._clock.call_at(self._clock.ms() + pause_ms, over.set)
        try:
            await over.wait()
        finally:
            handle.cancel()
