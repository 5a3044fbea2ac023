"""A server in the test's own process, and clients that say exactly what the test wants.

    async with serving(engine=engine) as server:          # real sockets, a clock that only `server.clock` moves
        peer = await server.peer()
        answer = await peer.ask(HeartbeatRequest(...), 4)

Engine and clock are in the test's hand: `ManualEngine.hold` keeps appends from becoming durable, `Serving.advance` lets
time pass. Time stands still while the thread of a log works on a disk: a slow disk costs no virtual time. `Peer.ask`
waits for an answer; that there is none yet is said by `Peer.is_silent` after a `barrier`, which is a whole round trip
of another connection.

House rule: every wait ends after WITHIN_S, and nothing waits for time to pass. No loop that waits for work moves a
clock.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from coordinator.config import Config, load
from coordinator.group.client import Client
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.engine import Engine
from coordinator.log.store import OpenStore, Store, in_memory
from coordinator.loop.clock import Handle
from coordinator.loop.pace import Pace
from coordinator.loop.timers import Timers
from coordinator.server.app import Server
from coordinator.server.faults.faults import Faults
from coordinator.server.runtime.partition import Standing
from coordinator.server.wire.connection import Connection
from coordinator.server.wire.long_calls import LongCalls
from protocol.connection import FrameReader
from protocol.header import decode_response, encode_request
from protocol.messages import (
    ApiVersionsRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    Message,
    SyncGroupRequest,
    SyncGroupResponse,
    encode,
)
from tests.support import requests
from tests.support.memory import ManualEngine, ManualLog
from tests.support.patience import WITHIN_S


class ManualCall:
    """A call that a ManualClock will make. A class refers to itself, so one for each call would leave a cycle."""

    def __init__(self, timers: Timers[int], number: int) -> None:
        self._timers = timers
        self._number = number

    def cancel(self) -> None:
        """As Handle.cancel."""
        self._timers.cancel(self._number)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self._ms = 1_000_000
        self._timers: Timers[int] = Timers()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next = 0

    def ms(self) -> int:
        """As Clock.ms."""
        return self._ms

    def wall_ms(self) -> int:
        """As Clock.wall_ms."""
        return 1_700_000_000_000 + self._ms

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Handle:
        """As Clock.call_at."""
        self._next += 1
        number = self._next
        self._callbacks[number] = callback
        self._timers.arm(number, at_ms)
        return ManualCall(self._timers, number)

    def advance(self, ms: int) -> None:
        """Let `ms` pass; what is due on the way is called at its time."""
        end_ms = self._ms + ms
        while (at_ms := self._timers.next_at_ms()) is not None and at_ms <= end_ms:
            self._ms = max(self._ms, at_ms)
            number = self._timers.due(self._ms)
            assert number is not None
            self._callbacks.pop(number)()
        self._ms = end_ms


class Peer:
    """One connection. Requests go out when told to, answers are taken when asked for."""

    def __init__(self, sock: socket.socket, client_id: str | None) -> None:
        self.socket = sock
        self._client_id = client_id
        self._reader = FrameReader(2**31 - 1)
        self._due: list[tuple[int, int, int]] = []
        self._correlation_id = 100

    async def send(self, request: Message, version: int) -> None:
        """Send a request and go on."""
        await self.send_bytes(self.frame(request, version))

    def frame(self, request: Message, version: int) -> bytes:
        """The bytes of a request, whose answer is expected from now on."""
        assert request.API_KEY is not None
        self._correlation_id += 1
        self._due.append((request.API_KEY, version, self._correlation_id))
        return encode_request(request, version, self._correlation_id, self._client_id)

    async def send_bytes(self, data: bytes) -> None:
        """Send whatever bytes."""
        await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(self.socket, data), WITHIN_S)

    async def receive(self) -> Any:
        """The next answer; it has to be that of the oldest request without one."""
        api_key, version, expected = self._due.pop(0)
        frame = await self.receive_frame()
        assert frame is not None, "closed"
        correlation_id, message = decode_response(api_key, version, frame)
        assert correlation_id == expected
        return message

    async def receive_frame(self) -> bytes | None:
        """The next frame; None if the connection was closed."""
        while (frame := self._reader.next_frame()) is None:
            try:
                data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, 65_536), WITHIN_S)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._reader.receive_data(data)
        return frame

    async def ask(self, request: Message, version: int) -> Any:
        """Send a request and take its answer."""
        await self.send(request, version)
        return await self.receive()

    async def is_closed(self) -> bool:
        """Wait for the end of the connection; False if something else comes first."""
        return await self.receive_frame() is None

    def is_silent(self) -> bool:
        """Whether nothing has arrived that was not taken, neither an answer nor the end."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK) and False
        except BlockingIOError:
            return True

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    # A member of a group.

    async def join(self, group: str, member_id: str = "", *, instance: str | None = None, version: int = 5) -> Any:
        """Join and take the answer."""
        return await self.ask(join_request(group, member_id, instance=instance), version)


