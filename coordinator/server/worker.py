"""A worker: a server in a process that its supervisor (supervisor.py) has forked.

It serves its partitions on sockets that the supervisor bound before the fork. It asks the supervisor for each change of
the list of topics, and applies each change that the supervisor sends, even before the server is ready.

A worker asks another one through the supervisor (relay.py).

It stops in order on SIGTERM, and also when the channel ends: then the supervisor is gone, and the next one needs the
data folder free. It ignores SIGINT, which a terminal sends to all processes; the supervisor acts on it.

House rule: no request of a group asks another worker.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import convert

from coordinator.config import Config
from coordinator.log.cluster import NodeAddresses
from coordinator.log.store import open_share
from coordinator.log.topics.list import Topic
from coordinator.loop.heap import settle
from coordinator.server.app import Bound, Server, StartFailed, WorkerPart
from coordinator.server.channel import Kind, LineReader, line
from coordinator.server.nodes.topics import Change
from coordinator.server.process import allow_files, serve
from coordinator.server.relay import Link

if TYPE_CHECKING:
    from coordinator.server.wire.certificates import Certificates

DONE, BROKE, NOT_STARTED = 0, 1, 2
"""Exit codes: it stopped in order; its log can't be written any more; it could not start, and said why."""


class WorkerLink(Link, asyncio.Protocol):
    """The worker's end of the channel.

    silent_nodes: the ids of nodes whose workers don't answer the supervisor. on_lost: called when the supervisor is
    gone.
    """

    def __init__(self, topics: Iterable[Topic], on_lost: Callable[[], None]) -> None:
        super().__init__(topics, "the supervisor is gone")
        self.silent_nodes: set[int] = set()
        self.closed = asyncio.Event()
        self._on_lost = on_lost
        self._reader = LineReader()
        self._transport: asyncio.Transport

    @property
    def is_open(self) -> bool:
        """See Link."""
        return not self._transport.is_closing()

    def send(self, kind: Kind, **fields: Any) -> None:
        """See Link."""
        self._transport.write(line(kind, **fields))

    async def close(self) -> None:
        """Close the channel when all messages are sent."""
        self._transport.close()
        await self.closed.wait()

    # For the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """As asyncio.Protocol."""
        for message in self._reader.feed(data):
            kind = message["kind"]
            if kind == Kind.PING:
                self.send(Kind.PONG)
            elif kind == Kind.SILENT_NODES:
                self.silent_nodes.clear()
                self.silent_nodes.update(message["nodes"])
            else:
                if kind == Kind.APPLY:
                    message["change"] = convert(message["change"], Change)
                self.receive(kind, message)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio.Protocol
        """As asyncio.Protocol."""
        self.closed.set()
        self._on_lost()  # first: a callback that fails must not leave a worker that nobody supervises
        self.give_up()


async def work(
    config: Config,
    bound: Bound,
    nodes: Sequence[NodeAddresses],
    cluster_id: str,
    topics: Iterable[Topic],
    channel: socket.socket,
    certificates: Certificates | None = None,
) -> int:
    """Serve until SIGTERM or the end of the channel; the exit code. certificates: those that the supervisor has."""
    ended = asyncio.Event()
    link = WorkerLink(topics, ended.set)
    await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=channel)
    share = WorkerPart(
        bound,
        nodes,
        link.topics,
        link.silent_nodes,
        peers=link,
        certificates=certificates,
        on_certificates=partial(link.send, Kind.CERTIFICATES_READ),
    )
    opened = partial(open_share, [node.node_id for node in nodes], cluster_id)
    server = Server(config, opened=opened, share=share, on_loaded=settle, files_max=allow_files())
    try:
        done = await serve(server, lambda _: link.send(Kind.READY), ended, [signal.SIGTERM])
    except StartFailed as error:
        link.send(Kind.START_FAILED, reason=str(error))
        done = None
    await link.close()
    return NOT_STARTED if done is None else DONE if done else BROKE
