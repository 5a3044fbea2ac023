"""Groups and their members, as scripts of the driver: they join and sync until all are in one generation.

With group.initial.rebalance.delay.ms=0 a group's first generations have few members, and each new member sends the
others back to join. A member learns that from its heartbeats, as a client does. Heartbeats come more often than a
client's, so that the group doesn't wait for them.

House rule: one member of a group per connection. A JoinGroup that waits holds up its connection, and with it the member
that it waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from benchmarks import frames
from benchmarks.driver import Script, clock
from protocol.header import decode_response
from protocol.messages import API_KEYS, JoinGroupResponse
from schemas.errors import ErrorCode

POLL_S = 0.01
"""The pause between two heartbeats of a member until the group is complete."""
RETRY_S = 0.05

JOIN_AGAIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class UnexpectedAnswer(Exception):
    """A server answered with an error that no work expects."""


class Member:
    """A member: its ids, and the generation that it synced last."""

    __slots__ = ("generation", "instance_id", "member_id")

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def identity(self) -> tuple[bytes, ...]:
        """Return its ids as in frames: member id, and instance id if it is static."""
        member_id = frames.string(self.member_id)
        return (member_id,) if self.instance_id is None else (member_id, frames.string(self.instance_id))


class Group:
    """A group of `size` members. metadata: each member's metadata in JoinGroup; a plain subscription if None.

    partition_count: topic partitions of each member. completed: the time (of `clock`) when all members had synced one
    generation; None until then.
    """

    def __init__(
        self, group_id: str, size: int, *, static: bool, metadata: bytes | None = None, partition_count: int = 2
    ) -> None:
        self.group_id = group_id
        self.size = size
        self.static = static
        self.members = [Member(f"instance-{number:06}" if static else None) for number in range(size)]
        self.completed: float | None = None
        self._given = [frames.assignment(number, partition_count) for number in range(size)]
        self._join = frames.join(group_id, static=static, metadata=metadata)
        self._sync = frames.sync(group_id, static=static, assignments={})
        self._heartbeat = frames.heartbeat(group_id, static=static)
        self._synced: Counter[int] = Counter()

    def seat(self, number: int) -> Script:
        """Join as one member; ends when the group is complete."""
        me = self.members[number]
        while True:
            answer = yield self.join_frame(me)
            error, generation, leader, me.member_id = frames.joined(answer)
            if error == ErrorCode.MEMBER_ID_REQUIRED or error in JOIN_AGAIN:
                continue
            if error in NOT_YET:
                yield clock() + RETRY_S
                continue
            accept(error, "JoinGroup")
            sync = self._sync
            if leader == me.member_id:
                sync = frames.sync(self.group_id, static=self.static, assignments=self._assignments(answer))
            answer = yield sync.fill(0, frames.generation(generation), *me.identity())
            error = frames.error_of(answer)
            if error in JOIN_AGAIN:
                continue
            accept(error, "SyncGroup")
            me.generation = generation
            self._synced[generation] += 1
            if self._synced[generation] == self.size:
                self.completed = clock()
            if (yield from self._is_complete(me)):
                return

    def restart(self, member: Member) -> Script:
        """Restart a static member of a stable group: it joins without its member id, and syncs."""
        member.member_id = ""
        answer = yield self.join_frame(member)
        error, generation, _, member.member_id = frames.joined(answer)
        accept(error, "JoinGroup")
        if generation != member.generation:
            raise UnexpectedAnswer(f"a static restart led from generation {member.generation} to {generation}")
        answer = yield self._sync.fill(0, frames.generation(generation), *member.identity())
        accept(frames.error_of(answer), "SyncGroup")

    def _is_complete(self, me: Member) -> Generator[bytes | float, bytes, bool]:
        """Wait until the group is complete, or must be joined again."""
        while self.completed is None:
            yield clock() + POLL_S
            if self.completed is None:
                answer = yield self._heartbeat.fill(0, frames.generation(me.generation), *me.identity())
                error = frames.error_of(answer)
                if error in JOIN_AGAIN:
                    return False
                accept(error, "Heartbeat")
        return True

    def join_frame(self, member: Member) -> bytes:
        """Return a member's JoinGroup."""
        return self._join.fill(0, *member.identity())

    def heartbeat(self, member: Member) -> tuple[bytes, bytes]:
        """Return a member's Heartbeat: the frame before and behind the correlation id."""
        return self._heartbeat.halves(frames.generation(member.generation), *member.identity())

    def _assignments(self, answer: bytes) -> dict[str, bytes]:
        """Return the leader's assignment for each member in the answer to its JoinGroup."""
        version = frames.JOIN_STATIC if self.static else frames.JOIN_DYNAMIC
        _, response = decode_response(API_KEYS["JoinGroup"], version, answer[frames.SIZE_BYTES :])
        assert isinstance(response, JoinGroupResponse)
        return dict(zip((member.member_id for member in response.members), self._given, strict=False))


def accept(error: int, request: str, *others: ErrorCode) -> None:
    """Raise UnexpectedAnswer if an answer has an error that isn't one of these others."""
    if error and error not in others:
        raise UnexpectedAnswer(f"{request}: {ErrorCode(error).name}")
