"""Clients of the simulated cluster: static members that look for their coordinator as Kafka's clients do.

A member joins, syncs, then sends heartbeats; the first member of a group commits 1, 2, 3, ... and reads each number
back. The others read it too. Now and then a member restarts, and has nothing but its instance id. After
NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, a closed connection or a request that took too long, it asks a node for its
coordinator again. It never leaves. Members of some groups use the consumer protocol; they don't restart. Each request
is noted as `cluster_history.Asked`.

An anchor keeps asking one node about all groups, also about those that another node coordinates. So a node that says
yes too long shows it.

House rule: a member knows what a client knows: ids, answers, and its own clock.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from coordinator.group.client import Client
from coordinator.group.events import CommitOffsets, ConsumerHeartbeat, FetchOffsets, Heartbeat, JoinGroup, SyncGroup
from coordinator.group.topics import TopicImage
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    OffsetFetchRequest,
)
from schemas.errors import ErrorCode
from tests.simulation.cluster.nodes import error_of
from tests.support.cluster_history import Asked
from tests.support.requests import commit_request, heartbeat_request, join_request, sync_request

if TYPE_CHECKING:
    from coordinator.group.events import ClientEvent
    from tests.simulation.cluster.world import World

REQUEST_MS = 1_500
"""A member gives a request up after that time."""
JOIN_MS = 4_000
"""Shorter than a session timeout: a member whose JoinGroup got no answer must not expire while it waits."""
HOST = 2
"""The machine of all anchors; that of a member has the member's number."""
ANCHOR_MS = 60_000
"""An anchor waits that long: it has to hear the answers of a node that was frozen."""
RETRY_MS = 100
BEAT_MS = 1_000
REBALANCE_MS = 30_000
TOPIC = TopicImage(UUID(int=1), "t", 4)
ME = Client("client", "/127.0.0.1")

LOST_COORDINATOR = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
JOIN_AGAIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


class Ask(NamedTuple):
    """A step of a member: ask its coordinator. value: the offset to note."""

    kind: str
    event: ClientEvent
    value: int = -1
    within_ms: int = REQUEST_MS


class Sleep(NamedTuple):
    """A step of a member: wait."""

    ms: int


class Member:
    """See the module.

    complaints: answers that no member should get while its group is left alone. asking: its request under way.
    """

    def __init__(self, world: World, group: str, number: int) -> None:
        self.world = world
        self.group = group
        self.number = number
        self.instance_id = f"{group}-{number}"
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self.complaints: list[str] = []
        self.commit_version = 7
        self.committed = 0
        self.acknowledged_ms = 0
        self.coordinator: int | None = None
        self.asking: Asked | None = None
        self._steps = self._live()
        self._fresh = 0

    def begin(self) -> None:
        """Live from now on."""
        self._go_on(None)

    def _go_on(self, came: Any) -> None:
        step = self._steps.send(came)
        if isinstance(step, Sleep):
            self.world.time.later(step.ms, lambda: self._go_on(None))
        else:
            self._ask(step)

    def _ask(self, ask: Ask) -> None:
        node, sent = self.coordinator, self.world.time.ms
        assert node is not None

        def done(body: Any) -> None:
            error = None if body is None else error_of(body)
            value = ask.value
            if ask.kind == "fetch" and error == ErrorCode.NONE:
                value = body.topics[0].partitions[0].committed_offset
            elif ask.kind == "join" and error == ErrorCode.NONE:
                value = body.generation_id
            got = None if body is None else float(self.world.time.ms)
            self.world.history.append(Asked(self.group, ask.kind, self.number, node, float(sent), got, error, value))
            self.asking = None
            self._go_on(body)

        self.asking = Asked(self.group, ask.kind, self.number, node, float(sent), None, None, ask.value)
        self.world.ask(self.number, node, self.group, ask.event, ask.within_ms, done)

    @property
    def told_generation(self) -> int:
        """The generation of a heartbeat, for the history."""
        return self.generation

    def heartbeat(self) -> Heartbeat | ConsumerHeartbeat:
        """Its Heartbeat."""
        return Heartbeat(None, heartbeat_request(self.group, self.generation, self.member_id, self.instance_id), ME)

    def fetch(self) -> FetchOffsets:
        """OffsetFetch of its group's topic partition."""
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC.name, partition_indexes=[0])]
        return FetchOffsets(None, self.group, topics, require_stable=False, client=ME)

    # The life of a member.

    def _live(self) -> Generator[Ask | Sleep, Any, None]:
        while True:
            if self.coordinator is None:
                self.coordinator = self.world.find(self.group, self.number)
                if self.coordinator is None:
                    yield Sleep(RETRY_MS)
                    continue
            if self.generation > 0 and self._restarts():
                self.world.time.note(f"{self.instance_id} restarts")
                self._start_anew()
                self.coordinator = None
                continue
            if self.generation < 0:
                yield from self._join()
            else:
                beaten = yield Ask("heartbeat", self.heartbeat(), self.told_generation)
                if self._takes(beaten):
                    self._learn(beaten)
                    yield from self._read() if self.number else self._commit_and_read()
            yield Sleep(self.world.time.random.randint(RETRY_MS, BEAT_MS))

    def _takes(self, body: Any) -> bool:
        """Whether an answer is a yes; otherwise do as clients do."""
        error = None if body is None else ErrorCode(error_of(body))
        if error is None or error in LOST_COORDINATOR:
            self.coordinator = None
        elif error in JOIN_AGAIN:
            self.generation = -1
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._start_anew()
            self._complain(error)
        elif error not in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            self._complain(error)
        return error is ErrorCode.NONE

    def _restarts(self) -> bool:
        return self.world.time.random.random() < self.world.restarts

    def _start_anew(self) -> None:
        """Have no more than an instance id."""
        self.member_id, self.generation = "", -1

    def _learn(self, _body: Any) -> None:
        """Take what the answer to a heartbeat says beside yes: nothing."""

    def _complain(self, error: ErrorCode) -> None:
        self.complaints.append(f"{self.world.time.ms} {self.instance_id}: {error.name}")
        self.world.time.note(f"{self.instance_id} gets {error.name} from node {self.coordinator}")

    def _join(self) -> Generator[Ask | Sleep, Any, None]:
        self._fresh += 1
        session_ms = self.world.session_ms
        body = join_request(
            self.group, self.member_id, self.instance_id, session_ms=session_ms, rebalance_ms=REBALANCE_MS
        )
        event = JoinGroup(None, 5, ME, body, f"{self.instance_id}/{self._fresh}")
        joined = yield Ask("join", event, within_ms=JOIN_MS)
        if not self._takes(joined):
            return
        self.member_id = joined.member_id
        given = {
            each.member_id: (each.group_instance_id or "").encode()
            for each in joined.members
            if joined.leader == joined.member_id
        }
        sync = sync_request(self.group, joined.generation_id, self.member_id, self.instance_id, given)
        synced = yield Ask("sync", SyncGroup(None, 3, ME, sync), within_ms=JOIN_MS)
        if self._takes(synced):
            self.generation, self.assignment = joined.generation_id, synced.assignment
        else:
            # It restarts. A leader that joins again by its member id wants a rebalance, and gets one (as from Kafka).
            self.member_id = ""

    def _commit_and_read(self) -> Generator[Ask | Sleep, Any, None]:
        self.committed += 1
        who = (self.generation, self.member_id, self.instance_id)
        body = commit_request(self.group, {(TOPIC.name, 0): self.committed}, *who)
        if self._takes((yield Ask("commit", CommitOffsets(None, self.commit_version, ME, body), self.committed))):
            self.acknowledged_ms = self.world.time.ms
            yield from self._read()

    def _read(self) -> Generator[Ask | Sleep, Any, None]:
        self._takes((yield Ask("fetch", self.fetch())))


