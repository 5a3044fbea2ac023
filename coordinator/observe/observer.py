"""The observer, put together: follower, live state, the page, the file or topic of events.

    observe(Options(...), ready)        # until SIGTERM or SIGINT

Threads: the follower's (the feed's thread), those of live state, of looks at progress and of published events, and up
to four for requests of the page. The event loop serves HTTP and nothing else.

The observer starts although the cluster is away, or has no groups yet. A user or password that the cluster refuses
doesn't end it either: an administrator may correct it.

House rule: clock and signals enter here, and nowhere below.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import uvloop

from coordinator.client.client import Cluster
from coordinator.client.connection import Address
from coordinator.config import HTTP, Config
from coordinator.loop import cycles, heap
from coordinator.loop.clock import LoopClock
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.observe.asking import Asking, Budget
from coordinator.observe.broker_log import BrokerLog
from coordinator.observe.counts import (
    Counts,
    finding_families,
    lag_families,
    live_families,
    observer_families,
    post_family,
)
from coordinator.observe.follower import Follower
from coordinator.observe.live import SHARE_KEPT, Live
from coordinator.observe.published import Published, target_of
from coordinator.observe.watching import LOOK_S, Watching
from coordinator.observe.webhook import Webhook
from coordinator.server.telemetry.measures import OTHER_GROUPS
from coordinator.server.wire.listener import bind
from coordinator.site.feed import Bounds, Feed
from coordinator.site.site import Site
from coordinator.story.inference.broker_lines import BrokerLines
from coordinator.story.inference.knowledge import Told

if TYPE_CHECKING:
    import socket

    from prometheus_client.core import Metric

BOUNDS = Bounds(total=50_000, of_group=1_000, age_ms=7 * 86_400_000)
"""The events in memory, as old as those that a server keeps (tenure.events.retention.ms).

Some 120 MB for causes and ends of rebalances of three members each, 240 MB for ten members.
"""

STOP_WITHIN_S = 2.0
"""How long a stop waits for events that are being written, and for each thread."""


class Options(NamedTuple):
    """The cluster to observe, and the places that show it.

    where: the cluster. timeout: seconds that a call to it may take. config: settings of HTTP and of log lines. events:
    where events are written, "" for nowhere (see published.target_of). broker_logs: files of the brokers' logs. look_s:
    the time between two looks at how far a group is. webhook: the URL that gets posts, "" for none; form and secret as
    of Webhook.
    """

    where: Cluster
    timeout: float
    config: Config
    events: str = ""
    broker_logs: tuple[Path, ...] = ()
    look_s: float = LOOK_S
    webhook: str = ""
    webhook_form: str = "json"
    webhook_secret: bytes = b""


class CannotListen(Exception):
    """The address for HTTP can't be taken; the text says why."""


class Heard:
    """The causes that a broker's log tells; see follower.Hearing."""

    def __init__(self, path: Path, lines: Lines) -> None:
        self._log = BrokerLog(path)
        self._causes = BrokerLines()
        self._lines = lines
        self._said = ""

    def heard(self) -> Iterator[Told]:
        """As Hearing."""
        while True:
            for line in self._log.lines():
                yield from (told for told in self._causes.add(line) if told.is_first)
            if not self._log.is_behind:
                break
        if self._log.problem not in {self._said, ""}:
            text = f"The broker's log can't be read, trying again: {self._log.problem}"
            self._lines.warn("broker_log_unreadable", text, reason=self._log.problem)
        self._said = self._log.problem

    def close(self) -> None:
        """As Hearing."""
        self._log.close()


