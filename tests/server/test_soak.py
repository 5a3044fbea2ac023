"""A server is asked the same again and again, through every API and every address of HTTP, and its memory stays.

In every run, each is asked 50 or 100 times, which finds what costs 40 KB a time. `make nightly` asks 3,000 times, and
so finds what costs 700 bytes; with `-s` it prints the memory before and after each.
"""

from __future__ import annotations

import http.client
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import cycle, islice

import pytest

from benchmarks.meter import resident_bytes
from protocol.messages import JoinGroupResponse
from schemas.api import SERVED
from tests.loop.test_cycles import requests
from tests.server.harness import join_request
from tests.site.test_cycles import ASKED, GROUPS, targets
from tests.support.length import IS_NIGHTLY
from tests.support.patience import WITHIN_S
from tests.support.raw import Closed, Connection
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure

pytestmark = pytest.mark.long

TIMES = 3_000 if IS_NIGHTLY else 100
"""How often each API is asked, with all of its requests in turn."""

TIMES_HTTP = 3_000 if IS_NIGHTLY else 50
"""The same for an address of HTTP, and for streams of events."""

FILLING = 9_000 if IS_NIGHTLY else 0
"""Streams that nobody reads, before the first look at memory. It grows with some 6,000 of them, and then stays."""

GROWN_MAX = 2 * 1024 * 1024
"""Bytes by which memory may grow meanwhile. The index of a log grows by 100 bytes with each Produce."""

BYTES_MAX = 2_000
"""Larger requests are left out: 3,000 of them take too long."""

WAIT = {"Fetch", "JoinGroup", "SyncGroup"}
"""APIs whose requests may wait: the client closes its connection without the answer."""

UNREAD_EACH, UNREAD_MAX = 8, 60
"""Each 8th stream is left unread, and its client holds it for 480 changes: more events than the server lets wait."""


@contextmanager
def served(events: str) -> Iterator[Tenure]:
    """A server with two groups, and little room for others' members. events: whether it keeps any."""
    given: dict[str, str | int] = {
        "tenure.topics": "orders:3",
        "tenure.http": "127.0.0.1:0",
        "tenure.events.enable": events,
        "group.initial.rebalance.delay.ms": 0,
        "group.max.size": 20,
        # Each ten minutes an empty group would go, and with it, as in Kafka, the id of a member that is about to join.
        "offsets.retention.check.interval.ms": 86_400_000,
    }
    with Tenure(given) as tenure:
        for group in GROUPS:
            with closing(Connection(tenure.port)) as client:
                assert isinstance(client.ask(join_request(group), 3), JoinGroupResponse)
        yield tenure


@pytest.fixture(scope="module")
def server() -> Iterator[Tenure]:
    """A server whose memory doesn't grow by the events of joins."""
    with served("false") as tenure:
        yield tenure


@pytest.fixture(scope="module")
def site() -> Iterator[Tenure]:
    """A server that is asked over HTTP alone."""
    with served("true") as tenure:
        yield tenure


def grown(server: Tenure, what: str, ask: Callable[[int], None], times: int) -> int:
    """How many bytes more a server has after `ask` has asked it so often. Half as often before makes it ready."""
    ask(times // 2)
    before = resident_bytes(server.pid)
    ask(times)
    after = resident_bytes(server.pid)
    sys.stdout.write(f"{what}: {before / 1024**2:.1f} MiB, {after / 1024**2:.1f} MiB after {times} requests\n")
    return after - before


@pytest.mark.parametrize("api", SERVED)
def test_memory_stays_whatever_is_asked_again(server: Tenure, api: str) -> None:
    """Requests of one API again and again, answered or left by their clients, cost no memory that stays."""
    every = cycle([data for data in requests(api) if len(data) <= BYTES_MAX])

    def ask(times: int) -> None:
        client = Connection(server.port)
        for data in islice(every, times):
            try:
                client.send_bytes(data)
                if api in WAIT:
                    raise Closed
                client.receive_frame()
            except (Closed, ConnectionError):
                client.close()
                client = Connection(server.port)
        client.close()

    assert grown(server, api, ask, TIMES) <= GROWN_MAX


def address_of(site: Tenure) -> tuple[str, int]:
    """Where a server listens for HTTP."""
    (url,) = [line["url"] for line in site.events("http_listening")]
    host, _, port = url.strip("/").rpartition("/")[2].rpartition(":")
    return host, int(port)


def answered(client: http.client.HTTPConnection, target: str) -> http.client.HTTPResponse:
    """The answer to a GET. The server refuses it while it hasn't seen yet that former connections are closed."""
    while True:
        with suppress(ConnectionError):
            client.request("GET", target)
            return client.getresponse()
        client.close()


@pytest.mark.parametrize("path", ASKED)
def test_memory_stays_whatever_http_is_asked_again(site: Tenure, path: str) -> None:
    """Requests to one address again and again cost no memory that stays. A stream is left at its first line."""
    every = cycle(targets(path))

    def ask(times: int) -> None:
        with closing(http.client.HTTPConnection(*address_of(site), timeout=WITHIN_S)) as client:
            for target in islice(every, times):
                answer = answered(client, target)
                if answer.headers.get_content_type() == "text/event-stream":
                    answer.readline()
                    answer.close()
                    client.close()
                else:
                    answer.read()

    assert grown(site, path, ask, TIMES_HTTP) <= GROWN_MAX


def test_memory_stays_whatever_streams_of_events_are_opened(site: Tenure) -> None:
    """Streams cost no memory that stays: read for a while, closed before they are read, or held and never read.

    A group changes with each stream. In the nightly form the window of events is full before the first look at
    memory, and the server drops streams that nobody reads.
    """
    address = address_of(site)

    def ask(times: int, unread_each: int = UNREAD_EACH) -> None:
        unread: deque[socket.socket] = deque()
        for number in range(times):
            stream = socket.create_connection(address, WITHIN_S)
            query = "?group=streamed" if number % 3 else ""
            stream.sendall(f"GET /events{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            if number % unread_each == 0:
                unread.append(stream)
                change(site)
                if len(unread) <= UNREAD_MAX:
                    continue
                stream = unread.popleft()
            elif number % 2:
                change(site)
            else:
                with stream.makefile("rb") as lines:
                    assert b": events follow\n" in lines
                    change(site)
                    assert any(line.startswith(b"data: ") for line in lines)
            stream.close()
        for stream in unread:
            stream.close()

    ask(FILLING, unread_each=1)
    assert grown(site, "streams of /events", ask, TIMES_HTTP) <= GROWN_MAX


def change(server: Tenure) -> None:
    """A member joins a group and leaves it: several events."""
    member = Member(server.port, "streamed", "c", 5)
    settle(member)
    member.leave()
    hang_up()
