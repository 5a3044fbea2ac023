"""The works: each loads a server and returns the figures that it measured meanwhile.

A work is a function of a `Bench`, the server that it loads, and of its own parameters; it returns figures by name, in
the unit that the name ends with. It prepares (groups are formed, load runs until it is steady), reads the meter, works,
and reads again: a figure covers the time from the first byte sent after the first reading to the last answer before the
second.

House rule: an answer that isn't the expected one ends the work; no figure counts refusals.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.request import urlopen

from benchmarks import frames
from benchmarks.consumers import STEADY, ConsumerGroup
from benchmarks.driver import Driver, Link, Script, clock
from benchmarks.entry import PLAINTEXT, Entry, log_in
from benchmarks.members import Group, Member, UnexpectedAnswer, accept
from benchmarks.meter import Meter, cpu_s, settled_bytes, surroundings
from benchmarks.questions import coordinator
from benchmarks.records import Partition, batch_of
from benchmarks.transactions import Producer
from schemas.errors import ErrorCode

US = 1e6
MS = 1e3
MIB = 1024 * 1024

CONNECTIONS = 64
"""For works whose subject isn't the number of connections."""
CONNECTED_AT_ONCE = 32
"""Fewer than a server's queue of unaccepted connections holds (socket.listen.backlog.size)."""
SOURCES = [f"127.0.0.{number}" for number in range(2, 52)]
"""Source addresses for very many connections: one address has ports for 28,000, and recently closed ones stay in use.
"""
FORMED_AT_ONCE = 1_000
BEFORE_COMPACTION = 40
"""Restarts in a group of 500 that fit into one segment, so that the log grows by exactly their records."""
BARE_SYNCS = 200
SOON_S = 0.1
TOPIC_PARTITIONS = 100
COMPACTION_ATTEMPTS = 10
SCRAPES = 20
"""Scrapes that a scraper asks for and doesn't read: more than the system's buffers hold."""
SMALL_BYTES = 4096

Figures = dict[str, float]
Halves = tuple[bytes, bytes]
Timed = tuple[float, float]
"""The time of a request, and the seconds until its answer."""


class Bench(NamedTuple):
    """A server to load.

    tag: makes the names of this run's groups its own. plain: the server only echoes and isn't Kafka. http: HOST:PORT of
    its metrics. without: another server, for a work that compares the two. entry: how clients come in, if the server
    is secured.
    """

    host: str
    port: int
    meter: Meter
    tag: str
    plain: bool
    http: str = ""
    without: Bench | None = None
    entry: Entry = Entry(PLAINTEXT, "")

    def driver(self) -> Driver:
        """Return a driver without connections to it."""
        return Driver(self.host, self.port, self.entry.context())

    def coordinator(self, group_id: str) -> tuple[str, int]:
        """Return the address for the requests of a group. A secured server is the only one of its cluster."""
        if self.plain or self.entry.listener != PLAINTEXT:
            return self.host, self.port
        return coordinator(self.host, self.port, group_id)

    def job(self, work: str, parameters: Mapping[str, Any], tag: str) -> str:
        """Return a job with a work on this server, for a generator of its own (`benchmarks.load`)."""
        return json.dumps({"work": work, "parameters": parameters, **self.said(), "tag": tag})

    def said(self) -> dict[str, Any]:
        """Return a job's fields about the server."""
        return {
            "host": self.host,
            "port": self.port,
            "pid": self.meter.pid,
            "folder": self.meter.folder,
            "java": self.meter.java,
            "workers": self.meter.workers,
            "tag": self.tag,
            "plain": self.plain,
            "http": self.http,
            "without": self.without and self.without.said(),
            "entry": self.entry._asdict(),
        }

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> Bench:
        """Return the server of a job."""
        return cls(
            host=job["host"],
            port=job["port"],
            meter=Meter(job["pid"], job["folder"], java=job["java"], workers=job["workers"]),
            tag=job["tag"],
            plain=job["plain"],
            http=job["http"],
            without=job["without"] and cls.of(job["without"]),
            entry=Entry(**job["entry"]),
        )


# Parts that several works use.


def form(bench: Bench, driver: Driver, links: list[Link], group: Group) -> Group:
    """Bring all members of a group in, one on each connection; for an echo server, only give them ids."""
    if bench.plain:
        pretend(group)
        return group
    for number, link in enumerate(links):
        driver.start(link, group.seat(number))
    driver.run()
    return group


def pretend(group: Group) -> None:
    """Give members ids as long as a real server's."""
    for member in group.members:
        member.member_id = f"{member.instance_id or frames.CLIENT_ID}-{'0' * 36}"
        member.generation = 1


