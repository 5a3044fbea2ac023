"""A consumer of a scripted history, as a process: it polls, commits by itself, and obeys a few commands.

It is `python -m tests.observe.consumer '<settings as JSON>'`, with confluent-kafka, aiokafka or kafka-python, and reads
commands as JSON lines from standard input:

    {"do": "subscribe", "topics": [...]}   subscribes to other topics; to none is an unsubscribe
    {"do": "sleep", "s": 5}                doesn't poll for so long
    {"do": "hold", "s": 5}                 takes so long to give up the next partitions (confluent-kafka alone)
    {"do": "close"}                        closes the consumer, and ends

It says nothing: a script learns from the server what became of the member.

House rule: the clients' settings are what a user would choose, but for times, which are short.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import time
from typing import Any

import aiokafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from confluent_kafka import Consumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.interop.worker import read_commands
from tests.observe.settings import Settings

POLL_S = 0.05


def _obey(consumer: Any, command: dict[str, Any]) -> bool:
    """Carry a command out; whether the consumer goes on."""
    if command["do"] == "close":
        consumer.close()
        return False
    if command["do"] == "sleep":
        time.sleep(command["s"])
    elif command["topics"]:
        consumer.subscribe(command["topics"])
    else:
        consumer.unsubscribe()
    return True


class _Holder:
    """A callback that takes its time to give up partitions, once for each command. s: how long."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self, _consumer: Consumer, _partitions: list[Any]) -> None:
        seconds, self.s = self.s, 0.0
        time.sleep(seconds)


def _run_confluent(settings: Settings, commands: queue.SimpleQueue[dict[str, Any]]) -> None:
    config: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap,
        "client.id": settings.name,
        "group.id": settings.group,
        "max.poll.interval.ms": settings.max_poll_ms,
        "enable.auto.commit": settings.commit_ms > 0,
        "auto.commit.interval.ms": settings.commit_ms or 5_000,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 0,
    }
    if settings.protocol == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config |= {
            "session.timeout.ms": settings.session_ms,
            "heartbeat.interval.ms": settings.heartbeat_ms,
            "partition.assignment.strategy": settings.assignor,
        }
    if settings.instance_id is not None:
        config["group.instance.id"] = settings.instance_id
    consumer = Consumer(config)
    holder = _Holder()
    consumer.subscribe(list(settings.topics), on_revoke=holder)
    while True:
        consumer.poll(POLL_S)
        while not commands.empty():
            command = commands.get()
            if command["do"] == "hold":
                holder.s = command["s"]
            elif command["do"] == "subscribe" and command["topics"]:
                consumer.subscribe(command["topics"], on_revoke=holder)
            elif not _obey(consumer, command):
                return


def _run_kafka_python(settings: Settings, commands: queue.SimpleQueue[dict[str, Any]]) -> None:
    assignors = {each.name: each for each in (RangePartitionAssignor, CooperativeStickyAssignor)}
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=settings.bootstrap,
        client_id=settings.name,
        group_id=settings.group,
        group_instance_id=settings.instance_id,
        session_timeout_ms=settings.session_ms,
        heartbeat_interval_ms=settings.heartbeat_ms,
        max_poll_interval_ms=settings.max_poll_ms,
        partition_assignment_strategy=[assignors[settings.assignor]],
        enable_auto_commit=settings.commit_ms > 0,
        auto_commit_interval_ms=settings.commit_ms or 5_000,
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
    )
    consumer.subscribe(list(settings.topics))
    while True:
        consumer.poll(timeout_ms=int(POLL_S * 1000))
        while not commands.empty():
            command = commands.get()
            if command["do"] == "subscribe" and command["topics"]:
                consumer.unsubscribe()  # it refuses to change a subscription
            if not _obey(consumer, command):
                return


async def _run_aiokafka(settings: Settings, commands: queue.SimpleQueue[dict[str, Any]]) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap,
        client_id=settings.name,
        group_id=settings.group,
        group_instance_id=settings.instance_id,
        session_timeout_ms=settings.session_ms,
        heartbeat_interval_ms=settings.heartbeat_ms,
        max_poll_interval_ms=settings.max_poll_ms,
        rebalance_timeout_ms=settings.max_poll_ms,
        partition_assignment_strategy=(AioRange,),
        enable_auto_commit=settings.commit_ms > 0,
        auto_commit_interval_ms=settings.commit_ms or 5_000,
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
    )
    consumer.subscribe(list(settings.topics))
    await consumer.start()
    while True:
        await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        while not commands.empty():
            command = commands.get()
            if command["do"] == "close":
                await consumer.stop()
                return
            if command["do"] == "sleep":
                await asyncio.sleep(command["s"])
            elif command["topics"]:
                consumer.subscribe(command["topics"])
            else:
                consumer.unsubscribe()


def main() -> None:
    """Run the consumer to its end."""
    fields = json.loads(sys.argv[1])
    settings = Settings(**fields | {"topics": tuple(fields["topics"])})
    commands = read_commands()
    if settings.client == "confluent":
        _run_confluent(settings, commands)
    elif settings.client == "kafka-python":
        _run_kafka_python(settings, commands)
    else:
        asyncio.run(_run_aiokafka(settings, commands))


if __name__ == "__main__":
    main()
