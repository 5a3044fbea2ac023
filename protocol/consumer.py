"""What consumers tell each other through a coordinator: subscriptions and assignments, behind a version of two bytes.

A later version only appends. So one that is newer than the newest we know is read as that, as clients do.

House rule: bytes that can't be read are a ProtocolError, whatever they are.
Source: Kafka's ConsumerProtocol.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from protocol.compile import Message
from protocol.errors import ProtocolError
from protocol.messages import decode

Told = TypeVar("Told", bound=Message)

_version = struct.Struct(">h")


def decode_told(cls: type[Told], data: bytes) -> tuple[int, Told]:
    """The version that the bytes claim, and what they say; cls: ConsumerProtocolSubscription or -Assignment.

    Raises ProtocolError.
    """
    if len(data) < _version.size:
        raise ProtocolError(f"{len(data)} bytes, a version takes {_version.size}")
    version: int = _version.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"version {version}")
    return version, decode(cls, data, min(version, cls.VERSIONS[1]), _version.size)
