"""Tenure keeps no records: a producer is told so.

Apache Kafka would take them, so this is no scenario of both servers.

House rule: conftest.py's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.interop.brokers import ADMIN_TIMEOUT_S, create_topic
from tests.support.tenure import Tenure


@pytest.fixture
def tenure() -> Iterator[Tenure]:
    """A server with a topic."""
    with Tenure() as tenure:
        create_topic(tenure.bootstrap, "records", 1)
        yield tenure


@pytest.mark.interop
def test_a_producer_hears_why_its_record_is_refused(tenure: Tenure) -> None:
    """Its delivery report says POLICY_VIOLATION at once, and nothing is tried again."""
    reports: list[KafkaError | None] = []

    def report(error: KafkaError | None, _message: Message) -> None:
        reports.append(error)

    producer = Producer({"bootstrap.servers": tenure.bootstrap, "log_level": 0})
    producer.produce("records", b"one", on_delivery=report)
    assert producer.flush(ADMIN_TIMEOUT_S) == 0
    (error,) = reports
    assert error is not None
    assert error.code() == KafkaError.POLICY_VIOLATION
