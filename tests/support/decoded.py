"""Decodes what tests look at: a message with its end, and a whole request."""

from __future__ import annotations

from protocol.compile import AnyMessage, Message, decode
from protocol.header import RequestHeader, decode_request_header
from protocol.messages import request_class


def decode_from(cls: type[AnyMessage], buffer: bytes, version: int, offset: int = 0) -> tuple[AnyMessage, int]:
    """Return the message whose body starts at `offset`, and the offset behind it. Raises ProtocolError."""
    return decode(cls, buffer, version, offset), cls._decoders[version](buffer, offset)[1]


def decode_request(frame: bytes) -> tuple[RequestHeader, Message]:
    """Return the header and the message of a request. Raises ProtocolError."""
    header = decode_request_header(frame)
    return header, decode(request_class(header.api_key), frame, header.api_version, header.body_offset)