def form_many(bench: Bench, driver: Driver, first: int, end: int) -> list[Group]:
    """Form the groups `first` up to `end`, of one static member each, on all connections side by side."""
    groups = [Group(f"{bench.tag}-{number:06}", 1, static=True) for number in range(first, end)]
    if bench.plain:
        for group in groups:
            pretend(group)
        return groups

    def in_turn(mine: list[Group]) -> Script:
        for group in mine:
            yield from group.seat(0)

    for number, link in enumerate(driver.links):
        driver.start(link, in_turn(groups[number :: len(driver.links)]))
    driver.run()
    return groups


def connected(bench: Bench, driver: Driver, count: int, address: tuple[str, int] | None = None) -> list[Link]:
    """Return connections of clients that have logged in, if they must."""
    links = driver.connect(count, address=address)
    if not bench.plain:
        for link in links:
            driver.start(link, log_in(bench.entry.listener))
        driver.run()
    return links


def seats(
    bench: Bench, driver: Driver, connections: int, members: int, groups: int
) -> list[tuple[Link, list[tuple[Group, Member]]]]:
    """Return connections, each to the coordinator of its members, with these members; create the topic of commits."""
    if not bench.plain:
        driver.start(connected(bench, driver, 1)[0], create_topic())
        driver.run()
    found: list[tuple[Link, list[tuple[Group, Member]]]] = []
    numbers = itertools.count()
    for place in range(groups):
        size = connections // groups + (place < connections % groups)
        address: tuple[str, int] | None = None
        links: list[Link] = []
        mine: list[Group] = []
        while len(mine) < members:
            group = Group(f"{bench.tag}-{next(numbers)}", size, static=True)
            where = bench.coordinator(group.group_id)
            if address is None:
                address = where
                links = connected(bench, driver, size, address)
            if where == address:
                form(bench, driver, links, group)
                mine.append(group)
        found += [(link, [(group, group.members[number]) for group in mine]) for number, link in enumerate(links)]
    return found


def create_topic(name: str = frames.TOPIC, partition_count: int = TOPIC_PARTITIONS) -> Script:
    """Create a topic, unless it exists; without a name, the one that members subscribe to."""
    answer = yield frames.create_topic(name, partition_count)
    accept(frames.topic_error(answer, name), "CreateTopics", ErrorCode.TOPIC_ALREADY_EXISTS)


def heartbeats(
    members: Sequence[Halves],
    took: list[float],
    first: int = 0,
    due: float = 0.0,
    pause_s: float = 0.0,
    until: float = math.inf,
    done: bytes = frames.HEARTBEAT_DONE,
) -> Script:
    """Send heartbeats of these members in turn; `took` receives each one's seconds.

    They follow each other at once, or that many seconds apart, the first at `due`. The last is the first that is sent
    at `until` or later. done: the bytes behind the correlation id in each answer.
    """
    count, number, began = len(members), first, -math.inf
    while began < until:
        if pause_s:
            yield due
            due += pause_s
        start, rest = members[number % count]
        number += 1
        correlation_id = frames.pack_id(number & 0x7FFFFFFF)
        began = clock()
        answer = yield start + correlation_id + rest
        took.append(clock() - began)
        check(answer, correlation_id, done)


def once(halves: Halves) -> Script:
    """Send one heartbeat."""
    answer = yield halves[0] + bytes(4) + halves[1]
    check(answer, bytes(4), frames.HEARTBEAT_DONE)


def first_ones(members: Sequence[Halves]) -> Script:
    """Send one heartbeat of each of these members."""
    for halves in members:
        yield from once(halves)


def paced(halves: Halves, due: float, pause_s: float, took: list[Timed]) -> Script:
    """Send heartbeats of one member, the first at `due`, the others `pause_s` apart, for ever."""
    start, rest = halves
    number = 0
    while True:
        yield due
        number += 1
        correlation_id = frames.pack_id(number)
        began = clock()
        answer = yield start + correlation_id + rest
        took.append((began, clock() - began))
        check(answer, correlation_id, frames.HEARTBEAT_DONE)
        due += pause_s


def commits(template: frames.Template, identity: tuple[bytes, ...], done: bytes, took: list[float]) -> Script:
    """Send OffsetCommits of one member without a pause, each of a larger offset, for ever."""
    pack_offset = struct.Struct(">q").pack
    start, rest = template.halves(*identity, frames.OFFSET)
    before, _, behind = rest.partition(frames.OFFSET)
    number = 0
    while True:
        number += 1
        correlation_id = frames.pack_id(number & 0x7FFFFFFF)
        began = clock()
        answer = yield start + correlation_id + before + pack_offset(number) + behind
        took.append(clock() - began)
        check(answer, correlation_id, done)


