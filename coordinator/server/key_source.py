"""The keys of an identity provider, kept up to date: from a JWKS in a file, or behind a URL.

They are read when the server starts, then every sasl.oauthbearer.jwks.endpoint.refresh.ms, and when a token names a key
that isn't there, but not twice within MISSED_PAUSE_MS. A thread of its own reads them, for FETCH_WITHIN_S and BYTES_MAX
at most. If they can't be read, the last ones count and a line says why.

House rule: what can't be read lets nobody in; without any keys every token is refused.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from coordinator.loop.clock import Alarm, SystemClock
from coordinator.security.sasl.keys import keys_of

if TYPE_CHECKING:
    from http.client import HTTPMessage
    from ssl import SSLContext

    from coordinator.loop.clock import Clock, Hop
    from coordinator.loop.lines import Sparing
    from coordinator.security.sasl.keys import Key

FETCH_WITHIN_S = 10
BYTES_MAX = 256 * 1024
"""Bytes of a JWKS; one key has some hundred."""
CHUNK_BYTES = 16 * 1024

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
        self._is_reading = False
        self._is_stopped = False
        self._first = asyncio.Event()

    async def start(self) -> None:
        """Read the keys, and return when they are there or can't be had."""
        self._read()
        await self._first.wait()

    def stop(self) -> None:
        """Read no more."""
        self._alarm.stop()
        self._is_stopped = True

    def missed(self) -> None:
        """See Keys."""
        if self._read_at_ms is None or self._clock.ms() - self._read_at_ms >= MISSED_PAUSE_MS:
            self._read()

    def _read(self) -> None:
        if self._is_reading or self._is_stopped:
            return
        self._is_reading = True
        self._read_at_ms = self._clock.ms()
        threading.Thread(target=self._work, name="jwks", daemon=True).start()

    def _work(self) -> None:
        """Of the thread."""
        try:
            found: list[Key] | str = keys_of(fetched(self._url, self._context))
        except (OSError, ValueError) as error:
            found = str(error.reason if isinstance(error, URLError) else error)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._hop(self._take, found)

    def _take(self, found: list[Key] | str) -> None:
        self._is_reading = False
        self.problem = found if isinstance(found, str) else ""
        if isinstance(found, str):
            self._lines.warn(
                "keys_not_read", f"The keys of {self._url} can't be read: {found}", url=self._url, reason=found
            )
        else:
            self.keys = found
        self._first.set()
        if not self._is_stopped:
            self._alarm.arm("read", self._clock.ms() + self._refresh_ms)


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


def fetched(url: str, context: SSLContext | None = None) -> bytes:
    """The bytes behind a URL of http, https or file. context: see KeySource. Raises OSError, ValueError."""
    clock = SystemClock()
    end_ms = clock.ms() + FETCH_WITHIN_S * 1_000
    found = bytearray()
    opener = build_opener(Redirects, HTTPSHandler(context=context))
    with opener.open(url, timeout=FETCH_WITHIN_S) as response:  # the settings allow no other scheme
        while chunk := response.read1(CHUNK_BYTES):
            found += chunk
            if len(found) > BYTES_MAX:
                raise ValueError(f"it has more than {BYTES_MAX} bytes")
            if clock.ms() > end_ms:
                raise ValueError(f"it didn't come within {FETCH_WITHIN_S} s")
    return bytes(found)
