"""Protects the server from clients of HTTP: a limit on connections, timeouts, and the check of the Host header.

HTTP shares the process's files and its event loop with Kafka's clients, so it has limits of its own, and reads what
clients send in turns (loop/pace.py). It closes a connection above `tenure.http.max.connections` at once, and one whose
client speaks something else than HTTP. It also closes a connection if one of these lasts for
`tenure.http.idle.timeout.ms`: no request comes, the body of a request isn't whole, or the client takes nothing of an
answer. Of slow clients whose answers together take more than UNSENT_BYTES_MAX, the slowest loses its connection
(loop/unsent.py). Lines about closed connections are rare, however often clients come back.

The Host header must name this server. Otherwise a web page could give its own name the address of this server (DNS
rebinding) and read all groups through the browser of somebody who can reach it. Allowed are addresses, `localhost`, and
the names in `tenure.http.hosts`.

House rule: no route knows of this.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from h11 import IDLE
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from coordinator.client.connection import Address
from coordinator.loop.clock import Alarm, Clock
from coordinator.loop.cycles import drop_trace
from coordinator.loop.pace import Pace
from coordinator.loop.unsent import Unsent
from coordinator.text import several
from protocol.connection import TLS_HANDSHAKE, TLS_MAJOR

if TYPE_CHECKING:
    import asyncio

    from coordinator.loop.lines import Lines

    Secure = Callable[["GuardedProtocol"], asyncio.Protocol]

UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""A dozen answers to /groups with 60,000 groups."""

REFUSALS_MS = 60_000
"""A further line about refused connections comes this long after the last."""


NO_HTTP = "Invalid HTTP request received."
"""uvicorn's own line about a client that doesn't speak HTTP. It doesn't name the client."""

FIRST_BYTES = 8
"""As many bytes of a connection tell which protocol a client speaks."""


class Refusals:
    """Refused connections of one kind. A line about the first one is due at once, a further line after REFUSALS_MS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused = 0
        self._said_ms: int | None = None

    def add(self) -> int:
        """Count a connection. Returns how many a line has to tell of, 0 if no line is due."""
        self._refused += 1
        now_ms = self._clock.ms()
        if self._said_ms is not None and now_ms - self._said_ms < REFUSALS_MS:
            return 0
        count, self._refused, self._said_ms = self._refused, 0, now_ms
        return count


class Guard:
    """The connections of HTTP. connections_max, idle_ms: see the module. secure: puts TLS below a connection.

    pace: of the loop, in whose turns they read.
    """

    def __init__(
        self,
        clock: Clock,
        lines: Lines,
        connections_max: int,
        idle_ms: int,
        pace: Pace,
        secure: Secure | None = None,
    ) -> None:
        self.pace = pace
        self._secure = secure
        self._clock = clock
        self._lines = lines
        self._max = connections_max
        self._idle_ms = idle_ms
        self._open: set[GuardedProtocol] = set()
        self._alarm: Alarm[GuardedProtocol] = Alarm(clock, lambda protocol: protocol.cut())
        self._above_limit = Refusals(clock)
        self._no_http = Refusals(clock)
        self._too_slow = Refusals(clock)
        self._unsent: Unsent[GuardedProtocol] = Unsent(clock, self._give_up, UNSENT_BYTES_MAX)

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def protocol(self, **arguments: Any) -> asyncio.Protocol:
        """A connection, for uvicorn. It counts from its accept on, also while its TLS handshake is under way."""
        protocol = GuardedProtocol(self, **arguments)
        return protocol if self._secure is None else self._secure(protocol)

    def admit(self, protocol: GuardedProtocol) -> bool:
        """Whether a new connection may stay."""
        if len(self._open) < self._max:
            self._open.add(protocol)
            return True
        refused = self._above_limit.add()
        if refused:
            text = (
                f"HTTP: closed {several(refused, 'connection')}: tenure.http.max.connections, {self._max}, is reached"
            )
            self._lines.warn("http_refused", text, refused=refused, limit=self._max)
        return False

    def no_http(self, peer: str, first: bytes) -> None:
        """A connection sent something else than HTTP. first: its first bytes."""
        refused = self._no_http.add()
        if refused:
            last = "" if refused == 1 else "the last one "
            text = (
                f"HTTP: closed {several(refused, 'connection')} without HTTP, {last}from {peer}{_other_protocol(first)}"
            )
            self._lines.warn("http_broke", text, refused=refused, peer=peer)

    def remove(self, protocol: GuardedProtocol) -> None:
        """A connection has closed."""
        self._open.discard(protocol)
        self._alarm.cancel(protocol)
        self._unsent.release(protocol)

    def begin(self, client: object, pieces: list[bytes]) -> None:
        """The server begins to write an answer of these pieces to the client at this address."""
        for protocol in [each for each in self._open if each.client == client]:
            self._unsent.add(protocol, pieces)

    def end(self, protocol: GuardedProtocol) -> None:
        """An answer is written."""
        self._unsent.release(protocol)

    def _give_up(self, protocol: GuardedProtocol, reason: str) -> None:
        refused = self._too_slow.add()
        if refused:
            last = "" if refused == 1 else "the last one "
            text = f"HTTP: closed {several(refused, 'connection')}, {last}from {protocol.peer}: {reason}"
            self._lines.warn("http_unread", text, refused=refused, peer=protocol.peer)
        protocol.cut()

    def wait(self, protocol: GuardedProtocol) -> None:
        """The client must do something within the idle timeout."""
        self._alarm.arm(protocol, self._clock.ms() + self._idle_ms)

    def go_on(self, protocol: GuardedProtocol) -> None:
        """The client did it."""
        self._alarm.cancel(protocol)


class GuardedProtocol(H11Protocol):
    """A connection under a Guard. principal: not used; a token says who may read. is_held: as of Plain."""

    principal = ""
    is_held = False

    def __init__(self, guard: Guard, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._guard = guard
        self._is_admitted = False
        self._first = b""
        self._coming = bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As Protocol."""
        super().connection_made(transport)
        self._is_admitted = self._guard.admit(self)
        if self._is_admitted:
            self._guard.wait(self)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """As Protocol."""
        self._guard.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """As Protocol."""
        if not self._is_admitted:
            return
        self._first = self._first or data[:FIRST_BYTES]
        if not self._coming and self._guard.pace.has_time():
            self._read(data)
            return
        if not self._coming:
            self._guard.pace.later(self._read_on)
            self.transport.pause_reading()
        self._coming += data

    def _read_on(self) -> None:
        """Read in a further turn what came in one that had no time."""
        if self.transport.is_closing():
            return
        data = bytes(self._coming)
        self._coming.clear()
        if not self.flow.read_paused:
            self.transport.resume_reading()
        self._read(data)

    def _read(self, data: bytes) -> None:
        before: object = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._guard.wait(self)  # once: a body that comes byte by byte has no more time
        self._go_on()

    @property
    def peer(self) -> str:
        """The client's address, for log lines."""
        return "an unknown client" if self.client is None else str(Address(*self.client))

    def refuse(self, _why: str) -> None:
        """As Plain."""
        self.cut()

    def send_400_response(self, msg: str) -> None:
        """As H11Protocol: the client sent something else than HTTP.

        Inside a request, or behind an answer, h11 has no room for another answer: uvicorn would fail, with a traceback
        each time.
        """
        drop_trace(sys.exception())  # uvicorn has caught it, and h11 raises it from a function that refers to it
        self._guard.no_http(self.peer, self._first)
        if self.conn.our_state is IDLE:
            super().send_400_response(msg)
        else:
            self.cut()

    def _should_upgrade(self) -> bool:
        """As H11Protocol: never. uvicorn would write two lines, or hand the socket to a WebSocket library."""
        return False

    def on_response_complete(self) -> None:
        """As H11Protocol: an answer is written."""
        self._guard.end(self)
        self._guard.wait(self)
        super().on_response_complete()
        self._go_on()  # if the next request was in the buffer

    def pause_writing(self) -> None:
        """As Protocol: the client takes nothing."""
        super().pause_writing()
        self._guard.wait(self)

    def resume_writing(self) -> None:
        """As Protocol: the client takes the answer again."""
        super().resume_writing()
        self._go_on()

    def _go_on(self) -> None:
        """Stop the timeout of the client while the server makes or writes the answer to a whole request."""
        cycle: object = self.cycle  # None before the first request, though uvicorn doesn't say so
        if cycle is None or self.cycle.more_body or self.cycle.response_complete or self.flow.write_paused:
            return
        self._guard.go_on(self)

    def cut(self) -> None:
        """Close the connection: its client did nothing for too long, or is too slow."""
        self.transport.abort()


