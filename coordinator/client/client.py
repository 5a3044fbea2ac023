"""Which node to ask, and asking again.

A call is tried until its deadline: again after a lost connection, and again where a coordinator isn't there yet, is
loading or has moved (14, 15, 16). Anything else a server says is the answer. A call that is tried again may have been
carried out the first time: a second DeleteGroups then finds no group.

House rule: time comes from `clock` and `pause`, so that a test decides how it passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from coordinator.client.connection import Address, Asking, Connection, Deadline
from coordinator.client.errors import Refused, Unreachable
from protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)
from schemas.errors import ErrorCode

TIMEOUT = 5.0
"""Seconds for a call, its retries included; what Kafka's consumer-groups tool allows."""
ATTEMPTS_MAX = 100
"""Tries of a call: a server that refuses connections at once is not hammered through a long deadline."""
PAUSE_FIRST = 0.05
PAUSE_MAX = 0.5
"""Seconds between two tries: doubled from the first to the longest."""

KEY_TYPE_GROUP = 0
"""FindCoordinator's key type of a group (1 is a transaction)."""

COORDINATOR_MOVED = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Errors after which the coordinator is looked up and asked again."""

Result = TypeVar("Result")


class Node(NamedTuple):
    """A server of the cluster."""

    node_id: int
    address: Address


class Client:
    """Asks a cluster that is reached through any of the `bootstrap` addresses.

    bootstrap: HOST:PORT, several separated by commas; ValueError if it isn't that.
    timeout: seconds that one call may take, retries included.
    client_id: what the servers see and log.
    connect: connects to a node, with the client id and until a deadline.
    clock, pause: seconds on a clock that never jumps, and how to let some pass.
    """

    def __init__(
        self,
        bootstrap: str,
        timeout: float = TIMEOUT,
        *,
        client_id: str = "tenure",
        connect: Callable[[Address, str, Deadline], Asking] = Connection,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout = timeout
        self._bootstrap = parse_addresses(bootstrap)
        self._client_id = client_id
        self._connect = connect
        self._clock = clock
        self._pause = pause
        self._connections: dict[Address, Asking] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up everywhere. A later call connects anew."""
        while self._connections:
            self._connections.popitem()[1].close()

    def request(self, message: Message, node: Node | None = None, *, at_least: int = 0) -> Any:
        """Send `message` in the highest common version, to `node` or to whoever answers first; returns the response.

        at_least: the first version of the API that can say what is asked.
        """
        lost = Unreachable("no time to ask")
        for deadline in self._attempts():
            try:
                return self._send(message, node, deadline, at_least)
            except Unreachable as error:
                lost = error
        raise lost

    def nodes(self) -> list[Node]:
        """Every server of the cluster."""
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        response: MetadataResponse = self.request(request, at_least=4)
        return [Node(broker.node_id, Address(broker.host, broker.port)) for broker in response.brokers]

    def ask_coordinators(
        self,
        group_ids: Iterable[str],
        request: Callable[[list[str]], Message],
        results: Callable[[Any, Node], Iterable[tuple[str, int, Result]]],
        *,
        at_least: int = 0,
    ) -> dict[str, Result | Refused]:
        """Ask the coordinator of each group, one request per coordinator; the answer per group, in the order given.

        request: makes the message for these groups, which share a coordinator.
        results: reads a response: group id, error code, result.
        An error of one group is its value, so that it doesn't hide the others; a coordinator that is still moving when
        the time is up is such an error too.
        """
        answers: dict[str, Result | Refused] = {
            group_id: Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, _quoted(group_id)) for group_id in group_ids
        }
        lost: Unreachable | None = None
        for deadline in self._attempts() if answers else ():
            try:
                for node, asked in self._coordinators(answers, deadline).items():
                    response = self._send(request(asked), node, deadline, at_least)
                    for group_id, code, result in results(response, node):
                        answers[group_id] = Refused(code, _quoted(group_id)) if code else result
                lost = None
            except Unreachable as error:
                lost = error
            if not any(_moved(answer) for answer in answers.values()):
                return answers
        if lost is not None:
            raise lost
        return answers

    def _coordinators(self, answers: dict[str, Any], deadline: Deadline) -> dict[Node, list[str]]:
        """The groups that still need an answer, by coordinator; a group that has none is answered with why."""
        pending = [group_id for group_id, answer in answers.items() if _moved(answer)]
        found: dict[Node, list[str]] = {}
        for group_id, error_code, node in self._find_coordinators(pending, deadline):
            if error_code:
                answers[group_id] = Refused(error_code, _quoted(group_id))
            else:
                found.setdefault(node, []).append(group_id)
        return found

    def _find_coordinators(self, group_ids: list[str], deadline: Deadline) -> Iterator[_Coordinator]:
        """FindCoordinator, of all groups at once where the server can (version 4, KIP-699)."""
        if self._connection(self._any_address(deadline), deadline).version(FindCoordinatorRequest) >= 4:
            batch = FindCoordinatorRequest(key_type=KEY_TYPE_GROUP, coordinator_keys=group_ids)
            found: FindCoordinatorResponse = self._send(batch, None, deadline)
            for one in found.coordinators:
                yield _Coordinator(one.key, one.error_code, Node(one.node_id, Address(one.host, one.port)))
            return
        for group_id in group_ids:
            found = self._send(FindCoordinatorRequest(key=group_id, key_type=KEY_TYPE_GROUP), None, deadline)
            yield _Coordinator(group_id, found.error_code, Node(found.node_id, Address(found.host, found.port)))

    def _attempts(self) -> Iterator[Deadline]:
        """The deadline of one call, once for each try that there is time for."""
        deadline = Deadline(self.timeout, self._clock)
        pause = PAUSE_FIRST
        for _ in range(ATTEMPTS_MAX):
            yield deadline
            if deadline.left <= pause:
                return
            self._pause(pause)
            pause = min(2 * pause, PAUSE_MAX)

    def _send(self, message: Message, node: Node | None, deadline: Deadline, at_least: int = 0) -> Any:
        address = self._any_address(deadline) if node is None else node.address
        connection = self._connection(address, deadline)
        version = connection.version(type(message), at_least)
        try:
            return connection.request(message, version, deadline)
        except BaseException:
            del self._connections[address]
            connection.close()
            raise

    def _connection(self, address: Address, deadline: Deadline) -> Asking:
        if address not in self._connections:
            self._connections[address] = self._connect(address, self._client_id, deadline)
        return self._connections[address]

    def _any_address(self, deadline: Deadline) -> Address:
        """The first bootstrap address that accepts; none of them can use up the time of those behind it."""
        for index, address in enumerate(self._bootstrap):
            share = deadline.left / (len(self._bootstrap) - index)
            try:
                self._connection(address, Deadline(share, self._clock))
            except Unreachable:
                if address == self._bootstrap[-1]:
                    raise
            else:
                return address
        raise AssertionError("parse_addresses returns at least one")


class _Coordinator(NamedTuple):
    """The coordinator of a group. The node means nothing beside an error."""

    group_id: str
    error_code: int
    node: Node


def parse_addresses(text: str) -> list[Address]:
    """HOST:PORT[,HOST:PORT...] as addresses, a v6 host in brackets; ValueError if it is anything else."""
    addresses = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{part.strip()!r} is not HOST:PORT")
        addresses.append(Address(host, int(port)))
    return addresses


def _moved(answer: object) -> bool:
    return isinstance(answer, Refused) and answer.error_code in COORDINATOR_MOVED


def _quoted(group_id: str) -> str:
    return f"group {group_id!r}"
