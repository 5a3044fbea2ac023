"""The client behind a request, and the time of an event: what the shell adds to each event.

House rule: plain values; this module imports nothing of ours.
"""

from __future__ import annotations

from typing import NamedTuple

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that is not authenticated (Kafka: KafkaPrincipal.ANONYMOUS)."""


class Now(NamedTuple):
    """The time of an event, on two clocks.

    ms: milliseconds on a clock that never jumps; deadlines use it.
    wall_ms: Unix time in milliseconds; records use it.
    """

    ms: int
    wall_ms: int


class Client(NamedTuple):
    """The sender of a request. Notes of members have the first three fields, or two, in this order.

    id: the client id of the request header, "" where it is null.
    host: the client's address as Kafka writes it, "/127.0.0.1".
    principal: the authenticated user; ANONYMOUS without authentication.
    software: name and version from ApiVersions v3+, "" without them.
    listener: name of the listener that the request came through, "" for a request of the server's own.
    """

    id: str
    host: str
    principal: str = ANONYMOUS
    software: str = ""
    listener: str = ""


NOBODY = Client("", "")
"""The client where none is known."""
