"""Real clients under planned faults: what each kind does to a consumer of confluent-kafka and of aiokafka.

The server runs in a thread of the test's process, the clients too. Each test has one static member, so that a rebalance
has one cause: the fault.

House rule: conftest.py's, but for the server. Only Tenure has faults, so these tests don't run on Apache Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordinator.server.faults import plan
from coordinator.server.faults.faults import Asked, Faults
from coordinator.server.wire.connection import Connection
from schemas.errors import ErrorCode
from tests.support.patience import WITHIN_S
from tests.support.threaded import Threaded

pytestmark = pytest.mark.interop

GROUP, INSTANCE = "workers", "worker-1"
SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS, REQUEST_TIMEOUT_MS = 3_000, 200, 1_000
POLL_S = 0.02
SEED = 7


class Member(Protocol):
    """A client under test. moves: "assigned" and what the client calls the other way, in order."""

    moves: list[str]

    async def start(self) -> None:
        """Subscribe."""

    async def poll(self) -> None:
        """One poll."""

    async def commit(self, offset: int) -> None:
        """Commit for partition 0, and wait for the answer."""

    async def close(self) -> None:
        """Close."""


class Confluent:
    """confluent_kafka.Consumer."""

    def __init__(self, bootstrap: str) -> None:
        self.moves: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "group.instance.id": INSTANCE,
                "client.id": INSTANCE,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 200,
                "enable.auto.commit": False,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )

    async def start(self) -> None:
        """See Member."""
        self._consumer.subscribe(
            ["orders"],
            on_assign=lambda _consumer, _partitions: self.moves.append("assigned"),
            on_revoke=lambda _consumer, _partitions: self.moves.append("revoked"),
            on_lost=lambda _consumer, _partitions: self.moves.append("lost"),
        )

    async def poll(self) -> None:
        """See Member."""
        message = self._consumer.poll(POLL_S)
        if message is not None and (error := message.error()) is not None and error.code() == KafkaError._FATAL:
            raise KafkaException(error)

    async def commit(self, offset: int) -> None:
        """See Member."""
        self._consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)

    async def close(self) -> None:
        """See Member."""
        self._consumer.close()


class Aiokafka(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka.AIOKafkaConsumer."""

    def __init__(self, bootstrap: str) -> None:
        self.moves: list[str] = []
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            group_instance_id=INSTANCE,
            client_id=INSTANCE,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=50,
            enable_auto_commit=False,
        )

    async def on_partitions_revoked(self, revoked: set[AioPartition]) -> None:
        """Called before each join; this client has no word for lost partitions."""
        if revoked:
            self.moves.append("revoked")

    async def on_partitions_assigned(self, assigned: set[AioPartition]) -> None:
        """Called after each join."""
        self.moves.append("assigned")

    async def start(self) -> None:
        """See Member."""
        self._consumer.subscribe(["orders"], listener=self)
        await self._consumer.start()

    async def poll(self) -> None:
        """See Member."""
        await self._consumer.getmany(timeout_ms=int(POLL_S * 1_000))

    async def commit(self, offset: int) -> None:
        """See Member."""
        await self._consumer.commit({AioPartition("orders", 0): offset})

    async def close(self) -> None:
        """See Member."""
        await self._consumer.stop()


CLIENTS: dict[str, type[Any]] = {"confluent-kafka": Confluent, "aiokafka": Aiokafka}


class Scene:
    """A server with faults and one member. apis: the requests that came, in order."""

    def __init__(self, server: Threaded, faults: Faults, member: Member) -> None:
        self.server = server
        self.faults = faults
        self.member = member
        self.apis: list[str] = []
        server.call(faults.watch, self._see)

    def _see(self, _connection: Connection, asked: Asked, _fault: plan.Fault | None) -> None:
        self.apis.append(asked.api)

    def plan(self, fault: plan.Fault) -> plan.Fault:
        """Plan a fault from now on."""
        self.server.call(self.faults.add, fault)
        return fault

    async def poll_while(self, goes_on: Callable[[], bool]) -> None:
        """Poll until it is over."""
        async with asyncio.timeout(WITHIN_S):
            while goes_on():
                await self.member.poll()

    async def poll_until(self, *moves: str) -> None:
        """Poll until the member has made these moves, and no others."""
        await self.poll_while(lambda: self.member.moves == list(moves)[: len(self.member.moves)] != list(moves))
        assert self.member.moves == list(moves)

    async def poll_while_it_answers(self, count: int = 3) -> None:
        """Poll until so many further heartbeats came."""
        wanted = self.apis.count("Heartbeat") + count
        await self.poll_while(lambda: self.apis.count("Heartbeat") < wanted)

    @property
    def causes(self) -> list[str]:
        """The causes of the group's rebalances."""
        return [event["cause"]["kind"] for event in self.server.events("rebalance_started", group=GROUP)]

    @property
    def replacements(self) -> int:
        """How often the static member was replaced."""
        return len(self.server.events("member_replaced", group=GROUP))

    @property
    def committed(self) -> int | None:
        """The committed offset of partition 0."""

        def look() -> int | None:
            group = self.server.server.runtime.partition_of(GROUP).coordinator.groups[GROUP]
            found = group.offsets.get("orders", {}).get(0)
            return None if found is None else found.offset

        return self.server.call(look)


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> type[Any]:
    """Return the class of the client under test."""
    return CLIENTS[request.param]


