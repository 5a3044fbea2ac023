"""A connection: bytes in, one request at a time, bytes out.

Bytes become frames. A frame goes to `Api.dispatch`, which returns the answer, or None if the answer comes later. Until
then the next frames wait, as in Kafka: a JoinGroup that waits for other members holds up the rest of its connection.
The answers to the requests of one read go out with one write. While `may_short_cut` is on, a repeated heartbeat gets
its answer without all that (`repeated_heartbeats`, `repeated_beats`), and a repeated commit is taken without it
(`repeated_commits`).

An answer of many parts is written piece by piece, as fast as the client takes it and the turn has time. Until its last
piece nothing else is written, and `unsent` counts it.

A client may send more than can be handled: a request waits, or the client doesn't read its answers. Above
QUEUED_BYTES_MAX reading stops; `intake` counts the large requests of all connections, and stops reading too. Broken
bytes cost the client this connection, and the server one log line.

A client that exceeded its quota gets its answer at once; then its connection is throttled: it handles no request until
the wait is over (`throttle`). Bytes are read up to QUEUED_BYTES_MAX, so a close is seen.

A closed connection removes no member from its group. The answer of a request that still waits is dropped.

House rule: nothing here knows what a request means.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from coordinator.group.client import ANONYMOUS, Client
from coordinator.loop.cycles import drop_trace
from coordinator.loop.pace import Pace
from coordinator.loop.unsent import Unsent
from coordinator.server.wire.intake import Intake
from protocol.connection import SIZE_BYTES, FrameReader
from protocol.errors import ProtocolError
from protocol.speed import new

if TYPE_CHECKING:
    from coordinator.server.wire.call import Outcome
    from coordinator.server.wire.repeated_beats import Beat
    from coordinator.server.wire.repeated_commits import Commit
    from coordinator.server.wire.repeated_heartbeats import Heartbeats

Dispatch = Callable[["Connection", bytes], bytes | list[bytes] | None]
"""Answers a frame: see api.Api."""

QUEUED_BYTES_MAX = 256 * 1024
"""Most bytes that are read ahead while requests can't be handled; the rest stays in the kernel's buffers."""

WRITE_BYTES = 64 * 1024
"""Answers to one read are collected up to this size; then the transport says whether it can take more."""


class Waiting(Protocol):
    """A request that its connection waits for: a call, or what stands for one. on_sent: as of `Call`."""

    @property
    def on_sent(self) -> Callable[[], None] | None:
        """See above."""

    def close(self) -> None:
        """The connection is gone: the answer will be dropped."""


class Guard(Protocol):
    """The step before a client that has to authenticate: see `authentication`. frame_max_bytes: before it has."""

    frame_max_bytes: int

    def dispatch(self, connection: Connection, frame: bytes) -> bytes | list[bytes] | None:
        """In place of the host's `dispatch`."""

    def begin(self, connection: Connection) -> None:
        """The client has connected."""

    def end(self) -> None:
        """The connection is gone."""


class ConnectionHost(Protocol):
    """The methods of `Connections` that a connection calls.

    dispatch: as of `api.Api`. soon: has the loop call back in its next turn. frame_size_max: in bytes.
    """

    dispatch: Dispatch
    pace: Pace
    intake: Intake[Connection]
    unsent: Unsent[Connection]
    soon: Callable[[Callable[[], None]], object]
    frame_size_max: int

    def add(self, connection: Connection) -> bool:
        """Add a connection; False if there are too many."""

    def remove(self, connection: Connection) -> None:
        """A connection has closed."""

    def end_throttle_in(self, connection: Connection, wait_ms: int) -> None:
        """Call the connection's `end_throttle` after a wait."""

    def closing(self, connection: Connection, reason: str, *, ours: bool) -> None:
        """A connection closes because of what it received. ours: the fault is this program's."""


