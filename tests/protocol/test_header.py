"""Headers by API and version, and whole requests and responses."""

from __future__ import annotations

import struct
from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import given

from protocol import messages
from protocol.connection import FrameReader
from protocol.errors import ProtocolError, UnknownApi, UnsupportedVersion
from protocol.header import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from protocol.messages import (
    API_KEYS,
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    encode,
    request_class,
    response_class,
)
from tests.protocol.strategies import full_message, is_flexible
from tests.support.cases import each
from tests.support.decoded import decode_request

APIS = [
    (api, version)
    for api, key in API_KEYS.items()
    for version in range(request_class(key).VERSIONS[0], request_class(key).VERSIONS[1] + 1)
]


def frame_of(data: bytes) -> bytes:
    """Return the only frame of `data`, without its size."""
    reader = FrameReader(100 * 2**20)
    reader.receive_data(data)
    frame = reader.next_frame()
    assert frame is not None
    assert reader.next_frame() is None
    return frame


@each("api, version", APIS)
@each("client_id", [None, "", "client", "é"])
def test_request_round_trip(api: str, version: int, client_id: str | None) -> None:
    """A request comes back with its header, in each API and version; only flexible headers have tagged fields."""
    request = full_message(f"{api}Request", version)
    frame = frame_of(encode_request(request, version, -(2**31), client_id))
    header, decoded = decode_request(frame)
    client = client_id.encode() if client_id is not None else b""
    tags = is_flexible(f"{api}Request", version)
    assert header == RequestHeader(API_KEYS[api], version, -(2**31), client_id, 10 + len(client) + tags)
    assert decoded == request
    client_size = len(client) if client_id is not None else -1
    assert frame == (
        struct.pack(">hhih", API_KEYS[api], version, -(2**31), client_size)
        + client
        + b"\0" * tags
        + encode(request, version)
    )


@each("api, version", APIS)
def test_response_round_trip(api: str, version: int) -> None:
    """A response comes back; a flexible one has tagged fields in its header, except ApiVersions."""
    response = full_message(f"{api}Response", version)
    frame = frame_of(encode_response(API_KEYS[api], version, 2**31 - 1, response))
    assert decode_response(API_KEYS[api], version, frame) == (2**31 - 1, response)
    tags = is_flexible(f"{api}Response", version) and api != "ApiVersions"
    assert frame == struct.pack(">i", 2**31 - 1) + b"\0" * tags + encode(response, version)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    """The decoder skips tagged fields of a header, which a later Kafka may add, and reads the body behind them."""
    body = encode(HeartbeatRequest(group_id="g"), 4)
    frame = struct.pack(">hhih", 12, 4, 7, -1) + b"\2\0\2ab\5\0" + body
    header, request = decode_request(frame)
    assert header == RequestHeader(12, 4, 7, None, len(frame) - len(body))
    assert request == HeartbeatRequest(group_id="g")
    response = struct.pack(">i", 7) + b"\1\0\2ab" + encode(HeartbeatResponse(error_code=27), 4)
    assert decode_response(12, 4, response) == (7, HeartbeatResponse(error_code=27))


@pytest.mark.parametrize("version", [-1, 6, 99, 2**15 - 1])
def test_apiversions_in_an_unknown_version_can_be_answered(version: int) -> None:
    """KIP-511: the decoder reads the header alone, so that the server can answer in version 0."""
    tags = b"\0" if version >= 3 else b""
    frame = struct.pack(">hhih", 18, version, 7, 3) + b"new" + tags + b"whatever"
    assert decode_request_header(frame) == RequestHeader(18, version, 7, "new", 13 + len(tags))
    with pytest.raises(UnsupportedVersion):
        decode_request(frame)