@pytest.fixture
def faults() -> Faults:
    """Return faults without a plan."""
    return Faults()


@pytest.fixture
def server(faults: Faults) -> Iterator[Threaded]:
    """Yield a server with these faults."""
    with Threaded("group.min.session.timeout.ms=500", faults=faults) as server:
        yield server


@asynccontextmanager
async def scene(server: Threaded, faults: Faults, client: type[Any]) -> AsyncIterator[Scene]:
    """A member that has joined, alone."""
    member: Member = client(server.bootstrap)
    scene = Scene(server, faults, member)
    try:
        await member.start()
        await scene.poll_until("assigned")
        yield scene
    finally:
        server.call(faults.clear)
        await member.close()


async def test_a_heartbeat_that_says_rebalance_makes_the_member_rejoin(
    server: Threaded, faults: Faults, client: type[Any]
) -> None:
    """It gives its partitions back and joins with its member id: one more rebalance, whose cause is the rejoin."""
    async with scene(server, faults, client) as it:
        it.plan(plan.error(ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat", instance_id=INSTANCE))
        await it.poll_until("assigned", "revoked", "assigned")
        assert it.causes == ["member_joined", "leader_rejoined"]
        assert it.replacements == 0


async def test_a_heartbeat_that_says_unknown_makes_the_member_join_anew(
    server: Threaded, faults: Faults, client: type[Any]
) -> None:
    """It joins without a member id; its seat is its own, so no rebalance begins."""
    async with scene(server, faults, client) as it:
        it.plan(plan.error(ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat", instance_id=INSTANCE))
        await it.poll_until("assigned", "lost" if client is Confluent else "revoked", "assigned")
        assert it.causes == ["member_joined"]
        assert it.replacements == 1


async def test_a_heartbeat_that_says_fenced_ends_the_client(
    server: Threaded, faults: Faults, client: type[Any]
) -> None:
    """The client raises: librdkafka as its fatal error, aiokafka as an error that it doesn't know. None joins again."""
    async with scene(server, faults, client) as it:
        it.plan(plan.error(ErrorCode.FENCED_INSTANCE_ID, "Heartbeat", instance_id=INSTANCE))
        with pytest.raises((KafkaException, AioError)):
            await it.poll_while(lambda: True)
        assert it.apis.count("JoinGroup") == 1
        assert it.causes[:1] == ["member_joined"]


async def test_a_commit_whose_answer_is_lost_is_stored_and_sent_again(
    server: Threaded, faults: Faults, client: type[Any]
) -> None:
    """The effect is there before the client knows; after its request timeout it connects and commits again."""
    async with scene(server, faults, client) as it:
        fault = it.plan(plan.drop_response("OffsetCommit", group=GROUP))
        await it.member.commit(7)
        assert fault.fired == 1
        assert it.apis.count("OffsetCommit") == 2
        assert it.committed == 7
        await it.poll_while_it_answers()
        assert it.causes == ["member_joined"]


async def test_a_commit_that_is_lost_is_sent_again(server: Threaded, faults: Faults, client: type[Any]) -> None:
    """As above, but the first one had no effect."""
    async with scene(server, faults, client) as it:
        stored: list[int] = []
        groups = server.server.runtime.partition_of(GROUP).coordinator.groups

        def look(_connection: Connection, asked: Asked, _fault: plan.Fault | None) -> None:
            if asked.api == "OffsetCommit":
                stored.append(len(groups[GROUP].offsets))

        it.plan(plan.drop_request("OffsetCommit", group=GROUP))
        server.call(faults.watch, look)
        await it.member.commit(7)
        assert stored == [0, 0]
        assert it.committed == 7


async def test_a_join_that_is_cut_off_is_sent_again(server: Threaded, faults: Faults, client: type[Any]) -> None:
    """The coordinator never saw the first one: the group has one rebalance."""
    fault = plan.disconnect("JoinGroup", group=GROUP)
    server.call(faults.add, fault)
    async with scene(server, faults, client) as it:
        await it.poll_while_it_answers()
        assert fault.fired == 1
        assert it.apis.count("JoinGroup") == 2
        assert (it.causes, it.replacements) == (["member_joined"], 0)


async def test_a_join_whose_answer_is_cut_off_takes_its_own_seat(
    server: Threaded, faults: Faults, client: type[Any]
) -> None:
    """The coordinator has the first join's member: the second one replaces it, in a rebalance that was open already."""
    fault = plan.disconnect_after("JoinGroup", group=GROUP)
    server.call(faults.add, fault)
    async with scene(server, faults, client) as it:
        await it.poll_while_it_answers()
        assert it.apis.count("JoinGroup") == 2
        assert (it.causes, it.replacements) == (["member_joined", "static_member_replaced"], 1)


async def test_a_commit_to_another_coordinator_looks_for_it(
    server: Threaded, faults: Faults, client: type[Any]
) -> None:
    """NOT_COORDINATOR costs a FindCoordinator, and no rebalance."""
    async with scene(server, faults, client) as it:
        it.apis.clear()
        it.plan(plan.error(ErrorCode.NOT_COORDINATOR, "OffsetCommit", group=GROUP))
        await it.member.commit(7)
        assert it.committed == 7
        at = it.apis.index("OffsetCommit")
        assert "FindCoordinator" in it.apis[at : at + 1 + it.apis[at + 1 :].index("OffsetCommit")]
        await it.poll_while_it_answers()
        assert it.causes == ["member_joined"]


async def test_a_heartbeat_to_another_coordinator_moves_nothing(
    server: Threaded, faults: Faults, client: type[Any]
) -> None:
    """The member keeps its partitions, whichever request learns that the group moved."""
    async with scene(server, faults, client) as it:
        fault = it.plan(plan.move(GROUP))
        await it.poll_while_it_answers(5)
        assert fault.fired == 1
        assert (it.causes, it.member.moves) == (["member_joined"], ["assigned"])


async def test_a_coordinator_that_loads_moves_nothing(server: Threaded, faults: Faults, client: type[Any]) -> None:
    """Heartbeats get NONE meanwhile."""
    async with scene(server, faults, client) as it:
        fault = it.plan(plan.loading(GROUP, times=3))
        await it.poll_while_it_answers(6)
        assert fault.fired == 3
        assert (it.causes, it.member.moves) == (["member_joined"], ["assigned"])


async def test_a_slow_coordinator_moves_nothing(server: Threaded, faults: Faults, client: type[Any]) -> None:
    """Answers that come late are answers."""
    async with scene(server, faults, client) as it:
        fault = it.plan(plan.delay(300, "Heartbeat", times=3))
        await it.poll_while_it_answers(5)
        assert fault.fired == 3
        assert (it.causes, it.member.moves) == (["member_joined"], ["assigned"])


async def test_a_client_in_a_black_hole_expires_and_comes_back(
    server: Threaded, faults: Faults, client: type[Any]
) -> None:
    """Its seat goes after the session timeout; when the black hole ends, it joins again."""
    async with scene(server, faults, client) as it:
        hole = it.plan(plan.blackhole(INSTANCE))
        await it.poll_while(lambda: not server.events("member_expired", group=GROUP))
        server.call(faults.remove, hole)
        await it.poll_while(lambda: it.member.moves.count("assigned") < 2)
        assert it.causes == ["member_joined", "member_expired", "member_joined"]


async def test_a_client_survives_a_random_plan(server: Threaded, faults: Faults, client: type[Any]) -> None:
    """After all faults of a plan drawn from a seed, a commit goes through; the text of the plan repeats it."""
    async with scene(server, faults, client) as it:
        text = plan.written(plan.random_plan(SEED, 6, [INSTANCE]))
        server.call(faults.add, *plan.parse(text))
        await it.poll_while_it_answers(8)
        assert len(faults.never_fired) < 6, text
        server.call(faults.clear)
        await it.poll_while_it_answers(3)
        await it.poll_while_it_answers(3)
        await it.member.commit(9)
        assert it.committed == 9
