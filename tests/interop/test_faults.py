"""Real clients under planned faults: what each kind does to a consumer of confluent-kafka and of aiokafka.

Each test runs on Tenure, and on Apache Kafka behind a proxy that carries out the same plan (faulty.py). The brokers run
beside the test, the clients in its process. A test has one static member, or names the causes of both, so that a
rebalance has one cause: the fault.

House rule: conftest.py's, but for the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordinator.server.faults import plan
from coordinator.server.faults.faults import Asked
from coordinator.server.wire.connection import Connection
from schemas.errors import ErrorCode
from tests.interop.brokers import create_topic
from tests.interop.conftest import BOTH
from tests.interop.faulty import (
    PARTITION_COUNT,
    TOPIC,
    Faulty,
    FaultyKafka,
    faulty_tenure,
    kafka_behind_a_proxy,
)
from tests.support.apache import ApacheKafka
from tests.support.fault_proxy import FaultProxy
from tests.support.patience import WITHIN_S

INSTANCE, FOLLOWER = "worker-1", "worker-2"
SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS, REQUEST_TIMEOUT_MS = 3_000, 200, 1_000
LONG_SESSION_TIMEOUT_MS = 60_000
"""Longer than Apache Kafka takes to come back after SIGKILL."""
POLL_S = 0.02
RETRIES = 2
"""How often librdkafka sends a SyncGroup again before it joins again."""
SEED = 7
ALL_PARTITIONS = list(range(PARTITION_COUNT))


class Member(Protocol):
    """A client under test. moves: "assigned" and what the client calls the other way, in order."""

    moves: list[str]

    @property
    def partitions(self) -> list[int]:
        """The partitions that it has, as it says itself."""

    async def start(self) -> None:
        """Subscribe."""

    async def poll(self) -> None:
        """One poll."""

    async def commit(self, offset: int) -> None:
        """Commit for partition 0, and wait for the answer; a poll meanwhile may wait too."""

    async def close(self) -> None:
        """Close."""


class Confluent:
    """confluent_kafka.Consumer. assignors: by default as the client's."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        session_timeout_ms: int,
        instance_id: str = INSTANCE,
        assignors: str = "range,roundrobin",
    ) -> None:
        self.moves: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.instance.id": instance_id,
                "client.id": instance_id,
                "partition.assignment.strategy": assignors,
                "session.timeout.ms": session_timeout_ms,
                "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 200,
                "enable.auto.commit": False,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )

    @property
    def partitions(self) -> list[int]:
        """See Member."""
        return sorted(each.partition for each in self._consumer.assignment())

    async def start(self) -> None:
        """See Member."""
        self._consumer.subscribe(
            [TOPIC],
            on_assign=lambda _consumer, _partitions: self.moves.append("assigned"),
            on_revoke=lambda _consumer, _partitions: self.moves.append("revoked"),
            on_lost=lambda _consumer, _partitions: self.moves.append("lost"),
        )

    async def poll(self) -> None:
        """See Member."""
        message = await asyncio.to_thread(self._consumer.poll, POLL_S)
        if message is not None and (error := message.error()) is not None and error.code() == KafkaError._FATAL:
            raise KafkaException(error)

    async def commit(self, offset: int) -> None:
        """See Member."""
        offsets = [TopicPartition(TOPIC, 0, offset)]
        await asyncio.to_thread(self._consumer.commit, offsets=offsets, asynchronous=False)

    async def close(self) -> None:
        """See Member."""
        self._consumer.close()


