"""The authorizer's log."""

from __future__ import annotations

import io
import json

from coordinator.group.client import ANONYMOUS
from coordinator.loop.lines import Lines
from coordinator.security.access import Asked
from coordinator.security.acls import Kind, Operation
from coordinator.server.telemetry.authorizer_lines import LINES_OF_ONE, NAME_MAX, access_of
from protocol.messages import DescribeGroupsRequest, FindCoordinatorRequest
from tests.server.harness import ManualClock, config_of, connected
from tests.server.requests.test_acls import STANDARD, SUPER


async def test_denials_are_logged_within_a_limit() -> None:
    """Kafka's words. A client that is denied all the time writes so many lines a second; the next counts the rest."""
    async with connected(STANDARD) as (server, peer):
        for _ in range(LINES_OF_ONE + 5):
            await peer.ask(FindCoordinatorRequest(key="line\nbreak"), 3)
        lines = server.events("authorizer_denied")
        assert len(lines) == LINES_OF_ONE
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
    async with connected(STANDARD, SUPER, "tenure.authorizer.log.allowed=true") as (server, peer):
        await peer.ask(DescribeGroupsRequest(groups=["g"]), 1)
        assert server.events("authorizer_allowed")[-1]["operation"] == "DESCRIBE"


class Log:
    """The authorizer's lines, and a clock that stands still."""

    def __init__(self) -> None:
        self._text = io.StringIO()
        clock = ManualClock()
        access = access_of(
            config_of(STANDARD, "tenure.authorizer.log.allowed=true"),
            Lines(self._text, "json", 1, clock),
            clock,
        )
        assert access.on_denied is not None
        assert access.on_allowed is not None
        self.deny, self.allow = access.on_denied, access.on_allowed

    def denied(self) -> list[tuple[str, str]]:
        """Principal and name of each denial that has a line."""
        events = [json.loads(line) for line in self._text.getvalue().splitlines()]
        denied = [event for event in events if event["event"] == "authorizer_denied"]
        return [(event["principal"], event["resource_name"]) for event in denied]


def asked(principal: str, name: str = "g") -> Asked:
    """A request about a group."""
    return Asked(principal, "127.0.0.1", Operation.READ, Kind.GROUP, name)


def test_nobody_hides_what_others_are_denied() -> None:
    """A user who is denied all the time leaves room for the lines of others."""
    log = Log()
    for _ in range(1_000):
        log.deny(asked("User:loud"))
    log.deny(asked("User:quiet"))
    assert log.denied() == [("User:loud", "g")] * LINES_OF_ONE + [("User:quiet", "g")]


def test_allowed_requests_hide_no_denial() -> None:
    """Whoever makes them."""
    log = Log()
    for number in range(1_000):
        log.allow(asked(f"User:{number}"))
        log.allow(asked("User:loud"))
    log.deny(asked("User:loud"))
    assert log.denied() == [("User:loud", "g")]


def test_a_name_is_cut() -> None:
    """A client may ask for names of 32,767 characters."""
    log = Log()
    log.deny(asked("User:a", "n" * 32_767))
    ((_, name),) = log.denied()
    assert name == "n" * NAME_MAX + " ..."
