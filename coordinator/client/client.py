"""Which node gets a request, and when it is sent again.

The client tries a call until its deadline: again after a lost connection, and again while a coordinator isn't there
yet, is loading or has moved (error codes 14, 15, 16). Any other answer of a server is final. A server may have carried
out a lost call: a second DeleteGroups then finds no group. A closed port of this machine ends the tries sooner, and so
does a node that the rest of the cluster knows to be gone.

A request for any node goes to a bootstrap address. If none of them accepts, it goes to a node that the newest Metadata
named: the cluster may live on without the node that the user knows.

The client calls `on_wait` before each wait and when the wait is over, so that the caller can show it to a person.

House rule: time comes from `clock` and `pause`, so that a test decides how it passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from coordinator.client.connection import NEWEST, PORT_MAX, Address, Asking, Connection, Deadline
from coordinator.client.errors import PortClosed, Refused, Unreachable, error_name
from coordinator.group.client import ANONYMOUS
from protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.client.security import Security

TIMEOUT = 5.0
"""Seconds for a call, its retries included; Kafka's consumer-groups tool allows the same."""
ATTEMPTS_MAX = 100
"""The most tries of a call, so that a long deadline doesn't flood a server that refuses connections at once."""
PAUSE_FIRST = 0.05
PAUSE_MAX = 0.5
"""The longest pause between two tries, in seconds; the pause doubles from try to try."""

CLIENT_ID = "tenure"

CLOSED_WITHIN = 1.0
"""The client tries a closed port of this machine for less than these seconds: a server that starts opens it sooner."""

KEY_TYPE_GROUP = 0
"""FindCoordinator's key type for a group (1 is a transaction)."""