def check(answer: bytes, correlation_id: bytes, done: bytes) -> None:
    """Raise UnexpectedAnswer if an answer isn't the one to this request, without an error."""
    if answer[8:] != done or answer[4:8] != correlation_id:
        raise UnexpectedAnswer(f"an answer without success: {answer.hex(' ')}")


ANSWER_WITHIN_S = 30.0
"""The longest wait for a first answer."""


def steady(bench: Bench, driver: Driver, seconds: float, took: list[float]) -> Figures:
    """Run the scripts: a fifth of the time to get going, the rest measured."""
    driver.run(seconds / 5)
    took.clear()
    began = bench.meter.sample()
    driver.run(seconds)
    until = clock() + ANSWER_WITHIN_S
    while not took and clock() < until:  # on a machine with other work, a short run may be over before its first answer
        driver.run(seconds)
    used = bench.meter.since(began)
    requests = len(took)
    if not requests:
        raise UnexpectedAnswer(f"no answer in {ANSWER_WITHIN_S:g} s")
    return {
        "requests": requests,
        "cpu_us_per_request": used.server_s / requests * US,
        "generator_us_per_request": used.generator_s / requests * US,
        "requests_per_s": requests / used.wall_s,
        "log_bytes_per_request": used.log_bytes / requests,
        **percentiles(took),
        **surroundings(began, used),
    }


