"""The proxy that a test cuts: it passes, it loses, and it passes again."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.patience import WITHIN_S
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
def echo_port() -> Iterator[int]:
    """Yield the port of a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def echo(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(4096):
                connection.sendall(data)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def connect(proxy: TcpProxy) -> socket.socket:
    """A connection through the proxy."""
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WITHIN_S)


def test_a_cut_loses_bytes_and_keeps_connections(echo_port: int) -> None:
    """Both old and new connections stay open and silent; after the cut old ones are over, and new ones pass."""
    with TcpProxy(echo_port) as proxy, connect(proxy) as old:
        old.sendall(b"before")
        assert old.recv(100) == b"before"
        proxy.cut()
        old.sendall(b"lost")
        with connect(proxy) as new:
            new.sendall(b"lost")
            assert select.select([old, new], [], [], 0.2)[0] == []
            proxy.heal()
            with pytest.raises(ConnectionError):
                raise ConnectionError if old.recv(100) == b"" else AssertionError
        with connect(proxy) as new:
            new.sendall(b"after")
            assert new.recv(100) == b"after"
