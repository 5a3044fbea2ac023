"""The authorizer's log."""

from __future__ import annotations

from coordinator.group.client import ANONYMOUS
from coordinator.server.telemetry.authorizer_lines import LINES_PER_SECOND
from protocol.messages import DescribeGroupsRequest, FindCoordinatorRequest
from tests.server.harness import serving
from tests.server.requests.test_acls import STANDARD, SUPER


async def test_denials_are_logged_within_a_limit() -> None:
    """Kafka's words. A client that is denied all the time writes so many lines a second; the next counts the rest."""
    async with serving(STANDARD) as server:
        peer = await server.peer()
        for _ in range(LINES_PER_SECOND + 5):
            await peer.ask(FindCoordinatorRequest(key="line\nbreak"), 3)
        lines = server.events("authorizer_denied")
        assert len(lines) == LINES_PER_SECOND
        assert lines[0]["message"] == (
            f"Principal = {ANONYMOUS} is Denied operation = DESCRIBE from host = 127.0.0.1 "
            "on resource = Group:LITERAL:line\nbreak"
        )
        await server.advance(1_000)
        await peer.ask(FindCoordinatorRequest(key="g"), 3)
        assert server.events("authorizer_denied")[-1]["left_out"] == 5
        assert not server.events("authorizer_allowed")


async def test_allowed_requests_are_logged_if_asked() -> None:
    """Kafka does so at the level DEBUG."""
    async with serving(STANDARD, SUPER, "tenure.authorizer.log.allowed=true") as server:
        peer = await server.peer()
        await peer.ask(DescribeGroupsRequest(groups=["g"]), 1)
        assert server.events("authorizer_allowed")[-1]["operation"] == "DESCRIBE"
