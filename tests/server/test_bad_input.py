"""The server survives all bytes of a client: real requests of every API, damaged by chance, against a real server.

An example is all that one client sends through one connection: frames that real clients sent (tests/protocol/golden),
or messages of any API with any values. A frame is whole, or has changed, missing or additional bytes, and its size is
right or wrong. Then the client closes the connection. After each example this must hold:

- the connection ends;
- another client's member has its heartbeats answered, and keeps its seat;
- the server logged no error of its own, and its memory stays within the limit;
- on a listener where clients have to authenticate, no answer names a topic, a group or a node.

The normal run is short; `make fuzz` uses some ten minutes of CPU.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from protocol.header import encode_request
from protocol.messages import (
    NAMES,
    ApiVersionsRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    SaslHandshakeRequest,
    definition,
)
from schemas.errors import ErrorCode
from tests.protocol.strategies import any_message, message_class
from tests.protocol.test_golden import FILES
from tests.server.harness import heartbeat_request, join_request, sync_request
from tests.server.requests.test_records import fetch_request, produce_request
from tests.support.batches import batch, numbered
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.tenure import Tenure

MEMORY_MAX = 256 * 1024 * 1024
"""Bytes; an idle server takes a fifth."""

REQUESTS = [
    (name, version)
    for name in NAMES
    if name.endswith("Request") and message_class(name).API_KEY is not None
    for versions in (definition(name).versions,)
    for version in range(versions.first, versions.last + 1)
]

USERS = """\
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";
connection.failed.authentication.delay.ms=1
"""
"""The second listener is for strangers."""

Edit = tuple[str, int, bytes]
"""A change of a frame: its kind, its position, its bytes."""

NUMBERS = [number.to_bytes(4, signed=True) for number in (-(2**31), -2, -1, 0, 1, 2**16, 10**8, 2**31 - 1)]
VARINTS = [b"\xff\xff\xff\xff\x0f", b"\x80" * 10, b"\x80\x01", b"\0"]


def recorded() -> list[bytes]:
    """Return frames of real clients, some with records in them."""
    records = batch(numbered(0, 3), producer_id=5, producer_epoch=0, sequence=0)
    frames = [bytes.fromhex(json.loads(path.read_text(encoding="utf-8"))["request_hex"]) for path in FILES]
    frames += [
        encode_request(produce_request(("orders", 0, each)), 9, 1, "fuzz")[4:]
        for each in (records, batch(numbered(0, 2), zipped=True))
    ]
    frames.append(encode_request(fetch_request(("orders", 0, 0)), 12, 1, "fuzz")[4:])
    return frames


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Draw a request without its size, whole or damaged."""
    if draw(st.booleans()):
        frame = draw(st.sampled_from(RECORDED))
    else:
        name, version = draw(st.sampled_from(REQUESTS))
        frame = encode_request(draw(any_message(name, version)), version, 7, draw(st.none() | st.just("fuzz")))[4:]
    for kind, at, data in draw(st.lists(EDITS, max_size=4)):
        position = at % (len(frame) + 1)
        skipped = {"insert": 0, "replace": len(data), "cut": len(frame)}[kind]
        frame = frame[:position] + (b"" if kind == "cut" else data) + frame[position + skipped :]
    return frame


RECORDED = recorded()
EDITS: st.SearchStrategy[Edit] = st.tuples(
    st.sampled_from(["insert", "replace", "replace", "cut"]),
    st.integers(0, 2**16),
    st.binary(max_size=4) | st.sampled_from(NUMBERS) | st.sampled_from(VARINTS),
)
SIZES = st.just(0) | st.sampled_from([0, 0, 1, -1, 2**30, -(2**30)])
"""The difference between the size that a frame claims and its real size."""