@each("api, key", API_KEYS.items())
def test_other_unknown_versions_are_refused_by_name(api: str, key: int) -> None:
    """The error names API and version, for the log line of the closed connection."""
    first, last = request_class(key).VERSIONS
    for version in (first - 1, last + 1, -1, 2**15 - 1):
        frame = struct.pack(">hhih", key, version, 7, -1) + b"\0" * 50
        if api == "ApiVersions":
            assert decode_request_header(frame).api_version == version
            continue
        with pytest.raises(UnsupportedVersion) as raised:
            decode_request_header(frame)
        assert (raised.value.name, raised.value.api_key, raised.value.version) == (api, key, version)


@pytest.mark.parametrize("key", [-1, 6, 7, 999])
def test_unknown_api_is_refused_by_key(key: int) -> None:
    """UpdateMetadata, ControlledShutdown (the only API with header 0) and unknown keys are not served."""
    with pytest.raises(UnknownApi) as raised:
        decode_request_header(struct.pack(">hhih", key, 0, 7, -1))
    assert raised.value.api_key == key


def test_header_cut_short() -> None:
    """The decoder refuses a request that ends anywhere in its header."""
    frame = struct.pack(">hhih", 12, 4, 7, 3) + b"abc" + b"\1\5\2xy"
    assert decode_request_header(frame).body_offset == len(frame)
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_request_header(frame[:size])


def test_response_header_cut_short() -> None:
    """The decoder refuses a response that ends anywhere in its header."""
    frame = struct.pack(">i", 7) + b"\1\5\2xy"
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_response(12, 4, frame[:size])


@pytest.mark.parametrize(
    ("client_id", "text"), [(b"\xff", "\ufffd"), ("größe".encode("latin-1"), "gr\ufffd\ufffde")], ids=["ff", "latin-1"]
)
def test_client_id_that_is_not_utf8(client_id: bytes, text: str) -> None:
    """U+FFFD stands for what isn't UTF-8 in a client id, and the body starts behind its bytes."""
    header = decode_request_header(struct.pack(">hhih", 12, 0, 7, len(client_id)) + client_id)
    assert (header.client_id, header.body_offset) == (text, 10 + len(client_id))


def test_client_id_that_grows_beyond_a_string() -> None:
    """The decoder refuses a client id that no string could hold once U+FFFD stands for its bytes."""
    with pytest.raises(ProtocolError, match="32769 bytes"):
        decode_request_header(struct.pack(">hhih", 12, 0, 7, 10_923) + b"\xff" * 10_923)


@given(st.binary(max_size=64))
def test_random_frames(frame: bytes) -> None:
    """The decoder reads any bytes as a request, or refuses them with a ProtocolError."""
    try:
        header, message = decode_request(frame)
    except ProtocolError:
        return
    assert header.api_key == message.API_KEY


@given(st.sampled_from(APIS), st.binary(max_size=64))
def test_random_frames_for_known_apis(api: tuple[str, int], rest: bytes) -> None:
    """The decoder reads random bytes behind a known key and version as a message, or refuses them."""
    name, version = api
    with suppress(ProtocolError):
        _, request = decode_request(struct.pack(">hh", API_KEYS[name], version) + rest)
        assert API_KEYS[name] == request.API_KEY
    with suppress(ProtocolError):
        _, response = decode_response(API_KEYS[name], version, rest)
        assert API_KEYS[name] == response.API_KEY


def test_response_of_another_api_is_a_mistake() -> None:
    """The encoder refuses a response of another API, so that the mistake shows before a client gets it."""
    with pytest.raises(AssertionError):
        encode_response(12, 4, 7, ApiVersionsResponse())


def test_apiversions_response_has_the_old_header_in_every_version() -> None:
    """The header of an ApiVersions response never changes: its client doesn't know yet which versions there are."""
    for version in range(5):
        assert encode_response(18, version, 7, ApiVersionsResponse())[4:] == (
            struct.pack(">i", 7) + encode(ApiVersionsResponse(), version)
        )
    assert messages.api_schema(18).FLEXIBLE == 3
    assert encode_request(ApiVersionsRequest(), 3, 7, None)[14:] == b"\0" + encode(ApiVersionsRequest(), 3)
    assert response_class(18) is ApiVersionsResponse
