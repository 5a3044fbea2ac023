"""Group scenarios of aiokafka's own tests, beyond the scenarios that all clients have, in our words.

Its source release carries no tests (its MANIFEST.in leaves them out), so tests/suites runs them only from a checkout.
The scenarios that the other files here lack: subscriptions by pattern, topics that change under a group, partitions
assigned by hand beside one, commits by closing, members that stop polling, and session timeouts out of bounds. The
clients run in the test's own process here.

House rule: conftest.py's. No test waits a fixed time: consumers poll until a condition holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.errors import CommitFailedError, InvalidSessionTimeoutError

from tests.interop.brokers import Broker, create_topic
from tests.support.patience import WITHIN_S

METADATA_MAX_AGE_MS = 200
PARTITION_COUNT = 3

Start = Callable[..., Any]


@pytest.fixture
async def start(broker: Broker, group: str) -> AsyncIterator[Start]:
    """Makes a consumer of the test's group, started and stopped; settings as aiokafka has them."""
    async with AsyncExitStack() as stack:

        async def start(*topics: str, pattern: str | None = None, **settings: Any) -> Any:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=broker.bootstrap,
                **{
                    "group_id": group,
                    "enable_auto_commit": False,
                    "auto_offset_reset": "earliest",
                    "heartbeat_interval_ms": 200,
                    "metadata_max_age_ms": METADATA_MAX_AGE_MS,
                    **settings,
                },
            )
            if topics or pattern:
                consumer.subscribe(topics, pattern)
            stack.push_async_callback(consumer.stop)
            await consumer.start()
            return consumer

        yield start


async def until(holds: Callable[[], bool], consumers: Sequence[Any]) -> None:
    """Consumers poll until it holds."""
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            for consumer in consumers:
                await consumer.getmany(timeout_ms=20)


def partitions(topic: str, count: int = PARTITION_COUNT) -> set[TopicPartition]:
    """All of a topic."""
    return {TopicPartition(topic, number) for number in range(count)}


def shared(consumers: Sequence[Any], wanted: set[TopicPartition]) -> bool:
    """Whether each of these topic partitions has one owner, and everybody something."""
    owned = [each.assignment() for each in consumers]
    return all(owned) and sum(map(len, owned)) == len(wanted) and set().union(*owned) == wanted


@asynccontextmanager
async def admin_client(bootstrap: str) -> AsyncIterator[Any]:
    """An admin client of aiokafka."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def produce(bootstrap: str, topic: str, count: int) -> None:
    """So many records to partition 0."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    try:
        await producer.start()
        for number in range(count):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
    finally:
        await producer.stop()


async def test_a_topic_that_fits_the_pattern_comes_in(broker: Broker, start: Start, group: str) -> None:
    """Members that subscribed by pattern share it after a rebalance, and a topic that doesn't fit changes nothing."""
    create_topic(broker.bootstrap, f"{group}-one", PARTITION_COUNT)
    members = [await start(pattern=f"^{group}-.*") for _ in range(2)]
    await until(lambda: shared(members, partitions(f"{group}-one")), members)
    mark = broker.mark()

    create_topic(broker.bootstrap, f"other-{group}", PARTITION_COUNT)
    create_topic(broker.bootstrap, f"{group}-two", PARTITION_COUNT)
    both = partitions(f"{group}-one") | partitions(f"{group}-two")
    await until(lambda: shared(members, both), members)
    assert broker.rebalances(group, mark) >= 1


async def test_new_partitions_are_shared(broker: Broker, start: Start, group: str) -> None:
    """A topic grows under its group: its leader sees it, and joins again."""
    topic = f"{group}-grows"
    create_topic(broker.bootstrap, topic, PARTITION_COUNT)
    members = [await start(topic) for _ in range(2)]
    await until(lambda: shared(members, partitions(topic)), members)

    async with admin_client(broker.bootstrap) as admin:
        await admin.create_partitions({topic: NewPartitions(2 * PARTITION_COUNT)})
    await until(lambda: shared(members, partitions(topic, 2 * PARTITION_COUNT)), members)
    assert all(member.assignment() for member in members)


async def test_members_may_want_different_topics(broker: Broker, start: Start, group: str) -> None:
    """Each member gets only topics that it subscribed to; a topic without a subscriber waits for one."""
    one, two = f"{group}-one", f"{group}-two"
    for topic in (one, two):
        create_topic(broker.bootstrap, topic, PARTITION_COUNT)
    first, second = await start(one), await start(one, two)
    both = partitions(one) | partitions(two)
    await until(lambda: shared([first, second], both) and partitions(two) < second.assignment(), [first, second])

    await second.stop()
    await until(lambda: first.assignment() == partitions(one), [first])
    assert not first.assignment() & partitions(two)


async def test_who_assigns_by_hand_commits_while_the_group_has_no_members(
    broker: Broker, start: Start, group: str
) -> None:
    """A consumer without membership may commit for its group id only while the group has no members."""
    topic = f"{group}-topic"
    create_topic(broker.bootstrap, topic, PARTITION_COUNT)
    partition = TopicPartition(topic, 0)
    alone = await start()
    alone.assign([partition])
    await alone.commit({partition: (5, "by hand")})
    assert await alone.committed(partition) == 5

    member = await start(topic)
    await until(lambda: shared([member], partitions(topic)), [member])
    with pytest.raises(CommitFailedError):
        await alone.commit({partition: 6})
    assert await member.committed(partition) == 5
    await member.commit({partition: 7})
    assert await alone.committed(partition) == 7


async def test_closing_commits_what_was_consumed(broker: Broker, start: Start, group: str) -> None:
    """A consumer with automatic commits sends its last commit before LeaveGroup."""
    topic = f"{group}-topic"
    create_topic(broker.bootstrap, topic, 1)
    await produce(broker.bootstrap, topic, 3)
    consumer = await start(topic, enable_auto_commit=True, auto_commit_interval_ms=300_000)
    consumed = [await asyncio.wait_for(consumer.getone(), WITHIN_S) for _ in range(3)]
    assert [record.value for record in consumed] == [b"0", b"1", b"2"]
    await consumer.stop()

    again = await start()
    again.assign([TopicPartition(topic, 0)])
    assert await again.committed(TopicPartition(topic, 0)) == 3


async def test_a_member_that_stops_polling_leaves(broker: Broker, start: Start, group: str) -> None:
    """A member that takes no records for max_poll_interval_ms leaves, and the other member gets everything."""
    topic = f"{group}-topic"
    create_topic(broker.bootstrap, topic, PARTITION_COUNT)
    await produce(broker.bootstrap, topic, 1)
    idle = await start(topic, max_poll_interval_ms=1_000)
    await until(lambda: shared([idle], partitions(topic)), [])
    mark = broker.mark()
    polling = await start(topic)
    await until(lambda: polling.assignment() == partitions(topic), [polling])
    assert broker.rebalances(group, mark) >= 1


@pytest.mark.parametrize("session_timeout_ms", [1_000, 3_000_000])
async def test_a_session_timeout_out_of_bounds_is_refused(
    broker: Broker, start: Start, group: str, session_timeout_ms: int
) -> None:
    """A session timeout below the server's minimum or above its maximum gets INVALID_SESSION_TIMEOUT."""
    topic = f"{group}-topic"
    create_topic(broker.bootstrap, topic, 1)
    with pytest.raises(InvalidSessionTimeoutError):
        await start(topic, session_timeout_ms=session_timeout_ms)