class Serving:
    """A server that serves, and what the test moves it with."""

    def __init__(self, server: Server, clock: ManualClock, log: io.StringIO) -> None:
        self.server = server
        self.clock = clock
        self._log = log
        self._peers: list[Peer] = []
        self._barrier: Peer | None = None

    async def peer(self, client_id: str | None = "test", *, listener: int = 0, source: str = "") -> Peer:
        """A new connection, to the listener with this index. source: the client's address, if not any."""
        address = self.server.addresses[listener]
        sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        sock.setblocking(False)
        try:
            if source:
                sock.bind((source, 0))
            await asyncio.get_running_loop().sock_connect(sock, address)
        except OSError:
            sock.close()
            raise
        peer = Peer(sock, client_id)
        self._peers.append(peer)
        return peer

    async def barrier(self) -> None:
        """A whole round trip, and one to the thread of the logs: whatever the server could do before, it has done."""
        if self._barrier is None:
            self._barrier = await self.peer("barrier")
        await self._barrier.ask(ApiVersionsRequest(), 0)
        if self.server.data is not None:
            idle = asyncio.Event()
            self.server.data.idle(idle.set)
            await asyncio.wait_for(idle.wait(), WITHIN_S)

    def connections(self) -> list[Connection]:
        """The server's ends of the connections that the test opened."""
        return [each for each in self.server.connections if not self._is_barrier(each)]

    def _is_barrier(self, connection: Connection) -> bool:
        if self._barrier is None:
            return False
        host, port = self._barrier.socket.getsockname()
        return connection.peer == f"{host}:{port}"

    async def loaded(self) -> None:
        """Wait until all groups are loaded. The log line alone may be that of the transactional ids."""
        await self.until(lambda: not self.server.runtime._to_load)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Go round the loop until something is so."""
        loop = asyncio.get_running_loop()
        # No asyncio.timeout: the wait_for of Python 3.11, below, may swallow that it was cancelled.
        end_s = loop.time() + WITHIN_S
        while not condition():
            assert loop.time() < end_s
            await self.barrier()

    async def advance(self, ms: int) -> None:
        """Let time pass once the disks have no more work, and wait until what was due is done."""
        await self.at_rest()
        self.clock.advance(ms)
        await self.at_rest()

    async def at_rest(self) -> None:
        """Wait until what the server could do before is done, and what the threads of a log on a disk do for it."""
        await self.barrier()
        await self.until(lambda: not self._is_at_work())

    def _is_at_work(self) -> bool:
        """Whether the thread of a log on a disk works for the server; an engine in memory does what the test says."""
        assert self.server._store is not None
        if not isinstance(self.server._store.engine, EmbeddedEngine):
            return False
        runtime = self.server.runtime
        return runtime.busy or any(partition.standing is Standing.LOADING for partition in runtime.partitions)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The log lines, of one name or all."""
        lines = [json.loads(line) for line in self._log.getvalue().splitlines()]
        return [line for line in lines if name is None or line["event"] == name]

    def close_peers(self) -> None:
        """Close what the test left open."""
        for peer in self._peers:
            peer.close()


