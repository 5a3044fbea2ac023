"""Clients of the observed cluster that share connections, answers, and a budget of requests.

    asking = Asking(Cluster("127.0.0.1:9092"), Budget(20, 40))
    with asking.open() as client:
        list_groups(client)

Each request of the page, and each look at the state of groups, opens a client here. A client costs nothing: its
requests go over one connection for each node, one after the other, and the answer to an equal request counts for
FRESH_S. So ten open pages cost the cluster as much as one. All requests together take their turn from one budget; a
request that would have to wait beyond its deadline fails with Unreachable, as if the cluster hadn't answered.

    with asking.own(5.0) as client:
        ...

The reader of the log, and the writer of events, have clients with connections of their own, because their requests wait
for news, or write. Those requests count in the same budget. So that the log is read whatever the page asks for, a few
small ones wait for no turn (URGENT): they only make others wait.

House rule: the shared clients send only requests that read (READING).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any

from coordinator.client.client import TIMEOUT, Client, Cluster, Node
from coordinator.client.connection import NEWEST, Address, Connection, Deadline
from coordinator.client.errors import Unreachable
from protocol.header import encode_request
from protocol.messages import FetchRequest, ListOffsetsRequest, Message, MetadataRequest

READING = frozenset(
    {
        "ConsumerGroupDescribeRequest",
        "DescribeClusterRequest",
        "DescribeConfigsRequest",
        "DescribeGroupsRequest",
        "DescribeProducersRequest",
        "DescribeShareGroupOffsetsRequest",
        "DescribeTransactionsRequest",
        "FetchRequest",
        "FindCoordinatorRequest",
        "ListGroupsRequest",
        "ListOffsetsRequest",
        "ListTransactionsRequest",
        "MetadataRequest",
        "OffsetFetchRequest",
        "ShareGroupDescribeRequest",
        "StreamsGroupDescribeRequest",
    }
)
"""The names of requests that change nothing."""

URGENT = (ListOffsetsRequest, MetadataRequest)
"""Requests of clients of their own that wait for no turn: without the leaders and the ends of logs nothing is read."""

REQUESTS_PER_S, REQUESTS_AT_ONCE = 20, 40
"""The budget of an observer: requests to the whole cluster in a second on average, and at most at once. A broker takes
some thousand such requests a second. Fetches of the log don't count: there is one at a time for each node."""

FRESH_S = 2.0
"""How long an answer counts."""

KEPT_MAX = 1_000
"""Most answers in memory; all of them go when there are more."""

CLIENT_ID = "tenure-observe"