class ConsumerMember(Member):
    """A static member of the consumer protocol. generation: its epoch. owned: its partitions of the topic."""

    def __init__(self, world: World, group: str, number: int) -> None:
        super().__init__(world, group, number)
        self.member_id = f"{self.instance_id}-member"
        self.owned: list[int] = []
        self._says_all = False
        self.commit_version = 9

    @property
    def told_generation(self) -> int:
        """Its epoch grows with heartbeats, so no heartbeat reads one."""
        return -1

    def heartbeat(self) -> ConsumerHeartbeat:
        """Its ConsumerGroupHeartbeat."""
        return self._beat(self.generation, [TOPIC.name] if self._says_all else None)

    def _takes(self, body: Any) -> bool:
        is_yes = super()._takes(body)
        # After a failure it says all that it knows, as Kafka's client does; the coordinator sends its assignment again.
        self._says_all = not is_yes
        return is_yes

    def _beat(self, epoch: int, topics: list[str] | None) -> ConsumerHeartbeat:
        owned = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=TOPIC.topic_id, partitions=self.owned)
        body = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=topics,
            topic_partitions=[owned] if self.owned else [],
        )
        return ConsumerHeartbeat(None, 1, ME, body, "")

    def _join(self) -> Generator[Ask | Sleep, Any, None]:
        self.owned = []
        joined = yield Ask("beat", self._beat(0, [TOPIC.name]))
        if self._takes(joined):
            self._learn(joined)

    def _restarts(self) -> bool:
        return False

    def _start_anew(self) -> None:
        self.generation = -1

    def _learn(self, body: Any) -> None:
        self.generation = body.member_epoch
        if body.assignment is not None:
            self.owned = [index for topic in body.assignment.topic_partitions for index in topic.partitions]
            self.assignment = bytes(self.owned)


class Anchor:
    """See the module. node_id: of the node that it asks."""

    def __init__(self, world: World, node_id: int) -> None:
        self._world = world
        self._node_id = node_id

    def begin(self) -> None:
        """Ask from now on."""
        self._world.time.later(self._world.time.random.randint(RETRY_MS, BEAT_MS), self.begin)
        member = self._world.time.random.choice(self._world.members)
        if self._node_id in self._world.nodes and member.generation > 0:
            # Its heartbeats keep no session alive that its member wouldn't: the member beats more often. It sends none
            # of the consumer protocol, whose answer could be the one that tells a member its assignment.
            if not isinstance(member, ConsumerMember):
                self._world.ask(HOST, self._node_id, member.group, member.heartbeat(), BEAT_MS, _nothing)
            sent = float(self._world.time.ms)
            self._world.ask(
                HOST, self._node_id, member.group, member.fetch(), ANCHOR_MS, partial(self._read, member, sent)
            )

    def _read(self, member: Member, sent: float, body: Any) -> None:
        if body is not None and error_of(body) == ErrorCode.NONE:
            value = body.topics[0].partitions[0].committed_offset
            got = float(self._world.time.ms)
            self._world.history.append(Asked(member.group, "fetch", -1, self._node_id, sent, got, 0, value))


def _nothing(_body: Any) -> None:
    """An answer that only its sender is judged by."""
