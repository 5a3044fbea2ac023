"""Groups of the consumer protocol (KIP-848) and their members, as scripts of the driver.

A member joins, and then sends heartbeats until all members of its group are at one epoch and have all partitions. It
says what it owns when that has changed, as clients do. A client's heartbeats come each 5 s. Those of a smaller group
come more often here, so that the group doesn't wait for them, but all together never at more than POLLS_PER_S.

House rule: one member per connection, as a client has it.
"""

from __future__ import annotations

from benchmarks import frames
from benchmarks.driver import Script, clock
from benchmarks.members import NOT_YET, RETRY_S, UnexpectedAnswer, accept
from protocol.header import decode_response, encode_request
from protocol.messages import API_KEYS, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

POLL_S = 0.2
"""The least pause between two heartbeats of a member until the group is complete."""
POLLS_PER_S = 2_000

VERSION = 1
JOINING, AWAY = 0, -2
REBALANCE_TIMEOUT_MS = 300_000
AT_ID, BEHIND_ID = slice(8), slice(12, None)
"""The parts of a frame before and behind the correlation id."""

Owned = list[ConsumerGroupHeartbeatRequest.TopicPartitions]


class Consumer:
    """A member. epoch: as of its last answer. owned: its partitions. steady: the bytes of its answers behind the id."""

    __slots__ = ("epoch", "instance_id", "life", "number", "owned", "steady")

    def __init__(self, number: int, instance_id: str | None) -> None:
        self.number = number
        self.instance_id = instance_id
        self.life = 0
        self.epoch = JOINING
        self.owned: Owned = []
        self.steady = b""

    @property
    def member_id(self) -> str:
        """As long as a Java client's; a new one for each life."""
        return f"{self.number:011}-{self.life:010}"

    @property
    def owned_count(self) -> int:
        """How many partitions it has."""
        return sum(len(each.partitions) for each in self.owned)


class ConsumerGroup:
    """A group whose members all subscribe to `topics`, which have `partitions` together.

    completed: the time (of `clock`) when all members had all partitions, evenly, at one epoch; None until then.
    """

    def __init__(self, group_id: str, size: int, topics: list[str], partitions: int, *, static: bool) -> None:
        self.group_id = group_id
        self.topics = topics
        self.partitions = partitions
        self.members = [Consumer(number, f"instance-{number:06}" if static else None) for number in range(size)]
        self.completed: float | None = None
        self._poll_s = max(POLL_S, size / POLLS_PER_S)
        self._least = partitions // size
        self._at: dict[int, int] = {}
        self._have_least = 0
        self._held = 0

    def seat(self, number: int) -> Script:
        """Bring a member in, and keep it until the group is complete."""
        me = self.members[number]
        yield from self._join(me)
        while self.completed is None:
            yield clock() + self._poll_s
            if self.completed is None:
                yield from self._beat(me, None)
        answer = yield self.frame(me)
        self._take(me, answer)
        me.steady = answer[8:]

    def restart(self, me: Consumer) -> Script:
        """Restart a static member of a complete group: it goes away, and comes back with a new member id."""
        before = me.epoch, me.owned_count
        answer = yield self.frame(me, AWAY)
        accept(self._read(answer).error_code, "ConsumerGroupHeartbeat")
        me.life += 1
        yield from self._join(me)
        if (me.epoch, me.owned_count) != before:
            raise UnexpectedAnswer(f"a static restart led from {before} to {(me.epoch, me.owned_count)}")

    def frame(self, me: Consumer, epoch: int | None = None, owned: Owned | None = None) -> bytes:
        """Return a heartbeat that says no more than it must. owned: what it says that it owns."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=me.member_id,
            member_epoch=me.epoch if epoch is None else epoch,
            instance_id=me.instance_id,
            topic_partitions=owned,
        )
        if epoch == JOINING:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = self.topics
        return encode_request(request, VERSION, 0, frames.CLIENT_ID)

    def heartbeat(self, me: Consumer) -> tuple[bytes, bytes]:
        """Return a steady member's heartbeat: the frame before and behind the correlation id."""
        frame = self.frame(me)
        return frame[AT_ID], frame[BEHIND_ID]

    def pretend(self) -> None:
        """Give members what they have on a real server."""
        for member in self.members:
            member.epoch = len(self.members) + 1
            member.steady = STEADY

    def _join(self, me: Consumer) -> Script:
        while True:
            answer = yield self.frame(me, JOINING, [])
            error = self._read(answer).error_code
            if error not in NOT_YET:
                break
            yield clock() + RETRY_S
        while self._take(me, answer):
            answer = yield self.frame(me, owned=me.owned)

    def _beat(self, me: Consumer, owned: Owned | None) -> Script:
        answer = yield self.frame(me, owned=owned)
        while self._take(me, answer):
            answer = yield self.frame(me, owned=me.owned)

    def _read(self, answer: bytes) -> ConsumerGroupHeartbeatResponse:
        _, response = decode_response(API_KEYS["ConsumerGroupHeartbeat"], VERSION, answer[frames.SIZE_BYTES :])
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def _take(self, me: Consumer, answer: bytes) -> bool:
        """Take an answer; whether the member owns something else now."""
        if answer[8:] == me.steady:
            return False
        response = self._read(answer)
        accept(response.error_code, "ConsumerGroupHeartbeat")
        has_changed = False
        before = me.epoch, me.owned_count
        if response.assignment is not None:
            given = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                for each in response.assignment.topic_partitions
            ]
            has_changed = given != me.owned
            me.owned = given
        else:
            me.steady = answer[8:]
        me.epoch = response.member_epoch
        self._moved(before, me)
        return has_changed

    def _moved(self, before: tuple[int, int], me: Consumer) -> None:
        """Count a member where it is now."""
        epoch, count = before
        if epoch in self._at:
            self._at[epoch] -= 1
        self._at[me.epoch] = self._at.get(me.epoch, 0) + 1
        self._held += me.owned_count - count
        if epoch:
            self._have_least -= count >= self._least
        self._have_least += me.owned_count >= self._least
        if (
            self.completed is None
            and self._at[me.epoch] == self._have_least == len(self.members)
            and self._held == self.partitions
        ):
            self.completed = clock()


STEADY = bytes(1 + 4 + 2 + 1) + b"\x17" + bytes(22 + 4 + 4) + b"\xff\0"
"""The bytes behind the correlation id in an answer to a steady member: tags, throttle time, error code, no message, a
member id of 22 characters, epoch, interval, no assignment, tags.
"""
