"""Drives many connections from one thread: scripts yield requests, and the driver returns the answers to them.

A script is a generator. It yields a request and receives the answer, both as whole frames. If it yields a number, it
waits until that time (of `clock`) without an answer. Several scripts may share a connection: the driver pipelines their
requests, and since answers come in order, each goes to the script whose turn it is. The number of scripts on a
connection is its pipelining depth.

The loop is bare epoll with one read and one write per connection and round: on an event loop the generator would cost
as much as the cheapest server that it measures.

With a context, connections are encrypted. `connect` makes one handshake after the other; `arrive` and `enter` make many
at once.

House rule: this module knows nothing of Kafka but the four bytes of a frame's size.
"""

from __future__ import annotations

import heapq
import os
import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Generator, Iterable
from itertools import count
from typing import Self

Script = Generator["bytes | float", bytes, None]

clock = time.perf_counter

SIZE_BYTES = 4
READ_BYTES = 16 * 1024
"""Small enough that the memory comes from the heap, and no read asks the kernel for any."""
CONNECT_TIMEOUT_S = 20.0
STUCK_S = 60.0
"""After this time for one round of requests the driver gives up: the server is lost, not slow."""

_unpack_size = struct.Struct(">i").unpack_from


def _lacking(data: bytes, position: int) -> int:
    """Return how many bytes of the frame at this position are missing, or of its size if that is incomplete."""
    there = len(data) - position
    return SIZE_BYTES + (_unpack_size(data, position)[0] if there >= SIZE_BYTES else 1) - there


class Stuck(Exception):
    """The server closed a connection or doesn't answer."""


