"""Requests and responses with their headers, and the size in front.

A frame is a size of four bytes, and behind it a header and the body of a message. The form of the header depends on API
and version (KIP-482): a request has header 1 and a response header 0; if the message is flexible, they have headers 2
and 1. One exception: the response to ApiVersions always has header 0. So a client can read it before it knows the
server's versions.

Here `frame` is the bytes behind the size, as `protocol.connection.FrameReader` returns them.

House rule: the type of the exception says why a frame can't be answered.
Source: Kafka's RequestHeader.json, ResponseHeader.json, RequestHeader.parse, ApiKeys.requestHeaderVersion.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import NamedTuple

from protocol.compile import WRONG
from protocol.errors import ProtocolError, UnsupportedVersion
from protocol.messages import Message, api_schema, decode, encode, encode_in_steps, response_class
from protocol.primitives import decode_tags, decode_text
from protocol.speed import new

API_VERSIONS = 18

_REQUEST_SIZE = 10
_unpack_request = struct.Struct(">hhih").unpack_from
_pack_request = struct.Struct(">ihhih").pack
_RESPONSE_SIZE = 4
_unpack_response = struct.Struct(">i").unpack_from
_pack_response = struct.Struct(">ii").pack
_pack_flexible_response = struct.Struct(">iix").pack


class RequestHeader(NamedTuple):
    """The header of a request.

    client_id: None where null was sent. body_offset: where in the frame the body starts.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def decode_request_header(frame: bytes) -> RequestHeader:
    """The header of a request.

    Raises UnknownApi, UnsupportedVersion, or ProtocolError if it is cut short or garbled; Kafka closes the connection
    in all three cases. An unsupported version of ApiVersions raises nothing: a server answers it in version 0 with
    UNSUPPORTED_VERSION and doesn't read its body (KIP-511). So the caller checks `api_version` against VERSIONS.
    """
    try:
        api_key, version, correlation_id, size = _unpack_request(frame)
        first, last, flexible, _ = _versions.get(api_key) or _look_up(api_key)
        if not first <= version <= last and api_key != API_VERSIONS:
            raise UnsupportedVersion(api_schema(api_key).NAME, api_key, version)
        if size < 0:
            offset = _REQUEST_SIZE
            client_id = None
        else:
            offset = _REQUEST_SIZE + size
            try:
                client_id = frame[_REQUEST_SIZE:offset].decode()
            except UnicodeDecodeError:
                client_id = decode_text(frame[_REQUEST_SIZE:offset])
        if version >= flexible:
            if frame[offset]:
                offset = decode_tags(frame, offset)[1]
            else:
                offset += 1
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"request header cut short ({error})") from None
    if offset > len(frame):
        raise ProtocolError("request header cut short")
    return new(RequestHeader, (api_key, version, correlation_id, client_id, offset))


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The bytes of a request, size included."""
    assert message.API_KEY is not None, message.NAME
    body = encode(message, version)
    client = b"" if client_id is None else client_id.encode()
    tags = b"\0" if version >= _checked(message.API_KEY, version).flexible_request else b""
    size = _REQUEST_SIZE + len(client) + len(tags) + len(body)
    client_size = -1 if client_id is None else len(client)
    return b"".join((_pack_request(size, message.API_KEY, version, correlation_id, client_size), client, tags, body))


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> bytes:
    """The bytes of a response, size included."""
    assert api_key == message.API_KEY, (message.NAME, api_key)
    try:
        body: bytes = message._encoders[version](message)
    except WRONG:  # raised again, with its text
        body = encode(message, version)
    if version >= (_versions.get(api_key) or _look_up(api_key)).flexible_response:
        return _pack_flexible_response(len(body) + _RESPONSE_SIZE + 1, correlation_id) + body
    return _pack_response(len(body) + _RESPONSE_SIZE, correlation_id) + body


def encode_response_in_steps(
    api_key: int, version: int, correlation_id: int, message: Message, bytes_max: int
) -> Generator[None, None, list[bytes]]:
    """As `encode_response`, but in steps (see `encode_in_steps`); returns the parts of the response."""
    assert api_key == message.API_KEY, (message.NAME, api_key)
    parts = yield from encode_in_steps(message, version, bytes_max)
    size = sum(map(len, parts))
    if version >= (_versions.get(api_key) or _look_up(api_key)).flexible_response:
        return [_pack_flexible_response(size + _RESPONSE_SIZE + 1, correlation_id), *parts]
    return [_pack_response(size + _RESPONSE_SIZE, correlation_id), *parts]


def decode_response(api_key: int, version: int, frame: bytes) -> tuple[int, Message]:
    """Correlation id and message of the response to a request of this API and version. Raises ProtocolError."""
    flexible = version >= _checked(api_key, version).flexible_response
    offset = _RESPONSE_SIZE
    try:
        (correlation_id,) = _unpack_response(frame)
        if flexible:
            offset = decode_tags(frame, offset)[1]
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"response header cut short ({error})") from None
    return correlation_id, decode(response_class(api_key), frame, version, offset)


class _Versions(NamedTuple):
    """The versions of an API, as far as headers depend on them.

    flexible_request, flexible_response: the first version whose header is flexible; above `last` if none is.
    """

    first: int
    last: int
    flexible_request: int
    flexible_response: int


_versions: dict[int, _Versions] = {}
"""By API key; `_look_up` fills it."""


def _look_up(api_key: int) -> _Versions:
    """Add an API to `_versions` and return its entry. Raises UnknownApi."""
    schema = api_schema(api_key)
    first, last = schema.VERSIONS
    never = 1 << 15
    flexible = never if schema.FLEXIBLE is None else schema.FLEXIBLE
    versions = _versions[api_key] = _Versions(first, last, flexible, never if api_key == API_VERSIONS else flexible)
    return versions


def _checked(api_key: int, version: int) -> _Versions:
    """The versions of an API that has `version`. Raises UnknownApi, UnsupportedVersion."""
    versions = _versions.get(api_key) or _look_up(api_key)
    if not versions.first <= version <= versions.last:
        raise UnsupportedVersion(api_schema(api_key).NAME, api_key, version)
    return versions