COORDINATOR_MOVED = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""After these errors the client looks the coordinator up and asks again."""

REMEMBERED_MAX = 100_000
"""Coordinators in memory, of an observer; all of them go when there are more."""

Result = TypeVar("Result")


class Node(NamedTuple):
    """A server of the cluster."""

    node_id: int
    address: Address


class Cluster(NamedTuple):
    """Where a cluster is, and how its servers are spoken to; see Client."""

    bootstrap: str
    security: Security | None = None

    def client(self, timeout: float) -> Client:
        """A client of it."""
        return Client(self.bootstrap, timeout, security=self.security)


class Client:
    """A client of the cluster that any of the `bootstrap` addresses belongs to.

    bootstrap: HOST:PORT, several separated by commas; raises ValueError for anything else.
    timeout: seconds that one call may take, retries included.
    client_id: the name that the servers see and log; by default that of `security`, or CLIENT_ID.
    security: how to speak TLS and log in; None: neither.
    known: the nodes that answers named; several clients of a cluster may share the list.
    coordinators: those of groups, as answers named them; they count until they move or don't answer, and clients may
    share them too. None: the client asks for them at each call.
    connect: connects to a node in another way, with the client id and until a deadline.
    on_wait: called with True before the client waits for a connection or for its next try, and with False when a
    server has answered.
    clock, pause: seconds on a clock that never jumps, and a function that waits some seconds.
    """

    def __init__(
        self,
        bootstrap: str,
        timeout: float = TIMEOUT,
        *,
        client_id: str | None = None,
        security: Security | None = None,
        known: list[Address] | None = None,
        coordinators: dict[str, Node] | None = None,
        connect: Callable[[Address, str, Deadline], Asking] | None = None,
        on_wait: Callable[[bool], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout = timeout
        self._bootstrap = parse_addresses(bootstrap)
        self._client_id = client_id or (security and security.client_id) or CLIENT_ID
        self._connect = connect or partial(Connection, security=security)
        self._user = security.user if security else ANONYMOUS
        self._on_wait = on_wait or _show_nothing
        self._attempts_max = ATTEMPTS_MAX
        self._clock = clock
        self._pause = pause
        self._known = [] if known is None else known
        self._remembers = coordinators is not None
        self._remembered = {} if coordinators is None else coordinators
        self._connections: dict[Address, Asking] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. A later call connects anew."""
        while self._connections:
            self._connections.popitem()[1].close()

    def try_once(self) -> None:
        """Try each later call only once, and call `on_wait` no more: for a caller that tries again by itself."""
        self._attempts_max = 1
        self._on_wait = _show_nothing

    def request(self, message: Message, node: Node | None = None, *, at_least: int = 0, at_most: int = NEWEST) -> Any:
        """Send `message` in the highest common version and return the response.

        node: the receiver, by default the first bootstrap address that accepts. at_least, at_most: the first and last
        version of the API that can express the request. A node that loads its groups is asked again; at the deadline
        its error is the response.
        """
        tries = self._tries()
        response: Any = None
        for deadline in tries:
            try:
                response = self._send(message, node, deadline, at_least, at_most)
            except Unreachable as error:
                tries.lost = error
                if node is not None and self._attempts_max > 1 and self._is_gone(node, deadline):
                    break
                continue
            if getattr(response, "error_code", ErrorCode.NONE) not in COORDINATOR_MOVED:
                return response
            tries.lost = None
        if response is None or tries.lost is not None:
            raise tries.lost or Unreachable("no time to ask")
        return response

    def nodes(self) -> list[Node]:
        """Every server of the cluster."""
        return [*nodes_of(self.request(metadata_request(()), at_least=4)).values()]

    def refused(self, error_code: int, what: str, request: type[Message], name: str = "") -> Refused:
        """The error of an answer. If a right is missing, it names the user, the operation and the resource.

        request: the one with this answer. name: of the group, the topic or the transaction that the right is about; ""
        if the answer doesn't say it.
        """
        from coordinator.apis import missing  # noqa: PLC0415 - no command needs it that may do its work

        right = missing(request.NAME.removesuffix("Request"), error_name(error_code))
        return Refused(error_code, what, f"{self._user} lacks {right.words(name)}" if right else "")

    def _is_gone(self, node: Node, deadline: Deadline) -> bool:
        """Whether the rest of the cluster has noticed that a node, which doesn't answer, isn't there."""
        try:
            return node not in nodes_of(self._send(metadata_request(()), None, deadline, 4)).values()
        except Unreachable:
            return False

    def ask_coordinators(
        self,
        group_ids: Iterable[str],
        request: Callable[[list[str]], Message],
        results: Callable[[Any, Node], Iterable[tuple[str, int, Result]]],
        *,
        at_least: int = 0,
        at_most: int = NEWEST,
    ) -> dict[str, Result | Refused]:
        """Ask the coordinator of each group, with one request per coordinator; answers by group, in the given order.

        request: makes the message for groups that share a coordinator.
        results: reads a response: group id, error code, result. An error of one group is the answer for this group, so
        the others keep their results. If a coordinator is still moving at the deadline, its error is the answer too.
        """
        answers: dict[str, Result | Refused] = {
            group_id: Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, _quoted(group_id)) for group_id in group_ids
        }
        tries = self._tries()
        for deadline in tries if answers else ():
            try:
                for node, asked in self._coordinators(answers, deadline).items():
                    message = request(asked)
                    response = self._send(message, node, deadline, at_least, at_most)
                    for group_id, code, result in results(response, node):
                        name = "" if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else group_id
                        refused = code and self.refused(code, _quoted(group_id), type(message), name)
                        answers[group_id] = refused or result
                tries.lost = None
            except Unreachable as error:
                tries.lost = error
            finally:  # after an error of any kind: another program may have the node's address
                moved = [group_id for group_id, answer in answers.items() if _moved(answer)]
                for group_id in moved:
                    self._remembered.pop(group_id, None)
            if not moved:
                return answers
        if tries.lost is not None:
            raise tries.lost
        return answers

    def _coordinators(self, answers: dict[str, Any], deadline: Deadline) -> dict[Node, list[str]]:
        """By coordinator, the groups that still need an answer; a group without one gets its error as answer."""
        pending = [group_id for group_id, answer in answers.items() if _moved(answer)]
        found: dict[Node, list[str]] = {}
        unknown = []
        for group_id in pending:
            known = self._remembered.get(group_id)
            if known is None:
                unknown.append(group_id)
            else:
                found.setdefault(known, []).append(group_id)
        for group_id, error_code, node in self._find_coordinators(unknown, deadline) if unknown else ():
            if error_code:
                answers[group_id] = self.refused(error_code, _quoted(group_id), FindCoordinatorRequest, group_id)
            else:
                found.setdefault(node, []).append(group_id)
        if self._remembers and unknown:
            if len(self._remembered) + len(unknown) > REMEMBERED_MAX:
                self._remembered.clear()
            for node, group_ids in found.items():
                self._remembered |= dict.fromkeys(group_ids, node)
        return found

    def _find_coordinators(self, group_ids: list[str], deadline: Deadline) -> Iterator[tuple[str, int, Node]]:
        """Send FindCoordinator, for all groups at once if the server can (version 4, KIP-699).

        Yields group id, error code and coordinator, which means nothing if there is an error.
        """
        if self._connection(self._any_address(deadline), deadline).version(FindCoordinatorRequest) >= 4:
            batch = FindCoordinatorRequest(key_type=KEY_TYPE_GROUP, coordinator_keys=group_ids)
            found: FindCoordinatorResponse = self._send(batch, None, deadline)
            for one in found.coordinators:
                yield one.key, one.error_code, Node(one.node_id, Address(one.host, one.port))
            return
        for group_id in group_ids:
            found = self._send(FindCoordinatorRequest(key=group_id, key_type=KEY_TYPE_GROUP), None, deadline)
            yield group_id, found.error_code, Node(found.node_id, Address(found.host, found.port))

    def _tries(self) -> _Tries:
        return _Tries(self._attempts_max, Deadline(self.timeout, self._clock), self._pause_noted)

    def _pause_noted(self, seconds: float) -> None:
        self._on_wait(True)
        self._pause(seconds)

    def _send(
        self, message: Message, node: Node | None, deadline: Deadline, at_least: int = 0, at_most: int = NEWEST
    ) -> Any:
        address = self._any_address(deadline) if node is None else node.address
        try:
            connection = self._connection(address, deadline)
        except PortClosed as error:
            raise Unreachable(str(error)) from None  # of a node: another one may take its groups
        version = connection.version(type(message), at_least, at_most)
        try:
            response = connection.request(message, version, deadline)
        except BaseException:
            del self._connections[address]
            connection.close()
            raise
        self._on_wait(False)
        if isinstance(response, MetadataResponse) and response.brokers:
            self._known[:] = [node.address for node in nodes_of(response).values()]
        return response

    def _connection(self, address: Address, deadline: Deadline) -> Asking:
        if address not in self._connections:
            self._on_wait(True)
            self._connections[address] = self._connect(address, self._client_id, deadline)
        return self._connections[address]

    def _any_address(self, deadline: Deadline) -> Address:
        """The first address that is connected or accepts; each address leaves some of the time to those behind it.

        Raises PortClosed only if all are closed ports of this machine.
        """
        lost: Unreachable | None = None
        addresses = [*dict.fromkeys([*self._bootstrap, *self._known])]
        addresses.sort(key=lambda address: address not in self._connections)
        for index, address in enumerate(addresses):
            share = deadline.left / (len(addresses) - index)
            try:
                self._connection(address, Deadline(share, self._clock))
            except Unreachable as error:
                if lost is None or not isinstance(error, PortClosed):
                    lost = error
            else:
                return address
        assert lost is not None  # parse_addresses returns at least one
        raise lost