@asynccontextmanager
async def serving(
    *settings: str,
    engine: Engine | None = None,
    clock: ManualClock | None = None,
    stop: bool = True,
    files_max: int | None = None,
    faults: Faults | None = None,
    shared: ManualLog | None = None,
    opened: OpenStore | None = None,
) -> AsyncIterator[Serving]:
    """A server with `settings` (NAME=VALUE) on a free port; its engine is in memory unless one is given.

    shared: makes it a node of the cluster of this log. opened: opens its store, in place of all this.
    """
    config = config_of(*settings)
    clock = clock or ManualClock()
    log = io.StringIO()
    ids = iter(range(1, 2**64))
    server = Server(
        config,
        clock=clock,
        fresh_id=lambda: str(UUID(int=next(ids))),
        opened=opened or (memory(config, engine) if shared is None else partial(clustered, shared)),
        log=log,
        files_max=files_max,
        faults=faults,
    )
    await server.start()
    serving = Serving(server, clock, log)
    try:
        yield serving
    finally:
        serving.close_peers()
        if stop:
            await server.stop()


@asynccontextmanager
async def connected(*settings: str, **options: Any) -> AsyncIterator[tuple[Serving, Peer]]:
    """As serving, with a connection to the server."""
    async with serving(*settings, **options) as server:
        yield server, await server.peer()


def memory(config: Config, engine: Engine | None = None) -> OpenStore:
    """A store of which nothing survives the server; its engine is in memory unless one is given."""
    return partial(in_memory, engine or ManualEngine(config.offsets_topic_num_partitions, config.node_id))


def clustered(log: ManualLog, config: Config, fresh_id: Callable[[], UUID], *further: Any) -> Store:
    """A store in memory that several nodes share, but for the topics."""
    engine = log.engine(config.node_id)
    return in_memory(engine, config, fresh_id, *further)._replace(cluster=engine.cluster, other=None)


def config_of(*settings: str) -> Config:
    """A configuration for tests: a free port, JSON lines, no initial delay, few partitions, no topic of events."""
    given = [
        "listeners=PLAINTEXT://127.0.0.1:0",
        "tenure.log.format=json",
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=4",
        "tenure.topics=orders:3",
        "tenure.events.enable=false",
        *settings,
    ]
    return load(sets=given)[0]


def subscription(*topics: str) -> bytes:
    """Consumer metadata."""
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics), user_data=None), 0)


def assignment(topic: str, *partitions: int) -> bytes:
    """A consumer's assignment."""
    assigned = ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
    return b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=[assigned], user_data=None), 0)


def join_request(
    group: str, member_id: str = "", *, instance: str | None = None, session_ms: int = 10_000
) -> JoinGroupRequest:
    """A consumer's JoinGroup."""
    protocols = [("range", subscription("orders"))]
    return requests.join_request(group, member_id, instance, session_ms=session_ms, protocols=protocols)


def sync_request(group: str, joined: JoinGroupResponse, instance: str | None = None) -> SyncGroupRequest:
    """The SyncGroup of a member that joined; a leader's gives every member a partition."""
    given = {member.member_id: assignment("orders", index) for index, member in enumerate(joined.members)}
    return requests.sync_request(group, joined.generation_id, joined.member_id, instance, given)


def heartbeat_request(group: str, joined: JoinGroupResponse, instance: str | None = None) -> HeartbeatRequest:
    """The heartbeat of a member that joined."""
    return requests.heartbeat_request(group, joined.generation_id, joined.member_id, instance)


async def seat(peer: Peer, group: str, instance: str) -> JoinGroupResponse:
    """Join as the only, static, member of a group, and sync: it is Stable then."""
    joined: JoinGroupResponse = await peer.join(group, instance=instance)
    assert joined.error_code == 0
    synced: SyncGroupResponse = await peer.ask(sync_request(group, joined, instance), 5)
    assert synced.error_code == 0
    return joined


@dataclass
class Sender:
    """The sender of a call without a connection; see Caller."""

    listener: str = "PLAINTEXT"
    local_host: str = "127.0.0.1"

    def client(self, client_id: str | None) -> Client:
        """Its client, on another machine."""
        return Client(client_id or "", "/h")

    def set_software(self, software: str) -> None:
        """Forget it: no test asks for it."""


def endless_calls() -> LongCalls:
    """For calls in turns that never end: all work is done at once."""
    return LongCalls(Pace(ManualClock(), lambda _: None), config_of())
