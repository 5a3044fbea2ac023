"""Clients of HTTP that hold connections, don't read, or come under another's name: they cost themselves alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.config import load
from coordinator.server.app import Server
from coordinator.site import site
from coordinator.site.guard import REFUSALS_MS, Refusals, host_name
from coordinator.story.entries import Timeline
from tests.server.harness import ManualClock, memory
from tests.support.certificates import Certificates, client_context
from tests.support.patience import WITHIN_S

CLIENTS = 4
"""Requests at the same time; each has a thread of the loop's pool, which the waits use too."""


class Web:
    """The HTTP side of a server in this loop."""

    def __init__(self, server: Server, log: Path) -> None:
        assert server._site is not None
        self.guard = server._site._guard
        self.kept = server._site._kept
        self.listeners = server._site._feed._subscribers
        self._log = log
        self.port = int(self.lines("http_listening")[0]["url"].rstrip("/").rpartition(":")[2])

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the server go on until something holds."""
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                await asyncio.to_thread(bool)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of this event."""
        return [line for line in map(json.loads, self._log.read_text().splitlines()) if line["event"] == event]

    def connect(self, buffer_bytes: int | None = None) -> socket.socket:
        """A connection; buffer_bytes: of what it has not read yet."""
        sock = socket.socket()
        if buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        sock.settimeout(WITHIN_S)
        sock.connect(("127.0.0.1", self.port))
        return sock

    async def status(self, host: str | None, path: str = "/healthz") -> int:
        """The status of a request with this Host header."""
        line = f"Host: {host}\r\n" if host is not None else ""
        version = "1.1" if host is not None else "1.0"
        answer = await asyncio.to_thread(self._ask, f"GET {path} HTTP/{version}\r\n{line}Connection: close\r\n\r\n")
        return int(answer.split(b" ", 2)[1])

    def _ask(self, request: str) -> bytes:
        with self.connect() as sock:
            sock.sendall(request.encode())
            return sock.recv(65_536)


@asynccontextmanager
async def serving(
    folder: Path, *sets: str, events: bool = False, clock: ManualClock | None = None
) -> AsyncIterator[Web]:
    """A server with HTTP and these settings. clock: by default the loop's."""
    config, _ = load(
        sets=[
            "listeners=PLAINTEXT://127.0.0.1:0",
            "tenure.http=127.0.0.1:0",
            "tenure.log.format=json",
            f"tenure.events.enable={str(events).lower()}",
            f"log.dirs={folder / 'data'}",
            *sets,
        ]
    )
    with (folder / "lines").open("w") as log:
        server = Server(config, log=log) if events else Server(config, opened=memory(config), log=log, clock=clock)
        await server.start()
        try:
            await server.loaded.wait()
            yield Web(server, folder / "lines")
        finally:
            await server.stop()


async def ended(sock: socket.socket) -> bool:
    """Whether the server closes a connection, after whatever it sends before."""

    def read() -> bool:
        try:
            while sock.recv(1_048_576):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    return await asyncio.to_thread(read)


async def test_a_test_that_fails_leaves_no_server(tmp_path: Path) -> None:
    """Otherwise its connections stay open, and the test run hangs in place of a report."""
    with pytest.raises(ZeroDivisionError):
        async with serving(tmp_path) as web:
            raise ZeroDivisionError
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", web.port), WITHIN_S)


async def test_connections_above_the_limit_are_closed(tmp_path: Path) -> None:
    """One line says so. When another connection ends, a new one is served."""
    async with serving(tmp_path, "tenure.http.max.connections=2") as web:
        held = [web.connect() for _ in range(2)]
        for _ in range(5):
            with web.connect() as further:
                assert await ended(further)
        (line,) = web.lines("http_refused")
        assert line["limit"] == 2
        for sock in held:
            sock.close()
        await web.until(lambda: web.guard.count < 2)
        assert await web.status("localhost") == 200


def tls_settings(certificates: Certificates, *further: str) -> list[str]:
    """The settings of HTTP with TLS."""
    stores = {"keystore": certificates.server, "truststore": certificates.ca}
    pem = [f"tenure.http.ssl.{store}.type=PEM" for store in stores]
    return [*pem, *(f"tenure.http.ssl.{store}.location={path}" for store, path in stores.items()), *further]