class Observer:
    """See the module. on_caught_up: called once, on the follower's thread, when the history is read.

    follower, live: the parts, for tests. address: of HTTP, once it has started. reached: set once the cluster has
    answered.
    """

    def __init__(
        self, options: Options, lines: Lines, clock: LoopClock, on_caught_up: Callable[[], None] = lambda: None
    ) -> None:
        config = options.config
        self._asking = Asking(options.where, Budget(), options.timeout)
        self._published = None
        if options.events:
            target = target_of(options.events, partial(self._asking.own, options.timeout))
            self._published = Published(target, lines)
        self._webhook = None
        if options.webhook:
            self._webhook = Webhook(options.webhook, lines, options.webhook_form, options.webhook_secret)
        told = [] if self._published is None else [self._published.put]
        posted = [] if self._webhook is None else [self._webhook.put]
        counts = Counts(config.metrics_groups_max)
        loop = asyncio.get_running_loop()
        self.reached = asyncio.Event()
        self.live = Live(self._asking, lines, lambda looks: self.follower.see(looks))  # noqa: PLW0108 - the follower comes below
        self.follower = Follower(
            self._asking.own,
            options.timeout,
            lines,
            hearing=[Heard(path, lines) for path in options.broker_logs],
            takers=[lambda events: self.watching.put(events), *told],  # noqa: PLW0108 - it comes below
            newcomers=[counts.take, *posted],
            changed=self.live.changed,
            on_caught_up=on_caught_up,
            reached=lambda: loop.call_soon_threadsafe(self.reached.set),
        )
        self.watching = Watching(self._asking, self.live, [*told, *posted], self.follower.is_caught_up, options.look_s)
        self._stopping = threading.Event()
        self._looking = [
            threading.Thread(target=run, args=(self._stopping,), name=name, daemon=True)
            for name, run in (("live", self.live.run), ("watching", self.watching.run))
        ]
        pace = Pace(clock, loop.call_soon)
        self._feed = Feed(self.follower, pace, BOUNDS)
        self._lines = lines
        self._site: Site | None = None
        self.address: Address | None = None
        if config.http:
            self._site = Site(
                config,
                self,
                self._asking.open,
                partial(self._metrics, counts, config.metrics_groups_max),
                lines,
                clock,
                pace,
                feed=self._feed,
                spare=self._has_spare,
                progress=self.watching.progress,
                lag_times=self.watching.lag_times,
            )

    @property
    def trouble(self) -> str:
        """As Health: a thread that has ended doesn't come back."""
        if self._stopping.is_set():
            return ""
        writing = [each.thread for each in (self._published, self._webhook) if each is not None]
        threads = [*self._looking, self._feed.thread, *writing]
        ended = [each.name for each in threads if each is not None and each.ident and not each.is_alive()]
        return f"ended by a fault: {', '.join(ended)}" if ended else ""

    @property
    def not_ready(self) -> str:
        """As Health."""
        if self.follower.is_away:
            return "the cluster is away"
        return "" if self.follower.is_caught_up.is_set() else "the log of groups is being read"

    async def start(self, listening: socket.socket | None) -> None:
        """Begin to observe, and to serve at this socket."""
        for each in (self._published, self._webhook):
            if each is not None:
                each.start()
        self._feed.start()
        for thread in self._looking:
            thread.start()
        if self._site is not None and listening is not None:
            await self._site.start(listening)
            self.address = Address(*listening.getsockname()[:2])
            url = f"http://{self.address}/"
            self._lines.info("http_listening", f"HTTP: {url}", url=url)

    async def stop(self) -> None:
        """Write what waits, finish the answers under way, and stop."""
        self._stopping.set()
        if self._site is not None:
            await self._site.stop()
        else:
            await self._feed.stop()
        for each in (self._published, self._webhook):
            if each is not None:
                await asyncio.to_thread(each.stop, STOP_WITHIN_S)
        for thread in self._looking:
            await asyncio.to_thread(thread.join, STOP_WITHIN_S)
        self._asking.close()

    def _has_spare(self) -> bool:
        return self._asking.budget.share_left >= SHARE_KEPT

    async def _metrics(self, counts: Counts, groups_max: int) -> list[Metric]:
        """All metrics with their values of this moment."""
        series = [group for group in list(counts.by_group) if group != OTHER_GROUPS]
        lost = 0 if self._published is None else self._published.lost
        return [
            *counts.families(),
            *live_families(self.live, series),
            *finding_families(self.watching, groups_max),
            *lag_families(self.watching, groups_max),
            *observer_families(self.follower.reader, self._asking.count, lost, is_away=self.follower.is_away),
            *([] if self._webhook is None else [post_family(self._webhook.counted)]),
        ]


def observe(options: Options, warnings: Iterable[str], on_ready: Callable[[Observer], None]) -> None:
    """Observe until SIGTERM or SIGINT. Raises CannotListen.

    on_ready: called when HTTP accepts requests and the cluster has answered.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_observe(options, warnings, on_ready))


async def _observe(options: Options, warnings: Iterable[str], on_ready: Callable[[Observer], None]) -> None:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    lines = Lines(sys.stderr, options.config.log_format, None, clock, "Observer")
    for warning in warnings:
        lines.warn("settings_unused", warning)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    observer = Observer(options, lines, clock, on_caught_up=heap.settle)
    await observer.start(_listening(options.config))
    ready = asyncio.ensure_future(observer.reached.wait())
    ready.add_done_callback(lambda done: None if done.cancelled() else on_ready(observer))
    looks, trims = cycles.Looks(clock), heap.Trims(clock)
    await ended.wait()
    ready.cancel()
    looks.end()
    trims.end()
    await observer.stop()


def _listening(config: Config) -> socket.socket | None:
    """A socket for HTTP; None without `--http`."""
    if not config.http:
        return None
    assert config.http[0].name == HTTP
    try:
        return bind(config.http[0])
    except OSError as error:
        raise CannotListen(f"{config.http[0].address}: {error.strerror or error}") from None
