"""The keys of an identity provider, kept up to date: from a JWKS in a file, or behind a URL.

They are read when the server starts, then every sasl.oauthbearer.jwks.endpoint.refresh.ms, and when a token names a key
that isn't there, but not twice within MISSED_PAUSE_MS. A thread of its own reads them, for FETCH_WITHIN_S and BYTES_MAX
at most. If they can't be read, the last ones count and a line says why.

The end of a server cuts a reading off and waits for its thread: a process that ends while a thread of it is in OpenSSL
may crash.

House rule: what can't be read lets nobody in; without any keys every token is refused.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPConnection, HTTPMessage, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR, socket
from ssl import SSLContext
from typing import IO, Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from coordinator.loop.clock import Alarm, Clock, Hop, SystemClock
from coordinator.loop.lines import Sparing
from coordinator.security.sasl.keys import Key, keys_of

FETCH_WITHIN_S = 10
BYTES_MAX = 256 * 1024
"""Bytes of a JWKS; one key has some hundred."""
CHUNK_BYTES = 16 * 1024
END_WITHIN_S = 3.0
"""How long the end of a server waits for the thread. Only a name that isn't resolved yet, or a file whose disk hangs,
takes longer; behind that the thread begins no TLS.
"""

MISSED_PAUSE_MS = 10_000
"""Strangers can send tokens with any names of keys."""


class KeySource:
    """See the module.

    context: the TLS of an https URL, None for the CAs of this machine. hop: calls back on the loop's thread. problem:
    why the keys couldn't be read the last time.
    """

    def __init__(
        self,
        url: str,
        context: SSLContext | None,
        refresh_ms: int,
        clock: Clock,
        lines: Sparing,
        hop: Hop,
    ) -> None:
        self.keys: list[Key] = []
        self.problem = ""
        self._url = url
        self._context = context
        self._refresh_ms = refresh_ms
        self._clock = clock
        self._lines = lines
        self._hop = hop
        self._alarm: Alarm[str] = Alarm(clock, lambda _: self._read())
        self._read_at_ms: int | None = None
        self._reading: Reading | None = None
        self._thread: threading.Thread
        self._is_stopped = False
        self._first = asyncio.Event()

    async def start(self) -> None:
        """Read the keys, and return when they are there or can't be had."""
        self._read()
        await self._first.wait()

    async def stop(self) -> None:
        """Read no more: see the module."""
        self._alarm.stop()
        self._is_stopped = True
        if self._reading is not None:
            self._reading.cut_off()
            await asyncio.to_thread(self._thread.join, END_WITHIN_S)

    def missed(self) -> None:
        """See Keys."""
        if self._read_at_ms is None or self._clock.ms() - self._read_at_ms >= MISSED_PAUSE_MS:
            self._read()

    def _read(self) -> None:
        if self._reading is not None or self._is_stopped:
            return
        self._reading = Reading()
        self._read_at_ms = self._clock.ms()
        self._thread = threading.Thread(target=self._work, args=(self._reading,), name="jwks", daemon=True)
        self._thread.start()

    def _work(self, reading: Reading) -> None:
        """Of the thread."""
        try:
            found: list[Key] | str = keys_of(fetched(self._url, self._context, reading))
        except (OSError, ValueError) as error:
            found = str(error.reason if isinstance(error, URLError) else error)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._hop(self._take, found)

    def _take(self, found: list[Key] | str) -> None:
        self._reading = None
        self.problem = found if isinstance(found, str) else ""
        self._first.set()
        if self._is_stopped:
            return
        if isinstance(found, str):
            self._lines.warn(
                "keys_not_read", f"The keys of {self._url} can't be read: {found}", url=self._url, reason=found
            )
        else:
            self.keys = found
        self._alarm.arm("read", self._clock.ms() + self._refresh_ms)


class Reading:
    """One reading of a URL, which another thread may cut off."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket] = []
        self._is_cut_off = False

    def connected(self, found: socket) -> None:
        """The reading has a connection; its TLS begins behind this. Raises OSError if the reading is cut off."""
        with self._lock:
            if self._is_cut_off:
                raise OSError("the server ends")
            self._sockets.append(found.dup())  # TLS takes the other one away

    def cut_off(self) -> None:
        """Let the reading fail, at once if it waits for its provider."""
        with self._lock:
            self._is_cut_off = True
            for each in self._sockets:
                with suppress(OSError):  # the provider has closed the connection
                    each.shutdown(SHUT_RDWR)

    def close(self) -> None:
        """The reading is over."""
        with self._lock:
            while self._sockets:
                self._sockets.pop().close()


class Plain(HTTPConnection):
    """A connection that hands its socket to `reading`."""

    reading: Reading

    def connect(self) -> None:
        """As HTTPConnection."""
        super().connect()
        self.reading.connected(self.sock)


class Secure(HTTPSConnection, Plain):
    """The same with TLS: HTTPSConnection connects by the next class, `Plain`, and begins TLS then."""


class Connections(HTTPHandler, HTTPSHandler):
    """Opens the connections of a reading. context: see KeySource."""

    def __init__(self, reading: Reading, context: SSLContext | None) -> None:
        super().__init__()
        self._reading = reading
        self._tls = context

    def http_open(self, req: Request) -> HTTPResponse:
        """As HTTPHandler."""
        return self.do_open(partial(self._made, Plain), req)

    def https_open(self, req: Request) -> HTTPResponse:
        """As HTTPSHandler."""
        return self.do_open(partial(self._made, Secure, context=self._tls), req)

    def _made(self, kind: type[Plain], host: str, **named: Any) -> Plain:
        made = kind(host, **named)
        made.reading = self._reading
        return made


class Redirects(HTTPRedirectHandler):
    """Follows no redirection from https to anything else, as Java doesn't: TLS is what the keys are trusted for."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """As HTTPRedirectHandler."""
        scheme = urlsplit(newurl).scheme
        if req.type == "https" and scheme != "https":
            raise URLError(f"it redirects to {scheme}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetched(url: str, context: SSLContext | None, reading: Reading) -> bytes:
    """The bytes behind a URL of http, https or file. context: see KeySource. Raises OSError, ValueError."""
    clock = SystemClock()
    end_ms = clock.ms() + FETCH_WITHIN_S * 1_000
    found = bytearray()
    opener = build_opener(Redirects, Connections(reading, context))
    with closing(reading), opener.open(url, timeout=FETCH_WITHIN_S) as response:  # the settings allow no other scheme
        while chunk := response.read1(CHUNK_BYTES):
            found += chunk
            if len(found) > BYTES_MAX:
                raise ValueError(f"it has more than {BYTES_MAX} bytes")
            if clock.ms() > end_ms:
                raise ValueError(f"it didn't come within {FETCH_WITHIN_S} s")
    return bytes(found)
