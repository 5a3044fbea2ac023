"""A server that stood still, as a stopped process does: what came in time meanwhile counts.

House rule: real processes; the server is stopped with SIGSTOP and goes on with SIGCONT.
"""

from __future__ import annotations

import signal
import time

from protocol.messages import HeartbeatResponse, JoinGroupResponse
from schemas.errors import ErrorCode
from tests.server.harness import heartbeat_request, join_request, sync_request
from tests.support.raw import Connection
from tests.support.tenure import Tenure, wait_until

SESSION_MS = 1_000
MEMBERS = 50


def seated(port: int, number: int) -> tuple[Connection, JoinGroupResponse]:
    """A connection whose static member is the only one of its group."""
    connection = Connection(port)
    joined = connection.ask(join_request(f"g-{number}", instance="i", session_ms=SESSION_MS), 5)
    assert isinstance(joined, JoinGroupResponse)
    assert connection.ask(sync_request(f"g-{number}", joined, "i"), 5).error_code == 0  # type: ignore[attr-defined]
    return connection, joined


def test_heartbeats_that_came_during_a_stall_keep_the_seats() -> None:
    """A server that was stopped for longer than all sessions reads the heartbeats in its sockets before it expires."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "offsets.topic.num.partitions": "4",
    }
    with Tenure(settings) as tenure:
        members = [seated(tenure.port, number) for number in range(MEMBERS)]
        for number, (connection, joined) in enumerate(members):  # no stall has cost a seat before the one under test
            assert connection.ask(heartbeat_request(f"g-{number}", joined, "i"), 4) == HeartbeatResponse()
        tenure.send_signal(signal.SIGSTOP)
        for number, (connection, joined) in enumerate(members):
            connection.send(heartbeat_request(f"g-{number}", joined, "i"), 4)
        over_s = time.monotonic() + 2 * SESSION_MS / 1000
        wait_until(lambda: time.monotonic() > over_s, "the end of all sessions", 10 * SESSION_MS / 1000)
        tenure.send_signal(signal.SIGCONT)
        codes = [connection.receive().error_code for connection, _ in members]  # type: ignore[attr-defined]
        assert codes == [ErrorCode.NONE] * MEMBERS
        assert not tenure.count("member_expired")
        for connection, _ in members:
            connection.close()
