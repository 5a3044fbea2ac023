"""A proxy with planned faults in front of a real broker, for faults that the broker itself can't be asked for.

    with FaultProxy(port) as proxy, ApacheKafka({"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}) as kafka:
        proxy.serve(kafka.port)
        proxy.attach(faults)

The broker advertises the proxy's address, so a client never sees the broker's own. Each connection of a client has one
to the broker. The plan is carried out by the code that carries it out in Tenure (`Faults`), with the broker in place of
the handlers: a request without a fault goes to the broker byte for byte, and so does its answer to the client. As in
Kafka, a connection has one request under way.

Versions of requests that Tenure doesn't know go through too; no fault is for them. A member's instance id comes from
its JoinGroup, because old versions of other requests lack it.

House rule: the proxy makes no answer but those that the plan wants. If the broker closes a connection, or is dead, the
client's connection closes. Each request has an answer, so no client here produces with acks=0.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any, TypeVar, cast

from coordinator.loop.clock import LoopClock
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.server.faults.faults import Faults
from coordinator.server.telemetry.measures import Measures
from coordinator.server.wire.api import UNTOUCHED, Interceptor
from coordinator.server.wire.call import Call, Outcome, Send
from coordinator.server.wire.connection import Connection
from coordinator.server.wire.listener import Connections
from coordinator.server.wire.long_calls import LongCalls
from coordinator.testing.loop_thread import LoopThread
from protocol.connection import SIZE_BYTES, FrameReader
from protocol.errors import UnknownApi, UnsupportedVersion
from protocol.header import decode_request_header, decode_response
from protocol.messages import API_KEYS, JoinGroupRequest, JoinGroupResponse
from tests.server.harness import config_of
from tests.support.decoded import decode_request
from tests.support.started import Started

HOST = "127.0.0.1"
FRAME_SIZE_MAX = 100 * 1024 * 1024
CONNECTIONS_MAX = 1_000
JOIN_GROUP = API_KEYS["JoinGroup"]

Found = TypeVar("Found")


class Forwarded:
    """A request that the broker has. on_answer: sees the answer's frame before the client."""

    on_sent = None

    def __init__(self, on_answer: Callable[[bytes], None]) -> None:
        self._on_answer = on_answer
        self._send: Send | None = None

    def take(self, send: Send) -> Outcome | None:
        """Have the answer sent; it always comes later."""
        self._send = send
        return None

    def close(self) -> None:
        """The client's connection is gone, or it is muted: drop the answer."""
        self._send = None

    def answered(self, frame: bytes) -> None:
        """The broker answered."""
        self._on_answer(frame)
        if self._send is not None:
            self._send(len(frame).to_bytes(SIZE_BYTES) + frame)


