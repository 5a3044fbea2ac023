"""The server asks itself: a client's connection without a socket, for the page and its feed.

A thread hands the frame of a request to `Api.handle` on the loop, as a connection hands its frames to `Api.dispatch`,
and gets the frame of the answer back. For access rules, this client has a principal of its own.

House rule: the loop waits for no thread, and a thread waits at most until its deadline.
"""

from __future__ import annotations

import asyncio
import traceback
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from coordinator.client.client import Client as ClusterClient
from coordinator.client.connection import NEWEST, Address, Asking, Connection, Deadline, software_version
from coordinator.client.errors import Refused, Unreachable
from coordinator.group.client import Client
from coordinator.loop.cycles import drop_trace
from coordinator.loop.lines import Lines
from coordinator.security.access import OWN
from coordinator.server.nodes.discovery import Discovery
from coordinator.server.wire.api import HANDLERS, Api
from coordinator.server.wire.call import Call, Outcome
from protocol.connection import SIZE_BYTES
from protocol.header import decode_response, encode_request
from protocol.messages import Message
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.client.security import Security

CLIENT_ID = "tenure-http"
HOST = "127.0.0.1"

CORRELATION_ID = 1
"""Every request has the same: each answer comes back by itself, so nobody has to find its request."""


class InProcess:
    """Asks the cluster that a server is part of: its own node in process, as an `Asking`, other nodes over sockets.

    node_id: the server's own. listener: the listener whose addresses lead to the other nodes. loop: the
    server's. security: how other nodes are spoken to.

    address: the node's own, as clients on that listener get it.
    """

    local_host = HOST

    def __init__(
        self,
        api: Api,
        discovery: Discovery,
        node_id: int,
        listener: str,
        loop: asyncio.AbstractEventLoop,
        lines: Lines,
        security: Security | None = None,
    ) -> None:
        self._security = security
        self._api = api
        self._loop = loop
        self._lines = lines
        self._client = Client(CLIENT_ID, f"/{HOST}", OWN, f"tenure {software_version()}", listener)
        self.listener = listener
        (own,) = (node for node in discovery.nodes(self) if node.node_id == node_id)
        self.address = Address(own.host, own.port)

    def open(self) -> ClusterClient:
        """A client of the cluster, for the thread that calls this."""
        return ClusterClient(str(self.address), client_id=CLIENT_ID, connect=self._connect)

    def _connect(self, address: Address, client_id: str, deadline: Deadline) -> Asking:
        if address == self.address:
            return self
        return Connection(address, client_id, deadline, self._security)

    # As of a connection to the own node, for the thread that asks.

    def version(self, request_class: type[Message], at_least: int = 0, at_most: int = NEWEST) -> int:
        """The highest version: both sides are this program. Raises Refused for groups that it doesn't serve."""
        if request_class.API_KEY not in HANDLERS:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"this server knows no {request_class.NAME}")
        highest = min(request_class.VERSIONS[1], at_most)
        assert highest >= at_least
        return highest

    def request(self, message: Message, version: int, deadline: Deadline) -> Any:
        """See Connection. Raises Unreachable if no answer comes in time, or if the server has a fault."""
        assert message.API_KEY is not None
        frame = encode_request(message, version, CORRELATION_ID, CLIENT_ID)[SIZE_BYTES:]
        return decode_response(message.API_KEY, version, self._ask(frame, deadline.left))[1]

    def close(self) -> None:
        """See Connection: there is none."""

    def _ask(self, frame: bytes, within_s: float) -> bytes:
        """The answer's frame to a request's."""
        steps = self._answer(frame)
        try:
            answered = asyncio.run_coroutine_threadsafe(steps, self._loop)
        except RuntimeError:  # the loop has ended
            steps.close()
            raise Unreachable("this server has stopped") from None
        try:
            return answered.result(max(within_s, 0))
        except TimeoutError:
            answered.cancel()
            raise Unreachable("this server did not answer in time") from None
        except CancelledError:  # the loop ends
            raise Unreachable("this server has stopped") from None

    # For `Api.handle`, on the loop.

    def client(self, client_id: str | None) -> Client:  # noqa: ARG002 - it is always the same client
        """See Caller."""
        return self._client

    def set_software(self, software: str) -> None:
        """See Caller. The software is this program."""

    async def _answer(self, frame: bytes) -> bytes:
        """The answer's frame. If nobody waits for it any more, the call is closed."""
        answered: asyncio.Future[Outcome] = self._loop.create_future()
        call: Call | None = None

        def take(outcome: Outcome) -> None:
            if not answered.done():  # else nobody waits any more, and the call is closed in the loop's next turn
                answered.set_result(outcome)

        try:
            call = self._api.handle(self, frame)
            outcome: Outcome | None = call.take(take)
            if outcome is None:
                outcome = await answered
            if isinstance(outcome, Exception):
                raise outcome
        except asyncio.CancelledError:
            if call is not None:
                call.close()
            raise
        except Exception as error:  # noqa: BLE001 - a fault costs one question, not the server
            reason = "".join(traceback.format_exception(error))
            drop_trace(error)
            self._lines.error("http_broke", f"HTTP: the server could not answer itself: {reason}", reason=reason)
            raise Unreachable("a fault of this server: its log says more") from None
        if call.on_sent is not None:
            call.on_sent()
        return (b"".join(outcome) if isinstance(outcome, list) else outcome)[SIZE_BYTES:]
