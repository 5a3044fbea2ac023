"""A rolling restart in an async test: the consumers run on the test's own loop, and its waits on another thread."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer


@pytest.mark.asyncio
@pytest.mark.tenure(topics={"orders": 12})
async def test_a_rolling_restart_moves_nothing(tenure):
    names = ["worker-1", "worker-2", "worker-3"]
    consumers = [await start(tenure, name) for name in names]
    group = tenure.group("workers")
    await asyncio.to_thread(group.wait_until_stable, members=3)
    with group.no_rebalance():
        for number, name in enumerate(names, start=1):
            await consumers.pop(0).stop()
            consumers.append(await start(tenure, name))
            await asyncio.to_thread(group.wait_until, restarts=number)
    for consumer in consumers:
        await consumer.stop()


async def start(tenure, name):
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=tenure.bootstrap_servers,
        group_id="workers",
        group_instance_id=name,
        heartbeat_interval_ms=100,
    )
    await consumer.start()
    return consumer