class Aiokafka(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka.AIOKafkaConsumer."""

    def __init__(self, bootstrap: str, group: str, session_timeout_ms: int) -> None:
        self.moves: list[str] = []
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=INSTANCE,
            client_id=INSTANCE,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=50,
            enable_auto_commit=False,
        )

    @property
    def partitions(self) -> list[int]:
        """See Member."""
        return sorted(each.partition for each in self._consumer.assignment())

    async def on_partitions_revoked(self, revoked: set[AioPartition]) -> None:
        """Called before each join; this client has no word for lost partitions."""
        if revoked:
            self.moves.append("revoked")

    async def on_partitions_assigned(self, assigned: set[AioPartition]) -> None:
        """Called after each join."""
        self.moves.append("assigned")

    async def start(self) -> None:
        """See Member."""
        self._consumer.subscribe([TOPIC], listener=self)
        await self._consumer.start()

    async def poll(self) -> None:
        """See Member."""
        await self._consumer.getmany(timeout_ms=int(POLL_S * 1_000))

    async def commit(self, offset: int) -> None:
        """See Member."""
        await self._consumer.commit({AioPartition(TOPIC, 0): offset})

    async def close(self) -> None:
        """See Member."""
        await self._consumer.stop()


CLIENTS: dict[str, type[Any]] = {"confluent-kafka": Confluent, "aiokafka": Aiokafka}


class Scene:
    """A broker with faults and one member.

    apis: the requests that came, in order. generation: of the member's last heartbeat.
    stored: the committed offset of partition 0 as each OffsetCommit came; a slow machine may have more of them, because
    REQUEST_TIMEOUT_MS is short.
    """

    def __init__(self, broker: Faulty, member: Member) -> None:
        self.broker = broker
        self.member = member
        self.apis: list[str] = []
        self.generation = 0
        self.stored: list[int | None] = []
        broker.call(broker.faults.watch, self._see)

    def _see(self, _connection: Connection, asked: Asked, _fault: plan.Fault | None) -> None:
        self.apis.append(asked.api)
        if asked.api == "Heartbeat":
            self.generation = asked.body.generation_id
        elif asked.api == "OffsetCommit":
            self.stored.append(self.broker.committed())

    def plan(self, fault: plan.Fault) -> plan.Fault:
        """Plan a fault from now on."""
        self.broker.call(self.broker.faults.add, fault)
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
    def committed(self) -> int | None:
        """The committed offset of partition 0."""
        return self.broker.call(self.broker.committed)

    async def assert_stands(self, *causes: str, replacements: int = 0) -> None:
        """The member has all partitions after rebalances with these causes, in the generation that they led to."""
        await self.poll_while_it_answers()
        self.broker.settle()
        assert self.broker.causes() == list(causes)
        assert self.broker.replacements() == replacements
        assert self.member.partitions == ALL_PARTITIONS
        assert self.generation == len(causes)


@pytest.fixture(params=[pytest.param("confluent-kafka", marks=pytest.mark.long), "aiokafka"])
def client(request: pytest.FixtureRequest) -> type[Any]:
    """Return the class of the client under test."""
    return CLIENTS[request.param]


@pytest.fixture(scope="module")
def kafka(java: None) -> Iterator[tuple[ApacheKafka, FaultProxy]]:
    """Yield one node of Apache Kafka behind a proxy, for all tests here."""
    with kafka_behind_a_proxy() as (kafka, proxy):
        create_topic(proxy.bootstrap, TOPIC, PARTITION_COUNT)
        yield kafka, proxy


@pytest.fixture(params=BOTH)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Faulty]:
    """Yield a broker without a plan."""
    if request.param == "apache":
        yield FaultyKafka(*request.getfixturevalue("kafka"))
        return
    with faulty_tenure(tmp_path / "data") as tenure:
        yield tenure


@asynccontextmanager
async def scene(
    broker: Faulty, client: Callable[..., Any], session_timeout_ms: int = SESSION_TIMEOUT_MS
) -> AsyncIterator[Scene]:
    """A member that has joined, alone."""
    member: Member = client(broker.bootstrap, broker.group, session_timeout_ms)
    scene = Scene(broker, member)
    try:
        await member.start()
        await scene.poll_until("assigned")
        yield scene
    finally:
        broker.call(broker.faults.clear)
        await member.close()


@pytest.fixture
async def it(broker: Faulty, client: Callable[..., Any]) -> AsyncIterator[Scene]:
    """Yield such a scene."""
    async with scene(broker, client) as made:
        yield made


async def test_a_heartbeat_that_says_rebalance_makes_the_member_rejoin(it: Scene) -> None:
    """It gives its partitions back and joins with its member id: one more rebalance, whose cause is the rejoin."""
    it.plan(plan.error(ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat", instance_id=INSTANCE))
    await it.poll_until("assigned", "revoked", "assigned")
    await it.assert_stands("member_joined", "leader_rejoined")


async def test_a_heartbeat_that_says_unknown_makes_the_member_join_anew(it: Scene, client: type[Any]) -> None:
    """It joins without a member id; its seat is its own, so no rebalance begins."""
    it.plan(plan.error(ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat", instance_id=INSTANCE))
    await it.poll_until("assigned", "lost" if client is Confluent else "revoked", "assigned")
    await it.assert_stands("member_joined", replacements=1)


async def test_a_heartbeat_that_says_fenced_ends_the_client(it: Scene, broker: Faulty, client: type[Any]) -> None:
    """The client raises: librdkafka as its fatal error, aiokafka as an error that it doesn't know. None joins again."""
    it.plan(plan.error(ErrorCode.FENCED_INSTANCE_ID, "Heartbeat", instance_id=INSTANCE))
    with pytest.raises(KafkaException if client is Confluent else AioError):
        await it.poll_while(lambda: True)
    assert it.apis.count("JoinGroup") == 1
    broker.settle()
    assert broker.causes()[:1] == ["member_joined"]


@pytest.mark.parametrize(("drop", "stored"), [(plan.drop_response, 7), (plan.drop_request, None)])
async def test_a_commit_that_is_lost_is_sent_again(
    it: Scene, broker: Faulty, drop: Callable[..., plan.Fault], stored: int | None
) -> None:
    """Its answer is lost, and the effect is there before the client knows; or itself, and there is no effect.

    After its request timeout the client connects and commits again.
    """
    fault = it.plan(drop("OffsetCommit", group=broker.group))
    await it.member.commit(7)
    assert fault.fired == 1
    assert it.stored[:2] == [None, stored]
    assert it.committed == 7
    await it.assert_stands("member_joined")


@pytest.mark.parametrize(
    ("cut_off", "causes"), [(plan.disconnect, []), (plan.disconnect_after, ["static_member_replaced"])]
)
async def test_a_join_that_is_cut_off_is_sent_again(
    broker: Faulty, client: type[Any], cut_off: Callable[..., plan.Fault], causes: list[str]
) -> None:
    """The coordinator never saw the first one: the group has one rebalance.

    Or its answer is cut off, and the coordinator has its member: the second one replaces that, in a rebalance that was
    open already.
    """
    fault = cut_off("JoinGroup", group=broker.group)
    broker.call(broker.faults.add, fault)
    async with scene(broker, client) as it:
        await it.assert_stands("member_joined", *causes, replacements=len(causes))
        assert fault.fired == 1
        assert it.apis.count("JoinGroup") == 2


async def test_a_commit_to_another_coordinator_looks_for_it(it: Scene, broker: Faulty) -> None:
    """NOT_COORDINATOR costs a FindCoordinator, and no rebalance."""
    it.apis.clear()
    it.plan(plan.error(ErrorCode.NOT_COORDINATOR, "OffsetCommit", group=broker.group))
    await it.member.commit(7)
    assert it.committed == 7
    at = it.apis.index("OffsetCommit")
    assert "FindCoordinator" in it.apis[at : at + 1 + it.apis[at + 1 :].index("OffsetCommit")]
    await it.assert_stands("member_joined")


@pytest.mark.parametrize(
    ("fault_of", "times"),
    [
        pytest.param(plan.move, 1, id="moves"),  # whichever request learns of it
        pytest.param(plan.loading, 3, id="loads"),  # heartbeats get NONE meanwhile
        pytest.param(lambda _group, times: plan.delay(300, "Heartbeat", times=times), 3, id="is slow"),
    ],
)
async def test_a_coordinator_in_trouble_moves_nothing(
    it: Scene, broker: Faulty, fault_of: Callable[..., plan.Fault], times: int
) -> None:
    """The member keeps its partitions."""
    fault = it.plan(fault_of(broker.group, times=times))
    await it.poll_while_it_answers(times + 3)
    assert fault.fired == times
    assert it.member.moves == ["assigned"]
    await it.assert_stands("member_joined")


async def test_a_group_without_a_coordinator_waits_for_one(broker: Faulty, client: type[Any]) -> None:
    """The client asks for the coordinator again and again, and goes on with the one that it finds.

    Nothing is committed meanwhile: librdkafka 2.16 queues the retry of a commit for a coordinator that it doesn't know
    yet, fails it when it learns the address, forgets the coordinator because of that, and may go on so until its
    session is over.
    """
    async with scene(broker, client, LONG_SESSION_TIMEOUT_MS) as it:
        it.apis.clear()
        fault = it.plan(plan.not_available(broker.group, times=5))
        await it.poll_while(lambda: fault.fired < 5 or it.apis.count("FindCoordinator") < 2)
        await it.poll_while(lambda: "Heartbeat" not in it.apis[::-1][: it.apis[::-1].index("FindCoordinator")])
        await it.member.commit(7)
        assert it.committed == 7
        assert it.member.moves == ["assigned"]
        await it.assert_stands("member_joined")


async def test_a_coordinator_that_dies_with_a_commit_has_stored_it(broker: Faulty, client: type[Any]) -> None:
    """The client waits for the coordinator and commits again; the member is in its place as before."""
    async with scene(broker, client, LONG_SESSION_TIMEOUT_MS) as it:
        it.plan(plan.kill("OffsetCommit", group=broker.group))
        commit = asyncio.create_task(it.member.commit(7))
        assert await asyncio.to_thread(broker.killed.wait, WITHIN_S)
        await asyncio.to_thread(broker.restart)
        await commit
        assert it.stored[:2] == [None, 7]
        assert it.committed == 7
        assert it.member.moves == ["assigned"]
        await it.assert_stands("member_joined")


@pytest.mark.long
@pytest.mark.parametrize(("assignors", "cause"), [("range,roundrobin", ["member_rejoined"]), ("range", [])])
async def test_a_coordinator_dies_before_a_restarted_follower_has_synced(
    broker: Faulty, assignors: str, cause: list[str]
) -> None:
    """librdkafka joins again with the member id that it got. The log has one assignor of several: a rebalance.

    With one assignor nothing differs from the log, and nothing moves.
    """

    def client(bootstrap: str, group: str, session_timeout_ms: int, instance_id: str = INSTANCE) -> Confluent:
        return Confluent(bootstrap, group, session_timeout_ms, instance_id, assignors)

    async with scene(broker, client, LONG_SESSION_TIMEOUT_MS) as it:

        async def poll_while(member: Confluent, goes_on: Callable[[], bool]) -> None:
            async with asyncio.timeout(WITHIN_S):
                while goes_on():
                    await asyncio.gather(it.member.poll(), member.poll())

        async def poll_until_both_have_theirs(member: Confluent) -> None:
            await poll_while(member, lambda: not 0 < len(member.partitions) < PARTITION_COUNT)
            await poll_while(member, lambda: sorted([*it.member.partitions, *member.partitions]) != ALL_PARTITIONS)

        follower = client(broker.bootstrap, broker.group, LONG_SESSION_TIMEOUT_MS, FOLLOWER)
        await follower.start()
        await poll_until_both_have_theirs(follower)
        await follower.close()
        it.plan(plan.disconnect("SyncGroup", group=broker.group, instance_id=FOLLOWER, times=RETRIES))
        it.plan(plan.kill("SyncGroup", group=broker.group, instance_id=FOLLOWER, nth=RETRIES + 1))
        restarted = client(broker.bootstrap, broker.group, LONG_SESSION_TIMEOUT_MS, FOLLOWER)
        await restarted.start()
        await poll_while(restarted, lambda: not broker.killed.is_set())
        await asyncio.to_thread(broker.restart)
        await poll_until_both_have_theirs(restarted)
        broker.settle()
        assert broker.causes() == ["member_joined", "member_joined", *cause]
        assert broker.replacements() == 1
        assert restarted.moves == ["assigned"]
        await restarted.close()


async def test_a_client_in_a_black_hole_expires_and_comes_back(it: Scene, broker: Faulty) -> None:
    """Its seat goes after the session timeout; when the black hole ends, it joins again."""
    hole = it.plan(plan.blackhole(INSTANCE))
    await it.poll_while(lambda: "member_expired" not in broker.causes())
    broker.call(broker.faults.remove, hole)
    await it.poll_while(lambda: it.member.moves.count("assigned") < 2)
    await it.assert_stands("member_joined", "member_expired", "member_joined")


@pytest.mark.long
async def test_a_client_survives_a_random_plan(it: Scene, broker: Faulty) -> None:
    """After all faults of a plan drawn from a seed, a commit goes through; the text of the plan repeats it."""
    text = plan.written(plan.random_plan(SEED, 6, [INSTANCE]))
    broker.call(broker.faults.add, *plan.parse(text))
    await it.poll_while_it_answers(8)
    assert len(broker.faults.never_fired) < 6, text
    broker.call(broker.faults.clear)
    await it.poll_while_it_answers(3)
    await it.poll_while_it_answers(3)
    await it.member.commit(9)
    assert it.committed == 9
