"""Single requests of a client's start: who is the coordinator, and may I join?

House rule: "not yet" is asked again; a blocking socket is enough, because no request is measured here.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks import frames
from benchmarks.members import NOT_YET, Group, accept
from protocol.header import decode_response, encode_request, encode_response
from protocol.messages import API_KEYS, FindCoordinatorRequest, FindCoordinatorResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import Message

RETRY_S = 0.002
TIMEOUT_S = 60.0
FIND_COORDINATOR = 1
FIRST_GROUP = "the-first"


def prepare() -> None:
    """Make the codecs of a first request, so that their time doesn't count as a server's start."""
    Group(FIRST_GROUP, 1, static=True)
    encode_request(FindCoordinatorRequest(key=FIRST_GROUP), FIND_COORDINATOR, 0, None)
    answer = encode_response(API_KEYS["FindCoordinator"], FIND_COORDINATOR, 0, FindCoordinatorResponse())
    decode_response(API_KEYS["FindCoordinator"], FIND_COORDINATOR, answer[frames.SIZE_BYTES :])


def until_joined(port: int, given_up: Callable[[], bool] = bool) -> None:
    """Return after a member has joined a group on 127.0.0.1:port.

    given_up: returns whether there is no server to wait for. Raises TimeoutError, and UnexpectedAnswer.
    """
    group = Group(FIRST_GROUP, 1, static=True)
    join = group.join_frame(group.members[0])
    deadline = time.monotonic() + TIMEOUT_S
    while not given_up():
        try:
            with socket.create_connection(coordinator("127.0.0.1", port, FIRST_GROUP), TIMEOUT_S) as connection:
                return accept(frames.error_of(_answer(connection, join)), "JoinGroup")
        except ConnectionError:
            time.sleep(RETRY_S)
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer within {TIMEOUT_S:g} s")
    return None


def coordinator(host: str, port: int, group_id: str) -> tuple[str, int]:
    """Ask host and port for a group's coordinator; returns its address. Raises ConnectionError, UnexpectedAnswer."""
    request = encode_request(FindCoordinatorRequest(key=group_id), FIND_COORDINATOR, 0, frames.CLIENT_ID)
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        answer = _answer(connection, request)
    _, found = decode_response(API_KEYS["FindCoordinator"], FIND_COORDINATOR, answer[frames.SIZE_BYTES :])
    assert isinstance(found, FindCoordinatorResponse)
    accept(found.error_code, "FindCoordinator")
    return found.host, found.port


def ask(port: int, request: Message, version: int) -> Message:
    """Return the answer of a server on 127.0.0.1 to any request. Raises ConnectionError."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(encode_request(request, version, 0, frames.CLIENT_ID))
        answer = _frame(connection)
    assert request.API_KEY is not None
    return decode_response(request.API_KEY, version, answer[frames.SIZE_BYTES :])[1]


def _answer(connection: socket.socket, request: bytes) -> bytes:
    """Return the answer to a request; ask again while it is "not yet"."""
    while True:
        connection.sendall(request)
        answer = _frame(connection)
        if frames.error_of(answer) not in NOT_YET | {ErrorCode.NOT_COORDINATOR}:
            return answer
        time.sleep(RETRY_S)


def _frame(connection: socket.socket) -> bytes:
    answer = b""
    while len(answer) < frames.SIZE_BYTES or len(answer) < frames.SIZE_BYTES + int.from_bytes(answer[:4], "big"):
        data = connection.recv(65536)
        if not data:
            raise ConnectionResetError
        answer += data
    return answer