class Budget:
    """So many requests a second on average, and so many at once after a pause. For any thread."""

    def __init__(
        self,
        per_s: float = REQUESTS_PER_S,
        at_once: int = REQUESTS_AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._interval = 1 / per_s
        self._at_once = at_once
        self._clock = clock
        self._pause = pause
        self._lock = Lock()
        self._next = clock() - at_once * self._interval
        """When the next request would go if none may go at once."""

    @property
    def share_left(self) -> float:
        """The part of `at_once` that is left: 1.0 if nobody asked for a while, 0 or less if requests wait."""
        with self._lock:
            return min((self._clock() - self._next) / (self._at_once * self._interval), 1.0)

    def take(self, within_s: float) -> None:
        """Wait until a request may go. Raises Unreachable if that is too late."""
        with self._lock:
            now = self._clock()
            self._next = max(self._next, now - self._at_once * self._interval)
            wait = self._next + self._interval - now
            if wait > within_s:
                raise Unreachable("too many requests to the observed cluster at a time")
            self._next += self._interval
        if wait > 0:
            self._pause(wait)

    def charge(self) -> None:
        """Count a request that goes at once; others wait longer for it."""
        with self._lock:
            self._next = max(self._next, self._clock() - self._at_once * self._interval) + self._interval


class Asking:
    """See the module. where: the observed cluster. timeout: seconds that a call may take.

    named: the nodes that answers named, for all clients. count: requests that were sent.
    """

    def __init__(
        self,
        where: Cluster,
        budget: Budget,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._where = where
        self._timeout = timeout
        self.budget = budget
        self._clock = clock
        self._lock = Lock()
        self._nodes: dict[Address, _Node] = {}
        self.named: list[Address] = []
        self._coordinators: dict[str, Node] = {}
        self._answers: dict[tuple[Address, bytes], tuple[float, Any]] = {}
        self.count = 0

    def open(self, *, anew: bool = False) -> Client:
        """A client, for one thread. anew: it takes no answer to an earlier request, and its own serve nobody else."""
        return Client(
            self._where.bootstrap,
            self._timeout,
            client_id=CLIENT_ID,
            security=self._where.security,
            known=self.named,
            coordinators=self._coordinators,
            connect=partial(self._connect, anew=anew),
        )

    def own(self, timeout: float) -> Client:
        """A client with connections of its own; see the module."""
        return _OwnClient(self._where, timeout, self)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            nodes = list(self._nodes.values())
        for node in nodes:
            node.drop()

    def _connect(self, address: Address, client_id: str, deadline: Deadline, *, anew: bool) -> _Shared:
        with self._lock:
            node = self._nodes.get(address)
            if node is None:
                begin = partial(Connection, address, client_id, security=self._where.security)
                node = self._nodes[address] = _Node(address, begin, self)
        node.connect(deadline)
        return _Shared(node, anew=anew)

    # For `_Node` and `_OwnClient`.

    def sent(self) -> None:
        """Count a request."""
        with self._lock:
            self.count += 1

    def known(self, address: Address, asked: bytes) -> Any:
        """A fresh answer to an equal request; None if there is none."""
        with self._lock:
            at, answer = self._answers.get((address, asked), (0.0, None))
            return answer if answer is not None and self._clock() - at < FRESH_S else None

    def keep(self, address: Address, asked: bytes, answer: Any) -> None:
        """Keep an answer for equal requests."""
        with self._lock:
            now = self._clock()
            if len(self._answers) >= KEPT_MAX:
                self._answers.clear()
            for key in [key for key, (at, _) in self._answers.items() if now - at >= FRESH_S]:
                del self._answers[key]
            self._answers[address, asked] = now, answer


class _OwnClient(Client):
    """A client that counts what it sends, each try too. Fetches have a pace of their own."""

    def __init__(self, where: Cluster, timeout: float, asking: Asking) -> None:
        super().__init__(where.bootstrap, timeout, security=where.security, known=asking.named)
        self._asking = asking

    def _send(
        self, message: Message, node: Node | None, deadline: Deadline, at_least: int = 0, at_most: int = NEWEST
    ) -> Any:
        if not isinstance(message, FetchRequest):
            if isinstance(message, URGENT):
                self._asking.budget.charge()
            else:
                self._asking.budget.take(deadline.left)
            self._asking.sent()
        return super()._send(message, node, deadline, at_least, at_most)


class _Shared:
    """A node, for one client; see coordinator.client.connection.Asking."""

    def __init__(self, node: _Node, *, anew: bool) -> None:
        self.version = node.version
        self.request = partial(node.request, anew=anew)

    def close(self) -> None:
        """See Connection. The connection serves other clients."""


class _Node:
    """A node, for the clients of all threads."""

    def __init__(self, address: Address, begin: Callable[[Deadline], Connection], asking: Asking) -> None:
        self._address = address
        self._begin = begin
        self._asking = asking
        self._lock = Lock()
        self._connection: Connection | None = None

    def connect(self, deadline: Deadline) -> None:
        """Connect, if there is no connection."""
        self._acquire(deadline)
        try:
            if self._connection is None:
                self._connection = self._begin(deadline)
        finally:
            self._lock.release()

    def version(self, request_class: type[Message], at_least: int = 0, at_most: int = NEWEST) -> int:
        """See Connection."""
        connection = self._connection
        if connection is None:
            raise Unreachable(f"{self._address} closed the connection")
        return connection.version(request_class, at_least, at_most)

    def request(self, message: Message, version: int, deadline: Deadline, *, anew: bool) -> Any:
        """See Connection."""
        assert message.NAME in READING, f"an observer doesn't send {message.NAME}"
        # The records of a Fetch are large, and nobody asks twice.
        asked = None if anew or isinstance(message, FetchRequest) else encode_request(message, version, 0, CLIENT_ID)
        self._acquire(deadline)
        try:
            answer = None if asked is None else self._asking.known(self._address, asked)
            if answer is None:
                self._asking.budget.take(deadline.left)
                answer = self._send(message, version, deadline)
                self._asking.sent()
                if asked is not None:
                    self._asking.keep(self._address, asked, answer)
            return answer
        finally:
            self._lock.release()

    def drop(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send(self, message: Message, version: int, deadline: Deadline) -> Any:
        if self._connection is None:
            raise Unreachable(f"{self._address} closed the connection")
        try:
            return self._connection.request(message, version, deadline)
        except BaseException:
            self.drop()
            raise

    def _acquire(self, deadline: Deadline) -> None:
        if not self._lock.acquire(timeout=max(deadline.left, 0)):
            raise Unreachable(f"{self._address} did not answer in time")
