"""Records: what one client produces, another one consumes, whichever they are.

Produced are records with and without keys, values, headers, packed and not, by idempotent producers where the client
has one; a consumer of a group reads them from the start, its next run goes on where it committed.

House rule: conftest.py's.
"""

from __future__ import annotations

import asyncio
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import pytest

from tests.interop.brokers import Broker, create_topic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own affair
    import kafka

WITHIN_S = 30.0
PARTITION_COUNT = 3
CODECS = {"aiokafka": ("gzip", None), "confluent-kafka": ("gzip", "none"), "kafka-python": ("gzip", None)}


class Sent(NamedTuple):
    """A record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def records() -> list[Sent]:
    """Of all kinds."""
    plain = [Sent(b"key-%d" % number, b"value-%d" % number * (number % 50)) for number in range(300)]
    odd = [
        Sent(None, b"no key"),
        Sent(b"no value", None),
        Sent(b"", b""),
        Sent(b"h", b"v", (("name", b"x"), ("n", b""))),
    ]
    return [*plain, *odd, Sent(b"large", b"x" * 900_000)]


def produce_with_confluent(bootstrap: str, topic: str, sent: Sequence[Sent], codec: str | None) -> None:
    """With idempotence."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec, "log_level": 0}
    )
    errors: list[Any] = []
    for each in sent:
        producer.produce(
            topic,
            each.value,
            each.key,
            headers=list(each.headers),
            on_delivery=lambda error, _message: errors.append(error),
        )
    assert producer.flush(WITHIN_S) == 0
    assert errors == [None] * len(sent)


def produce_with_kafka_python(bootstrap: str, topic: str, sent: Sequence[Sent], codec: str | None) -> None:
    """As it is set up by default."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec)
    futures = [producer.send(topic, each.value, each.key, headers=list(each.headers)) for each in sent]
    for future in futures:
        future.get(WITHIN_S)
    producer.close()


def produce_with_aiokafka(bootstrap: str, topic: str, sent: Sequence[Sent], codec: str | None) -> None:
    """With idempotence."""

    async def produce() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=True
        ) as producer:
            futures = [await producer.send(topic, each.value, each.key, headers=list(each.headers)) for each in sent]
            await asyncio.wait_for(asyncio.gather(*futures), WITHIN_S)

    asyncio.run(produce())


def consume_with_confluent(bootstrap: str, topic: str, group: str, count: int) -> list[Sent]:
    """Until there are so many, then commit."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    found: list[Sent] = []
    until = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < until:
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            headers: Any = tuple(message.headers() or ())
            found.append(Sent(message.key(), message.value(), headers))
    if found:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


def consume_with_kafka_python(bootstrap: str, topic: str, group: str, count: int) -> list[Sent]:
    """Until there are so many, then commit."""
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found: list[Sent] = []
    until = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < until:
        for messages in consumer.poll(500).values():
            found += [Sent(each.key, each.value, tuple(each.headers)) for each in messages]
    consumer.commit()
    consumer.close()
    return found


def consume_with_aiokafka(bootstrap: str, topic: str, group: str, count: int) -> list[Sent]:
    """Until there are so many, then commit."""
    found: list[Sent] = []

    async def consume() -> None:
        async with aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            while len(found) < count:
                for messages in (await consumer.getmany(timeout_ms=500)).values():
                    found.extend(Sent(each.key, each.value, tuple(each.headers)) for each in messages)
            await consumer.commit()

    asyncio.run(asyncio.wait_for(consume(), WITHIN_S))
    return found


PRODUCE: dict[str, Callable[[str, str, Sequence[Sent], str | None], None]] = {
    "aiokafka": produce_with_aiokafka,
    "confluent-kafka": produce_with_confluent,
    "kafka-python": produce_with_kafka_python,
}
CONSUME: dict[str, Callable[[str, str, str, int], list[Sent]]] = {
    "aiokafka": consume_with_aiokafka,
    "confluent-kafka": consume_with_confluent,
    "kafka-python": consume_with_kafka_python,
}


def counted(sent: Sequence[Sent]) -> list[Sent]:
    """In an order of their own: between topic partitions there is none."""
    return sorted(sent, key=lambda each: (each.key or b"", each.value or b"", each.headers))


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of this test's own."""
    name = f"records-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, name, PARTITION_COUNT)
    return name


@pytest.mark.parametrize("client", sorted(PRODUCE))
def test_what_is_produced_is_consumed(broker: Broker, client: str, topic: str) -> None:
    """By each client, whole, and once."""
    sent: list[Sent] = []
    for codec in CODECS[client]:
        PRODUCE[client](broker.bootstrap, topic, records(), codec)
        sent += records()
    for reader, consume in CONSUME.items():
        assert counted(consume(broker.bootstrap, topic, f"{topic}-{reader}", len(sent))) == counted(sent)


@pytest.mark.parametrize("client", sorted(PRODUCE))
def test_a_group_goes_on_where_it_committed(broker: Broker, client: str, topic: str) -> None:
    """Also where the server was killed in between."""
    first = [Sent(b"%d" % number, b"first") for number in range(50)]
    second = [Sent(b"%d" % number, b"second") for number in range(50)]
    PRODUCE[client](broker.bootstrap, topic, first, None if client != "confluent-kafka" else "none")
    assert counted(CONSUME[client](broker.bootstrap, topic, topic, len(first))) == counted(first)
    broker.kill()
    broker.start()
    PRODUCE[client](broker.bootstrap, topic, second, None if client != "confluent-kafka" else "none")
    assert counted(CONSUME[client](broker.bootstrap, topic, topic, len(second))) == counted(second)
