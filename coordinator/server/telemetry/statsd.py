"""Metrics as UDP datagrams, for StatsD and DogStatsD.

Every tenure.statsd.interval.ms the node sends the metrics of /metrics (server/scrape.py). A gauge goes as it is. A
counter goes as the amount that it grew since it was last sent (from 0, if it fell), or not at all if it didn't grow. A
histogram goes as counters: its buckets, the number of its values, and their sum. Labels are tags or parts of the name;
the node is one of them, since several nodes may have one sink:

    tenure_answers_total:5|c|#node:1,api:Heartbeat,error:NONE       DogStatsD
    node-1.tenure_answers_total.Heartbeat.NONE:5|c                  StatsD

If the sink isn't there, UDP says nothing, and nothing happens. If the sink's name can't be resolved, a log line says so
once; each later sending tries again.

House rule: only this module's own task waits for a sink.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from math import isnan
from typing import TYPE_CHECKING

import asyncio_dgram

from coordinator.config import Config
from coordinator.loop.lines import Lines

if TYPE_CHECKING:
    from prometheus_client.core import Metric

DATAGRAM_BYTES = 1432
"""The size that fits into an Ethernet frame with the headers of IPv6 and UDP. A longer line goes alone."""

SEND_WITHIN_S = 2.0
"""How long resolving the sink's name may take, and how long it may delay a stop."""

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
NOT_IN_TAGS = re.compile(r"[\s,|#:@\x00-\x1f\x7f-\x9f]")
"""Separators and control characters are replaced, so that a crafted name can't inject a metric, or steer a terminal."""

PRINCIPAL = "principal"
"""The label with a user's name. Anybody on the way reads UDP, so unless a setting says so all users are summed."""

Series = tuple[str, tuple[tuple[str, str], ...]]
"""A sample's name, and its labels."""


class Datagrams:
    """Makes datagrams of the metrics of a node.

    has_tags: whether the sink knows DogStatsD's tags. has_principals: whether it may know the names of users.
    """

    def __init__(self, node_id: int, *, has_tags: bool, has_principals: bool = False) -> None:
        self._node_id = node_id
        self._has_tags = has_tags
        self._has_principals = has_principals
        self._sent: dict[Series, float] = {}

    def of(self, made: list[Metric]) -> list[bytes]:
        """The datagrams for these metrics; their values count as sent."""
        datagrams: list[bytes] = []
        current = bytearray()
        for line in self._lines(made):
            if current and len(current) + 1 + len(line) > DATAGRAM_BYTES:
                datagrams.append(bytes(current))
                current.clear()
            current += b"\n" + line if current else line
        return [*datagrams, bytes(current)] if current else datagrams

    def _lines(self, made: list[Metric]) -> Iterator[bytes]:
        # Series that are missing this time, as of deleted groups, start from 0 if they come back.
        sent, self._sent = self._sent, {}
        for family in made:
            for (name, labels), total in self._values(family).items():
                value = total
                if family.type != "gauge":
                    series = name, labels
                    self._sent[series] = value
                    before = sent.get(series, 0.0)
                    if value >= before:
                        value -= before
                    if value == 0:
                        continue
                if not isnan(value):
                    number = str(int(value)) if float(value).is_integer() else f"{value:.6f}"
                    yield self._line(name, labels, f"{number}|{'g' if family.type == 'gauge' else 'c'}")

    def _values(self, family: Metric) -> dict[Series, float]:
        """The values of a metric by series, those of all principals together unless they may be named."""
        values: dict[Series, float] = {}
        for sample in family.samples:
            shown = (item for item in sample.labels.items() if self._has_principals or item[0] != PRINCIPAL)
            series = sample.name, tuple(shown)
            values[series] = values.get(series, 0) + sample.value
        return values

    def _line(self, name: str, labels: tuple[tuple[str, str], ...], value: str) -> bytes:
        if self._has_tags:
            tags = [f"{label}:{NOT_IN_TAGS.sub('_', text) or '_'}" for label, text in labels]
            line = f"{name}:{value}|#{','.join([f'node:{self._node_id}', *tags])}"
        else:
            parts = [NOT_IN_NAMES.sub("_", text) or "_" for _, text in labels]
            line = ".".join([f"node-{self._node_id}", name, *parts]) + f":{value}"
        return line.encode(errors="replace")


class Statsd:
    """Sends metrics to `sink`, a host and a port, from `start` to `stop`."""

    def __init__(
        self, sink: tuple[str, int], config: Config, metrics: Callable[[], Awaitable[list[Metric]]], lines: Lines
    ) -> None:
        self._sink = sink
        self._interval_s = config.statsd_interval_ms / 1000
        self._metrics = metrics
        self._lines = lines
        self._datagrams = Datagrams(
            config.node_id, has_tags=config.statsd_tags, has_principals=config.statsd_principals
        )
        self._trouble = ""
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, on the running loop."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Send the metrics a last time, and end the task."""
        if self._task is not None:
            self._stopping.set()
            await self._task

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._interval_s)
            await self._send()

    async def _send(self) -> None:
        trouble = ""
        try:
            async with asyncio.timeout(SEND_WITHIN_S):
                await self._send_all()
        except TimeoutError:
            trouble = "it takes too long"
        except OSError as error:
            trouble = error.strerror or str(error)
        except Exception:  # noqa: BLE001 - no fault of metrics may end the server
            trouble = traceback.format_exc()
        if trouble and trouble != self._trouble:
            host, port = self._sink
            self._lines.warn("statsd_failed", f"Metrics can't be sent to {host}:{port}: {trouble}", reason=trouble)
        self._trouble = trouble

    async def _send_all(self) -> None:
        # The name is resolved each time, because its address may change; and before `of`, whose values count as sent.
        stream = await asyncio_dgram.connect(self._sink)
        try:
            for datagram in self._datagrams.of(await self._metrics()):
                with suppress(ConnectionRefusedError):  # the sink's system refused an earlier datagram
                    await stream.send(datagram)
        finally:
            stream.close()
