"""A connection of a member without a client: one request, its answer, the next request.

House rule: a link that lost its connection, or whose answer nobody waits for any more, is never used again.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from coordinator.client.connection import RESPONSE_SIZE_MAX, Address, software_version
from coordinator.client.errors import Unreachable
from coordinator.testing.forks import Connection, Held, hold
from protocol.connection import FrameReader
from protocol.errors import ProtocolError
from protocol.header import decode_response, encode_request
from protocol.messages import ApiVersionsRequest, Message


class Link(asyncio.Protocol):
    """A connection that speaks the newest version of each API."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self._client_id = client_id
        self._frames = FrameReader(RESPONSE_SIZE_MAX)
        self._correlation_id = 0
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport
        self._ends: Connection
        self._is_lost = False

    @classmethod
    async def connect(cls, address: Address, client_id: str, within_s: float) -> Link:
        """Connect to a node, and wait until its server answers. Raises Unreachable, as `ask` does.

        The kernel accepts connections for a server, but no more than fit into the server's backlog.
        """
        try:
            _, link = await asyncio.get_running_loop().create_connection(lambda: cls(address, client_id), *address)
        except OSError as error:
            raise Unreachable(f"{address}: {error.strerror or error}") from None
        try:
            hello = ApiVersionsRequest(client_software_name="tenure", client_software_version=software_version())
            await link.ask(hello, within_s)
        except BaseException:
            link.close()
            raise
        return link

    async def ask(self, request: Message, within_s: float) -> Any:
        """Send a request and return the response. Raises Unreachable, after `within_s` seconds at the latest."""
        assert request.API_KEY is not None
        version = request.VERSIONS[1]
        if self._is_lost:
            raise Unreachable(f"{self.address} closed the connection")
        self._correlation_id += 1
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        self._transport.write(encode_request(request, version, self._correlation_id, self._client_id))
        timer = loop.call_later(within_s, self._lose, f"did not answer within {within_s:g} s")
        try:
            frame = await self._answer
        finally:
            timer.cancel()
        try:
            correlation_id, response = decode_response(request.API_KEY, version, frame)
        except ProtocolError as error:
            raise Unreachable(f"{self.address} does not speak Kafka's protocol: {error}") from None
        assert correlation_id == self._correlation_id, "a link that has answers left is never used again"
        return response

    def close(self) -> None:
        """Close the connection at once; answers that are due don't come."""
        self._is_lost = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio says."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._ends = (transport.get_extra_info("sockname"), transport.get_extra_info("peername"))
        hold(self)

    def let_go(self) -> Held:
        """See forks.Holder."""
        return Held() if self._is_lost else Held(connections=frozenset({self._ends}))

    def data_received(self, data: bytes) -> None:
        """As asyncio says."""
        self._frames.receive_data(data)
        try:
            frame = self._frames.next_frame()
        except ProtocolError:
            self._transport.abort()
            return
        if frame is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(frame)

    def connection_lost(self, _: Exception | None) -> None:
        """As asyncio says."""
        self._lose("closed the connection")

    def _lose(self, why: str) -> None:
        self._is_lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Unreachable(f"{self.address} {why}"))