async def get_securely(web: Web, context: ssl.SSLContext) -> bytes:
    """The answer to a request for /groups over TLS. Raises OSError."""

    def ask() -> bytes:
        with context.wrap_socket(web.connect(), server_hostname="127.0.0.1") as sock:
            sock.sendall(b"GET /groups HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while data := sock.recv(65_536):
                answer += data
            return answer

    return await asyncio.to_thread(ask)


async def test_http_over_tls(tmp_path: Path, certificates: Certificates) -> None:
    """A client that trusts the CA is answered; one without TLS is not, and a line names it."""
    async with serving(tmp_path, *tls_settings(certificates)) as web:
        (line,) = web.lines("http_listening")
        assert line["url"].startswith("https://127.0.0.1:")
        answer = await get_securely(web, client_context(certificates.ca))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"[]")
        with web.connect() as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert await ended(sock)
        (line,) = web.lines("tls_handshake_failed")
        assert "the client speaks no TLS" in line["reason"]


async def test_http_that_asks_for_certificates(tmp_path: Path, certificates: Certificates) -> None:
    """Only clients with a certificate of the CA are answered."""
    async with serving(tmp_path, *tls_settings(certificates, "tenure.http.ssl.client.auth=required")) as web:
        assert b" 200 " in await get_securely(web, client_context(certificates.ca, certificates.client))
        for own in (None, certificates.foreign_client):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await get_securely(web, client_context(certificates.ca, own))


async def test_half_a_handshake_counts_as_a_connection(tmp_path: Path, certificates: Certificates) -> None:
    """Clients that begin a handshake and go no further take a seat of HTTP each, for the idle time and no longer."""
    limits = ("tenure.http.max.connections=2", "tenure.http.idle.timeout.ms=500")
    async with serving(tmp_path, *tls_settings(certificates, *limits)) as web:
        held = [web.connect() for _ in range(2)]
        for sock in held:
            sock.sendall(b"\x16\x03\x01")
        with web.connect() as further:
            assert await ended(further)
        for sock in held:
            assert await ended(sock)
            sock.close()
        answer = b""
        async with asyncio.timeout(WITHIN_S):
            while not answer:  # a busy machine may need more than the idle time for a handshake
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    answer = await get_securely(web, client_context(certificates.ca))
        assert b" 200 " in answer


KAFKA = b"\0\0\0\x18\0\x12\0\3" + b"\0" * 20
"""An ApiVersions request."""


@pytest.mark.parametrize(
    ("first", "said"),
    [(KAFKA, "it looks like a Kafka client"), (b"\x16\3\1\2\0\1\0\1", "it looks like TLS"), (b"\0\n", "")],
)
async def test_clients_that_do_not_speak_http_are_one_line(tmp_path: Path, first: bytes, said: str) -> None:
    """A Kafka client with the wrong port comes back many times a second: one line names it, and its protocol."""
    async with serving(tmp_path) as web:
        peers = []
        for _ in range(3):
            with web.connect() as sock:
                peers.append("{}:{}".format(*sock.getsockname()))
                sock.sendall(first)
                assert await ended(sock)
        (line,) = web.lines("http_broke")
        assert (line["level"], line["peer"]) == ("warn", peers[0])
        assert line["message"].startswith(f"HTTP: closed 1 connection without HTTP, from {peers[0]}")
        assert said in line["message"]


CHUNKED = b"GET %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
BROKEN = b"no size\r\n"


async def test_broken_bytes_inside_a_request_cost_one_line(tmp_path: Path) -> None:
    """They come with the request, while its answer goes out, or behind the answer: nothing in the server fails."""
    async with serving(tmp_path, events=True) as web:

        def send(path: bytes, *, waits: bool) -> None:
            with web.connect() as sock:
                sock.sendall(CHUNKED % path + (b"" if waits else BROKEN))
                if waits:
                    assert sock.recv(15).startswith(b"HTTP/1.1 ")
                    sock.sendall(BROKEN)
                with contextlib.suppress(ConnectionResetError):
                    while sock.recv(65_536):
                        pass

        for path in (b"/events", b"/healthz", b"/groups"):
            for waits in (False, True):
                for _ in range(2):
                    await asyncio.to_thread(send, path, waits=waits)
        (line,) = web.lines("http_broke")
        assert line["message"].startswith("HTTP: closed 1 connection without HTTP")
        assert await web.status("localhost") == 200


async def test_a_header_gives_no_client_another_address(tmp_path: Path) -> None:
    """The line about a wrong token names the peer, not what a client says in the name of a proxy."""
    async with serving(tmp_path, "tenure.http.token=t") as web:
        asking = "GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.7\r\nAuthorization: Bearer x\r\n\r\n"
        assert (await asyncio.to_thread(web._ask, asking)).startswith(b"HTTP/1.1 401 ")
        (line,) = web.lines("http_unauthorized")
        assert line["peer"].startswith("127.0.0.1:")


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
async def test_a_client_that_asks_for_another_protocol_gets_http(tmp_path: Path, protocol: str) -> None:
    """Its connection stays under the limits, whatever libraries are installed, and it costs no line at all."""
    async with serving(tmp_path) as web:
        asking = (
            f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
        )
        for _ in range(3):
            assert (await asyncio.to_thread(web._ask, asking)).startswith(b"HTTP/1.1 200 ")
        assert web.lines("http_broke") == []
        await web.until(lambda: web.guard.count == 0)


