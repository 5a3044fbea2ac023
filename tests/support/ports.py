"""The port of an address; and a port where nobody listens, and where nobody can listen while a test needs that.

House rule: a test never uses a port that it has given back.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def refusing_port() -> Iterator[int]:
    """Yield a port that refuses connections: a socket has it, but doesn't listen."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def reserved_port() -> socket.socket:
    """Reserve a port for a program that sets SO_REUSEADDR, such as one in Java or Go, while the socket is open.

    The socket has the option, too, but doesn't listen. So the program can listen on the port, also after a restart, and
    the kernel gives the port to no program that asks for any.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def port_of(bootstrap: str) -> int:
    """The port of a server on this machine."""
    return int(bootstrap.rpartition(":")[2])
