"""A server that gives the answers of a test, which no real server gives on demand, over real sockets.

    with Scripted({"DescribeGroups": [moved, described]}) as server:
        Client(server.bootstrap)...

House rule: the project's own codec reads requests and writes answers; the test decides what they mean.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from coordinator.client.client import Client
from protocol.connection import FrameReader
from protocol.errors import ProtocolError
from protocol.header import decode_request_header, encode_response
from protocol.messages import API_KEYS, DescribeGroupsRequest, api_schema, request_class
from schemas.errors import ErrorCode
from tests.support.decoded import decode_request
from tests.support.patience import WITHIN_S
from tests.support.requests import response
from tests.support.started import Started

HANG_UP = "hang up"
"""As an answer: the server closes the connection."""
SILENCE = "silence"
"""As an answer: the server never answers."""

Answer = Any
"""The fields of a response, its structs as dicts, or a message; raw bytes, HANG_UP, SILENCE, or a function of the
request that returns one of these.
"""


class Scripted(Started):
    """One node with id 7 on a port of its own. Each connection has a thread, which ends with it.

    answers: by API name, the answers to its requests one after the other; the last one stays. By default ApiVersions,
    FindCoordinator and Metadata name this node, and ListGroups and those that describe newer groups know no group.
    partitions: how many Metadata says that each topic has, all led by this node.
    versions: by API name, the versions in the ApiVersions response; by default all that we know.
    context: makes TLS of each connection.
    """

    def __init__(
        self,
        answers: Mapping[str, Iterable[Answer]] | None = None,
        versions: Mapping[str, tuple[int, int]] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._context = context
        self._answers = {name: list(given) for name, given in (answers or {}).items()}
        self._versions = {name: api_schema(key).VERSIONS for name, key in API_KEYS.items()} | dict(versions or {})
        self.requests: list[tuple[str, int, Any]] = []
        """The requests so far: API name, version, message (None if it couldn't be read)."""
        self.connections = 0
        self.partitions = 1
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begin to accept connections."""
        self._threads[0].start()

    def close(self) -> None:
        """Close all sockets, and wait for the threads."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for connection in self._sockets:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads[1:]:
            thread.join()

    def asked(self, name: str) -> list[Any]:
        """The messages of one API so far."""
        return [message for api, _version, message in self.requests if api == name]

    def answers(self, name: str, *answers: Answer) -> None:
        """Set the answers from now on."""
        self._answers[name] = list(answers)

    def answer_first(self, name: str, answer: Answer) -> None:
        """Give this answer once, before the others."""
        self._answers[name] = [answer, *self._answers.get(name, [getattr(self, f"_{name}")])]

    def _accept(self) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, accepted: socket.socket) -> None:
        reader = FrameReader(1_000_000)
        # A client may hang up before it has its answer, refuse the server's certificate, or speak something else.
        with suppress(ConnectionError, ssl.SSLError, ProtocolError), self._secured(accepted) as connection:
            while data := connection.recv(65536):
                reader.receive_data(data)
                while (frame := reader.next_frame()) is not None:
                    answer = self._answer(frame)
                    if answer == HANG_UP:
                        return
                    if answer != SILENCE:
                        connection.sendall(answer)

    def _secured(self, connection: socket.socket) -> socket.socket:
        if self._context is None:
            return connection
        self._sockets.append(self._context.wrap_socket(connection, server_side=True))
        return self._sockets[-1]

    def _answer(self, frame: bytes) -> Any:
        header = decode_request_header(frame)
        name = api_schema(header.api_key).NAME
        readable = header.api_version <= request_class(header.api_key).VERSIONS[1]
        message = decode_request(frame)[1] if readable else None
        self.requests.append((name, header.api_version, message))
        given = self._answers.get(name, [getattr(self, f"_{name}", None)])
        answer = given.pop(0) if len(given) > 1 else given[0]
        version = header.api_version
        if isinstance(answer, Callable):  # type: ignore[arg-type]
            answer = answer(message)
        if isinstance(answer, tuple):  # a response in another version than the request's
            version, answer = answer
        if isinstance(answer, bytes | str):
            return answer
        if isinstance(answer, dict):
            answer = response(name, **answer)
        return encode_response(header.api_key, version, header.correlation_id, answer)

    def _ApiVersions(self, _request: Any) -> Any:  # noqa: N802
        return {
            "api_keys": [
                {"api_key": API_KEYS[name], "min_version": low, "max_version": high}
                for name, (low, high) in self._versions.items()
            ]
        }

    def _FindCoordinator(self, request: Any) -> Any:  # noqa: N802
        where = {"node_id": 7, "host": "127.0.0.1", "port": self.port}
        keys = request.coordinator_keys
        return {"coordinators": [{"key": key, **where} for key in keys], **(where if not keys else {})}

    def _Metadata(self, request: Any) -> Any:  # noqa: N802
        led = [{"partition_index": index, "leader_id": 7} for index in range(self.partitions)]
        return {
            "brokers": [{"node_id": 7, "host": "127.0.0.1", "port": self.port}],
            "topics": [{"name": each.name, "partitions": led} for each in request.topics or ()],
        }

    def _ConsumerGroupDescribe(self, request: Any) -> Any:  # noqa: N802
        return absent(request)

    def _StreamsGroupDescribe(self, request: Any) -> Any:  # noqa: N802
        return absent(request)

    def _ShareGroupDescribe(self, request: Any) -> Any:  # noqa: N802
        return absent(request)

    def _ListGroups(self, _request: Any) -> Any:  # noqa: N802
        return {}


@contextmanager
def served(
    answers: Mapping[str, Iterable[Answer]] | None = None,
    versions: Mapping[str, tuple[int, int]] | None = None,
    clock: Clock | None = None,
) -> Iterator[tuple[Scripted, Client]]:
    """A server, and a client of it. clock: of the client; by default its time passes."""
    times: dict[str, Any] = {} if clock is None else {"clock": clock, "pause": clock.pause}
    with Scripted(answers, versions) as server, Client(server.bootstrap, WITHIN_S, **times) as client:
        yield server, client


def absent(request: Any) -> Any:
    """None of the groups that a request names is of the kind that it describes."""
    names = request.groups if isinstance(request, DescribeGroupsRequest) else request.group_ids
    return {"groups": [{"group_id": name, "error_code": ErrorCode.GROUP_ID_NOT_FOUND} for name in names]}


def of_another_kind(kind: str) -> dict[str, list[Answer]]:
    """The answers of a server that has the share or streams group "g", without members."""
    api = f"{kind.title()}GroupDescribe"

    def described(request: Any) -> Any:
        answer = absent(request)
        for group in answer["groups"]:
            if group["group_id"] == "g":
                group |= {"error_code": ErrorCode.NONE, "group_state": "Stable", "group_epoch": 3}
        return answer

    return {"DescribeGroups": [absent], api: [described]}


class Clock:
    """A clock whose time passes only in `pause`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        """Seconds now."""
        return self.now

    def pause(self, seconds: float) -> None:
        """Let time pass at once."""
        self.pauses.append(seconds)
        self.now += seconds
