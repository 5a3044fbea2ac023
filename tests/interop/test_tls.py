"""Unmodified clients over TLS: members that restart, and certificates that are wrong, on Tenure and on Apache Kafka.

Both servers have the same properties file, with four listeners: PLAIN; OPEN, which asks for no certificate; MUTUAL,
which needs one; EXPIRED, whose own certificate has ended.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.interop.brokers import Broker, create_topic
from tests.interop.conftest import BOTH, secured_broker
from tests.support.apache import ApacheKafka, run_tool
from tests.support.certificates import Certificates, client_context
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure

LISTENERS = {"PLAIN": "PLAINTEXT", "OPEN": "SSL", "MUTUAL": "SSL", "EXPIRED": "SSL"}


class Secured:
    """A server under test, with the addresses of its listeners."""

    def __init__(self, broker: Broker, server: Tenure | ApacheKafka) -> None:
        self.broker = broker
        self.of: Callable[[str], str] = server.bootstrap_of


@pytest.fixture(scope="module", params=BOTH)
def secured(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Secured]:
    """Yield one server with these listeners for all tests."""
    properties = f"""
ssl.keystore.type=PEM
ssl.keystore.location={certificates.server}
ssl.truststore.type=PEM
ssl.truststore.location={certificates.ca}
listener.name.mutual.ssl.client.auth=required
listener.name.expired.ssl.keystore.location={certificates.expired}
"""
    with secured_broker(request, LISTENERS, properties) as made:
        yield Secured(*made)


@pytest.fixture
def topic(secured: Secured) -> str:
    """Return a topic of this test alone."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(secured.of("PLAIN"), name, 4)
    return name


# A static member that comes, gets all partitions, and goes again without leaving its group.


def confluent_member(bootstrap: str, topic: str, group: str, ca: Path, own: Path) -> None:
    """With librdkafka."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.instance.id": "seat",
        "security.protocol": "SSL",
        "ssl.ca.location": str(ca),
        "ssl.certificate.location": str(own),
        "ssl.key.location": str(own),
        "log_level": 0,
    })  # fmt: skip
    with closing(consumer):
        consumer.subscribe([topic])

        def has_all() -> bool:
            consumer.poll(0.1)
            return len(consumer.assignment()) == 4

        until(has_all)


POLL_MS = 2_000
"""kafka-python forgets a join in which a poll ends."""


def kafka_python_member(bootstrap: str, topic: str, group: str, ca: Path, own: Path) -> None:
    """With kafka-python, whose modules warn when they are imported."""
    from kafka import KafkaConsumer  # noqa: PLC0415 - see above

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id="seat",
        security_protocol="SSL",
        ssl_cafile=str(ca),
        ssl_certfile=str(own),
        ssl_keyfile=str(own),
    )
    with closing(consumer):
        until(lambda: bool(consumer.poll(POLL_MS)) or len(consumer.assignment()) == 4)


def aiokafka_member(bootstrap: str, topic: str, group: str, ca: Path, own: Path) -> None:
    """With aiokafka."""

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id="seat",
            security_protocol="SSL",
            ssl_context=client_context(ca, own),
        )
        try:
            await consumer.start()  # returns with the assignment
            assert len(consumer.assignment()) == 4
        finally:
            await consumer.stop()

    asyncio.run(run())


def until(condition: Callable[[], bool]) -> None:
    """Ask a client, which waits by itself, until something is so."""
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "member", [confluent_member, aiokafka_member, pytest.param(kafka_python_member, marks=pytest.mark.long)]
)
def test_a_static_member_restarts_without_a_rebalance(
    secured: Secured, topic: str, certificates: Certificates, member: Callable[[str, str, str, Path, Path], None]
) -> None:
    """With a client's certificate, as over plaintext: one rebalance for the first start, none for the second."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    for _ in range(2):
        member(secured.of("MUTUAL"), topic, group, certificates.ca, certificates.client)
        assert secured.broker.rebalances(group, 0) == 1
    assert secured.broker.replacements(group, 0) == 1


@pytest.mark.toolchain
def test_javas_consumer_restarts_without_a_rebalance(
    secured: Secured, topic: str, certificates: Certificates, java: None, tmp_path: Path
) -> None:
    """The same with Kafka's own consumer, which reads the same PEM files, and names the host that it checks."""
    producer = Producer({"bootstrap.servers": secured.of("PLAIN"), "log_level": 0})
    producer.produce(topic, b"once")
    assert producer.flush(WITHIN_S) == 0
    (tmp_path / "client.properties").write_text(f"""
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location={certificates.ca}
ssl.keystore.type=PEM
ssl.keystore.location={certificates.client}
group.instance.id=seat
enable.auto.commit=false
""")
    group = f"group-{uuid.uuid4().hex[:8]}"
    for _ in range(2):
        done = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", secured.of("MUTUAL")),
            *("--consumer.config", str(tmp_path / "client.properties")),
            *("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "1"),
            timeout_s=WITHIN_S,
        )
        assert done.stdout == "once\n", done.stderr
        assert secured.broker.rebalances(group, 0) == 1
    assert secured.broker.replacements(group, 0) == 1


# What a client says about a wrong certificate.

WRONG = {
    "another CA": ("OPEN", "foreign_ca", None, "_SSL certificate verify failed"),
    "the server's has ended": ("EXPIRED", "ca", None, "_SSL certificate verify failed"),
    "none, and one is needed": ("MUTUAL", "ca", None, "_TRANSPORT alert"),
    "the client's has ended": ("MUTUAL", "ca", "expired_client", "_TRANSPORT alert"),
    "the client's is of another CA": ("MUTUAL", "ca", "foreign_client", "_TRANSPORT alert"),
    "no TLS at the server": ("PLAIN", "ca", None, "_TRANSPORT connecting to a PLAINTEXT broker"),
}


@pytest.mark.parametrize("case", WRONG)
def test_librdkafka_says_the_same_as_of_kafka(secured: Secured, certificates: Certificates, case: str) -> None:
    """The code of its error, and whether it blames the server's certificate or got an alert about its own."""
    listener, ca, own, expected = WRONG[case]
    said: list[str] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": secured.of(listener),
        "security.protocol": "SSL",
        "ssl.ca.location": str(getattr(certificates, ca)),
        "error_cb": lambda error: said.append(f"{error.name()} {error.str()}"),
        "log_level": 0,
    }
    if own is not None:
        path = str(getattr(certificates, own))
        settings |= {"ssl.certificate.location": path, "ssl.key.location": path}
    client = AdminClient(settings)
    code, words = expected.split(" ", 1)

    def has_said() -> bool:
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.5)
        client.poll(0.1)
        return any(re.search(rf"^{code} .*{words}", line) for line in said)

    until(has_said)


@pytest.mark.parametrize("case", WRONG)
async def test_aiokafka_gives_up_as_with_kafka(secured: Secured, certificates: Certificates, case: str) -> None:
    """With one kind of error, whatever is wrong."""
    listener, ca, own, _ = WRONG[case]
    context = client_context(getattr(certificates, ca), getattr(certificates, own) if own else None)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=secured.of(listener), security_protocol="SSL", ssl_context=context, request_timeout_ms=5_000
    )
    try:
        with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
            await consumer.start()
    finally:
        await consumer.stop()