async def test_a_line_about_refused_connections_counts_those_since_the_last() -> None:
    """The next line comes after REFUSALS_MS, and has the number of connections since the line before it."""
    clock = ManualClock()
    refusals = Refusals(clock)
    assert [refusals.add() for _ in range(3)] == [1, 0, 0]
    clock.advance(REFUSALS_MS)
    assert [refusals.add() for _ in range(2)] == [3, 0]


async def test_a_connection_without_a_request_is_closed(tmp_path: Path) -> None:
    """Neither silence nor half a request keeps it open."""
    async with serving(tmp_path, "tenure.http.idle.timeout.ms=100") as web:
        with web.connect() as silent, web.connect() as half:
            half.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
            assert await ended(silent)
            assert await ended(half)


async def test_a_client_that_does_not_read_is_cut(tmp_path: Path) -> None:
    """It asks for much and takes nothing: the server closes the connection and frees the answers."""
    async with serving(tmp_path, "tenure.http.idle.timeout.ms=1000") as web:
        with web.connect(buffer_bytes=4_096) as slow:
            await asyncio.to_thread(slow.sendall, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
            await web.until(lambda: web.guard.count == 1)
            await web.until(lambda: web.guard.count == 0)
        assert await web.status("localhost") == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("10.1.2.3", 200),
        ("[::1]:8080", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("tenure.internal:8080", 200),
        (None, 200),
        ("evil.example", 421),
        ("evil.example:8080", 421),
        ("localhost.evil.example", 421),
        ("", 421),
        ("[::1]evil.example", 421),
        ("[::1]evil.example:8080", 421),
        ("127.0.0.1:80@evil.example", 421),
        ("localhost:8080@evil.example", 421),
        ("localhost@evil.example", 421),
        ("[::1]:80.evil.example", 421),
        ("[::1%.evil.example]", 421),
        ("::1%.evil.example", 421),
        ("[127.0.0.1]", 421),
        ("[localhost]", 421),
        ("[::1", 421),
        ("localhost:evil.example", 421),
        ("127.0.0.1:80:80", 421),
        ("127.0.0.1/.evil.example", 421),
        ("127.0.0.1#evil.example", 421),
    ],
)
async def test_the_host_header_names_this_server(tmp_path: Path, host: str | None, status: int) -> None:
    """A page of another site that has rebound its name to this address gets nothing."""
    async with serving(tmp_path, "tenure.http.hosts=tenure.internal,other") as web:
        for path in ("/healthz", "/groups", "/"):
            assert await web.status(host, path) == status


def test_the_name_in_a_host_header() -> None:
    """It stands before the port, and an IPv6 address in brackets. A header of another form has none."""
    assert [host_name(each) for each in ("a:1", "a", "[::1]:8", "::1", "")] == ["a", "a", "::1", "::1", ""]
    for header in ("[::1]a", "a@b", "a:1@b", "a b", "[a]", "[::1", "::1]", "a:b", "x:1:2", "[::1%a]", "a/b", "a\n"):
        assert host_name(header) is None, header


async def test_requests_for_one_timeline_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that come while a timeline is made get the same body; the server doesn't keep it."""
    made: list[str] = []
    all_came = threading.Event()

    class Held(Timeline):
        def __init__(self, group_id: str) -> None:
            super().__init__(group_id)
            made.append(group_id)
            assert all_came.wait(WITHIN_S)

    waiting: list[Any] = []
    answered = site.Site._answered

    def counted(self: site.Site, work: Any) -> Any:
        waiting.append(work)
        return answered(self, work)

    monkeypatch.setattr(site, "Timeline", Held)
    monkeypatch.setattr(site.Site, "_answered", counted)
    async with serving(tmp_path, events=True) as web:
        asked = asyncio.gather(*(web.status("localhost", "/groups/g/events") for _ in range(CLIENTS)))
        await web.until(lambda: len(waiting) == CLIENTS and bool(made))
        assert len(web.kept) == 1
        all_came.set()
        assert set(await asked) == {404}  # there is no such group, and that is one answer for all of them
        assert made == ["g"]
        assert not web.kept