class _Tries:
    """The tries of one call: yields its deadline, once for each try that there is time for.

    lost: why the last try failed, None if a server answered.
    """

    def __init__(self, at_most: int, deadline: Deadline, pause: Callable[[float], object]) -> None:
        self.lost: Unreachable | None = None
        self._at_most = at_most
        self._deadline = deadline
        self._pause = pause

    def __iter__(self) -> Iterator[Deadline]:
        deadline, pause = self._deadline, PAUSE_FIRST
        for number in range(1, self._at_most + 1):
            yield deadline
            is_closed = isinstance(self.lost, PortClosed) and deadline.passed + pause >= CLOSED_WITHIN
            if number == self._at_most or deadline.left <= pause or is_closed:
                return
            self._pause(pause)
            pause = min(2 * pause, PAUSE_MAX)


def parse_addresses(text: str) -> list[Address]:
    """Turn HOST:PORT[,HOST:PORT...] into addresses, a v6 host in brackets. Raises ValueError for anything else."""
    addresses = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
            why = "is not HOST:PORT"
            if "://" in part:
                why = "is a URL, leave out what stands before the host"
            elif port.isdecimal() and int(port) > PORT_MAX:
                why = f"has a port above {PORT_MAX}"
            raise ValueError(f"{part.strip()!r} {why}")
        addresses.append(Address(host, int(port)))
    return addresses


def metadata_request(names: Iterable[str]) -> MetadataRequest:
    """Asks for the nodes, and for topics by their names, and creates none."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def nodes_of(response: MetadataResponse) -> dict[int, Node]:
    """The nodes of an answer, by their ids."""
    return {each.node_id: Node(each.node_id, Address(each.host, each.port)) for each in response.brokers}


def _show_nothing(_waits: bool) -> None:  # noqa: FBT001  as on_wait is called
    """The `on_wait` of a client whose caller shows no waits."""


def _moved(answer: object) -> bool:
    return isinstance(answer, Refused) and answer.error_code in COORDINATOR_MOVED


def _quoted(group_id: str) -> str:
    return f"group {group_id!r}"
