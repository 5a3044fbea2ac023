"""Quotas on Apache Kafka and on Tenure: error codes, descriptions, Kafka's own tool.

Both get the same requests; what one answers, the other has to answer too.
"""

from __future__ import annotations

import math
import random
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from coordinator.security.quotas import DEFAULT, Entity, Limits
from coordinator.security.quotas_rates import Rate, Sampling, Tokens
from protocol.messages import (
    AlterClientQuotasRequest,
    CreateTopicsResponse,
    DescribeClientQuotasRequest,
    MetadataRequest,
)
from schemas.errors import ErrorCode
from tests.interop.java.tools import Tools
from tests.support.apache import JVM_FLAGS, ApacheKafka, jars
from tests.support.batches import batch
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection, ask
from tests.support.requests import fetch_request, produce_request, topics_request
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

Named = list[tuple[str, str | None]]
Described = list[tuple[Named, dict[str, float]]]

PROGRAM_WITHIN_S = 120.0
"""How long Java may take to compile and run a program on a busy machine."""

USER, CLIENT, IP = "user", "client-id", "ip"


@pytest.fixture(scope="module")
def ports(kafka_is_here: None) -> Iterator[tuple[int, int]]:
    """Kafka's and Tenure's."""
    settings = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(settings))
        yield kafka.port, stack.enter_context(Tenure(settings)).port


def alter(port: int, *entries: tuple[Named, dict[str, float | None]], validate_only: bool = False) -> list[Any]:
    """The entities of the answer with their codes, in an order of their own. None removes a value."""
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[
                    AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in named
                ],
                ops=[
                    AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in values.items()
                ],
            )
            for named, values in entries
        ],
        validate_only=validate_only,
    )
    answer = ask(port, request, 1)
    return sorted(
        (
            (sorted(((each.entity_type, each.entity_name) for each in entry.entity), key=str), entry.error_code)
            for entry in answer.entries
        ),
        key=str,
    )


