"""`python -m benchmarks.starts`: what a start of many members costs, with expected members and without.

One process runs all members, as consumers of one real client. They start in waves, as a deployment starts them. It
prints how many rebalances the first member saw, how many topic partitions had another owner in between, and how long
it took from the last member's start until every member had its partitions.

    python -m benchmarks.starts --server tenure --expect
    python -m benchmarks.starts --server tenure
    python -m benchmarks.starts --server kafka

House rule: it counts in the clients' own callbacks, so that both servers are measured alike.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.messages import IncrementalAlterConfigsRequest
from tests.support.apache import ApacheKafka
from tests.support.raw import ask
from tests.support.tenure import Tenure

GROUP, TOPIC = "starts", "work"
GROUP_RESOURCE = 32
GIVE_UP_S = 300.0
"""How long a start may take: no measured one took a third of it."""


class Counts:
    """The partitions that members' callbacks name. owners: the last owner of each partition. held: now, by member."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.lock = threading.Lock()
        self.owners: dict[int, int] = {}
        self.held: dict[int, set[int]] = {}
        self.moves = 0
        self.assigned_to_first = 0

    def assigned(self, member: int, partitions: Iterable[int]) -> None:
        """A member got partitions."""
        with self.lock:
            self.assigned_to_first += member == 0
            self.held[member] = set(partitions)
            for partition in self.held[member]:
                self.moves += self.owners.get(partition, member) != member
                self.owners[partition] = member

    def revoked(self, member: int) -> None:
        """A member gave its partitions up."""
        with self.lock:
            self.held.pop(member, None)

    def is_done(self) -> bool:
        """Whether each member has its partition."""
        with self.lock:
            return len(self.held) == self.members and all(self.held.values())


def settings_of(number: int) -> dict[str, Any]:
    """The settings of a member that both clients have."""
    return {"group.instance.id": f"worker-{number}", "session.timeout.ms": 45_000, "heartbeat.interval.ms": 3_000}


def run_confluent(bootstrap: str, counts: Counts, waves: int, gap_s: float) -> float:
    """Members of confluent-kafka. Returns when the last one started."""
    ends = threading.Event()

    def member(number: int) -> None:
        consumer = Consumer(
            {
                **settings_of(number),
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "partition.assignment.strategy": "range",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(
            [TOPIC],
            on_assign=lambda _, given: counts.assigned(number, [each.partition for each in given]),
            on_revoke=lambda _, __: counts.revoked(number),
        )
        while not ends.is_set():
            consumer.poll(0.2)
        consumer.close()

    threads = [threading.Thread(target=member, args=(number,)) for number in range(counts.members)]
    for place in in_waves(counts.members, waves, gap_s):
        threads[place].start()
    last_s = time.monotonic()
    while not counts.is_done() and time.monotonic() < last_s + GIVE_UP_S:
        time.sleep(0.02)
    took_s = time.monotonic() - last_s
    ends.set()
    for thread in threads:
        thread.join()
    return took_s


def in_waves(members: int, waves: int, gap_s: float) -> Iterable[int]:
    """The members' numbers; a pause lies before each wave but the first."""
    size = -(-members // waves)
    for number in range(members):
        if number and number % size == 0:
            time.sleep(gap_s)
        yield number


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """The callbacks of a member of aiokafka."""

    def __init__(self, counts: Counts, number: int) -> None:
        self.counts = counts
        self.number = number

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """See Counts."""
        self.counts.assigned(self.number, [each.partition for each in assigned])

    async def on_partitions_revoked(self, _revoked: Iterable[TopicPartition]) -> None:
        """See Counts."""
        self.counts.revoked(self.number)


async def run_aiokafka(bootstrap: str, counts: Counts, waves: int, gap_s: float) -> float:
    """Members of aiokafka. Returns how long the last one had to wait."""
    size = -(-counts.members // waves)
    tasks: list[asyncio.Task[None]] = []
    consumers = []
    for number in range(counts.members):
        if number and number % size == 0:
            await asyncio.sleep(gap_s)
        own = {name.replace(".", "_"): value for name, value in settings_of(number).items()}
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=GROUP, **own)
        consumer.subscribe([TOPIC], listener=Listener(counts, number))
        consumers.append(consumer)
        tasks.append(asyncio.create_task(consumer.start()))
    last_s = time.monotonic()
    while not counts.is_done() and time.monotonic() < last_s + GIVE_UP_S:  # noqa: ASYNC110 - threads count too
        await asyncio.sleep(0.02)
    took_s = time.monotonic() - last_s
    for task in tasks:
        await task
    for consumer in consumers:
        await consumer.stop()
    return took_s


def expect(bootstrap: str, members: int) -> None:
    """Have the group expect the members."""
    value = f"worker-[0..{members - 1}]"
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="expected.instance.ids", value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=[config]
    )
    answer = ask(int(bootstrap.rpartition(":")[2]), IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert not answer.responses[0].error_code, answer


def main() -> None:
    """Measure one start."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--server", choices=["tenure", "kafka"], default="tenure")
    parser.add_argument("--client", choices=["confluent-kafka", "aiokafka"], default="confluent-kafka")
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--waves", type=int, default=5)
    parser.add_argument("--gap", type=float, default=6.0)
    parser.add_argument("--expect", action="store_true")
    chosen = parser.parse_args()
    counts = Counts(chosen.members)
    settings = {"offsets.topic.num.partitions": "4"}
    with ExitStack() as stack:
        server: Any = ApacheKafka(settings) if chosen.server == "kafka" else Tenure(settings)
        stack.enter_context(server)
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(TOPIC, chosen.members, 1)])[TOPIC].result()
        if chosen.expect:
            expect(server.bootstrap, chosen.members)
        if chosen.client == "aiokafka":
            took_s = asyncio.run(run_aiokafka(server.bootstrap, counts, chosen.waves, chosen.gap))
        else:
            took_s = run_confluent(server.bootstrap, counts, chosen.waves, chosen.gap)
    print(
        f"{chosen.server} {chosen.client} members={chosen.members} waves={chosen.waves} gap={chosen.gap:g} s "
        f"expected={chosen.expect}: rebalances={counts.assigned_to_first} moved={counts.moves} "
        f"stable={took_s:.1f} s after the last start",
        flush=True,
    )


if __name__ == "__main__":
    main()
