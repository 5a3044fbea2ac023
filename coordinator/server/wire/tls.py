"""TLS between a socket and a `Connection`.

To the loop this is the protocol of the socket, to the connection it is the transport: bytes come in encrypted and go
on plain, answers come plain and go out encrypted. Python's ssl does it in memory (`SSLObject`). The loop's own TLS
would do the same, but it reports a connection only after its handshake, and drops the alert that says why one failed.
Here a connection counts from its accept on (max.connections), and its client learns what is wrong with its certificate,
as from Kafka.

`handshakes` decides when a step of a handshake is taken. A connection that isn't let in yet (`admission`) has none: its
first message waits, and its time for the handshake begins when it is let in.

House rule: nothing here knows what a request means, and nothing of TLS is above this module, but for the principal.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

from coordinator.security.tls_names import distinguished_name, subject_of
from coordinator.server.wire.handshakes import Handshakes

if TYPE_CHECKING:
    from coordinator.security.tls import Terms

HANDSHAKE_RECORD = 0x16
"""The first byte of each TLS connection."""
FLIGHT_BYTES_MAX = 64 * 1024
"""Bytes that a client may send before its turn comes. A ClientHello has 0.5 to 2 KB.

Later in a handshake, the turn comes at once with so many bytes: they are not kept.
"""
RECORD_BYTES = 16 * 1024
"""The plain bytes of the largest record: one read takes a whole record."""
OWN_BYTES_MAX = 64 * 1024
"""Bytes that TLS itself may have to send (answers to new keys) while the client takes nothing."""


class Plain(Protocol):
    """The protocol above TLS: a Connection, or one of HTTP. principal: who the client's certificate says it is."""

    principal: str

    @property
    def is_held(self) -> bool:
        """Whether nothing may be done for the client yet; `resume_reading` says when that is over."""

    @property
    def peer(self) -> str:
        """The client's address."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """As of asyncio.Protocol, and so are the next four."""

    def connection_lost(self, exc: Exception | None) -> None:
        """See there."""

    def data_received(self, data: bytes) -> None:
        """See there."""

    def pause_writing(self) -> None:
        """See there."""

    def resume_writing(self) -> None:
        """See there."""

    def refuse(self, why: str) -> None:
        """The client broke the rules of TLS: close the connection."""


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """The TLS of one connection. terms: of its listener, at the time of the accept."""

    def __init__(self, connection: Plain, terms: Terms, handshakes: Handshakes) -> None:
        super().__init__()
        self._connection = connection
        self._protocol: Plain = connection
        self._terms = terms
        self._handshakes = handshakes
        self._raw: asyncio.Transport
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._is_open = False
        self._is_closing = False
        self._has_begun = False
        self._is_let_in = False
        self._own_bytes = 0

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._connection.peer

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: it counts from here on."""
        self._raw = cast("asyncio.Transport", transport)
        self._connection.connection_made(self)
        self._let_in()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._is_open:
            self._incoming.write(data)
            self._decrypt()
            return
        if self._is_closing or self._protocol is not self._connection:  # the other one reads nothing
            return
        if not self._has_begun:
            self._has_begun = True
            if data[0] != HANDSHAKE_RECORD:
                self._fail(f"the client speaks no TLS, its first bytes are {data[:4].hex(' ')}")
                return
        self._incoming.write(data)
        too_much = self._incoming.pending > FLIGHT_BYTES_MAX
        if too_much and self._tls is None:
            self._fail(f"the client sent more than {FLIGHT_BYTES_MAX} bytes as its first message")
        elif self._is_let_in:
            self._handshakes.proceed(self, at_once=too_much)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone. One that never sent a byte is no failure: a load balancer looks whether we live."""
        if self._has_begun and self._is_let_in and not self._is_open and not self._is_closing:
            self._handshakes.fail(self, "the client closed the connection")
        self._handshakes.leave(self)
        self._is_closing = True
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client doesn't read its answers."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """The client reads its answers again."""
        self._protocol.resume_writing()

    # The handshake.

    def _let_in(self) -> None:
        """Begin with the handshake, unless the connection is held."""
        if self._is_let_in or self._is_closing or self._protocol.is_held:
            return
        self._is_let_in = True
        self._handshakes.begin(self)
        if self._incoming.pending:
            self._handshakes.proceed(self)

    def step(self) -> None:
        """As Handshake.step."""
        if self._tls is None:
            self._tls = self._terms.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert that tells the client
            self._fail(reason(error))
            return
        self._flush()
        if not self._set_principal():
            return
        self._is_open = True
        self._handshakes.complete(self)
        if self._incoming.pending:
            self._decrypt()

    def _set_principal(self) -> bool:
        """Make the client's certificate its principal; False if it must not go on."""
        assert self._tls is not None
        names, certificate = self._terms.names, self._tls.getpeercert(binary_form=True)
        if certificate is not None and self._tls.session_reused and _has_ended(certificate):
            self._fail("the client resumed a session whose certificate has expired")
            return False
        if names is None or certificate is None:
            return True
        try:
            name = distinguished_name(subject_of(certificate))
        except ValueError as error:
            self._fail(f"its certificate's name can't be read: {error}")
            return False
        user = names.user(name)
        if user is None:
            self._fail(f"no rule of ssl.principal.mapping.rules fits {name}")
            return False
        self._connection.principal = f"User:{user}"
        return True

    def _fail(self, why: str) -> None:
        self._handshakes.fail(self, why)
        self.give_up()

    def give_up(self) -> None:
        """As Handshake.give_up. What was written still goes out."""
        self._is_closing = True
        self._raw.close()

    # Afterwards.

    def _decrypt(self) -> None:
        """Hand on what has come, up to an unfinished record."""
        assert self._tls is not None
        parts: list[bytes] = []
        ended = False
        try:
            while self._incoming.pending:
                part = self._tls.read(RECORD_BYTES)
                if not part:
                    ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            self._break_off(reason(error))
            return
        if self._outgoing.pending and not self._may_answer():
            return
        if parts:
            self._protocol.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if ended:
            self.close()

    def _may_answer(self) -> bool:
        """Send what TLS itself has to say, unless the client has it pile up here."""
        size = self._outgoing.pending
        self._flush()
        self._own_bytes = self._own_bytes + size if self._raw.get_write_buffer_size() else 0
        if self._own_bytes > OWN_BYTES_MAX:
            self._break_off("the client asks for new keys again and again, and reads nothing")
            return False
        return True

    def _break_off(self, why: str) -> None:
        self._flush()
        if not self._is_closing:
            self._connection.refuse(why)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    # Called by the connection, as of a transport.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        if not data or self._is_closing:
            return
        assert self._tls is not None
        try:
            self._tls.write(data)
        except ssl.SSLError:
            self.abort()
            return
        self._raw.write(self._outgoing.read())

    def close(self) -> None:
        """Say goodbye and close, after the last write."""
        if self._is_closing:
            return
        self._is_closing = True
        self._handshakes.leave(self)
        if self._is_open:
            assert self._tls is not None
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._raw.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._handshakes.leave(self)
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether it closes, or has closed."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Read no more for a while."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._raw.resume_reading()
        self._let_in()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand everything to another protocol from here on."""
        self._protocol = cast("Plain", protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """A fact that the socket knows."""
        return self._raw.get_extra_info(name, default)


def _has_ended(certificate: bytes) -> bool:
    from coordinator.security.tls import has_ended  # noqa: PLC0415 - a server without TLS doesn't import it

    return has_ended(certificate)


def reason(error: ssl.SSLError) -> str:
    """The reason of a failure, for a log line."""
    words = (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is wrong: {error.verify_message}"
    _, alert, said = words.partition(" alert ")
    return f"the client refused this server: {said}" if alert else words
