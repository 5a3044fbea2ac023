"""One TCP connection to one node: TLS, the node's API versions, a login, then one request after the other.

The first exchange is ApiVersions. A server that doesn't know our version of it answers in version 0 with
UNSUPPORTED_VERSION and names its own versions (KIP-511). The connection stays usable, and the client asks again.

A SASL login may have an end (KIP-368). Before a request that could come too late, the client logs in again on the same
connection.

House rule: after any failure the connection is closed and never used again, because an answer may still arrive.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from coordinator.client.errors import PortClosed, Refused, Unauthenticated, Unreachable, error_name
from coordinator.text import address_text
from protocol.connection import FrameReader
from protocol.errors import ProtocolError
from protocol.header import decode_response, encode_request
from protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    Message,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.client.security import Security

RESPONSE_SIZE_MAX = 100 * 1024 * 1024
"""Bytes of a response at most: Kafka's limit for requests (socket.request.max.bytes). No Kafka sends a longer one."""
RECEIVE_SIZE = 64 * 1024
"""Bytes that one receive asks for."""
API_VERSIONS_VERSION = 3
"""The first version that names the client's software; version 4 adds nothing that matters here."""
NEWEST = 32_767
"""A version that no API has reached: versions are 16-bit numbers."""
SESSION_SHARE = 0.8
"""The part of a session's lifetime after which the client logs in again; Kafka's clients take 0.85 to 0.95."""
ENCAPSULATED = 1
"""The first version of SaslHandshake behind which tokens come in requests (KIP-152)."""
PORT_MAX = 65_535
IN_FILE = "in the file of --command-config"
"""Where a person sets how the client connects."""
TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS server's answer to a client that speaks no TLS."""


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return address_text(*self)


