"""The test kit with clients of three kinds, in async tests and in unittest.

House rule: a client here is what a user's test would have: no process of its own, nothing but its public methods.
"""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, closing
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from confluent_kafka import Consumer, Producer

from coordinator.testing import Group, Tenure, assert_no_rebalance, assert_nothing_moved
from tests.support.patience import WITHIN_S
from tests.support.polled import polled

pytestmark = pytest.mark.interop

NAMES = ("one", "two", "three")

BEATS = 5
"""After so many heartbeats a client has found the coordinator: none is sent while it looks for it."""


def all_at(offset: int, group: Group) -> bool:
    """Whether each of four topic partitions has this committed offset."""
    return group.committed == {("orders", partition): offset for partition in range(4)}


async def test_aiokafka_restarts_on_the_tests_own_loop() -> None:
    """Two static members join while the test waits beside its loop; one restarts, and nothing moves."""
    with Tenure(topics={"orders": 4}, timeout=WITHIN_S) as tenure:
        async with AsyncExitStack() as stack:

            async def start(name: str) -> AIOKafkaConsumer:
                consumer = AIOKafkaConsumer(
                    "orders",
                    bootstrap_servers=tenure.bootstrap_servers,
                    group_id="workers",
                    group_instance_id=name,
                    client_id=name,
                    heartbeat_interval_ms=100,
                )
                stack.push_async_callback(consumer.stop)
                await consumer.start()
                return consumer

            one, _ = [await start(name) for name in ("one", "other")]
            group = tenure.group("workers")
            await asyncio.to_thread(group.wait_until_stable, members=2)
            since = group.mark()
            await one.stop()
            await start("one")
            await asyncio.to_thread(group.wait_until, restarts=1)
            assert_no_rebalance(group, since)
            assert_nothing_moved(group, since)
            assert tenure.requests.count("JoinGroup", "one") >= 2


@pytest.mark.filterwarnings("ignore:.* is deprecated. Use files:DeprecationWarning")
def test_kafka_python_leaves_with_one_rebalance() -> None:
    """Two dynamic members; one closes, which is one rebalance by its LeaveGroup.

    The client's leader may join again by itself, because it has heard of new metadata: that is no effect of the leave,
    and the leave may come while it is under way.
    """
    from kafka import KafkaConsumer  # noqa: PLC0415 - its import warns

    with Tenure(topics={"orders": 4}, timeout=WITHIN_S) as tenure, ExitStack() as stack:
        one, other = (
            stack.enter_context(
                closing(
                    KafkaConsumer(
                        "orders",
                        bootstrap_servers=tenure.bootstrap_servers,
                        group_id="workers",
                        client_id=name,
                        heartbeat_interval_ms=100,
                    )
                )
            )
            for name in ("one", "other")
        )
        group = tenure.group("workers")
        with polled(lambda: one.poll(timeout_ms=100)):
            with polled(lambda: other.poll(timeout_ms=100)):
                group.wait_until_stable(members=2)
            other.close()
            group.wait_until(members=1, state="Stable")
        (left,) = (each for each in group.rebalances if "member_left" in each.causes)
        assert "other at 127.0.0.1" in str(left)


@pytest.mark.long
def test_confluent_kafka_follows_the_coordinator() -> None:
    """The coordinator moves, and its node dies: no rebalance, the same seats, and every record is committed.

    Each round waits until the clients know the coordinator. A commit of librdkafka 2.16 that waits for a coordinator
    fails inside the client when it learns the new address, and the client looks again: for seconds, and once for 45.
    """
    with Tenure(topics={"orders": 4}, nodes=3, timeout=WITHIN_S) as tenure, ExitStack() as stack:
        settings = {"bootstrap.servers": tenure.bootstrap_servers, "log_level": 0}
        of_group = {
            "group.id": "workers",
            "heartbeat.interval.ms": 100,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,  # FindCoordinator waits behind a Fetch
        }
        producer = Producer(settings)
        consumers = [
            stack.enter_context(closing(Consumer({**settings, **of_group, "client.id": name}))) for name in NAMES
        ]

        def work(consumer: Consumer) -> None:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                consumer.commit(message=message, asynchronous=False)

        def all_beat(_: Group) -> bool:
            return all(tenure.requests.count("Heartbeat", name) >= BEATS for name in NAMES)

        for consumer in consumers:
            consumer.subscribe(["orders"])
            stack.enter_context(polled(partial(work, consumer)))
        group = tenure.group("workers").wait_until_stable(members=3)
        group.wait_until(all_beat)  # a client whose SyncGroup meets the move joins again
        generation, first = group.generation, tenure.coordinator_of("workers")
        changes: list[Callable[[], None]] = [
            lambda: tenure.move("workers", (first + 1) % 3),
            lambda: tenure.move("workers", (first + 2) % 3),
            lambda: tenure.kill_node((first + 2) % 3),
        ]
        with group.no_rebalance(), group.same_seats():
            for offset, change in enumerate(changes, 1):
                change()
                tenure.requests.clear()
                group.wait_until(all_beat)
                for partition in range(4):
                    producer.produce("orders", b"value", partition=partition)
                assert producer.flush(WITHIN_S) == 0
                group.wait_until(partial(all_at, offset))
        assert group.generation == generation


