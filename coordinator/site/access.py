"""Lets a request of HTTP through only with the token, if the server has one.

    Authorization: Bearer TOKEN
    Authorization: Basic base64(ANY-NAME:TOKEN)

A program sends the first form. A browser asks its user for a name and a password and sends the second form with every
request of the page; the name is free. Paths for probes are open to all: they say only whether the server is well.

A client without the token gets 401. If it sent a wrong one, a line says so, at most once in REFUSALS_MS.

House rule: each comparison takes the same time, whatever the client sends.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Collection
from hashlib import sha256
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.client.connection import Address
from coordinator.loop.clock import Clock
from coordinator.site.guard import Refusals

if TYPE_CHECKING:
    from coordinator.loop.lines import Lines

PROBES = frozenset({"/healthz", "/readyz"})
"""Open without a token."""

CHALLENGES = (b'Basic realm="Tenure", charset="UTF-8"', b"Bearer")
"""The ways in which a client may send the token. Basic comes first, because browsers ask their users only for that."""


class RefusedTokens:
    """Requests with a wrong token: counted, and told in a line. door: what they wanted, "HTTP" or another."""

    def __init__(self, door: str, clock: Clock, lines: Lines) -> None:
        self._door = door
        self._lines = lines
        self._refusals = Refusals(clock)

    def add(self, peer: str) -> None:
        """Count a request."""
        refused = self._refusals.add()
        if refused:
            requests = "1 request" if refused == 1 else f"{refused} requests, the last one"
            text = f"{self._door}: refused {requests} from {peer}: wrong token"
            self._lines.warn("http_unauthorized", text, refused=refused, peer=peer)


class TokenCheck:
    """See the module. setting: the name of the token's setting. open_paths: need no token. refused: counts."""

    def __init__(
        self, app: ASGIApp, *, token: str, setting: str, refused: RefusedTokens, open_paths: Collection[str] = ()
    ) -> None:
        self._app = app
        self._wanted = _digest(token.encode()) if token else None
        self._setting = setting
        self._refused = refused
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI."""
        if self._wanted is None or scope["type"] != "http" or scope["path"] in self._open:
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) == 1 and hmac.compare_digest(_digest(_token(given[0])), self._wanted):
            await self._app(scope, receive, send)
            return
        if given:
            client = scope.get("client")
            self._refused.add(str(Address(*client)) if client else "an unknown client")
        text = f"Authorization: Bearer TOKEN is missing or wrong, see {self._setting}"
        response = JSONResponse({"error": text}, 401)
        response.raw_headers += [(b"www-authenticate", challenge) for challenge in CHALLENGES]
        await response(scope, receive, send)


def _token(header: bytes) -> bytes:
    """The token in an Authorization header; empty if there is none, which no token equals."""
    scheme, _, rest = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() == b"basic":
        try:
            return b64decode(rest.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""


def _digest(token: bytes) -> bytes:
    """Digests have one length, so a comparison of them tells nothing of the token's."""
    return sha256(token).digest()
