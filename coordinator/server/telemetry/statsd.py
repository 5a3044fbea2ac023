"""Metrics as UDP datagrams, for StatsD and DogStatsD.

What is sent is what /metrics would say (`metrics.Metrics`), every tenure.statsd.interval.ms: a gauge as it is, a
counter by how much it grew since it was sent last (from 0, if it fell), and not at all if it didn't. A histogram is
counters: its buckets, how many values there were, and their sum. Labels are tags, or parts of the name, and one of them
is the node, since several may have one sink:

    tenure_answers_total:5|c|#node:1,api:Heartbeat,error:NONE       DogStatsD
    node-1.tenure_answers_total.Heartbeat.NONE:5|c                  StatsD

A sink that is not there costs nothing: UDP tells nobody. A name that can't be resolved is told once, and tried again
each time.

House rule: nothing waits for a sink but this module's own task.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Iterator
from contextlib import suppress
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

import asyncio_dgram

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from coordinator.server.telemetry.lines import Lines
    from coordinator.server.telemetry.metrics import Metrics

DATAGRAM_BYTES = 1432
"""What fits into a frame of Ethernet, with the heads of IPv6 and UDP; a longer line goes alone."""

SEND_WITHIN_S = 2.0
"""How long it may take to resolve the sink's name, and a stop because of it."""

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
NOT_IN_TAGS = re.compile(r"[\s,|#:@]")
"""What would end the part of a line that it stands in; whoever makes up groups makes up no metrics."""

Series = tuple[str, tuple[tuple[str, str], ...]]
"""A sample's name, and its labels."""


class Sink(NamedTuple):
    """Where the metrics of a node go. has_tags: whether it knows DogStatsD's tags. interval_ms: how often."""

    host: str
    port: int
    has_tags: bool
    interval_ms: int
    node_id: int


class Datagrams:
    """Makes the metrics of a node lines, and lines datagrams."""

    def __init__(self, node_id: int, *, has_tags: bool) -> None:
        self._node_id = node_id
        self._has_tags = has_tags
        self._sent: dict[Series, float] = {}

    def of(self, made: list[Metric]) -> list[bytes]:
        """What is to be sent now."""
        datagrams: list[bytes] = []
        current = bytearray()
        for line in self._lines(made):
            if current and len(current) + 1 + len(line) > DATAGRAM_BYTES:
                datagrams.append(bytes(current))
                current.clear()
            current += b"\n" + line if current else line
        return [*datagrams, bytes(current)] if current else datagrams

    def _lines(self, made: list[Metric]) -> Iterator[bytes]:
        # A deleted group's series goes, and is anew if the group comes back.
        sent, self._sent = self._sent, {}
        for family in made:
            for sample in family.samples:
                labels = tuple(sample.labels.items())
                value = sample.value
                if family.type != "gauge":
                    series = sample.name, labels
                    self._sent[series] = value
                    before = sent.get(series, 0.0)
                    if value >= before:
                        value -= before
                    if value == 0:
                        continue
                if not isnan(value):
                    number = str(int(value)) if float(value).is_integer() else f"{value:.6f}"
                    yield self._line(sample.name, labels, f"{number}|{'g' if family.type == 'gauge' else 'c'}")

    def _line(self, name: str, labels: tuple[tuple[str, str], ...], value: str) -> bytes:
        if self._has_tags:
            tags = [f"{label}:{NOT_IN_TAGS.sub('_', text) or '_'}" for label, text in labels]
            line = f"{name}:{value}|#{','.join([f'node:{self._node_id}', *tags])}"
        else:
            parts = [NOT_IN_NAMES.sub("_", text) or "_" for _, text in labels]
            line = ".".join([f"node-{self._node_id}", name, *parts]) + f":{value}"
        return line.encode(errors="replace")


class Statsd:
    """Sends metrics to a sink from `start` to `stop`."""

    def __init__(self, sink: Sink, metrics: Metrics, lines: Lines) -> None:
        self._sink = sink
        self._metrics = metrics
        self._lines = lines
        self._datagrams = Datagrams(sink.node_id, has_tags=sink.has_tags)
        self._trouble = ""
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the loop that runs."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End; what was counted since the last time is sent."""
        if self._task is not None:
            self._stopping.set()
            await self._task

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._sink.interval_ms / 1000)
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
        except Exception:  # noqa: BLE001 - metrics are worth no server
            trouble = traceback.format_exc()
        if trouble and trouble != self._trouble:
            where = f"{self._sink.host}:{self._sink.port}"
            self._lines.warn("statsd_failed", f"Metrics can't be sent to {where}: {trouble}", reason=trouble)
        self._trouble = trouble

    async def _send_all(self) -> None:
        # Each time anew, so that a name that moves is followed; and first, as what `of` returned counts as sent.
        stream = await asyncio_dgram.connect((self._sink.host, self._sink.port))
        try:
            for datagram in self._datagrams.of(await self._metrics.now()):
                with suppress(ConnectionRefusedError):  # somebody's system says that nobody listens; the next may
                    await stream.send(datagram)
        finally:
            stream.close()
