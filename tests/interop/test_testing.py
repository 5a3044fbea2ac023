"""The test kit with clients of three kinds, in async tests and in unittest.

House rule: a client here is what a user's test would have: no process of its own, nothing but its public methods.
"""

from __future__ import annotations

import asyncio
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer

from coordinator.testing import Tenure, assert_no_rebalance, assert_nothing_moved
from tests.support.patience import WITHIN_S

pytestmark = pytest.mark.interop


@contextmanager
def polled(poll: Any) -> Iterator[None]:
    """Call `poll` again and again on a thread of its own."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            poll()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def test_aiokafka_restarts_on_the_tests_own_loop() -> None:
    """Two static members join while the test waits beside its loop; one restarts, and nothing moves."""
    with Tenure(topics={"orders": 4}, timeout=WITHIN_S) as tenure:

        async def start(name: str) -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                "orders",
                bootstrap_servers=tenure.bootstrap_servers,
                group_id="workers",
                group_instance_id=name,
                client_id=name,
                heartbeat_interval_ms=100,
            )
            await consumer.start()
            return consumer

        consumers = [await start(name) for name in ("one", "other")]
        group = tenure.group("workers")
        await asyncio.to_thread(group.wait_until_stable, members=2)
        since = group.mark()
        await consumers[0].stop()
        consumers[0] = await start("one")
        await asyncio.to_thread(group.wait_until, restarts=1)
        assert_no_rebalance(group, since)
        assert_nothing_moved(group, since)
        assert tenure.requests.count("JoinGroup", "one") >= 2
        for consumer in consumers:
            await consumer.stop()


@pytest.mark.filterwarnings("ignore:.* is deprecated. Use files:DeprecationWarning")
def test_kafka_python_leaves_with_one_rebalance() -> None:
    """Two dynamic members; one closes, which is one rebalance by its LeaveGroup."""
    from kafka import KafkaConsumer  # noqa: PLC0415 - its import warns

    with Tenure(topics={"orders": 4}, timeout=WITHIN_S) as tenure:
        one, other = (
            KafkaConsumer(
                "orders",
                bootstrap_servers=tenure.bootstrap_servers,
                group_id="workers",
                client_id=name,
                heartbeat_interval_ms=100,
            )
            for name in ("one", "other")
        )
        group = tenure.group("workers")
        with polled(lambda: one.poll(timeout_ms=100)):
            with polled(lambda: other.poll(timeout_ms=100)):
                group.wait_until_stable(members=2)
            since = len(group.rebalances)
            other.close()
            group.wait_until(members=1, state="Stable", rebalances=since + 1)
        left = group.rebalances[since]
        assert left.cause == "member_left"
        assert "(other at 127.0.0.1)" in str(left)
        one.close()


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
        one, other = Consumer(settings), Consumer(settings)
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
        one.close()
        other.close()
