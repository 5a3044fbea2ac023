"""SASL on a connection: before its client has authenticated, there is nothing else that it could do.

A connection of a listener with SASL has an `Authentication` in the place of `Api.dispatch`. It goes these ways:

    Stage.ANY         ApiVersions (KIP-511), or a handshake
    Stage.HANDSHAKE   a handshake, as ApiVersions has come
    Stage.TOKENS      the mechanism's tokens: bare after a handshake of version 0, else in SaslAuthenticate (KIP-152)
    Stage.SESSION     authenticated: each request goes on to `Api.dispatch`
    Stage.OVER        refused: nothing more is read; the answer, if there is one, goes out after the pause of
                      connection.failed.authentication.delay.ms, and the connection closes

If the session has an end (KIP-368), the connection keeps its Authentication: another handshake begins the next
authentication, of the same user by the same mechanism. The end closes nobody, but it switches `may_short_cut` off; then
the next request that is no handshake closes the connection.

A client has AUTHENTICATE_WITHIN_MS, frames of `Offer.frame_max_bytes`, and VERSIONS_MAX tries to ask for versions. A
request that may not come is not decoded, whatever it is. Kafka decodes it in place of a token, and answers with an
error of its API; we do that for ApiVersions and SaslHandshake alone.

House rule: a failure says the same, and takes the same time, whether the user exists or not.
Source: Kafka's SaslServerAuthenticator, KafkaChannel and Processor, release 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from coordinator.loop.clock import Alarm, Clock
from coordinator.loop.lines import Sparing
from coordinator.security.sasl import AuthenticationFailed, Exchange, Step
from coordinator.server.telemetry.measures import Login, Measures
from coordinator.server.wire.api import Api
from coordinator.server.wire.connection import Connection
from protocol.connection import SIZE_BYTES
from protocol.errors import ProtocolError
from protocol.header import RequestHeader, decode_request_header, encode_response
from protocol.messages import (
    API_KEYS,
    ApiVersionsResponse,
    Message,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    api_schema,
    decode,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.security.sasl.offer import Offer

API_VERSIONS = API_KEYS["ApiVersions"]
SASL_HANDSHAKE = API_KEYS["SaslHandshake"]
SASL_AUTHENTICATE = API_KEYS["SaslAuthenticate"]
ERROR_CODE = slice(8, 10)
"""Position of the error code in an answer to ApiVersions, with its size."""

HANDSHAKE_BYTES = SASL_HANDSHAKE.to_bytes(2)

AUTHENTICATE_WITHIN_MS = 30_000
"""How long a client may take to authenticate. Clients need a few round trips; a connection that only waits must not
keep its place for connections.max.idle.ms, which each of its bytes prolongs.
"""

VERSIONS_MAX = 3
"""How often a client may ask for versions before it authenticates. It asks again if its version is unknown here, which
costs it one more; an answer is larger than its request, and a stranger must not have it made without end.
"""

REAUTHENTICATION_PAUSE_MS = 1_000
"""A session's client may begin to authenticate again this long after it last did so. An earlier handshake is refused,
as Kafka refuses it.
"""


class Stage(Enum):
    """The requests that may come next: see the module."""

    ANY = "ApiVersions or a handshake"
    HANDSHAKE = "a handshake"
    TOKENS = "a token"
    SESSION = "any request"
    OVER = "nothing"


class _Ending(Exception):
    """The client is refused; the text says why. answer: what it gets in the end."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.answer = answer


class Door:
    """The clients of all listeners with SASL. offers: by the listener's name.

    delay_ms: connection.failed.authentication.delay.ms. lines: takes a line for each client that is refused. measures:
    counts logins. It has each mechanism of each listener from the start, so that a first failure is an increase.
    """

    def __init__(
        self,
        offers: Mapping[str, Offer],
        api: Api,
        clock: Clock,
        lines: Sparing,
        measures: Measures,
        delay_ms: int,
    ) -> None:
        self.logins = measures.logins
        for listener, each in offers.items():
            for mechanism in each.mechanisms:
                self.logins.update({(listener, mechanism, way): 0 for way in Login})
        self.api = api
        self.clock = clock
        self.lines = lines
        self.delay_ms = delay_ms
        self.alarm: Alarm[Authentication] = Alarm(clock, Authentication.ring)
        self._offers = offers

    def open(self, listener: str) -> Authentication | None:
        """The authentication of a new connection; None if its listener has no SASL."""
        offer = self._offers.get(listener)
        return None if offer is None else Authentication(self, offer)


