"""A server, a topic and a fleet for each scenario; every scenario on Tenure, and the same on Apache Kafka.

`pytest -m interop` runs the Tenure half, `pytest -m oracle` the other one; in both, `toolchain` marks the clients that
need more than Python. Each server starts once; every test has a topic and groups of its own.

House rule: a member's session timeout is the smallest that Kafka's defaults allow, unless the test kills that member.
Nothing else is tuned but the initial rebalance delay, which lets a fleet's first members come in together.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.interop.brokers import ApacheBroker, Broker, TenureBroker, create_topic
from tests.interop.clients import CLIENTS, clients_that
from tests.interop.fleet import Fleet
from tests.support.apache import ApacheKafka, available
from tests.support.tenure import Tenure

BOTH = [pytest.param("tenure", marks=pytest.mark.interop), pytest.param("apache", marks=pytest.mark.oracle)]
PARTITION_COUNT = 6
SETTINGS = {"group.initial.rebalance.delay.ms": "500", "group.min.session.timeout.ms": "2000"}


@pytest.fixture(scope="session")
def java() -> None:
    """Require Java and the parts of Apache Kafka that run on it."""
    if (reason := available()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def apache_kafka(java: None) -> Iterator[ApacheBroker]:
    """Yield one node of Apache Kafka for all scenarios."""
    with ApacheKafka(SETTINGS) as kafka:
        yield ApacheBroker(kafka)


@pytest.fixture(scope="session")
def tenure_server() -> Iterator[TenureBroker]:
    """Yield one server of Tenure for all scenarios."""
    with Tenure(SETTINGS) as tenure:
        yield TenureBroker(tenure)


@contextmanager
def secured_broker(
    request: pytest.FixtureRequest, listeners: Mapping[str, str], properties: str
) -> Iterator[tuple[Broker, Tenure | ApacheKafka]]:
    """Start one of BOTH with these listeners and properties."""
    if request.param == "apache":
        request.getfixturevalue("java")
        with ApacheKafka(SETTINGS, listeners=listeners, properties=properties) as kafka:
            yield ApacheBroker(kafka), kafka
    else:
        with Tenure(SETTINGS, listeners=listeners, properties=properties) as tenure:
            yield TenureBroker(tenure), tenure


@pytest.fixture(params=BOTH)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Yield the server under test."""
    if request.param == "apache":
        yield (kafka := request.getfixturevalue("apache_kafka"))
        print(kafka.log_tail())
        return
    tenure: TenureBroker = request.getfixturevalue("tenure_server")
    if not tenure.tenure.running:
        tenure.start()  # a failed test may have left it dead
    yield tenure
    print(tenure.log_tail())  # pytest shows it with a failed test


@pytest.fixture(params=clients_that())
def client(request: pytest.FixtureRequest) -> str:
    """Return the client under test."""
    if (reason := CLIENTS[request.param].missing) is not None:
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture
def group() -> str:
    """Return a group id for this test alone."""
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def fleet(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Fleet]:
    """Yield consumers on a topic of this test alone; the report has the clients' versions."""
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic, PARTITION_COUNT)
    with Fleet(broker.bootstrap, topic, PARTITION_COUNT) as fleet:
        yield fleet
    versions = {each.client: each.version for each in fleet.consumers if each.version}
    request.node.user_properties += [(f"version of {client}", version) for client, version in versions.items()]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Write server and client into the report of the run, where table.py reads them."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    item.user_properties += [(name, parameters[name]) for name in ("broker", "client") if name in parameters]
