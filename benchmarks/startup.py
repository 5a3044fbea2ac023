"""The first answer of a server that is just starting.

House rule: it asks as a client would: who is the coordinator, then to join; again while the answer is "not yet".
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from benchmarks import frames
from benchmarks.members import NOT_YET, Group, accept
from protocol.header import encode_request
from protocol.messages import FindCoordinatorRequest

RETRY_S = 0.002
TIMEOUT_S = 60.0
GROUP_ID = "the-first"


def until_joined(port: int, given_up: Callable[[], bool] = bool) -> None:
    """Return when a member has joined a group on 127.0.0.1:port.

    given_up: says that there is no server to wait for any more. Raises TimeoutError, and Refused.
    """
    group = Group(GROUP_ID, 1, static=True)
    find = encode_request(FindCoordinatorRequest(key=GROUP_ID), 1, 0, frames.CLIENT_ID)
    join = group.join_frame(group.members[0])
    deadline = time.monotonic() + TIMEOUT_S
    while not given_up():
        try:
            with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
                for request in (find, join):
                    while (error := frames.error_of(_ask(connection, request))) in NOT_YET:
                        time.sleep(RETRY_S)
                    accept(error, "the first request")
                return
        except ConnectionError:
            time.sleep(RETRY_S)
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer within {TIMEOUT_S:g} s")


def _ask(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    answer = b""
    while len(answer) < frames.SIZE_BYTES or len(answer) < frames.SIZE_BYTES + int.from_bytes(answer[:4], "big"):
        data = connection.recv(65536)
        if not data:
            raise ConnectionResetError
        answer += data
    return answer
