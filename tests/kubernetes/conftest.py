"""A control plane for all tests of this folder, and a namespace, a node and a group for each.

House rule: a test leaves its namespace behind: its deletion takes longer than most tests.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.interop.brokers import ApacheBroker, Broker, TenureBroker
from tests.kubernetes.control_plane import MISSING, ControlPlane, program
from tests.kubernetes.stage import SETTINGS, Stage
from tests.support.apache import VERSION, VERSION_44, ApacheKafka, available
from tests.support.certificates import Certificates
from tests.support.kafka_24 import VERSION_24, Kafka24
from tests.support.tenure import Tenure


@pytest.fixture(scope="session")
def plane(certificates: Certificates) -> Iterator[ControlPlane]:
    """Yield a control plane; without its program the tests are left out, with a line."""
    if program() is None:
        pytest.skip(MISSING)
    with ControlPlane(certificates) as started:
        yield started


@pytest.fixture(
    scope="session", params=["tenure", VERSION, VERSION_44, pytest.param(VERSION_24, marks=pytest.mark.nightly)]
)
def broker(request: pytest.FixtureRequest, plane: ControlPlane) -> Iterator[Broker]:
    """Yield a server of groups: Tenure, and Apache Kafka if there is Java."""
    if request.param == "tenure":
        with Tenure(SETTINGS) as tenure:
            yield TenureBroker(tenure)
        return
    if (reason := available()) is not None:
        pytest.skip(reason)
    if request.param == VERSION_24:
        with Kafka24(SETTINGS) as old:
            yield ApacheBroker(old)
        return
    with ApacheKafka(SETTINGS, version=request.param) as kafka:
        yield ApacheBroker(kafka)


@pytest.fixture
def stage(plane: ControlPlane, broker: Broker) -> Iterator[Stage]:
    """Yield a namespace with a node and a topic of this test alone."""
    with Stage(plane, broker, f"test-{uuid.uuid4().hex[:8]}") as made:
        yield made