class Connection(asyncio.Protocol):
    """One client's connection.

    listener: name of the listener that it came through. local_host: the server's address that it reached.
    ip, peer: the client's address, without and with its port. software: name and version that the client gave.
    principal: the authenticated user. guard: None if its listener has no SASL.
    silent_sweeps: sweeps for idle connections since the last request or answer.
    is_held: whether it handles no request for a while.
    queued_bytes: received and not handled yet. is_reading: False while they are too many.
    may_short_cut: whether repeated requests may be answered before dispatch sees them; only dispatch sets it.
    heartbeats: those that may be repeated; dispatch sets them too.
    commit: the last one, as `api.Api` keeps it. unlike_commits: how many commits came since one was repeated.
    beat: the last heartbeat of a steady member of the consumer protocol, likewise.
    """

    __slots__ = (
        "_call",
        "_clients",
        "_connections",
        "_dispatch",
        "_large_bytes",
        "_on_sent",
        "_pace",
        "_reader",
        "_rest",
        "_stopped",
        "_transport",
        "_waits_for_room",
        "_waits_for_turn",
        "_writable",
        "beat",
        "commit",
        "guard",
        "heartbeats",
        "ip",
        "is_held",
        "is_reading",
        "listener",
        "local_host",
        "may_short_cut",
        "peer",
        "principal",
        "queued_bytes",
        "silent_sweeps",
        "software",
        "unlike_commits",
    )

    heartbeats: Heartbeats

    def __init__(self, connections: ConnectionHost, listener: str, guard: Guard | None = None) -> None:
        self._connections = connections
        self._pace = connections.pace
        self.guard = guard
        if guard is None:
            self._dispatch = connections.dispatch
            self._reader = FrameReader(connections.frame_size_max)
        else:
            self._dispatch = guard.dispatch
            self._reader = FrameReader(guard.frame_max_bytes)
        self._transport: asyncio.Transport | None = None
        self._call: Waiting | None = None
        self._on_sent: Callable[[], None] | None = None
        self._rest: Iterator[bytes | memoryview] | None = None
        self._clients: dict[str | None, Client] = {}
        self.is_held = False
        self._large_bytes = 0
        self._waits_for_room = False
        self.queued_bytes = 0
        self.is_reading = True
        self._stopped = False
        self._waits_for_turn = False
        self._writable = True
        self.listener = listener
        self.local_host = ""
        self.ip = ""
        self.peer = ""
        self.software = ""
        self.silent_sweeps = 0
        self.principal = ANONYMOUS
        self.may_short_cut = False
        self.commit: Commit | None = None
        self.beat: Beat | None = None
        self.unlike_commits = 0

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected. If there are too many, the connection is cut."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports aren't subclasses
        address = transport.get_extra_info("peername") or ("", 0)
        # Most addresses are IPv4 and need no `plain_address`, here and below, and no `java_host` in `client`.
        self.ip = address[0] if ":" not in address[0] else plain_address(address[0])
        self.peer = f"{self.ip}:{address[1]}"
        local = (transport.get_extra_info("sockname") or ("", 0))[0]
        self.local_host = local if ":" not in local else plain_address(local)
        if not self._connections.add(self):
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.silent_sweeps = 0
        if (
            self.may_short_cut
            and not self.queued_bytes
            and self._call is None
            and self._writable
            and self._rest is None
            and not self._stopped
        ):
            commit = self.commit
            if commit is not None and commit.take(data):
                self._call = commit
                return
            beat = self.beat
            answer = None if beat is None else beat.answer(data)
            if answer is None:
                answer = self.heartbeats.answer(data)
            if answer is not None:
                assert self._transport is not None
                self._transport.write(answer)
                return
        self._reader.receive_data(data)
        self.queued_bytes += len(data)
        if self._waits_for_turn:
            self._read_on()
        elif self._pace.has_time():
            self._process()
        else:
            self._waits_for_turn = True
            self._pace.later(self._in_turn)

    def _in_turn(self) -> None:
        self._waits_for_turn = False
        self._process()

    def pause_writing(self) -> None:
        """The client doesn't read its answers."""
        self._writable = False

    def resume_writing(self) -> None:
        """The client reads its answers again."""
        self.silent_sweeps = 0
        self._writable = True
        self._write_rest()
        self._written()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        """The connection is gone."""
        self._let_go()
        self._sent()
        self.commit = None  # it refers to this connection
        self.beat = None
        self._rest = None
        self._connections.unsent.release(self)
        self._transport = None
        self._connections.remove(self)
        self.guard = None  # it refers to this connection too
        self._dispatch = self._connections.dispatch

    # Requests.

    @property
    def waits(self) -> bool:
        """Whether a request waits for its answer."""
        return self._call is not None

    def client(self, client_id: str | None) -> Client:
        """The sender, by the client id of a request. Cached, because hardly any connection has two client ids."""
        client = self._clients.get(client_id)
        if client is None:
            host = java_host(self.ip) if ":" in self.ip else f"/{self.ip}"
            fields = client_id or "", host, self.principal, self.software, self.listener
            client = new(Client, fields)
            self._clients = {client_id: client}
        return client

    def is_of(self, client_id: str | None) -> bool:
        """Whether its last request had this client id."""
        return client_id in self._clients

    def knows(self, client: Client) -> bool:
        """Whether `client` is this connection's."""
        return any(known is client for known in self._clients.values())

    def set_software(self, software: str) -> None:
        """The client gave its name and version."""
        self.software = software
        self._clients.clear()

    # For its guard.

    def limit_frames(self, frame_size_max: int) -> None:
        """Take no larger frames until the client has authenticated."""
        self._reader.frame_size_max = frame_size_max

    def authenticated(self, principal: str) -> None:
        """The client is this user from now on: nothing is kept of who it was before."""
        self._reader.frame_size_max = self._connections.frame_size_max
        self.principal = principal
        self._clients.clear()
        self.commit = None
        self.beat = None
        self.may_short_cut = False

    def dispatch_by(self, dispatch: Dispatch) -> None:
        """Hand further requests to `dispatch`."""
        self._dispatch = dispatch

    def hold(self) -> None:
        """Read nothing more, and handle nothing of what has come, until `finish`."""
        assert self._transport is not None
        self._stopped = True
        self._transport.pause_reading()

    def finish(self, answer: bytes) -> None:
        """Send a last answer, and close."""
        assert self._transport is not None
        self._transport.write(answer)
        self.close()

    def _process(self) -> None:
        """Handle what has come, up to a request that has to wait, or for which this turn has no time."""
        if self._stopped or self._waits_for_turn:
            return
        assert self._transport is not None
        answers: list[bytes] = []
        size, taken = 0, 0
        try:
            while (
                taken < self.queued_bytes
                and self._call is None
                and self._writable
                and self._rest is None
                and not self.is_held
            ):
                if taken and not self._pace.has_time():
                    self._waits_for_turn = True
                    self._pace.later(self._in_turn)
                    break
                frame = self._reader.next_frame()
                if frame is None:
                    if self._reader.collected_bytes != self._large_bytes:
                        self._large_bytes = self._reader.collected_bytes
                        self._connections.intake.take(self, self._large_bytes)
                    break
                if self._large_bytes:
                    self._connections.intake.is_whole(self)
                taken += len(frame) + SIZE_BYTES
                answer = self._dispatch(self, frame)
                if answer is None:
                    break
                if self._large_bytes:
                    self._end_intake()
                if isinstance(answer, list):
                    self._transport.write(b"".join(answers))
                    answers.clear()
                    size = 0
                    self._write_parts(answer)
                    continue
                answers.append(answer)
                size += len(answer)
                if size >= WRITE_BYTES:
                    self._transport.write(b"".join(answers))
                    answers.clear()
                    size = 0
        except Exception as error:  # noqa: BLE001 - a mistake of ours costs one connection, not the server
            self._give_up(answers, error)
            return
        self.queued_bytes -= taken
        if answers:
            self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
        if self.queued_bytes > QUEUED_BYTES_MAX or not self.is_reading:
            self._read_on()

    def _read_on(self) -> None:
        """Stop or resume reading, depending on the queued bytes."""
        assert self._transport is not None
        stuck = self._call is not None or not self._writable or self._waits_for_turn or self._rest is not None
        reading = not ((stuck or self.is_held) and self.queued_bytes > QUEUED_BYTES_MAX)
        reading = reading and not self._waits_for_room
        if reading != self.is_reading:
            self.is_reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def pause_intake(self) -> None:
        """See intake.Sender."""
        self._waits_for_room = True
        self._read_on()

    def resume_intake(self) -> None:
        """See intake.Sender."""
        self._waits_for_room = False
        if self._transport is not None:
            self._read_on()

    def _end_intake(self) -> None:
        """A large request is answered."""
        self._large_bytes = 0
        self._connections.intake.release(self)

    def throttle(self, wait_ms: int) -> None:
        """Handle no request before `wait_ms` have passed. An answer still goes out."""
        self.begin_throttle()
        self._connections.end_throttle_in(self, wait_ms)

    def begin_throttle(self) -> None:
        """Handle no request before `end_throttle`."""
        self.is_held = True
        self.may_short_cut = False

    def end_throttle(self) -> None:
        """The wait is over."""
        self.is_held = False
        if self._transport is not None:
            if self.is_reading and not self._stopped:
                self._transport.resume_reading()  # TLS has waited with its handshake
            self._process()

    def _give_up(self, answers: list[bytes], error: Exception) -> None:
        """Close because of broken bytes or a fault of this program; the answers so far still go out."""
        assert self._transport is not None
        self._transport.write(b"".join(answers))
        ours = not isinstance(error, ProtocolError)
        reason = "".join(traceback.format_exception(error)) if ours else str(error)
        drop_trace(error)
        self._connections.closing(self, reason, ours=ours)
        self.close()

    def refuse(self, why: str) -> None:
        """Close because of bytes that are broken before they become frames."""
        self._connections.closing(self, why, ours=False)
        self.close()

    def wait_for(self, call: Waiting) -> None:
        """For dispatch: the answer to the request comes later."""
        self._call = call

    def send(self, outcome: Outcome) -> None:
        """Send the answer to the waiting request, or close because of what went wrong."""
        assert self._call is not None
        assert self._transport is not None
        self._on_sent, self._call = self._call.on_sent, None
        if self._large_bytes:
            self._end_intake()
        if isinstance(outcome, Exception):
            self._give_up([], outcome)
            return
        self.silent_sweeps = 0
        if isinstance(outcome, bytes):
            self._transport.write(outcome)
        else:
            self._write_parts(outcome)
        if self._on_sent is not None and self._writable and self._rest is None:  # the kernel has nearly all bytes
            self._sent()
        if self.queued_bytes:
            # Not at once: the caller has other answers to send first, and the stack would grow with each.
            self._connections.soon(self._process)

    def _write_parts(self, parts: list[bytes]) -> None:
        """Write a large answer, as fast as the client takes it."""
        self._connections.unsent.add(self, parts)
        self._rest = pieces(parts)
        self._write_rest()

    def _write_rest(self) -> None:
        """Write what the client takes of a large answer, while this turn has time."""
        while self._rest is not None and self._writable and self._transport is not None:
            piece = next(self._rest, None)
            if piece is None:
                self._rest = None
                self._connections.unsent.release(self)
            else:
                self._transport.write(piece)
                if not self._pace.has_time():
                    self._pace.later(self._write_on)
                    return

    def _write_on(self) -> None:
        """Go on with a large answer in a further turn, and behind it with what has come meanwhile."""
        if self._rest is not None and self._writable:
            self._write_rest()
            self._written()

    def _written(self) -> None:
        """The transport took a part of a large answer. Behind the last part, go on."""
        if self._rest is None:
            if self._writable:
                self._sent()
            self._process()

    def _sent(self) -> None:
        """The client has taken its last answer, or never will."""
        on_sent, self._on_sent = self._on_sent, None
        if on_sent is not None:
            on_sent()

    def close(self) -> None:
        """Close after the last write. The answer of a request that waits is dropped."""
        self._let_go()
        if self._transport is not None:
            rest, self._rest = self._rest, None
            for piece in rest or ():
                self._transport.write(piece)
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._let_go()
        if self._transport is not None:
            self._transport.abort()

    def _let_go(self) -> None:
        self._stopped = True
        call, self._call = self._call, None
        if call is not None:
            call.close()

    def stop(self) -> None:
        """Handle no further request. A waiting request still gets its answer."""
        self._stopped = True

    def mute(self, on_lost: Callable[[], object]) -> None:
        """Throw away what the client sends, and answer nothing more, until one side closes the connection.

        on_lost: called when that has happened.
        """
        self._let_go()
        self._rest = None
        self._sent()
        if self._transport is not None:
            self._transport.set_protocol(Mute(self, on_lost))
            self._transport.resume_reading()