class Witness:
    """The other client: the only member of a group, a static one."""

    def __init__(self, tenure: Tenure) -> None:
        self.tenure = tenure
        self.connection = Connection(tenure.port)
        joined: JoinGroupResponse = self.connection.ask(join_request("witness", instance="w", session_ms=300_000), 5)
        self.joined = joined
        assert self.connection.ask(sync_request("witness", joined, "w"), 5).error_code == 0
        self.mark = tenure.mark()

    def look(self) -> int:
        """Check that the member and the log are in order; returns the server's peak memory in bytes."""
        answer: HeartbeatResponse = self.connection.ask(heartbeat_request("witness", self.joined, "w"), 4)
        assert answer.error_code == ErrorCode.NONE
        since, self.mark = self.mark, self.tenure.mark()
        assert not [event for event in self.tenure.events(since=since) if event["level"] == "error"]
        return self.memory()

    def memory(self) -> int:
        """Return the server's peak memory in bytes."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.tenure.pid}/status").read_text())
        assert found
        return int(found[1]) * 1024


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    """Yield the member that must not notice the damage."""
    with Tenure(
        {"tenure.topics": "orders:3", "offsets.topic.num.partitions": 4},
        listeners={"OPEN": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"},
        properties=USERS,
    ) as tenure:
        found = Witness(tenure)
        yield found
        found.connection.close()
        assert tenure.stop() == 0


@given(sent=st.lists(st.tuples(frames(), SIZES), min_size=1, max_size=4))
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
def test_whatever_a_client_sends_the_others_go_on(witness: Witness, sent: list[tuple[bytes, int]]) -> None:
    """A client may send any bytes: other clients go on, and its connection ends when it closes it."""
    heard(witness.tenure.port, b"".join((len(frame) + more).to_bytes(4, signed=True) + frame for frame, more in sent))
    assert witness.look() < MEMORY_MAX


def heard(port: int, data: bytes) -> bytes:
    """The server's answers to bytes, until the end of the connection."""
    answers = bytearray()
    client = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
    with client, suppress(ConnectionResetError, BrokenPipeError):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        while answer := client.recv(65_536):
            answers += answer
    return bytes(answers)


HANDSHAKES = [
    encode_request(SaslHandshakeRequest(mechanism=mechanism), version, 7, None)
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "x")
    for version in (0, 1)
]


@given(
    ahead=st.lists(st.sampled_from(HANDSHAKES), max_size=2),
    sent=st.lists(st.tuples(frames() | st.binary(max_size=40), SIZES), min_size=1, max_size=4),
)
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
def test_whatever_a_stranger_sends_it_learns_nothing(
    witness: Witness, ahead: list[bytes], sent: list[tuple[bytes, int]]
) -> None:
    """Before a client has authenticated, no bytes get it an answer that has a topic, a group or a node in it."""
    data = b"".join((len(frame) + more).to_bytes(4, signed=True) + frame for frame, more in sent)
    answers = heard(witness.tenure.ports[1], b"".join(ahead) + data)
    assert not [name for name in (b"orders", b"witness", b"127.0.0.1") if name in answers and name not in data]
    assert witness.look() < MEMORY_MAX


ANSWERED = {"ApiVersionsRequest", "SaslHandshakeRequest"}
"""Requests that a stranger gets an answer to, in whatever order."""


def test_no_request_of_a_stranger_is_answered(witness: Witness) -> None:
    """Each API in each version, as the first request, behind ApiVersions, and behind a handshake of either version."""
    told = []
    versions = encode_request(ApiVersionsRequest(), 0, 7, None)
    for name, version in REQUESTS:
        request = encode_request(message_class(name)(), version, 7, "fuzz")
        for ahead in (b"", versions, *HANDSHAKES[:2]):
            expected = heard(witness.tenure.ports[1], ahead)
            more = heard(witness.tenure.ports[1], ahead + request)
            if more != expected and not (name == "SaslAuthenticateRequest" and ahead == HANDSHAKES[1]):
                told.append(name)
    assert set(told) == ANSWERED
    assert witness.look() < MEMORY_MAX
