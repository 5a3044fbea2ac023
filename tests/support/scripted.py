"""Members that do only what a test says: they don't rejoin by themselves, and give a reason only if the test has one.

After each cause `settle` brings a group back to Stable. A test module that uses members calls `hang_up` at the end.

House rule: a member that stays in its group has a session timeout that is long enough for a busy machine.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

from protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupResponse,
    encode,
)
from schemas.errors import ErrorCode
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.requests import heartbeat_request, join_request, leave_request, sync_request
from tests.support.tenure import wait_until

BESIDE = {5: (3, 3, 3), 9: (5, 4, 5)}
"""JoinGroup's version, and the versions of SyncGroup, Heartbeat and LeaveGroup of the same client."""

STAYS_MS = 1_800_000
"""The longest session timeout that servers allow by default: a member without heartbeats outlives the slowest test."""

REBALANCE_MS = 60_000

OPENED: list[Connection] = []


def hang_up() -> None:
    """Close the connections of all members."""
    while OPENED:
        OPENED.pop().close()


class Member:
    """A member that does only what the test says.

    instance: None for a dynamic one. protocols: its assignors. rebalance_ms: its rebalance timeout.
    """

    def __init__(self, port: int, group: str, name: str, version: int, **says: Any) -> None:
        self.name = name
        self.group = group
        self.version = version
        self.instance = says.pop("instance", None)
        self.session_ms = says.pop("session_ms", STAYS_MS)
        self.rebalance_ms = says.pop("rebalance_ms", REBALANCE_MS)
        self.protocols = says.pop("protocols", ["range"])
        assert not says
        self.topics = ["t"]
        self.connection = Connection(port, name)
        OPENED.append(self.connection)
        self.member_id = ""
        self.generation = -1
        self.joined: JoinGroupResponse | None = None
        self.waits = False

    def send_join(self, reason: str | None = None, **more: Any) -> None:
        """Send JoinGroup with the member's id; a dynamic member without an id joins again with the id it gets."""
        data = b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=self.topics, user_data=None), 0)
        request = join_request(
            self.group,
            self.member_id,
            self.instance,
            session_ms=self.session_ms,
            rebalance_ms=self.rebalance_ms,
            protocols=[(name, data) for name in self.protocols],
            reason=reason,
            **more,
        )
        self.connection.send(request, self.version)
        self.waits = True
        if not self.member_id and self.instance is None:
            answer = self.receive_join()
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.member_id = answer.member_id
            self.send_join(reason)

    def ask_for_id(self) -> str:
        """Send JoinGroup without an id, and never join with the id from the answer."""
        answer = self.connection.ask(join_request(self.group, session_ms=self.session_ms), self.version)
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def receive_join(self) -> JoinGroupResponse:
        """Return the answer to the member's JoinGroup."""
        answer = self.connection.receive(WITHIN_S)
        assert isinstance(answer, JoinGroupResponse)
        self.waits = False
        if not answer.error_code:
            self.member_id, self.generation, self.joined = answer.member_id, answer.generation_id, answer
        return answer

    def send_sync(self, names: dict[str, str], user_data: bytes | None = None) -> None:
        """Send SyncGroup; a leader assigns to the n-th member partition n of topic t, and the user data."""
        assert self.joined is not None
        given = {}
        if self.joined.leader == self.member_id:
            for index, member_id in enumerate(sorted(names, key=lambda each: names[each])):
                owned = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[index])
                body = ConsumerProtocolAssignment(assigned_partitions=[owned], user_data=user_data)
                given[member_id] = b"\x00\x00" + encode(body, 0)
        request = sync_request(self.group, self.generation, self.member_id, self.instance, given)
        self.connection.send(request, BESIDE[self.version][0])

    def heartbeat(self) -> int:
        """Send a Heartbeat and return its error code."""
        request = heartbeat_request(self.group, self.generation, self.member_id, self.instance)
        code: int = self.connection.ask(request, BESIDE[self.version][1]).error_code
        return code

    def has_to_rejoin(self) -> bool:
        """Whether its group rebalances."""
        return self.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

    def leads_fewer_than(self, count: int) -> bool:
        """Whether it leads a generation that has fewer members."""
        joined = self.joined
        return joined is not None and joined.leader == self.member_id and len(joined.members) < count

    def leave(self, reason: str | None = None) -> None:
        """Send LeaveGroup and close the connection."""
        request = leave_request(self.group, (self.member_id, None), reason=reason)
        self.connection.ask(request, BESIDE[self.version][2])
        self.connection.close()


def settle(*members: Member, reason: str | None = None) -> None:
    """Let the members join that don't wait in a join yet, then let all sync."""
    for member in members:
        if not member.waits:
            member.send_join(reason)
    _receive_joins(members, reason)
    names = {member.member_id: member.name for member in members}
    for member in members:
        member.send_sync(names)
    for member in members:
        answer = member.connection.receive(WITHIN_S)
        assert answer.error_code == ErrorCode.NONE, answer


def _receive_joins(members: Sequence[Member], reason: str | None) -> None:
    """Receive the answers of a generation that has all members.

    On a busy machine a generation may begin before the last one's join is there: the others join again.
    """
    too_early: set[int] = set()
    while waiting := {member.connection.fileno(): member for member in members if member.waits}:
        poll = select.poll()
        for number in waiting:
            poll.register(number, select.POLLIN)
        answered = poll.poll(WITHIN_S * 1_000)
        assert answered
        for number, _ in answered:
            assert waiting[number].receive_join().error_code == ErrorCode.NONE
        here = [member for member in members if not member.waits]
        too_early |= {member.generation for member in here if member.leads_fewer_than(len(members))}
        for member in here:
            if member.generation in too_early:
                wait_until(member.has_to_rejoin, "the last join", WITHIN_S)
                member.send_join(reason)
