"""A link carries one request at a time, and says which server it lost and how."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client.connection import Address
from coordinator.client.errors import Unreachable
from coordinator.testing.link import Link
from protocol.messages import HeartbeatRequest, HeartbeatResponse
from tests.client.scripted import HANG_UP, SILENCE, Answer, Scripted
from tests.support.patience import WITHIN_S
from tests.support.ports import refusing_port

ASKS = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


async def connected(server: Scripted) -> Link:
    """A link to a server of the test."""
    return await Link.connect(Address("127.0.0.1", server.port), "member", WITHIN_S)


async def test_a_request_gets_its_answer() -> None:
    """Requests go out one after the other, in the newest version of their API."""
    answers = [HeartbeatResponse(), HeartbeatResponse(error_code=27)]
    with Scripted({"Heartbeat": answers}) as server:
        link = await connected(server)
        codes = [(await link.ask(ASKS, WITHIN_S)).error_code for _ in answers]
        link.close()
    assert codes == [0, 27]
    assert [request[:2] for request in server.requests] == [("ApiVersions", 5), ("Heartbeat", 4), ("Heartbeat", 4)]


async def test_a_closed_port_is_named() -> None:
    """Nobody listens: the error has the address."""
    with refusing_port() as port, pytest.raises(Unreachable, match=rf"^127\.0\.0\.1:{port}: Conn"):
        await Link.connect(Address("127.0.0.1", port), "member", WITHIN_S)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (HANG_UP, "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "closed the connection"),
        (b"\0\0\0\4\0\0\0\2", "does not speak Kafka's protocol"),
    ],
)
async def test_a_link_without_an_answer_is_lost(answer: Answer, says: str) -> None:
    """A server that hangs up or answers garbage is unreachable, at once and at every later request."""
    with Scripted({"Heartbeat": [answer]}) as server:
        link = await connected(server)
        with pytest.raises(Unreachable, match=rf"^127\.0\.0\.1:{server.port} {says}"):
            await link.ask(ASKS, WITHIN_S)
        link.close()
        with pytest.raises(Unreachable, match="closed the connection"):
            await link.ask(ASKS, WITHIN_S)


async def test_a_close_is_an_answer_that_never_comes() -> None:
    """Whoever waits for an answer when the link is closed learns it."""
    with Scripted({"Heartbeat": [SILENCE]}) as server:
        link = await connected(server)
        asked = asyncio.create_task(link.ask(ASKS, WITHIN_S))
        while not server.asked("Heartbeat"):
            await asyncio.wait([asked], timeout=0.001)
        link.close()
        with pytest.raises(Unreachable, match="closed the connection"):
            await asyncio.wait_for(asked, WITHIN_S)


async def test_an_answer_that_does_not_come_in_time_is_not_waited_for() -> None:
    """After its time a request is lost, and so is the link, because the answer may still come."""
    with Scripted({"Heartbeat": [SILENCE]}) as server:
        link = await connected(server)
        with pytest.raises(Unreachable, match=rf"^127\.0\.0\.1:{server.port} did not answer within 0.001 s"):
            await link.ask(ASKS, 0.001)
        with pytest.raises(Unreachable, match="closed the connection"):
            await link.ask(ASKS, WITHIN_S)
        link.close()