def describe(port: int, *components: tuple[str, int, str | None], strict: bool = False) -> tuple[int, Described | None]:
    """The code of the answer, and its entities in an order of their own; None if it has no list."""
    parts = [
        DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    answer = ask(port, DescribeClientQuotasRequest(components=parts, strict=strict), 1)
    if answer.entries is None:
        return answer.error_code, None
    return answer.error_code, sorted(
        (
            (
                sorted(((each.entity_type, each.entity_name) for each in entry.entity), key=str),
                {each.key: each.value for each in entry.values},
            )
            for entry in answer.entries
        ),
        key=str,
    )


RATE = "producer_byte_rate"
FETCHED, TIME, MUTATIONS, CONNECTIONS = (
    "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate",
)  # fmt: skip

ALTERED: dict[str, tuple[Named, dict[str, float | None]]] = {
    "no entity": ([], {RATE: 1.0}),
    "an unknown type": ([("broker", "1")], {RATE: 1.0}),
    "a known and an unknown type": ([(USER, "a"), ("group", "g")], {RATE: 1.0}),
    "an empty user": ([(USER, "")], {RATE: 1.0}),
    "an empty client id": ([(USER, "a"), (CLIENT, "")], {RATE: 1.0}),
    "an unknown key": ([(USER, "a")], {"rate": 1.0}),
    "removing an unknown key": ([(USER, "a")], {"rate": None}),
    "zero": ([(USER, "a")], {RATE: 0.0}),
    "a negative rate": ([(USER, "a")], {RATE: -5.0}),
    "a fraction of a byte": ([(USER, "a")], {RATE: 2000.5}),
    "nearly whole": ([(USER, "a")], {FETCHED: 2000.0000001}),
    "a fraction of a percent": ([(USER, "a")], {TIME: 0.01}),
    "a fraction of a mutation": ([(USER, "a")], {MUTATIONS: 0.5}),
    "more than a long": ([(USER, "a")], {RATE: 1e19}),
    "a long": ([(USER, "a")], {RATE: 2.0**63}),
    "infinite bytes": ([(USER, "a")], {RATE: math.inf}),
    "an infinite share": ([(USER, "inf")], {TIME: math.inf}),
    "connections of a user": ([(USER, "a")], {CONNECTIONS: 5.0}),
    "bytes of an address": ([(IP, "127.0.0.1")], {RATE: 5.0}),
    "an address and a user": ([(IP, "127.0.0.1"), (USER, "a")], {CONNECTIONS: 5.0}),
    "an address and a client id": ([(IP, None), (CLIENT, None)], {CONNECTIONS: 5.0}),
    "no address": ([(IP, "not.an.address.invalid")], {CONNECTIONS: 5.0}),
    "connections of an address": ([(IP, "10.1.2.3")], {CONNECTIONS: 5.0}),
    "connections of an IPv6 address": ([(IP, "::2")], {CONNECTIONS: 5.0}),
    "a fraction of a connection": ([(IP, "10.1.2.3")], {CONNECTIONS: 5.5}),
    "more than an int": ([(IP, "10.1.2.3")], {CONNECTIONS: 3e9}),
    "the default address": ([(IP, None)], {CONNECTIONS: 100.0}),
    "no values": ([(USER, "nobody")], {}),
    "a user": ([(USER, "alice")], {RATE: 1024.0, FETCHED: 2048.0, TIME: 150.0, MUTATIONS: 10.0}),
    "a client id": ([(CLIENT, "c 1/*")], {RATE: 1024.0}),
    "a user and a client id": ([(USER, "alice"), (CLIENT, "é")], {RATE: 7.0}),
    "the default client id of a user": ([(USER, "alice"), (CLIENT, None)], {RATE: 8.0}),
    "the defaults": ([(CLIENT, None), (USER, None)], {RATE: 9.0}),
    "the default user": ([(USER, None)], {RATE: 10.0}),
    "one wrong value among right ones": ([(USER, "half")], {RATE: 10.0, FETCHED: -1.0}),
}

FILTERS: dict[str, tuple[list[tuple[str, int, str | None]], bool]] = {
    "all": ([], False),
    "nothing": ([], True),
    "users": ([(USER, 2, None)], False),
    "users alone": ([(USER, 2, None)], True),
    "one user": ([(USER, 0, "alice")], False),
    "one user alone": ([(USER, 0, "alice")], True),
    "the default user": ([(USER, 1, None)], False),
    "users and client ids": ([(USER, 2, None), (CLIENT, 2, None)], True),
    "a user's default client id": ([(USER, 0, "alice"), (CLIENT, 1, None)], False),
    "a client id": ([(CLIENT, 0, "c 1/*")], False),
    "addresses": ([(IP, 2, None)], False),
    "the default address": ([(IP, 1, None)], True),
    "an empty exact name": ([(USER, 0, "")], False),
    "an unknown user": ([(USER, 0, "nobody")], False),
    "no type": ([("", 2, None)], False),
    "an unknown type": ([("group", 2, None)], False),
    "a type twice": ([(USER, 2, None), (USER, 1, None)], False),
    "an unknown match": ([(USER, 3, None)], False),
    "an exact match without a name": ([(USER, 0, None)], False),
    "a default with a name": ([(USER, 1, "alice")], False),
    "any with a name": ([(USER, 2, "alice")], False),
    "an address and a user": ([(IP, 2, None), (USER, 2, None)], False),
}


def test_codes_and_descriptions(ports: tuple[int, int]) -> None:
    """Each alteration has the same code on both, and each filter shows the same quotas."""
    for name, case in ALTERED.items():
        assert (name, alter(ports[0], case)) == (name, alter(ports[1], case))
    settled(ports[0])
    for name, (components, strict) in FILTERS.items():
        expected, found = (describe(port, *components, strict=strict) for port in ports)
        assert (name, found) == (name, expected)
    alice: Named = [(USER, "alice")]
    twice: tuple[tuple[Named, dict[str, float | None]], ...] = ((alice, {RATE: 3.0}), (alice, {FETCHED: 3.0}))
    assert alter(ports[0], *twice, validate_only=True) == alter(ports[1], *twice, validate_only=True)


def settled(port: int) -> None:
    """Wait until Kafka's broker shows what its controller has written."""
    alter(port, ([(USER, "last")], {RATE: 1.0}))
    wait_until(lambda: describe(port, (USER, 0, "last"))[1], "the last alteration", WITHIN_S)
    alter(port, ([(USER, "last")], {RATE: None}))
    wait_until(lambda: not describe(port, (USER, 0, "last"))[1], "its removal", WITHIN_S)


def configs(tools: Tools, port: int, *arguments: str) -> list[str]:
    """The lines of kafka-configs, sorted."""
    done = tools.run("configs", "--bootstrap-server", f"127.0.0.1:{port}", *arguments)
    return sorted((done.out + done.err).replace(str(port), "PORT").splitlines())


CLIENTS = ("--entity-type", "clients", "--entity-name", "tool")
ADDRESS = ("--entity-type", "ips", "--entity-default")
BOTH = ("--entity-type", "users", "--entity-name", "u", "--entity-type", "clients", "--entity-default")


def test_kafkas_own_tool(ports: tuple[int, int]) -> None:
    """kafka-configs sets, shows and removes quotas, with the same words on both."""
    steps = (
        (*CLIENTS, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5"),
        (*ADDRESS, "--alter", "--add-config", "connection_creation_rate=77"),
        (*BOTH, "--alter", "--add-config", "consumer_byte_rate=99"),
        (*CLIENTS, "--describe"),
        (*ADDRESS, "--describe"),
        (*BOTH, "--describe"),
        (*CLIENTS, "--alter", "--delete-config", "producer_byte_rate"),
        (*CLIENTS, "--describe"),
        (*CLIENTS, "--alter", "--add-config", "producer_byte_rate=1.5"),
    )
    with Tools() as tools:
        for step in steps:
            expected, found = (configs(tools, port, *step) for port in ports)
            assert found == expected, step


def create(port: int, name: str) -> None:
    """A topic with one partition, once its partition has a leader."""
    with Connection(port) as connection:
        connection.ask(topics_request({name: 1}), 5)
        shown = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        wait_until(lambda: connection.ask(shown, 4).topics[0].error_code == 0, "topic", WITHIN_S)


def in_effect(port: int, named: Named, **values: float | None) -> None:
    """Set quotas, and wait until they are there. Kafka's controller and broker don't have them at once."""
    assert [code for _, code in alter(port, (named, values))] == [0]
    components = [(kind, 0 if name else 1, name) for kind, name in named]

    def shown() -> bool:
        entities = describe(port, *components, strict=True)[1] or []
        found = {key: value for _, values_of in entities for key, value in values_of.items()}
        return all(found.get(key) == value for key, value in values.items())

    wait_until(shown, "quotas in effect", WITHIN_S)


def produce(connection: Connection, topic: str) -> Any:
    """Produce one batch of 10,000 bytes."""
    request = produce_request({(topic, 0): batch([(b"k", bytes(10_000), 1_000)])})
    return connection.ask(request, 9)


def fetch(connection: Connection, topic: str) -> Any:
    """Fetch from the start."""
    return connection.ask(fetch_request({(topic, 0): 0}, max_wait_ms=100), 11)


def test_both_hold_a_client_back_for_as_long(ports: tuple[int, int]) -> None:
    """A Produce above the rate is done and has the wait, a Fetch above it is empty, a mutation is refused: all as long.

    A tenth more or less, because the rate depends on when exactly the quota was first used.
    """
    waits = []
    for port in ports:
        create(port, "held")
        in_effect(port, [(CLIENT, "producer")], producer_byte_rate=100.0)
        in_effect(port, [(CLIENT, "consumer")], consumer_byte_rate=1_100.0)
        in_effect(port, [(USER, "ANONYMOUS"), (CLIENT, "admin")], controller_mutation_rate=1.0)
        with Connection(port, "producer") as connection:
            produced = produce(connection, "held")
            assert produced.responses[0].partition_responses[0].error_code == 0
        with Connection(port, "consumer") as connection:
            first, second = fetch(connection, "held"), fetch(connection, "held")
            assert (first.throttle_time_ms, len(first.responses)) == (0, 1)
            assert (second.error_code, second.responses) == (0, [])
        with Connection(port, "admin") as connection:
            answer = connection.ask(topics_request({"m1": 12, "m2": 1}), 7)
            created = cast("CreateTopicsResponse", answer)
            codes = {each.name: each.error_code for each in created.topics}
            assert codes == {"m1": 0, "m2": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        waits.append((produced.throttle_time_ms, second.throttle_time_ms, created.throttle_time_ms))
    assert all(wait > 0 for wait in waits[0])
    assert waits[1] == pytest.approx(waits[0], rel=0.1, abs=200)


def test_a_client_learns_of_its_wait(ports: tuple[int, int]) -> None:
    """The callback of an unmodified producer is called on both."""
    for port in ports:
        create(port, "called")
        in_effect(port, [(CLIENT, "librdkafka")], producer_byte_rate=5_000.0)
        waits: list[float] = []
        config = {"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "librdkafka", "linger.ms": 0}
        producer = Producer({**config, "throttle_cb": lambda event, waits=waits: waits.append(event.throttle_time)})
        for _ in range(2):
            producer.produce("called", bytes(60_000))

        def told(producer: Any = producer, waits: list[float] = waits) -> bool:
            producer.poll(0.05)
            return bool(waits)

        wait_until(told, "a throttle callback", WITHIN_S)
        assert max(waits) > 0
        producer.purge()
        producer.flush(1)


def kafkas_arithmetic(commands: list[str]) -> list[tuple[float, int]]:
    """The answers of Kafka's own classes to commands: see Quotas.java."""
    program = Path(__file__).with_name("Quotas.java")
    done = subprocess.run(
        ["java", *JVM_FLAGS, "-cp", f"{jars()}/*", str(program)],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        timeout=PROGRAM_WITHIN_S,
        check=True,
    )
    return [(float(value), int(wait)) for value, wait in (line.split() for line in done.stdout.splitlines())]


def test_rates_and_tokens_are_kafkas(kafka_is_here: None) -> None:
    """Whatever is recorded when, value and wait are those of Kafka's Rate and TokenBucket, to the millisecond."""
    chance = random.Random(24)
    commands: list[str] = []
    expected: list[tuple[float, int]] = []
    for _ in range(60):
        samples, size_s, bound = chance.choice([1, 2, 3, 11]), chance.choice([1, 2]), chance.choice([0.5, 10.0, 3000.0])
        window = Sampling(samples, size_s * 1000)
        rate, tokens = Rate(window), Tokens(window)
        is_rate = chance.random() < 0.6
        commands.append(f"{'rate' if is_rate else 'tokens'} {samples} {size_s} {bound}")
        # A Kafka's bucket is empty in 1970, so it is full today.
        now_ms = 1_700_000_000_000
        for _ in range(60):
            now_ms += chance.choice([0, 1, 37, 400, 999, 1000, 2500, 13_000])
            value = chance.choice([0.0, 1.0, 50.0, bound * size_s, bound * 40, -5.0])
            commands.append(f"record {value} {now_ms}")
            if is_rate:
                rate.record(value, now_ms)
                expected.append((rate.per_second(now_ms), rate.wait_ms(bound, now_ms)))
            else:
                tokens.take(value, bound, now_ms)
                expected.append((tokens.left(bound, now_ms), tokens.wait_ms(bound, now_ms)))
    found = kafkas_arithmetic(commands)
    assert [wait for _, wait in found] == [wait for _, wait in expected]
    assert [value for value, _ in found] == pytest.approx([value for value, _ in expected])
    assert sum(wait > 0 for _, wait in found) > len(found) / 4


def test_whose_quota_counts_is_as_in_kafka(kafka_is_here: None) -> None:
    """For any set of quotas, a client of any user and client id has the bound that Kafka's ClientQuotaManager gives."""
    chance = random.Random(25)
    commands: list[str] = []
    expected: list[float] = []
    names = {"-": None, "<default>": DEFAULT, "a": "a", "b": "b"}
    for _ in range(80):
        commands.append("quotas")
        quotas: dict[Entity, dict[str, float]] = {}
        for bound in range(1, chance.randrange(2, 7)):
            user, client_id = chance.choice(list(names)), chance.choice(list(names))
            if (user, client_id) != ("-", "-"):
                quotas[Entity(names[user], names[client_id])] = {RATE: float(bound)}
                commands.append(f"set {user} {client_id} {bound}")
        limits = Limits(quotas, RATE)
        for user in ("a", "b", "c"):
            for client_id in ("a", "b", "c", "-"):
                commands.append(f"of {user} {client_id}")
                limit = limits.of(user, client_id.replace("-", ""))
                expected.append(limit.bound if limit is not None else 2.0**63)
    assert [bound for bound, _ in kafkas_arithmetic(commands)] == expected
