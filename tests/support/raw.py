"""A client that does nothing by itself: a test sends each request and takes each answer.

One connection stands for one group member. `send` doesn't wait, so a JoinGroup that the coordinator holds back can stay
open while others go on; `receive` takes the next answer. The client has no retries, no rejoins and no heartbeats.

House rule: the client sends only the test's requests, and every wait has an end.
"""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from typing import Any

from protocol.header import decode_response, encode_request
from protocol.messages import Message
from tests.support.patience import WITHIN_S
from tests.support.started import Closes


class NoAnswer(Exception):
    """No answer came in time."""


class Closed(Exception):
    """The server closed the connection."""


class Connection(Closes):
    """A connection to the server on 127.0.0.1:`port`, with this client id in every header (None: null)."""

    def __init__(self, port: int, client_id: str | None = "raw") -> None:
        self.client_id = client_id
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._expected: deque[tuple[int, int, int]] = deque()

    def send(self, request: Message, version: int) -> None:
        """Send a request and go on."""
        assert request.API_KEY is not None
        self._correlation_id += 1
        self._socket.sendall(encode_request(request, version, self._correlation_id, self.client_id))
        self._expected.append((request.API_KEY, version, self._correlation_id))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that no encoder would make; their answer, if any, is read by `receive_frame`."""
        self._socket.sendall(data)

    def receive(self, within_s: float = WITHIN_S) -> Any:
        """Return the answer to the oldest open request. Raises NoAnswer or Closed."""
        api_key, version, expected_id = self._expected.popleft()
        correlation_id, message = decode_response(api_key, version, self.receive_frame(within_s))
        assert correlation_id == expected_id, "answers come in the order of their requests"
        return message

    def receive_frame(self, within_s: float = WITHIN_S) -> bytes:
        """Return the next frame, without its size. Raises NoAnswer or Closed."""
        self._socket.settimeout(within_s)
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def ask(self, request: Message, version: int) -> Any:
        """Send a request and wait for its answer; no other request may be open."""
        assert not self._expected
        self.send(request, version)
        return self.receive()

    def is_silent(self) -> bool:
        """Return whether neither an answer nor the connection's end has arrived yet."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def fileno(self) -> int:
        """The number of the socket: connections can be waited for together."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection, even if answers are still due."""
        self._socket.close()

    def _receive_exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                part = self._socket.recv(size - len(received))
            except TimeoutError:
                raise NoAnswer from None
            except ConnectionResetError:
                raise Closed from None
            if not part:
                raise Closed
            received += part
        return bytes(received)


def ask(port: int, request: Message, version: int) -> Any:
    """Send one request on a connection of its own, and return the answer."""
    with Connection(port) as connection:
        return connection.ask(request, version)