class Upstream(asyncio.Protocol):
    """The connection to the broker that stands for a client's connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reader = FrameReader(FRAME_SIZE_MAX)
        self._transport: asyncio.Transport | None = None
        self._unsent = b""
        self._asked: Forwarded | None = None
        self._is_closed = False

    async def connect(self, port: int) -> None:
        """Connect to the broker. A dead one costs the client its connection."""
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, HOST, port)
        except OSError:
            self._connection.abort()

    def ask(self, frame: bytes, asked: Forwarded) -> None:
        """Send a request."""
        assert self._asked is None
        self._asked = asked
        request = len(frame).to_bytes(SIZE_BYTES) + frame
        if self._transport is None:
            self._unsent += request
        else:
            self._transport.write(request)

    def close(self) -> None:
        """The client's connection is gone."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what has come meanwhile."""
        self._transport = cast("asyncio.Transport", transport)
        if self._is_closed:
            self._transport.close()
        elif self._unsent:
            self._transport.write(self._unsent)

    def data_received(self, data: bytes) -> None:
        """Take answers."""
        self._reader.receive_data(data)
        while (frame := self._reader.next_frame()) is not None:
            asked, self._asked = self._asked, None
            assert asked is not None
            asked.answered(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker closed it, or is dead; or the client was first."""
        self._connection.abort()


class FaultProxy(Started):
    """See the module. faults: as of `Api`. bootstrap: HOST:PORT, for clients; open from the beginning to the end."""

    def __init__(self) -> None:
        self.faults: Interceptor | None = None
        self.bootstrap = ""
        self._port: int | None = None
        self._upstreams: dict[Connection, Upstream] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._seats: dict[tuple[str, str], str] = {}
        self._attached: Faults | None = None
        self._thread: LoopThread
        self._loop: asyncio.AbstractEventLoop
        self._listening: asyncio.Server
        self._connections: Connections
        self._clock: LoopClock
        self._pace: Pace
        self._lines: Lines

    def start(self) -> None:
        """Listen for clients."""
        self._thread = LoopThread("fault proxy")
        self._thread.run(self._start())

    def close(self) -> None:
        """Close all connections."""
        self._thread.run(self._stop())
        self._thread.end()

    async def _start(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._clock = LoopClock(loop)
        self._pace = Pace(self._clock, loop.call_soon)
        self._long = LongCalls(self._pace, config_of())
        self._lines = Lines(io.StringIO(), "text", None, self._clock)
        self._connections = _Connections(self)
        self._listening = await loop.create_server(lambda: self._connections.connect("PLAINTEXT"), HOST, 0)
        self.bootstrap = f"{HOST}:{self._listening.sockets[0].getsockname()[1]}"

    async def _stop(self) -> None:
        self._listening.close()
        self._connections.stop()
        self._connections.abort()
        await asyncio.gather(*self._connecting)
        await self._listening.wait_closed()

    def serve(self, port: int) -> None:
        """Stand in front of the broker at this port of the loopback from now on."""
        self._port = port

    def attach(self, faults: Faults) -> None:
        """Carry out this plan from now on, in place of another."""

        def attach() -> None:
            if self._attached is not None:
                self._attached.detach()
            self.faults, self._attached = None, faults
            faults.attach(
                self,
                self._connections,
                self._instance_of,
                lambda _topic_id: None,  # a proxy knows no topic ids
                self._clock,
                self._lines,
                self._loop.call_soon,
            )

        self.call(attach)

    def call(self, function: Callable[..., Found], *arguments: Any) -> Found:
        """Call a function on the proxy's loop."""

        async def call() -> Found:
            return function(*arguments)

        return self._thread.run(call())

    # Requests.

    def dispatch(self, connection: Connection, frame: bytes) -> bytes | list[bytes] | None:
        """The answer to a request that has a fault; None if it comes later."""
        try:
            api_key, version, _, client_id, offset = decode_request_header(frame)
        except (UnknownApi, UnsupportedVersion):
            pass
        else:
            connection.client(client_id)  # a black hole asks the connection for it
            if self.faults is not None:
                found = self.faults.intercept(connection, api_key, version, client_id, frame, offset)
                connection.may_short_cut = False  # only the broker knows the answers
                if found is not UNTOUCHED:
                    return found
        asked = self.handle(connection, frame)
        connection.wait_for(asked)
        asked.take(connection.send)
        return None

    def handle(self, connection: Connection, frame: bytes, /) -> Forwarded:
        """Send a request to the broker."""
        is_join = int.from_bytes(frame[:2]) == JOIN_GROUP
        asked = Forwarded(self._seats_of(frame) if is_join else lambda _: None)
        self._upstreams[connection].ask(frame, asked)
        return asked

    def call_of(self, connection: Connection, frame: bytes, /) -> Call:
        """The call for a request that the plan answers."""
        api_key, version, correlation_id, client_id, _ = decode_request_header(frame)
        return Call(api_key, version, correlation_id, client_id, connection, lambda _api_key, _body: None, self._long)

    def _seats_of(self, frame: bytes) -> Callable[[bytes], None]:
        """Remember the member that a join makes, by its answer."""
        header, request = decode_request(frame)
        assert isinstance(request, JoinGroupRequest)

        def answered(answer: bytes) -> None:
            _, response = decode_response(header.api_key, header.api_version, answer)
            assert isinstance(response, JoinGroupResponse)
            if request.group_instance_id is not None:
                self._seats[request.group_id, response.member_id] = request.group_instance_id

        return answered

    def _instance_of(self, group_id: str, member_id: str) -> str | None:
        return self._seats.get((group_id, member_id))

    # Connections.

    def opened(self, connection: Connection) -> None:
        """A client connected."""
        upstream = self._upstreams[connection] = Upstream(connection)
        assert self._port is not None
        connecting = self._loop.create_task(upstream.connect(self._port))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)

    def closed(self, connection: Connection) -> None:
        """A client's connection is gone."""
        self._upstreams.pop(connection).close()


class _Connections(Connections):
    """The connections of clients."""

    def __init__(self, proxy: FaultProxy) -> None:
        config = config_of("connections.max.idle.ms=-1")
        own = config, proxy._clock, proxy._lines, proxy.dispatch, proxy._loop.call_soon, proxy._pace
        super().__init__(*own, Measures(), CONNECTIONS_MAX)
        self._proxy = proxy

    def add(self, connection: Connection) -> bool:
        """See Connections."""
        added = super().add(connection)
        if added:
            self._proxy.opened(connection)
        return added

    def remove(self, connection: Connection) -> None:
        """See Connections."""
        super().remove(connection)
        self._proxy.closed(connection)
