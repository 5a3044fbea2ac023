"""Bytes of real clients and servers, captured once: the codec reads them and writes them again.

Each file in golden/ is one exchange:

    {"client": "librdkafka 2.16", "api_key": 11, "api_version": 5, "request_hex": "...", "response_hex": "...",
     "fields": {"request": {"group_id": "g"}, "response": {...}}}

The bytes are a frame without its size, header included; `response_hex` may be null. `fields` is optional: values that a
person saw at the capture.

House rule: nobody edits captured bytes. If an exchange can't be read, the codec has a bug.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.header import decode_response, encode_request, encode_response
from tests.support.decoded import decode_request

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.json"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def exchange(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return one captured exchange."""
    captured: dict[str, Any] = json.loads(request.param.read_text(encoding="utf-8"))
    return captured


def test_request_is_read_and_written_again(exchange: dict[str, Any]) -> None:
    """The codec reads a real request, with the values seen at the capture, and encodes it to the same bytes."""
    frame = bytes.fromhex(exchange["request_hex"])
    header, request = decode_request(frame)
    assert (header.api_key, header.api_version) == (exchange["api_key"], exchange["api_version"])
    assert encode_request(request, header.api_version, header.correlation_id, header.client_id)[4:] == frame
    for name, value in exchange.get("fields", {}).get("request", {}).items():
        assert getattr(request, name) == value, name


def test_response_is_read_and_written_again(exchange: dict[str, Any]) -> None:
    """The codec reads a real response, with the values seen at the capture, and encodes it to the same bytes."""
    if exchange["response_hex"] is None:
        return
    frame = bytes.fromhex(exchange["response_hex"])
    key, version = exchange["api_key"], exchange["api_version"]
    correlation_id, response = decode_response(key, version, frame)
    assert encode_response(key, version, correlation_id, response)[4:] == frame
    for name, value in exchange.get("fields", {}).get("response", {}).items():
        assert getattr(response, name) == value, name
