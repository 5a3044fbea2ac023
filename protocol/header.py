"""Requests and responses with their headers, and the size in front.

A frame is a size of four bytes and so many bytes: a header and the body of a message. Which form the header has depends
on API and version (KIP-482): header 1 of a request and 0 of a response, or 2 and 1 where the message is flexible. One
exception: the response to ApiVersions has header 0 always, so that a client can read it before it knows what the server
speaks.

Here `frame` is what stands behind the size, as `protocol.connection.FrameReader` gives it.

House rule: whoever reads a frame learns from the exception's type why it can't be answered.
Source: Kafka's RequestHeader.json, ResponseHeader.json, RequestHeader.parse, ApiKeys.requestHeaderVersion.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from protocol.errors import ProtocolError, UnsupportedVersion
from protocol.messages import Message, api_schema, decode, encode, request_class, response_class
from protocol.primitives import decode_tags

API_VERSIONS = 18

_REQUEST = struct.Struct(">hhih")
_SIZED_REQUEST = struct.Struct(">ihhih")
_RESPONSE = struct.Struct(">i")
_SIZED_RESPONSE = struct.Struct(">ii")
_SIZED_FLEXIBLE_RESPONSE = struct.Struct(">iix")


class RequestHeader(NamedTuple):
    """Who asks what.

    client_id: None where null was sent. body_offset: where in the frame the body starts.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def decode_request_header(frame: bytes) -> RequestHeader:
    """The header of a request.

    Raises UnknownApi, UnsupportedVersion, or ProtocolError if it is cut short or garbled; Kafka closes the connection in all
    three cases. One unsupported version is let through, that of ApiVersions: it is answered in version 0 with
    UNSUPPORTED_VERSION and its body is not read (KIP-511), so `api_version` is to be checked against VERSIONS.
    """
    try:
        api_key, version, correlation_id, size = _REQUEST.unpack_from(frame)
        flexible = _flexible(api_key, version, refuse=api_key != API_VERSIONS)
        offset = _REQUEST.size
        client_id = None
        if size >= 0:
            offset += size
            client_id = frame[_REQUEST.size : offset].decode()
        if flexible:
            if frame[offset]:
                offset = decode_tags(frame, offset)[1]
            else:
                offset += 1
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"request header cut short or garbled ({error})") from None
    if offset > len(frame):
        raise ProtocolError("request header cut short")
    return RequestHeader(api_key, version, correlation_id, client_id, offset)


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request as it goes over the wire, size included."""
    assert message.API_KEY is not None, message.NAME
    body = encode(message, version)
    client = b"" if client_id is None else client_id.encode()
    tags = b"\0" if _flexible(message.API_KEY, version) else b""
    size = _REQUEST.size + len(client) + len(tags) + len(body)
    client_size = -1 if client_id is None else len(client)
    head = _SIZED_REQUEST.pack(size, message.API_KEY, version, correlation_id, client_size)
    return b"".join((head, client, tags, body))


def decode_request(frame: bytes) -> tuple[RequestHeader, Message]:
    """A request whole. Raises ProtocolError, for ApiVersions in an unknown version too (UnsupportedVersion)."""
    header = decode_request_header(frame)
    return header, decode(request_class(header.api_key), frame, header.api_version, header.body_offset)


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> bytes:
    """A response as it goes over the wire, size included."""
    assert message.API_KEY == api_key, (message.NAME, api_key)
    body = encode(message, version)
    if api_key != API_VERSIONS and _flexible(api_key, version):
        return _SIZED_FLEXIBLE_RESPONSE.pack(len(body) + 5, correlation_id) + body
    return _SIZED_RESPONSE.pack(len(body) + 4, correlation_id) + body


def decode_response(api_key: int, version: int, frame: bytes) -> tuple[int, Message]:
    """Correlation id and message of the response to a request of this API and version. Raises ProtocolError."""
    flexible = api_key != API_VERSIONS and _flexible(api_key, version)
    if len(frame) < _RESPONSE.size + flexible:
        raise ProtocolError("response header cut short")
    (correlation_id,) = _RESPONSE.unpack_from(frame)
    offset = _RESPONSE.size
    if flexible:
        try:
            offset = decode_tags(frame, offset)[1]
        except IndexError:
            raise ProtocolError("response header cut short") from None
    return correlation_id, decode(response_class(api_key), frame, version, offset)


_flexible_versions: dict[int, tuple[int, int, int]] = {}
"""First, last and first flexible version by API key, filled as they are asked for."""


def _flexible(api_key: int, version: int, refuse: bool = True) -> bool:
    """Whether an API's version is flexible. Raises UnknownApi, and UnsupportedVersion if `refuse`."""
    versions = _flexible_versions.get(api_key)
    if versions is None:
        schema = api_schema(api_key)
        first, last = schema.VERSIONS
        versions = (first, last, last + 1 if schema.FLEXIBLE is None else schema.FLEXIBLE)
        _flexible_versions[api_key] = versions
    if refuse and not versions[0] <= version <= versions[1]:
        raise UnsupportedVersion(api_schema(api_key).NAME, api_key, version)
    return version >= versions[2]