def _other_protocol(first: bytes) -> str:
    """The protocol that a client seems to speak whose first bytes are these; "" if none is known."""
    # A Kafka request begins with its size, the number of its API and the version: three numbers with leading zeros.
    if len(first) == FIRST_BYTES and not any((first[0], first[4], first[6])):
        return ": it looks like a Kafka client. Give it the address of a listener, not of tenure.http"
    if first[:2] == bytes((TLS_HANDSHAKE, TLS_MAJOR)):
        return ": it looks like TLS, which this port speaks only with tenure.http.ssl.keystore.location"
    return ""


class HostCheck:
    """Lets a request through to `app` if its Host header names this server. names: beside addresses and localhost."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {"localhost", *map(str.lower, names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI."""
        if scope["type"] == "http":
            hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if not all(self._is_ours(host) for host in hosts):
                text = f"this server is not called {hosts[0][:200]!r}; tenure.http.hosts names further hosts"
                await JSONResponse({"error": text}, 421)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        name = host_name(host)
        if name is None:
            return False
        if name.lower().removesuffix(".") in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


HOST = re.compile(
    r"(?:\[(?P<bracketed>[0-9a-f.]*:[0-9a-f:.]*)\]|(?P<name>[^\s\[\]@:/?#\\%]*))(?::[0-9]*)?"
    r"|(?P<bare>[0-9a-f.]*:[0-9a-f.]*:[0-9a-f:.]*)",
    re.ASCII | re.IGNORECASE,
)
"""A name or an address, and a port. An IPv6 address without brackets has no port."""


def host_name(host: str) -> str | None:
    """The name or address in a Host header, without its port and brackets; None if the header has another form.

    Nothing that a program reads as part of a name may be left out here: [::1]evil.example is no address.
    """
    found = HOST.fullmatch(host)
    return None if found is None else found["bracketed"] or found["bare"] or found["name"]
