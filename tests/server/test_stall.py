"""A server that stood still, as a stopped process does: what came in time meanwhile counts.

House rule: real processes; the server is stopped with SIGSTOP and goes on with SIGCONT.
"""

from __future__ import annotations

import signal
import time

from protocol.messages import HeartbeatRequest, HeartbeatResponse, JoinGroupResponse
from schemas.errors import ErrorCode
from tests.server.harness import heartbeat_request, join_request, sync_request
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.tenure import Tenure, wait_until

SESSION_MS = 3_000
MEMBERS = 50


def join(connection: Connection, number: int) -> HeartbeatRequest:
    """Make the static member of this connection the only one of its group; returns its heartbeat."""
    group = f"g-{number}"
    joined: JoinGroupResponse = connection.ask(join_request(group, instance="i", session_ms=SESSION_MS), 5)
    assert connection.ask(sync_request(group, joined, "i"), 5).error_code == 0
    return heartbeat_request(group, joined, "i")


def test_heartbeats_that_came_during_a_stall_keep_the_seats() -> None:
    """A server that was stopped for longer than all sessions reads the heartbeats in its sockets before it expires."""
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
    settings["group.min.session.timeout.ms"] = str(SESSION_MS)
    with Tenure(settings) as tenure:
        connections = [Connection(tenure.port) for _ in range(MEMBERS)]
        beats = [join(connection, number) for number, connection in enumerate(connections)]

        def all_are_fresh() -> bool:
            """Each member has half its session left. A busy machine may take seats before the stall: join again."""
            began_s = time.monotonic()
            for number, connection in enumerate(connections):
                if connection.ask(beats[number], 4) != HeartbeatResponse():
                    beats[number] = join(connection, number)
            return time.monotonic() - began_s < SESSION_MS / 2000

        wait_until(all_are_fresh, "heartbeats of all members", WITHIN_S)
        tenure.send_signal(signal.SIGSTOP)
        mark = tenure.mark()
        for connection, beat in zip(connections, beats, strict=True):
            connection.send(beat, 4)
        over_s = time.monotonic() + SESSION_MS / 1000 + 0.5
        wait_until(lambda: time.monotonic() > over_s, "the end of all sessions", WITHIN_S)
        tenure.send_signal(signal.SIGCONT)
        codes = [connection.receive().error_code for connection in connections]
        assert codes == [ErrorCode.NONE] * MEMBERS
        assert not tenure.count("member_expired", since=mark)
        for connection in connections:
            connection.close()
