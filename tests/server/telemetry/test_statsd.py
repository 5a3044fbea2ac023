"""Metrics as datagrams: their text, their arrival, and a sink that is missing."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import StringIO
from math import nan
from pathlib import Path

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from coordinator.server.app import Server
from coordinator.server.telemetry.statsd import DATAGRAM_BYTES, Datagrams
from tests.server.harness import config_of, memory
from tests.support.patience import WITHIN_S


def answers(count: float, group: str = "g") -> Metric:
    """Return a counter with labels."""
    family = CounterMetricFamily("answers", "", labels=["api", "group"])
    family.add_metric(["Heartbeat", group], count)
    return family


def lines(datagrams: list[bytes]) -> list[str]:
    """Return the lines of all datagrams."""
    return [line for datagram in datagrams for line in datagram.decode().split("\n")]


def test_a_counter_is_sent_by_what_it_grew() -> None:
    """A counter is sent with its growth, and not at all without growth."""
    made = Datagrams(1, has_tags=True)
    assert lines(made.of([answers(5)])) == ["answers_total:5|c|#node:1,api:Heartbeat,group:g"]
    assert lines(made.of([answers(7)])) == ["answers_total:2|c|#node:1,api:Heartbeat,group:g"]
    assert made.of([answers(7)]) == []


def test_no_user_is_named_unless_asked() -> None:
    """The values of all principals are one sum; a setting lets their names out."""

    def throttled(alice: float) -> Metric:
        family = CounterMetricFamily("throttled", "", labels=["quota", "principal"])
        family.add_metric(["request", "User:alice"], alice)
        family.add_metric(["request", "User:bob"], 2)
        return family

    made = Datagrams(1, has_tags=True)
    assert lines(made.of([throttled(1)])) == ["throttled_total:3|c|#node:1,quota:request"]
    assert lines(made.of([throttled(5)])) == ["throttled_total:4|c|#node:1,quota:request"]
    named = Datagrams(1, has_tags=True, has_principals=True)
    assert lines(named.of([throttled(1)])) == [
        "throttled_total:1|c|#node:1,quota:request,principal:User_alice",
        "throttled_total:2|c|#node:1,quota:request,principal:User_bob",
    ]


def test_a_counter_that_begins_anew_is_sent_from_0() -> None:
    """The counter of a group that was deleted and came back starts from 0, with or without a send in between."""
    made = Datagrams(1, has_tags=True)
    made.of([answers(5)])
    assert lines(made.of([answers(1)])) == ["answers_total:1|c|#node:1,api:Heartbeat,group:g"]
    assert made.of([]) == []
    assert lines(made.of([answers(3)])) == ["answers_total:3|c|#node:1,api:Heartbeat,group:g"]


def test_a_gauge_is_sent_as_it_is() -> None:
    """A gauge is sent each time with its value; a gauge without a value isn't sent."""
    made = Datagrams(1, has_tags=True)
    gauges = [GaugeMetricFamily("members", "", value=3), GaugeMetricFamily("load", "", value=nan)]
    for _ in range(2):
        assert lines(made.of([*gauges])) == ["members:3|g|#node:1"]


def test_a_histogram_is_counters() -> None:
    """A histogram is sent as counters: its buckets, the number of its values, and their sum."""
    family = HistogramMetricFamily("wait_seconds", "")
    family.add_metric([], [("0.5", 1), ("+Inf", 2)], 1.25)
    assert lines(Datagrams(1, has_tags=True).of([family])) == [
        "wait_seconds_bucket:1|c|#node:1,le:0.5",
        "wait_seconds_bucket:2|c|#node:1,le:+Inf",
        "wait_seconds_count:2|c|#node:1",
        "wait_seconds_sum:1.250000|c|#node:1",
    ]


def test_without_tags_labels_are_parts_of_the_name() -> None:
    """Without tags, node and labels become parts of the name, so that a plain StatsD keeps them apart."""
    assert lines(Datagrams(2, has_tags=False).of([answers(5, "")])) == ["node-2.answers_total.Heartbeat._:5|c"]


@pytest.mark.parametrize("has_tags", [True, False])
def test_a_group_cant_make_up_a_metric(*, has_tags: bool) -> None:
    """A group id with any characters can't inject a metric, or a command to a terminal."""
    (line,) = lines(Datagrams(1, has_tags=has_tags).of([answers(1, "a\nb:1|c|#x,y.z\0\x1b[2J\x7f\x9b2J")]))
    assert line.isprintable()
    assert line.count("|") == (2 if has_tags else 1)
    assert line.count(":") == (4 if has_tags else 1)