class Link:
    """A connection: scripts that wait for answers, the incomplete frame, and bytes that the kernel didn't take yet.

    received: pieces of an incomplete frame. lacks: at least as many bytes must come until it is complete.
    first: the script that waits for the end of the handshake; None without one.
    """

    __slots__ = ("due", "fd", "first", "lacks", "received", "sock", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.due: deque[Script] = deque()
        self.received: list[bytes] = []
        self.lacks = 0
        self.unsent = b""
        self.first: Script | None = None

    def read(self) -> bytes | None:
        """Return what has come; None if that is no whole record of TLS."""
        return os.read(self.fd, READ_BYTES)

    def write(self, data: bytes) -> int:
        """Return how many bytes the kernel took."""
        return os.write(self.fd, data)


class SecureLink(Link):
    """An encrypted connection."""

    __slots__ = ("tls",)

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self.tls = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        super().__init__(self.tls)

    def read(self) -> bytes | None:
        """See Link. A record of TLS has at most READ_BYTES, so none of it stays behind where epoll doesn't see it."""
        try:
            return self.tls.recv(READ_BYTES)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError as error:
            raise ConnectionResetError(str(error)) from None

    def write(self, data: bytes) -> int:
        """See Link."""
        try:
            return self.tls.send(data)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None


class Driver:
    """Connections to one server, and the scripts on them. context: of TLS, if they are encrypted."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        self.address = (host, port)
        self.context = context
        self.links: list[Link] = []
        self._by_fd: dict[int, Link] = {}
        self._epoll = select.epoll()
        self._waiting: list[tuple[float, int, Link, Script]] = []
        self._ticket = count()
        self.active = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(
        self, connection_count: int, source: str | None = None, address: tuple[str, int] | None = None
    ) -> list[Link]:
        """Open connections, one after the other. source: our own address. address: another server."""
        opened = []
        for _ in range(connection_count):
            sock = socket.create_connection(
                address or self.address, CONNECT_TIMEOUT_S, source_address=None if source is None else (source, 0)
            )
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.context is None:
                link = Link(sock)
            else:
                link = SecureLink(sock, self.context, self.address[0])
                link.tls.do_handshake()
            self._add(link)
            opened.append(link)
        return opened

    def _add(self, link: Link) -> None:
        link.sock.setblocking(False)
        self.links.append(link)
        self._by_fd[link.fd] = link
        self._epoll.register(link.fd, select.EPOLLIN)

    def arrive(self, connection_count: int) -> list[Link]:
        """Open connections, one after the other, but leave their handshakes to `enter`."""
        arrived: list[Link] = []
        for _ in range(connection_count):
            sock = socket.create_connection(self.address, CONNECT_TIMEOUT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(sock) if self.context is None else SecureLink(sock, self.context, self.address[0])
            self._add(link)
            arrived.append(link)
        return arrived

    def enter(self, link: Link, script: Script) -> None:
        """Begin a connection's handshake, behind which it starts with this script."""
        self.active += 1
        link.first = script
        self._shake(link, script)

    def leave(self, link: Link) -> None:
        """Close a connection; for its last script, after its last answer."""
        self._epoll.unregister(link.fd)
        del self._by_fd[link.fd]
        self.links.remove(link)
        link.sock.close()

    def close(self) -> None:
        """Close all connections; scripts that wait get no answer."""
        self._epoll.close()
        for link in self.links:
            link.sock.close()
        self.links.clear()
        self._by_fd.clear()

    def start(self, link: Link, *scripts: Script) -> None:
        """Start scripts on a connection; their first requests leave with one write."""
        out: list[bytes] = []
        for script in scripts:
            self.active += 1
            self._advance(link, script, None, out)
        if out:
            self._write(link, b"".join(out))

    def run(self, seconds: float | None = None) -> None:
        """Run for that many seconds, or until every script has ended. Raises Stuck."""
        began = clock()
        end = None if seconds is None else began + seconds
        heard = began
        while self.active:
            now = clock()
            if end is not None and now >= end:
                return
            wake = min(end or now + 1.0, now + 1.0)
            if self._waiting:
                wake = min(wake, self._waiting[0][0])
            events = self._epoll.poll(max(wake - now, 0.0))
            if events or self._waiting:
                heard = now
            elif now - heard > STUCK_S:
                raise Stuck(f"no answer within {STUCK_S:g} s")
            self._round(events)
            if self._waiting:
                self._wake()

    def _round(self, events: Iterable[tuple[int, int]]) -> None:
        links = self._by_fd
        for fd, event in events:
            link = links[fd]
            if link.first is not None:
                self._shake(link, link.first)
                continue
            if event & select.EPOLLOUT:
                self._epoll.modify(fd, select.EPOLLIN)
                unsent, link.unsent = link.unsent, b""
                self._write(link, unsent)
                if event == select.EPOLLOUT:
                    continue
            try:
                data = link.read()
            except ConnectionError as error:
                raise Stuck(f"a connection is lost: {error}") from None
            if data is None:
                continue
            if not data:
                raise Stuck("the server closed a connection")
            if link.received:
                link.received.append(data)
                link.lacks -= len(data)
                if link.lacks > 0:
                    continue
                data = b"".join(link.received)
                link.received.clear()
            out: list[bytes] = []
            position, size = 0, len(data)
            while size - position > SIZE_BYTES:
                end = position + SIZE_BYTES + _unpack_size(data, position)[0]
                if end > size:
                    break
                self._advance(link, link.due.popleft(), data[position:end], out)
                position = end
            if position < size:
                link.received.append(data[position:])
                link.lacks = _lacking(data, position)
            if out:
                self._write(link, out[0] if len(out) == 1 else b"".join(out))

    def _shake(self, link: Link, script: Script) -> None:
        """Take a step of a handshake; behind the last one the script starts."""
        if isinstance(link, SecureLink):
            try:
                link.tls.do_handshake()
            except ssl.SSLWantReadError:
                return
            except OSError as error:
                raise Stuck(f"a handshake fails: {error}") from None
        link.first = None
        self.active -= 1
        self.start(link, script)

    def _advance(self, link: Link, script: Script, answer: bytes | None, out: list[bytes]) -> None:
        """Pass an answer to a script, and take its next request or time."""
        try:
            wish = script.send(answer)  # type: ignore[arg-type]  # None starts it
        except StopIteration:
            self.active -= 1
            return
        if isinstance(wish, bytes):
            link.due.append(script)
            out.append(wish)
        else:
            heapq.heappush(self._waiting, (wish, next(self._ticket), link, script))

    def _wake(self) -> None:
        """Continue the scripts whose time has come."""
        now = clock()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, link, script = heapq.heappop(self._waiting)
            out: list[bytes] = []
            self._advance(link, script, None, out)
            if out:
                self._write(link, out[0])

    def _write(self, link: Link, data: bytes) -> None:
        """Write as much as the kernel takes; the rest leaves when it takes more."""
        if link.unsent:
            link.unsent += data
            return
        try:
            sent = link.write(data)
        except BlockingIOError:
            sent = 0
        except ConnectionError as error:
            raise Stuck(f"a connection is lost: {error}") from None
        if sent < len(data):
            link.unsent = data[sent:]
            self._epoll.modify(link.fd, select.EPOLLIN | select.EPOLLOUT)