def percentiles(took: list[float]) -> Figures:
    """Return percentiles of latencies in microseconds, from seconds."""
    ordered = sorted(took)
    last = len(ordered) - 1
    return {
        "latency_p50_us": ordered[last // 2] * US,
        "latency_p99_us": ordered[min(int(len(ordered) * 0.99), last)] * US,
        "latency_max_us": ordered[last] * US,
    }


# The works.


def heartbeat(
    bench: Bench,
    *,
    connections: int = CONNECTIONS,
    members: int = 1,
    groups: int = 1,
    depth: int = 1,
    seconds: float = 2.0,
) -> Figures:
    """Send heartbeats of all members, as fast as they are answered.

    members: on each connection, which sends for them in turn. groups: the number of groups of the members of all
    connections; several members on a connection form several times as many. depth: open requests on a connection.
    """
    took: list[float] = []
    with bench.driver() as driver:
        for link, mine in seats(bench, driver, connections, members, groups):
            halves = [group.heartbeat(member) for group, member in mine]
            driver.start(link, *(heartbeats(halves, took) for _ in range(depth)))
        return steady(bench, driver, seconds, took)


def setting(
    bench: Bench,
    *,
    connections: int = CONNECTIONS,
    groups: int = 1,
    pause_s: float = 0.0,
    seconds: float = 0.2,
    turns: int = 20,
) -> Figures:
    """Send heartbeats to two servers that differ in a setting; one is idle while the other works.

    pause_s: between two on a connection, evenly spread over all of these; 0: none. seconds: of a turn; a server with
    metrics is scraped once in each turn. turns: of either server. Each turn is compared with the other server's turn
    beside it, as a shared machine is faster and slower for seconds at a time.
    """
    assert bench.without is not None
    with bench.driver() as driver, bench.without.driver() as driver_without:
        having = Side(bench, driver, connections, groups, pause_s)
        lacking = Side(bench.without, driver_without, connections, groups, pause_s)
        for side in (having, lacking):
            side.turn(seconds)
            side.cpu_us.clear()
        workers = bench.meter.workers or [bench.meter.pid]
        before = [cpu_s(pid) for pid in workers]
        began, began_without = bench.meter.sample(), bench.without.meter.sample()
        for number in range(turns):
            for side in (having, lacking) if number % 2 else (lacking, having):
                side.turn(seconds)
        used, used_without = bench.meter.since(began), bench.without.meter.since(began_without)
        spent = [cpu_s(pid) - start for pid, start in zip(workers, before, strict=True)]
    return {
        "ratio": median(took / without for took, without in zip(having.cpu_us, lacking.cpu_us, strict=True)),
        "cpu_us_per_request": median(having.cpu_us),
        "cpu_us_per_request_without": median(lacking.cpu_us),
        **({"busiest_to_least": max(spent) / min(spent)} if len(spent) > 1 else {}),
        **surroundings(
            began,
            used._replace(
                server_s=used.server_s + used_without.server_s, children_s=used.children_s + used_without.children_s
            ),
        ),
    }


class Side:
    """One of two compared servers, and its members, each on a connection of its own.

    cpu_us: of a heartbeat, turn by turn.
    """

    def __init__(self, bench: Bench, driver: Driver, connections: int, groups: int, pause_s: float) -> None:
        self._bench = bench
        self._driver = driver
        self._pause_s = pause_s
        self._seated = seats(bench, driver, connections, 1, groups)
        self.cpu_us: list[float] = []

    def turn(self, seconds: float) -> None:
        """Send heartbeats for that many seconds."""
        took: list[float] = []
        used_s = self._bench.meter.sample().server_s
        with scraped(self._bench.http):
            start = clock()
            for number, (link, ((group, member),)) in enumerate(self._seated):
                due = start + self._pause_s * number / len(self._seated)
                halves = [group.heartbeat(member)]
                script = heartbeats(halves, took, due=due, pause_s=self._pause_s, until=start + seconds)
                self._driver.start(link, script)
            self._driver.run()
        self.cpu_us.append((self._bench.meter.sample().server_s - used_s) / len(took) * US)


@contextmanager
def scraped(http: str) -> Iterator[None]:
    """Read the metrics, if there are any, once meanwhile, as Prometheus does."""
    if not http:
        yield
        return

    def scrape() -> None:
        with urlopen(f"http://{http}/metrics", timeout=10) as answer:
            answer.read()

    with ThreadPoolExecutor(1) as beside:
        scraping = beside.submit(scrape)
        yield
    try:
        scraping.result()
    except OSError as error:
        raise UnexpectedAnswer(f"metrics can't be scraped: {error}") from None


def commit(
    bench: Bench,
    *,
    connections: int = CONNECTIONS,
    partitions: int = 1,
    groups: int = 1,
    depth: int = 1,
    seconds: float = 2.0,
) -> Figures:
    """Send OffsetCommits of all members, as fast as they are answered. partitions: of the topic, in each."""
    done = frames.commit_done(partitions)
    took: list[float] = []
    with bench.driver() as driver:
        for link, ((group, member),) in seats(bench, driver, connections, 1, groups):
            template = frames.commit(group.group_id, partitions, static=True)
            identity = (frames.generation(member.generation), *member.identity())
            driver.start(link, *(commits(template, identity, done, took) for _ in range(depth)))
        return steady(bench, driver, seconds, took)


def transaction(bench: Bench, *, connections: int = CONNECTIONS, before: int = 5, seconds: float = 2.0) -> Figures:
    """Run transactions of one record and one commit, on each connection one after the other.

    before: transactions of each producer that don't count. The first ones make folders and segments.
    """
    took: list[float] = []
    with bench.driver() as driver:
        links = driver.connect(connections)
        driver.start(links[0], create_topic(bench.tag, connections))
        driver.run()
        producers = [Producer(f"{bench.tag}-{number}", bench.tag, number) for number in range(connections)]
        for link, producer in zip(links, producers, strict=True):
            driver.start(link, producer.begin(before))
        driver.run()
        for link, producer in zip(links, producers, strict=True):
            driver.start(link, producer.transactions(took))
        return steady(bench, driver, seconds, took)


def ids(bench: Bench, *, count: int = 10_000, connections: int = CONNECTIONS) -> Figures:
    """Give producers of that many transactional ids their producer ids. They run no transaction."""
    with bench.driver() as driver:
        links = driver.connect(connections)
        driver.start(links[0], Producer(f"{bench.tag}-first", bench.tag, 0).begin())  # makes the topic of ids
        driver.run()
        resident = bench.meter.live_bytes()
        began = bench.meter.sample()

        def begin_some(first: int) -> Script:
            for number in range(first, count, connections):
                yield from Producer(f"{bench.tag}-{number}", bench.tag, 0).begin()

        for number, link in enumerate(links):
            driver.start(link, begin_some(number))
        driver.run()
        used = bench.meter.since(began)
        return {
            "cpu_us_per_id": used.server_s / count * US,
            "resident_bytes_per_id": (bench.meter.live_bytes() - resident) / count,
            **surroundings(began, used),
        }


def bounce(bench: Bench, *, size: int = 500, restarts: int = 500, at_once: int = 1) -> Figures:
    """Restart members of a stable static group in turn: each joins without its member id, and syncs.

    at_once: how many restart at a time.
    """
    if at_once > size:
        raise UnexpectedAnswer(f"{at_once} of {size} members can't restart at a time")
    with bench.driver() as driver:
        group = form(bench, driver, driver.connect(size), Group(bench.tag, size, static=True))
        took: list[float] = []
        # A slow member's restart is never repeated by another script.
        circle = size - size % at_once

        def roll(numbers: range) -> Script:
            for number in numbers:
                began = clock()
                yield from group.restart(group.members[number % circle])
                took.append(clock() - began)

        counted = min(BEFORE_COMPACTION, restarts)
        folder = bench.meter.folder
        log_bytes = -settled_bytes(folder) if folder else 0
        driver.start(driver.links[0], roll(range(counted)))
        driver.run()
        log_bytes += settled_bytes(folder) if folder else 0
        took.clear()
        began = bench.meter.sample()
        for number in range(at_once):
            driver.start(driver.links[number], roll(range(counted + number, counted + restarts, at_once)))
        driver.run()
        used = bench.meter.since(began)
    appended: Figures = {}
    if folder and log_bytes > 0:  # not if older segments were compacted meanwhile
        appended["log_bytes_per_restart"] = log_bytes / counted
        appended["bare_sync_us"] = bare_sync_s(folder, round(log_bytes / counted)) * US
    return {
        "cpu_us_per_restart": used.server_s / restarts * US,
        **appended,
        **percentiles(took),
        **surroundings(began, used),
    }


def sinks(bench: Bench, *, readers: int = 20, size: int = 100, restarts: int = 600) -> Figures:
    """Do `bounce` while the sinks of its events and metrics hang.

    readers: connections that ask for events and read none of them, and as many that ask for metrics repeatedly and read
    none of them.
    """
    events = b"GET /events HTTP/1.1\r\nHost: sinks\r\n\r\n"
    metrics = b"GET /metrics HTTP/1.1\r\nHost: sinks\r\n\r\n"
    with ExitStack() as stack:
        for asks in [events] * readers + [metrics * SCRAPES] * readers:
            sink = stack.enter_context(socket.socket())
            sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
            host, _, port = bench.http.rpartition(":")
            sink.connect((host, int(port)))
            sink.sendall(asks)
        return bounce(bench, size=size, restarts=restarts)


def bare_sync_s(folder: str, size: int) -> float:
    """Return the CPU of appending that many bytes and syncing them, beside a log and without one.

    Nearly all of it is the kernel's. A server that has a record of this size on disk before it answers needs at least
    this.
    """
    data = bytes(size)
    with tempfile.TemporaryFile(dir=Path(folder).parent) as file:
        began = time.thread_time()
        for number in range(BARE_SYNCS):
            os.pwrite(file.fileno(), data, number * size)
            os.fdatasync(file.fileno())
        return (time.thread_time() - began) / BARE_SYNCS


def storm(bench: Bench, *, size: int = 1_000) -> Figures:
    """Let dynamic members join a group at once, each on its own connection, until all have synced one generation."""
    with bench.driver() as driver:
        driver.connect(size)
        group = Group(bench.tag, size, static=False)
        began = bench.meter.sample()
        first = clock()
        for number in range(size):
            driver.start(driver.links[number], group.seat(number))
        driver.run()
        used = bench.meter.since(began)
    assert group.completed is not None
    return {
        "storm_s": group.completed - first,
        "cpu_us_per_member": used.server_s / size * US,
        "generations": max(member.generation for member in group.members),
        **surroundings(began, used),
    }


def gathered(bench: Bench, driver: Driver, group: ConsumerGroup) -> None:
    """Bring all members of a group of the consumer protocol in at once, one on each connection."""
    if bench.plain:
        group.pretend()
        return
    for number, link in enumerate(driver.links):
        driver.start(link, group.seat(number))
    driver.run()


def topics_of(bench: Bench, driver: Driver, topics: int, partitions: int) -> list[str]:
    """Create that many topics with as many partitions each, unless they exist; returns their names."""
    names = [f"{frames.TOPIC}-{topics}-{partitions}-{number}" for number in range(topics)]
    if not bench.plain:
        for name in names:
            driver.start(driver.links[0], create_topic(name, partitions // topics))
            driver.run()
    return names


def consumer_heartbeat(bench: Bench, *, connections: int = CONNECTIONS, seconds: float = 2.0) -> Figures:
    """Send heartbeats of steady members of the consumer protocol, as fast as they are answered."""
    took: list[float] = []
    with bench.driver() as driver:
        driver.connect(connections)
        names = topics_of(bench, driver, 1, connections)
        group = ConsumerGroup(bench.tag, connections, names, connections, static=True)
        gathered(bench, driver, group)
        for link, member in zip(driver.links, group.members, strict=True):
            driver.start(link, heartbeats([group.heartbeat(member)], took, done=member.steady))
        return steady(bench, driver, seconds, took)


def consumer_storm(bench: Bench, *, size: int = 1_000, topics: int = 1, partitions: int = 1_000) -> Figures:
    """Let members of the consumer protocol join a group at once, until all have their partitions at one epoch.

    Memory is that of a member, without its connection.
    """
    with bench.driver() as driver:
        connect_many(driver, size)
        names = topics_of(bench, driver, topics, partitions)
        group = ConsumerGroup(bench.tag, size, names, partitions, static=False)
        resident = bench.meter.live_bytes()
        began = bench.meter.sample()
        first = clock()
        gathered(bench, driver, group)
        used = bench.meter.since(began)
        held = bench.meter.live_bytes() - resident
    assert group.completed is not None
    return {
        "storm_s": group.completed - first,
        "cpu_us_per_member": used.server_s / size * US,
        "resident_bytes_per_member": held / size,
        "epochs": max(member.epoch for member in group.members),
        **surroundings(began, used),
    }


def connect_many(driver: Driver, count: int) -> None:
    """Open very many connections."""
    while len(driver.links) < count:
        source = SOURCES[len(driver.links) // CONNECTED_AT_ONCE % len(SOURCES)]
        driver.connect(min(CONNECTED_AT_ONCE, count - len(driver.links)), source)


def consumer_bounce(bench: Bench, *, size: int = 500, restarts: int = 500) -> Figures:
    """Restart members of a stable static group of the consumer protocol in turn: each goes away, and comes back."""
    took: list[float] = []
    with bench.driver() as driver:
        driver.connect(size)
        names = topics_of(bench, driver, 1, size)
        group = ConsumerGroup(bench.tag, size, names, size, static=True)
        gathered(bench, driver, group)

        def roll() -> Script:
            for number in range(restarts):
                began = clock()
                yield from group.restart(group.members[number % size])
                took.append(clock() - began)

        began = bench.meter.sample()
        driver.start(driver.links[0], roll())
        driver.run()
        used = bench.meter.since(began)
    return {
        "cpu_us_per_restart": used.server_s / restarts * US,
        "log_bytes_per_restart": used.log_bytes / restarts,
        **percentiles(took),
        **surroundings(began, used),
    }


def groups(bench: Bench, *, steps: Sequence[int] = (10, 10_000, 100_000), seconds: float = 2.0) -> Figures:
    """Form more and more groups of one static member; after each step, send heartbeats of all groups in turn.

    steps: the numbers of groups; the figures of the first step end with _0, and so on. A thousand are formed at a time,
    so that the generator doesn't wait for a server that waits for its disk.
    """
    figures: Figures = {}
    formed: list[Group] = []
    members: list[Halves] = []
    with bench.driver() as driver:
        driver.connect(min(FORMED_AT_ONCE, max(steps)))
        for number, step in enumerate(steps):
            count = step - len(formed)
            resident = bench.meter.live_bytes()
            began = bench.meter.sample()
            new = form_many(bench, driver, len(formed), step)
            used = bench.meter.since(began)
            formed += new
            members += [group.heartbeat(group.members[0]) for group in new]
            figures |= {
                f"cpu_us_per_group_{number}": used.server_s / count * US,
                f"resident_bytes_per_group_{number}": (bench.meter.live_bytes() - resident) / count,
                f"log_bytes_per_group_{number}": used.log_bytes / count,
                f"forming_s_{number}": used.wall_s,
                **surroundings(began, used),
                f"heartbeat_us_{number}": _rotating_heartbeats(bench, members, seconds),
            }
    return figures


def _rotating_heartbeats(bench: Bench, members: list[Halves], seconds: float) -> float:
    """Return the CPU of a heartbeat, in microseconds, if no connection sends two of one member in a row.

    Each member has sent one before, as hardly any heartbeat is the first of its generation.
    """
    took: list[float] = []
    with bench.driver() as driver:
        links = driver.connect(CONNECTIONS)
        for number, link in enumerate(links):
            driver.start(link, first_ones(members[number::CONNECTIONS]))
        driver.run()
        for number, link in enumerate(links):
            driver.start(link, heartbeats(members, took, first=number * len(members) // CONNECTIONS))
        return steady(bench, driver, seconds, took)["cpu_us_per_request"]


def connections(bench: Bench, *, count: int = 10_000, pause_s: float = 3.0, rounds: int = 2) -> Figures:
    """Open many connections, each with a member that sends a heartbeat every `pause_s`, evenly spread.

    Memory is that of a connection with its member, in a group of its own.
    """
    resident = bench.meter.live_bytes()
    with bench.driver() as driver:
        driver.connect(min(FORMED_AT_ONCE, count))
        members = [group.heartbeat(group.members[0]) for group in form_many(bench, driver, 0, count)]
    took: list[Timed] = []
    with bench.driver() as driver:
        while len(driver.links) < count:
            source = SOURCES[len(driver.links) // CONNECTED_AT_ONCE % len(SOURCES)]
            first = len(driver.links)
            for number, link in enumerate(driver.connect(min(CONNECTED_AT_ONCE, count - first), source), first):
                driver.start(link, once(members[number]))
            driver.run()
        held = bench.meter.live_bytes() - resident
        start = clock() + SOON_S
        for number, (link, halves) in enumerate(zip(driver.links, members, strict=True)):
            driver.start(link, paced(halves, start + pause_s * number / count, pause_s, took))
        driver.run(pause_s)
        took.clear()
        began = bench.meter.sample()
        driver.run(pause_s * rounds)
        used = bench.meter.since(began)
    return {
        "percent_of_a_core": used.server_s / used.wall_s * 100,
        "resident_bytes_per_connection": held / count,
        "percent_missed": max(count * rounds - len(took), 0) / (count * rounds) * 100,
        **percentiles([seconds for _, seconds in took]),
        **surroundings(began, used),
    }


def records(
    bench: Bench, *, size: int = 1_000, megabytes: int = 400, partitions: int = 4, batch_bytes: int = 1_000_000
) -> Figures:
    """Produce with acks=all, then fetch the same records: each topic partition on a connection of its own.

    size: bytes of a record's value; a record has nothing else. megabytes: of values, twice: the first half isn't
    measured and lets a JVM compile. batch_bytes: of a batch; each Produce and each Fetch has one.
    """
    batch, record_count = batch_of(size, batch_bytes)
    batches = max(megabytes * 1_000_000 // (partitions * size * record_count), 1)
    megabytes_sent = partitions * batches * size * record_count / 1e6
    figures: Figures = {}
    with bench.driver() as driver:
        links = driver.connect(partitions)
        driver.start(links[0], create_topic(bench.tag, partitions))
        driver.run()
        mine = [Partition(bench.tag, number, batch, record_count) for number in range(partitions)]

        def timed(name: str, script: Callable[[Partition], Script]) -> None:
            began = bench.meter.sample()
            for link, partition in zip(links, mine, strict=True):
                driver.start(link, script(partition))
            driver.run()
            used = bench.meter.since(began)
            around = surroundings(began, used)
            limit = max(figures.get("generator_share", 0.0), around["generator_share"])
            figures.update(
                {
                    f"{name}_mb_per_s": megabytes_sent / used.wall_s,
                    f"{name}_cpu_s_per_gb": used.server_s / megabytes_sent * 1_000,
                    **around,
                    "generator_share": limit,
                }
            )

        timed("first", Partition.until_led)
        for _ in ("to get going", "measured"):
            figures.clear()
            timed("produce", lambda each: each.produce(batches))
            timed("fetch", Partition.fetch)
    return {**figures, "peak_mib": bench.meter.peak_bytes() / MIB}


def newcomer(bench: Bench) -> Script:
    """Do what a new client does behind its handshake: log in, if need be, and ask for the versions of APIs."""
    if not bench.plain:
        yield from log_in(bench.entry.listener)
    answer = yield frames.api_versions()
    if not bench.plain and answer[8:10] != bytes(2):
        raise UnexpectedAnswer(f"ApiVersions: {answer.hex(' ')}")


def handshakes(bench: Bench, *, total: int = 2_000, at_once: int = 8) -> Figures:
    """Open a connection, ask for the versions of APIs, and close it; so many clients at once do this again and again.

    Each connection has a full handshake.
    """
    left = itertools.count(total - at_once, -1)
    with bench.driver() as driver:

        def come_and_go(link: Link) -> Script:
            yield from newcomer(bench)
            driver.leave(link)
            if next(left) > 0:
                begin()

        def begin() -> None:
            for link in driver.arrive(1):
                driver.enter(link, come_and_go(link))

        began = bench.meter.sample()
        for _ in range(at_once):
            begin()
        driver.run()
        used = bench.meter.since(began)
    return {
        "cpu_us_per_handshake": used.server_s / total * US,
        "handshakes_per_s": total / used.wall_s,
        **surroundings(began, used),
    }


def crowd(bench: Bench, *, size: int = 1_000) -> Figures:
    """Let clients that have connected make their handshakes and log in at once, until each has an answer."""
    took: list[float] = []
    with bench.driver() as driver:

        def come_in() -> Script:
            yield from newcomer(bench)
            took.append(clock() - first)

        arrived = driver.arrive(size)
        began = bench.meter.sample()
        first = clock()
        for link in arrived:
            driver.enter(link, come_in())
        driver.run()
        used = bench.meter.since(began)
    return {
        "crowd_s": max(took),
        "cpu_us_per_client": used.server_s / size * US,
        **percentiles(took),
        **surroundings(began, used),
    }


def idle(bench: Bench, *, seconds: float = 2.0) -> Figures:
    """Measure a server after its start, without clients."""
    began = bench.meter.sample()
    time.sleep(seconds)
    used = bench.meter.since(began)
    return {
        "resident_mib": bench.meter.resident_bytes() / MIB,
        "percent_of_a_core": used.server_s / used.wall_s * 100,
        **surroundings(began, used),
    }


def latency(
    bench: Bench,
    *,
    beside: str,
    parameters: dict[str, Any] | None = None,
    pause_s: float = 0.01,
    before_s: float = 1.0,
    compacts: bool = False,
) -> Figures:
    """Send heartbeats of a stable group, each member's every `pause_s`, beside another generator's work.

    beside: that work; it runs once before, so that its code is imported and compiled. compacts: the server must compact
    its log meanwhile. before_s: how long heartbeats run alone before that.

    The figures are the latencies of heartbeats during the measurement of the other work. This process goes first where
    both want the CPU, if the system allows it.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    first, job = (bench.job(beside, parameters or {}, tag=f"{bench.tag}-{turn}") for turn in ("first", "beside"))
    took: list[Timed] = []
    with bench.driver() as driver:
        group = form(bench, driver, connected(bench, driver, CONNECTIONS), Group(bench.tag, CONNECTIONS, static=True))
        start = clock() + SOON_S
        for number, (link, member) in enumerate(zip(driver.links, group.members, strict=True)):
            due = start + pause_s * number / CONNECTIONS
            driver.start(link, paced(group.heartbeat(member), due, pause_s, took))
        _beside(driver, first)
        took.clear()
        driver.run(before_s)
        while not took:  # a busy machine may not have come to this process at all
            driver.run(before_s)
        quiet = percentiles([seconds for _, seconds in took])
        for _ in range(COMPACTION_ATTEMPTS if compacts else 1):
            took.clear()
            since_s, mine_s = clock(), time.process_time()
            figures = _beside(driver, job)
            # Approximate, because it includes the start and the preparations.
            my_share = (time.process_time() - mine_s) / (clock() - since_s)
            if not compacts or figures["children_share"]:
                break
        else:
            raise UnexpectedAnswer("the server was to compact its log, and didn't")
    began, ended = figures["began_s"], figures["began_s"] + figures["wall_s"]
    meanwhile = [seconds for sent, seconds in took if sent <= ended and sent + seconds >= began]
    return {
        **percentiles(meanwhile),
        "samples": len(meanwhile),
        "quiet_p99_us": quiet["latency_p99_us"],
        "quiet_max_us": quiet["latency_max_us"],
        "latency_p99_ms": percentiles(meanwhile)["latency_p99_us"] / MS,
        "latency_max_ms": percentiles(meanwhile)["latency_max_us"] / MS,
        "other_share": max(figures["other_share"] - my_share, 0.0),
        "server_share": figures["server_share"],
        "children_share": figures["children_share"],
        "wall_s": figures["wall_s"],
    }


def _beside(driver: Driver, job: str) -> Figures:
    """Return another generator's figures, while the driver goes on."""
    with subprocess.Popen([sys.executable, "-m", "benchmarks.load", job], stdout=subprocess.PIPE) as other:
        while other.poll() is None:
            driver.run(SOON_S)
        assert other.stdout is not None
        output = other.stdout.read()
    if other.returncode:
        raise UnexpectedAnswer("the work beside which latency was to be measured failed")
    figures: Figures = json.loads(output)
    return figures


WORKS: dict[str, Callable[..., Figures]] = {
    work.__name__: work
    for work in (
        heartbeat,
        setting,
        commit,
        transaction,
        ids,
        bounce,
        sinks,
        storm,
        consumer_heartbeat,
        consumer_storm,
        consumer_bounce,
        groups,
        connections,
        records,
        handshakes,
        crowd,
        idle,
        latency,
    )
}


def answer(work: str, parameters: Mapping[str, Any]) -> bytes:
    """Return the bytes behind the correlation id in an answer to the measured request, for the echo."""
    if work == "consumer_heartbeat":
        return STEADY
    return frames.commit_done(parameters.get("partitions", 1)) if work == "commit" else frames.HEARTBEAT_DONE