class Authentication:
    """The way of one connection: see the module. frame_max_bytes: before the client has named its mechanism."""

    __slots__ = (
        "_answer",
        "_bare",
        "_connection",
        "_door",
        "_ends_ms",
        "_exchange",
        "_mechanism",
        "_offer",
        "_principal",
        "_since_ms",
        "_stage",
        "_versions",
        "frame_max_bytes",
    )

    def __init__(self, door: Door, offer: Offer) -> None:
        self._door = door
        self._offer = offer
        self.frame_max_bytes = offer.frame_max_bytes[""]
        self._connection: Connection
        self._stage = Stage.ANY
        self._versions = 0
        self._bare = False
        self._mechanism = ""
        self._exchange: Exchange | None = None
        # Of the session: its user, its end, and when the client last began to authenticate again.
        self._principal = ""
        self._ends_ms: int | None = None
        self._since_ms: int | None = None
        # What a refused client gets in the end.
        self._answer = b""

    def begin(self, connection: Connection) -> None:
        """The client has connected."""
        self._connection = connection
        self._door.alarm.arm(self, self._door.clock.ms() + AUTHENTICATE_WITHIN_MS)

    def end(self) -> None:
        """The connection is gone."""
        self._door.alarm.cancel(self)

    def ring(self) -> None:
        """A time has come: to have authenticated, to refuse, or to end the session."""
        if self._stage is Stage.SESSION:
            self._connection.may_short_cut = False
        elif self._stage is Stage.OVER:
            self._connection.finish(self._answer)
        else:
            self._fail(f"it didn't authenticate within {AUTHENTICATE_WITHIN_MS // 1_000} s")
            self._connection.finish(b"")

    # Requests.

    def dispatch(self, connection: Connection, frame: bytes) -> bytes | list[bytes] | None:
        """In place of `Api.dispatch`."""
        if self._stage is Stage.SESSION:
            return self._in_session(connection, frame)
        try:
            if self._stage is Stage.TOKENS:
                if self._exchange is None:
                    raise _Ending(f"it authenticated by {self._mechanism}, and asks for another mechanism")
                return self._bare_token(frame) if self._bare else self._token(frame)
            return self._before_tokens(frame)
        except _Ending as ending:
            self._refuse(str(ending), ending.answer)
        except ProtocolError as error:
            self._refuse(str(error))
        return None

    def _in_session(self, connection: Connection, frame: bytes) -> bytes | list[bytes] | None:
        """A request of a session that has an end."""
        now_ms = self._door.clock.ms()
        if frame.startswith(HANDSHAKE_BYTES) and (
            self._since_ms is None or now_ms - self._since_ms >= REAUTHENTICATION_PAUSE_MS
        ):
            self._since_ms = now_ms
            self._stage = Stage.HANDSHAKE
            self._bare = False
            connection.may_short_cut = False
            self._door.alarm.arm(self, now_ms + AUTHENTICATE_WITHIN_MS)
            return self.dispatch(connection, frame)
        assert self._ends_ms is not None
        if now_ms >= self._ends_ms:
            raise ProtocolError("its session has ended, and it didn't authenticate again")
        return self._door.api.dispatch(connection, frame)

    def _before_tokens(self, frame: bytes) -> bytes:
        header = decode_request_header(frame)
        if header.api_key == SASL_HANDSHAKE:
            request = decode(SaslHandshakeRequest, frame, header.api_version, header.body_offset)
            return self._handshake(header, request.mechanism)
        if header.api_key == API_VERSIONS and self._stage is Stage.ANY and self._versions < VERSIONS_MAX:
            self._versions += 1
            answer = self._door.api.versions(self._connection, header, frame)
            if not any(answer[ERROR_CODE]):  # else the client may ask again
                self._stage = Stage.HANDSHAKE
            return answer
        raise _Ending(f"{api_schema(header.api_key).NAME} comes where {self._stage.value} has to come")

    def _handshake(self, header: RequestHeader, mechanism: str) -> bytes:
        body = SaslHandshakeResponse(mechanisms=list(self._offer.mechanisms))
        if mechanism not in self._offer.mechanisms:
            body.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            answer = b"" if self._principal else _encoded(header, body)  # Kafka answers the first time only
            raise _Ending("it asks for a mechanism that this listener has not", answer)
        self._bare = header.api_version == 0
        self._stage = Stage.TOKENS
        self._exchange = None
        self._connection.limit_frames(self._offer.frame_max_bytes[mechanism])
        # Else it authenticates again by another mechanism: Kafka, too, refuses the first token, not the handshake.
        if not self._principal or mechanism == self._mechanism:
            self._mechanism = mechanism
            self._exchange = Exchange(self._offer.mechanisms[mechanism])
        return _encoded(header, body)

    def _token(self, frame: bytes) -> bytes:
        """A token in a SaslAuthenticate."""
        header = decode_request_header(frame)
        if header.api_key != SASL_AUTHENTICATE:
            name = api_schema(header.api_key).NAME
            raise _Ending(f"{name} comes where a token has to come", _illegal_state(header))
        request = decode(SaslAuthenticateRequest, frame, header.api_version, header.body_offset)
        try:
            step = self._step(request.auth_bytes)
        except AuthenticationFailed as refused:
            told = refused.told or self._general_words()
            body = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told)
            raise _Ending(str(refused), _encoded(header, body)) from None
        lifetime_ms = 0 if step.user is None else self._authenticated(step.user, step.ends_at_ms)
        body = SaslAuthenticateResponse(auth_bytes=step.answer, session_lifetime_ms=lifetime_ms)
        return _encoded(header, body)

    def _bare_token(self, frame: bytes) -> bytes:
        """A token of its own, whose answer has no header either."""
        try:
            step = self._step(frame)
        except AuthenticationFailed as refused:
            raise _Ending(str(refused)) from None
        if step.user is not None:
            self._authenticated(step.user, step.ends_at_ms)
        return len(step.answer).to_bytes(SIZE_BYTES) + step.answer

    def _step(self, token: bytes) -> Step:
        """Hand a token to the mechanism. Raises AuthenticationFailed."""
        assert self._exchange is not None
        step = self._exchange.step(token)
        if step.user is not None and self._principal not in {"", f"User:{step.user}"}:
            before, after = self._principal.replace(":", ".", 1), f"User.{step.user}"
            told = f"Cannot change principals during re-authentication from {before}: {after}"
            raise AuthenticationFailed("it authenticates again as another user", told)
        return step

    def _general_words(self) -> str:
        what = "re-authentication" if self._principal else "authentication"
        return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"

    # The ends.

    def _authenticated(self, user: str, ends_at_ms: int | None) -> int:
        """Let the client in; returns how long its session lasts, 0 if it doesn't end."""
        self._exchange = None
        self._stage = Stage.SESSION
        self._count(Login.SUCCEEDED_AGAIN if self._principal else Login.SUCCEEDED)
        self._principal = f"User:{user}"
        self._connection.authenticated(self._principal)
        left = [self._offer.session_max_ms[self._mechanism]] if self._offer.session_max_ms[self._mechanism] else []
        if ends_at_ms is not None:
            left.append(ends_at_ms - self._door.clock.wall_ms())
        if not left:
            self._door.alarm.cancel(self)
            self._ends_ms = None
            self._connection.dispatch_by(self._door.api.dispatch)
            return 0
        lifetime_ms = max(min(left), 0)
        self._ends_ms = self._door.clock.ms() + lifetime_ms
        self._door.alarm.arm(self, self._ends_ms)
        return lifetime_ms

    def _refuse(self, reason: str, answer: bytes = b"") -> None:
        """Read nothing more, and close the connection after the pause, behind `answer`."""
        self._fail(reason)
        self._stage = Stage.OVER
        self._exchange = None
        self._answer = answer
        self._connection.hold()
        self._door.alarm.arm(self, self._door.clock.ms() + self._door.delay_ms)

    def _count(self, way: Login) -> None:
        self._door.logins[self._connection.listener, self._mechanism, way] += 1

    def _fail(self, reason: str) -> None:
        self._count(Login.FAILED_AGAIN if self._principal else Login.FAILED)
        peer = self._connection.peer
        text = f"Failed authentication with {peer}: {reason}"
        self._door.lines.warn("authentication_failed", text, peer=peer, reason=reason)


def _encoded(header: RequestHeader, body: Message) -> bytes:
    return encode_response(header.api_key, header.api_version, header.correlation_id, body)


def _illegal_state(header: RequestHeader) -> bytes:
    """The answer to a request in place of a token: of ApiVersions and SaslHandshake, nothing for others."""
    first, last = api_schema(header.api_key).VERSIONS
    if not first <= header.api_version <= last:
        return b""
    if header.api_key == API_VERSIONS:
        return _encoded(header, ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    if header.api_key == SASL_HANDSHAKE:
        return _encoded(header, SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    return b""