def test_lines_share_datagrams_as_far_as_they_fit() -> None:
    """Lines share datagrams as far as they fit; no line is cut, and one that is too long goes alone."""
    counters = [answers(1, f"group-{number}") for number in range(100)]
    long = answers(1, "x" * 2 * DATAGRAM_BYTES)
    datagrams = Datagrams(1, has_tags=True).of([*counters, long])
    assert len(lines(datagrams)) == 101
    assert len(datagrams) < 10
    assert [len(datagram) <= DATAGRAM_BYTES for datagram in datagrams] == [True] * (len(datagrams) - 1) + [False]


class Received(asyncio.DatagramProtocol):
    """A sink that keeps the lines, and wakes the test for each."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.news = asyncio.Event()

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.lines += data.decode().split("\n")
        self.news.set()

    async def until(self, holds: Callable[[list[str]], bool]) -> None:
        """Wait until it holds."""
        async with asyncio.timeout(WITHIN_S):
            while not holds(self.lines):
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def sending(tmp_path: Path, sink: str, log: StringIO) -> AsyncIterator[Server]:
    """Yield a server that sends metrics to `sink`."""
    config = config_of(
        "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}", f"tenure.statsd={sink}",
        "tenure.statsd.interval.ms=100", "tenure.events.enable=false", "tenure.log.format=json",
    )  # fmt: skip
    server = Server(config, opened=memory(config), log=log)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_a_servers_metrics_arrive(tmp_path: Path) -> None:
    """A server's metrics arrive through a real socket, repeatedly and once more at the end, and counters add up."""
    loop = asyncio.get_running_loop()
    transport, sink = await loop.create_datagram_endpoint(Received, local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    gauge, counter = "tenure_connections:0|g|#node:1", r"tenure_partition_load_seconds_count:(\d+)\|c\|#node:1"

    def loaded(lines: list[str]) -> int:
        return sum(int(found[1]) for line in lines if (found := re.fullmatch(counter, line)))

    try:
        async with sending(tmp_path, f"127.0.0.1:{port}", StringIO()) as server:
            await sink.until(lambda lines: lines.count(gauge) >= 2)
            partitions = len(server.runtime.partitions)
            await sink.until(lambda lines: loaded(lines) == partitions)
            server.runtime.loads.add(0, 1)
        await sink.until(lambda lines: loaded(lines) > partitions)
    finally:
        transport.close()
    assert loaded(sink.lines) == partitions + 1


async def test_a_sink_that_is_gone_is_no_matter(tmp_path: Path) -> None:
    """Without a sink the server answers and logs nothing."""
    log = StringIO()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        # It keeps the port, but takes datagrams from its own address alone: nobody gets the server's.
        gone.bind(("127.0.0.1", 0))
        gone.connect(gone.getsockname())
        async with sending(tmp_path, f"127.0.0.1:{gone.getsockname()[1]}", log) as server:
            assert server._statsd is not None
            for _ in range(3):
                await server._statsd._send()
    assert "statsd" not in log.getvalue()


async def test_a_sink_with_an_unknown_name_is_logged_once(tmp_path: Path) -> None:
    """If the sink's name is unknown, one log line gives the reason."""
    log = StringIO()
    async with sending(tmp_path, "no-such-host.invalid:8125", log) as server:
        assert server._statsd is not None
        for _ in range(3):
            await server._statsd._send()
    assert log.getvalue().count('"event": "statsd_failed"') == 1


async def test_what_was_counted_meanwhile_is_sent_when_the_name_is_known(tmp_path: Path) -> None:
    """While the name is unknown nothing counts as sent; when it is known, everything is sent."""
    loop = asyncio.get_running_loop()
    transport, sink = await loop.create_datagram_endpoint(Received, local_addr=("127.0.0.1", 0))
    counter = "tenure_partition_load_seconds_count:{}|c|#node:1"
    log = StringIO()
    try:
        async with sending(tmp_path, "no-such-host.invalid:8125", log) as server:
            await server.loaded.wait()
            statsd = server._statsd
            assert statsd is not None
            await statsd._send()
            assert "statsd_failed" in log.getvalue()
            statsd._sink = "127.0.0.1", transport.get_extra_info("sockname")[1]
            await sink.until(lambda lines: counter.format(len(server.runtime.partitions)) in lines)
    finally:
        transport.close()
