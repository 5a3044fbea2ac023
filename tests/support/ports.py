"""A port where nobody listens, and where nobody can listen while a test needs that.

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