class Mute(asyncio.Protocol):
    """The place of a connection that is muted."""

    is_held = True

    def __init__(self, connection: Connection, on_lost: Callable[[], object]) -> None:
        self._connection = connection
        self._on_lost = on_lost

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._on_lost()
        self._connection.connection_lost(exc)


def pieces(parts: list[bytes]) -> Iterator[bytes | memoryview]:
    """The bytes of all parts, in pieces of at most twice WRITE_BYTES. A larger part is cut without a copy."""
    piece: list[bytes] = []
    size = 0
    for part in parts:
        if len(part) > WRITE_BYTES:
            if piece:
                yield b"".join(piece)
            piece.clear()
            size = 0
            view = memoryview(part)
            yield from (view[start : start + WRITE_BYTES] for start in range(0, len(part), WRITE_BYTES))
            continue
        piece.append(part)
        size += len(part)
        if size >= WRITE_BYTES:
            yield b"".join(piece)
            piece.clear()
            size = 0
    if piece:
        yield b"".join(piece)


def plain_address(address: str) -> str:
    """An IPv4 address in its own form, where a socket for both families shows it as IPv6."""
    return address.removeprefix("::ffff:") if "." in address else address


def java_host(address: str) -> str:
    """An IP address as Java's InetAddress.toString writes it, and Kafka shows it: "/127.0.0.1"."""
    if ":" not in address:
        return f"/{address}"
    plain, percent, zone = address.partition("%")
    groups = struct.unpack(">8H", socket.inet_pton(socket.AF_INET6, plain))
    return "/" + ":".join(f"{group:x}" for group in groups) + percent + zone