async def test_aiokafka_follows_the_coordinator() -> None:
    """A move to a stable group costs no rebalance; one that ends a rebalance lets the members join again elsewhere."""
    with Tenure(topics={"orders": 4}, nodes=3, timeout=WITHIN_S) as tenure:
        async with AsyncExitStack() as stack:
            settings: dict[str, Any] = {"bootstrap_servers": tenure.bootstrap_servers}

            def closed(client: Any) -> Any:
                stack.push_async_callback(client.stop)
                return client

            producer = closed(AIOKafkaProducer(**settings))
            await producer.start()
            settings |= {"group_id": "workers", "heartbeat_interval_ms": 100, "auto_offset_reset": "earliest"}
            consumers = [closed(AIOKafkaConsumer("orders", **settings, enable_auto_commit=False)) for _ in NAMES]
            await asyncio.gather(*(consumer.start() for consumer in consumers))
            for consumer in consumers:
                stack.callback(asyncio.create_task(commit_all(consumer)).cancel)
            group = tenure.group("workers")
            await asyncio.to_thread(group.wait_until_stable, members=3)
            generation = group.generation
            with group.no_rebalance(), group.same_seats():
                for offset in (1, 2):
                    await asyncio.to_thread(tenure.move, "workers", (tenure.coordinator_of("workers") + 1) % 3)
                    for partition in range(4):
                        await producer.send_and_wait("orders", b"value", partition=partition)
                    await asyncio.to_thread(group.wait_until, partial(all_at, offset))
            assert group.generation == generation
            slow = Slow()
            consumers[0].subscribe(["orders"], listener=slow)
            starting = asyncio.create_task(closed(AIOKafkaConsumer("orders", **settings)).start())
            await slow.begun.wait()
            await asyncio.to_thread(group.wait_until, state="PreparingRebalance")
            await asyncio.to_thread(tenure.move, "workers", (tenure.coordinator_of("workers") + 1) % 3)
            assert await asyncio.to_thread(lambda: group.state) == "Stable"  # in the generation before
            slow.may_end.set()
            await starting
            await asyncio.to_thread(group.wait_until_stable, members=4)
            assert group.generation > generation  # by two if the slow member, or the leader, joins before the new one


async def commit_all(consumer: AIOKafkaConsumer) -> None:
    """Commit after each record."""
    async for _ in consumer:
        await consumer.commit()


class Slow(ConsumerRebalanceListener):  # type: ignore[misc]
    """Keeps its topic partitions until it may give them away."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """See ConsumerRebalanceListener."""
        self.begun.set()
        await self.may_end.wait()

    def on_partitions_assigned(self, assigned: Any) -> None:
        """See ConsumerRebalanceListener."""


class OfUnittest(unittest.TestCase):
    """The same without pytest's fixtures."""

    def setUp(self) -> None:
        """A server for each test."""
        self.tenure = Tenure(topics={"orders": 4}, timeout=WITHIN_S).start()
        self.addCleanup(self.tenure.stop)

    def test_a_second_confluent_consumer_moves_partitions(self) -> None:
        """The failure says so in unittest's own way: AssertionError."""
        settings = {
            "bootstrap.servers": self.tenure.bootstrap_servers,
            "group.id": "workers",
            "heartbeat.interval.ms": 100,
            "log_level": 0,
        }
        one, other = (self.enterContext(closing(Consumer(settings))) for _ in range(2))
        group = self.tenure.group("workers")
        one.subscribe(["orders"])
        with polled(lambda: one.poll(0.02)):
            group.wait_until_stable(members=1)
            since = group.mark()
            other.subscribe(["orders"])
            with polled(lambda: other.poll(0.02)):
                group.wait_until_stable(members=2)
        with self.assertRaisesRegex(AssertionError, "new member rdkafka-"):  # noqa: PT027 - it is what this is about
            assert_no_rebalance(group, since)
        with self.assertRaisesRegex(AssertionError, "moved 2 topic partitions"):  # noqa: PT027 - as above
            assert_nothing_moved(group, since)