class Deadline:
    """A point in time, `timeout` seconds from now on `clock` (seconds from any origin, never jumping)."""

    def __init__(self, timeout: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._end = self._began + timeout

    @property
    def left(self) -> float:
        """The seconds until the deadline; 0 or less after it."""
        return self._end - self._clock()

    @property
    def passed(self) -> float:
        """The seconds since it was set."""
        return self._clock() - self._began

    def another(self, timeout: float) -> Self:
        """A deadline of the same clock, `timeout` seconds from now."""
        return type(self)(timeout, self._clock)


class Asking(Protocol):
    """A way to send requests to one node: a `Connection`, or a stand-in for one. Raises as `Connection` does."""

    def version(self, request_class: type[Message], at_least: int = 0, at_most: int = NEWEST) -> int:
        """See Connection."""

    def request(self, message: Message, version: int, deadline: Deadline) -> Any:
        """See Connection."""

    def close(self) -> None:
        """See Connection."""


class Connection:
    """A connection that knows the node's API versions, and has logged in if `security` says so.

    Raises `Unreachable` if the node doesn't accept, doesn't answer before the deadline or closes the connection,
    `Unauthenticated` if TLS or the login fail, and `ProtocolError` if the bytes of the node are not Kafka's protocol.
    """

    def __init__(self, address: Address, client_id: str, deadline: Deadline, security: Security | None = None) -> None:
        self.address = address
        self._client_id = client_id
        self._security = security
        self._session: Deadline | None = None
        """Until when the login lasts, None if it has no end."""
        self._frames = FrameReader(RESPONSE_SIZE_MAX)
        self._correlation_id = 0
        self._answers = 0
        try:
            self._socket = socket.create_connection(address, timeout=_socket_timeout(address, deadline))
        except OSError as error:
            raise _lost(address, error) from None
        except (ValueError, OverflowError) as error:  # a server named a node whose host or port can't be
            raise Unreachable(f"{address}: {error}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._begin_tls(deadline)
            self._versions = self._ask_versions(deadline)
            self._log_in(deadline)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        self._socket.close()

    def version(self, request_class: type[Message], at_least: int = 0, at_most: int = NEWEST) -> int:
        """The highest version of an API that both sides speak.

        at_least, at_most: the first and the last version that can express the request. Raises `Refused`
        (UNSUPPORTED_VERSION) if there is none.
        """
        ours_min, ours_max = request_class.VERSIONS
        assert request_class.API_KEY is not None
        theirs_min, theirs_max = self._versions.get(request_class.API_KEY, (0, -1))
        highest = min(ours_max, theirs_max, at_most)
        if highest < max(ours_min, theirs_min, at_least):
            what = (
                f"{self.address} knows {request_class.NAME} {theirs_min} to {theirs_max}, {at_least} or later is needed"
            )
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, what)
        return highest

    def request(self, message: Message, version: int, deadline: Deadline) -> Any:
        """Send `message` in `version` and return the response message."""
        if self._session is not None and self._session.left <= 0:
            self._log_in(deadline)
        return self._answer(message, version, deadline)

    def _begin_tls(self, deadline: Deadline) -> None:
        if self._security is None:
            return
        try:
            self._socket.settimeout(_socket_timeout(self.address, deadline))
            self._socket = self._security.wrap(self._socket, self.address.host)
        except Unauthenticated as error:
            raise Unauthenticated(f"{self.address}: {error}") from None
        except Unreachable as error:
            raise Unreachable(f"{self.address} {error}") from None
        except OSError as error:
            raise _lost(self.address, error) from None

    def _log_in(self, deadline: Deadline) -> None:
        """Log in, or log in again. Raises Unauthenticated."""
        if self._security is None or not self._security.mechanism:
            return
        who = f"{self.address}: {self._security.mechanism}"
        request = SaslHandshakeRequest(mechanism=self._security.mechanism)
        handshake: SaslHandshakeResponse = self._answer(request, self.version(type(request), ENCAPSULATED), deadline)
        if handshake.error_code:
            offered = f", the server offers {', '.join(handshake.mechanisms)}" if handshake.mechanisms else ""
            without = ", this listener has no login" if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE else ""
            raise Unauthenticated(f"{who}: {error_name(handshake.error_code)}{offered}{without}")
        version = self.version(SaslAuthenticateRequest)
        lifetime_ms = 0

        def exchange(token: bytes) -> bytes:
            nonlocal lifetime_ms
            answer: SaslAuthenticateResponse = self._answer(
                SaslAuthenticateRequest(auth_bytes=token), version, deadline
            )
            if answer.error_code:
                raise Unauthenticated(answer.error_message or error_name(answer.error_code))
            lifetime_ms = answer.session_lifetime_ms
            return answer.auth_bytes

        try:
            self._security.log_in(exchange)
        except Unauthenticated as error:
            raise Unauthenticated(f"{who}: {error}") from None
        self._session = deadline.another(lifetime_ms / 1000 * SESSION_SHARE) if lifetime_ms else None

    def _ask_versions(self, deadline: Deadline) -> dict[int, tuple[int, int]]:
        """The node's lowest and highest version of each API, by API key."""
        ask = ApiVersionsRequest(client_software_name="tenure", client_software_version=software_version())
        version = API_VERSIONS_VERSION
        frame = self._exchange(ask, version, deadline)
        if _api_versions_error(frame) == ErrorCode.UNSUPPORTED_VERSION:
            refusal: ApiVersionsResponse = self._decode(ask.API_KEY, 0, frame)
            named = [api.max_version for api in refusal.api_keys if api.api_key == ask.API_KEY]
            version = min([API_VERSIONS_VERSION, *named]) if named else 0
            frame = self._exchange(ask, version, deadline)
        response: ApiVersionsResponse = self._decode(ask.API_KEY, version, frame)
        if response.error_code != ErrorCode.NONE:
            raise Refused(response.error_code, f"{self.address}: API versions")
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _answer(self, message: Message, version: int, deadline: Deadline) -> Any:
        assert message.API_KEY is not None
        return self._decode(message.API_KEY, version, self._exchange(message, version, deadline))

    def _exchange(self, message: Message, version: int, deadline: Deadline) -> bytes:
        """Send a request and return the frame of its response."""
        self._correlation_id += 1
        try:
            self._socket.settimeout(_socket_timeout(self.address, deadline))
            self._socket.sendall(encode_request(message, version, self._correlation_id, self._client_id))
            while (frame := self._next_frame()) is None:
                self._socket.settimeout(_socket_timeout(self.address, deadline))
                data = self._socket.recv(RECEIVE_SIZE)
                if not data:
                    raise Unreachable(f"{self.address} closed the connection{self._hint()}")
                if self._answers == 0 and data.startswith(TLS_ALERT):
                    raise self._not_kafka(f"it asks for TLS: security.protocol=SSL {IN_FILE}")
                self._frames.receive_data(data)
        except OSError as error:
            # With TLS 1.3 a server refuses a client's certificate behind the handshake.
            refusal = None if self._security is None else self._security.refusal(error, self._socket)
            if refusal is not None:
                raise Unauthenticated(f"{self.address}: {refusal}") from None
            raise _lost(self.address, error) from None
        self._answers += 1
        return frame

    def _hint(self) -> str:
        """Why the server may have closed the connection.

        A listener with TLS reads no request; one with SASL answers ApiVersions and nothing else.
        """
        protocol = "PLAINTEXT" if self._security is None else self._security.protocol
        if self._answers == 0 and not protocol.endswith("SSL"):
            return f", perhaps it asks for TLS: security.protocol={protocol.replace('PLAINTEXT', 'SSL')} {IN_FILE}"
        if self._answers == 1 and not protocol.startswith("SASL"):
            return f", perhaps it asks for a login: security.protocol=SASL_{protocol} {IN_FILE}"
        return ""

    def _next_frame(self) -> bytes | None:
        try:
            return self._frames.next_frame()
        except ProtocolError as error:
            raise self._not_kafka(error) from None

    def _decode(self, api_key: int, version: int, frame: bytes) -> Any:
        try:
            correlation_id, response = decode_response(api_key, version, frame)
        except ProtocolError as error:
            raise self._not_kafka(error) from None
        if correlation_id != self._correlation_id:
            raise self._not_kafka(f"answer {correlation_id} to request {self._correlation_id}")
        return response

    def _not_kafka(self, detail: object) -> ProtocolError:
        return ProtocolError(f"{self.address} does not speak Kafka's protocol: {detail}")


def _api_versions_error(frame: bytes) -> int:
    """The error code of an ApiVersions response: every version has it right behind the correlation id."""
    return int.from_bytes(frame[4:6], "big", signed=True)


def _socket_timeout(address: Address, deadline: Deadline) -> float:
    """The seconds until the deadline, for a socket; never 0, because a socket with timeout 0 doesn't wait at all."""
    left = deadline.left
    if left <= 0:
        raise Unreachable(f"{address} did not answer in time")
    return left


def _lost(address: Address, error: OSError) -> Unreachable:
    if isinstance(error, TimeoutError):
        return Unreachable(f"{address} did not answer in time")
    if isinstance(error, socket.gaierror):
        return Unreachable(f"{address}: there is no such host: {error.strerror}")
    lost = PortClosed if isinstance(error, ConnectionRefusedError) and _is_here(address) else Unreachable
    return lost(f"{address}: {error.strerror or error}")


def _is_here(address: Address) -> bool:
    """Whether the address is on the loopback; False for a name without an address."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ip_address(str(there[0])).is_loopback for *_, there in found)


def software_version() -> str:
    """The version of this program, as the client sends it to servers."""
    try:
        return version("tenure")
    except PackageNotFoundError:  # the program runs from a source tree that wasn't installed
        return "0"
