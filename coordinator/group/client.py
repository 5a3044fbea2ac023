"""Who asks, and when: what comes with each event from outside.

House rule: plain values; nothing of ours is imported.
"""

from __future__ import annotations

from typing import NamedTuple

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that proved nothing (Kafka: KafkaPrincipal.ANONYMOUS)."""


class Now(NamedTuple):
    """The time of an event, on two clocks.

    ms: a clock that never jumps, for deadlines, in milliseconds from any origin.
    wall_ms: Unix time in milliseconds, for what is written into records.
    """

    ms: int
    wall_ms: int


class Client(NamedTuple):
    """Who sent a request.

    id: the client id of the request header, "" where it sent null.
    host: its address as Kafka writes it, "/127.0.0.1".
    principal: who it proved to be, ANONYMOUS without authentication.
    software: name and version it gave in ApiVersions v3+, "" if it gave none.
    listener: name of the listener that it came through, "" for a request of the server's own.
    """

    id: str
    host: str
    principal: str = ANONYMOUS
    software: str = ""
    listener: str = ""


NOBODY = Client("", "")
"""Who asks, where that isn't known."""
