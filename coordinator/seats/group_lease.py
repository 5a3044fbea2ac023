"""A name as the lease of a group, on any Kafka: sends what `membership` asks for.

JoinGroup and SyncGroup wait at the coordinator for the other members, and heartbeats go on meanwhile. So each kind of
request has a connection and a thread of its own. The end of the process waits for none of them.

House rule: no decision here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, TypeVar

from coordinator.client.client import COORDINATOR_MOVED, Client, Cluster
from coordinator.client.errors import ClientError, Refused, Unauthenticated
from coordinator.seats.membership import (
    REBALANCE_SESSIONS,
    Answer,
    Beat,
    Beaten,
    Join,
    Joined,
    Membership,
    Request,
    Sync,
    Synced,
)
from coordinator.seats.pool import Given, Wish
from coordinator.seats.supervisor import NONE_FREE, Leased, Lost, Report, Waits
from protocol.errors import ProtocolError
from protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    Message,
    SyncGroupRequest,
)

PROTOCOL_TYPE, PROTOCOL = "tenure-seats", "1"
TURN_S = 0.1
"""The longest time between two looks at the clock."""
BEAT_SHARE = 0.25
"""The part of a session that one heartbeat may take."""

Result = TypeVar("Result")


class GroupLease:
    """See the module."""

    def __init__(self, cluster: Cluster, group_id: str, pool: str, identity: str, session_s: float) -> None:
        self._group_id, self._session_s = group_id, session_s
        self._member = Membership(pool, identity, session_s)
        long = REBALANCE_SESSIONS * session_s + 5.0
        self._clients: dict[type[Request], Client] = {
            Join: cluster.client(long),
            Sync: cluster.client(long),
            Beat: cluster.client(session_s * BEAT_SHARE),
        }
        for client in self._clients.values():
            client.try_once()
        self._answered = asyncio.Event()
        self._problem = ""
        """Why the cluster didn't answer the last time."""

    async def keep(self, report: Callable[[Report], None], clock: Callable[[], float]) -> None:
        """Get a name and keep it, until it is lost."""
        sending: set[asyncio.Task[None]] = set()
        while not self._member.lost:
            for request in self._member.due(clock()):
                task = asyncio.create_task(self._send(request, clock))
                sending.add(task)
                task.add_done_callback(sending.discard)
            if self._member.name:
                report(Leased(self._member.name, self._member.token, self._member.until, self._problem))
            elif self._problem or (self._member.has_asked and not self._member.is_near):
                report(Waits(self._problem or NONE_FREE))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._answered.wait(), TURN_S)
            self._answered.clear()
        report(Lost(self._member.lost))

    async def release(self) -> None:
        """Leave the group."""
        if self._member.member_id:
            member = LeaveGroupRequest.MemberIdentity(member_id=self._member.member_id)
            request = LeaveGroupRequest(group_id=self._group_id, members=[member])
            with suppress(ClientError, ProtocolError):
                # Heartbeats end with `keep`, so their connection is free, or will be.
                await _in_thread(partial(self._ask, self._clients[Beat], request, 3))

    async def _send(self, request: Request, clock: Callable[[], float]) -> None:
        answer: Answer | None = None
        try:
            answer = await _in_thread(partial(self._answer, request))
        except Refused as error:  # of FindCoordinator
            kinds = {Join: Joined, Sync: Synced, Beat: Beaten}
            answer = kinds[type(request)](error.error_code)
            self._problem = str(error)
        except Unauthenticated as error:
            self._problem = str(error)
            self._member.refuse(self._problem)
        except (ClientError, ProtocolError) as error:
            self._problem = str(error)
        else:
            self._problem = ""
        self._member.answered(request, answer, clock(), int(time.time() * 1000))
        self._answered.set()

    def _answer(self, request: Request) -> Answer:
        client = self._clients[type(request)]
        if isinstance(request, Beat):
            beat = HeartbeatRequest(
                group_id=self._group_id, generation_id=request.generation, member_id=request.member_id
            )
            return Beaten(self._ask(client, beat).error_code)
        if isinstance(request, Join):
            return joined(self._ask(client, self._join(request), 4))
        sync = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=request.generation,
            member_id=request.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=given.encode())
                for member_id, given in request.given.items()
            ],
        )
        response = self._ask(client, sync)
        return Synced(response.error_code, Given.decode(b"" if response.error_code else response.assignment))

    def _join(self, request: Join) -> JoinGroupRequest:
        wish = JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=request.wish.encode())
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=int(self._session_s * 1000),
            rebalance_timeout_ms=int(self._session_s * REBALANCE_SESSIONS * 1000),
            member_id=request.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[wish],
        )

    def _ask(self, client: Client, request: Message, at_least: int = 0) -> Any:
        """Ask the coordinator. Raises as the client does; a Refused is about the coordinator itself."""

        def results(response: Any, _node: object) -> list[tuple[str, int, Any]]:
            moved = response.error_code in COORDINATOR_MOVED
            return [(self._group_id, response.error_code if moved else 0, response)]

        found = client.ask_coordinators([self._group_id], lambda _: request, results, at_least=at_least)
        answer = found[self._group_id]
        if isinstance(answer, Refused):
            raise answer
        return answer


def joined(response: JoinGroupResponse) -> Joined:
    """The answer to JoinGroup, as the core takes it."""
    wishes = {member.member_id: Wish.decode(member.metadata) for member in response.members}
    return Joined(response.error_code, response.member_id, response.generation_id, response.leader, wishes)


async def _in_thread(call: Callable[[], Result]) -> Result:
    """The result of a call that may take longer than this process has."""
    done: Future[Result] = Future()

    def work() -> None:
        with suppress(InvalidStateError):  # of a result that nobody waits for
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - the caller gets it
                done.set_exception(error)
            else:
                done.set_result(result)

    Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(done)
