"""The two servers of all scenarios: Tenure, and Apache Kafka as the measure.

The number of a group's rebalances comes from the server's own log, between two marks. Tenure logs an event
`rebalance_started`, Kafka the line "Preparing to rebalance group ...", each as the rebalance begins. Replacements of
static members are counted in the same way.

House rule: a scenario uses only what both servers have.
"""

from __future__ import annotations

import re
from typing import Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.apache import REASONS, ApacheKafka
from tests.support.kafka_24 import Kafka24
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until


class Broker(Protocol):
    """A server under test.

    restart_session_timeout_ms: a session timeout longer than the server takes to come back after SIGKILL.
    """

    restart_session_timeout_ms: int

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""

    def kill(self) -> None:
        """SIGKILL."""

    def start(self) -> None:
        """Start again on the same data and port."""

    def mark(self) -> int:
        """A position in the server's log."""

    def rebalances(self, group: str, since: int, *, without: str = "") -> int:
        """How many rebalances of the group began after the mark. without: the kind of a cause that doesn't count."""

    def replacements(self, group: str, since: int) -> int:
        """How often a static member of the group was replaced by its restart, or its twin, after the mark."""

    def log_tail(self) -> str:
        """The end of the server's log."""


class TenureBroker:
    """Tenure behind Broker."""

    restart_session_timeout_ms = 12_000

    def __init__(self, tenure: Tenure) -> None:
        self.tenure = tenure

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""
        return self.tenure.bootstrap

    def kill(self) -> None:
        """SIGKILL."""
        self.tenure.kill()

    def start(self) -> None:
        """Start again on the same data and port."""
        self.tenure.start()

    def mark(self) -> int:
        """A position in the JSON log."""
        return self.tenure.mark()

    def rebalances(self, group: str, since: int, *, without: str = "") -> int:
        """Events rebalance_started."""
        started = self.tenure.events("rebalance_started", group, since=since)
        return sum(each["cause"]["kind"] != without for each in started)

    def replacements(self, group: str, since: int) -> int:
        """Events member_replaced."""
        return self.tenure.count("member_replaced", group, since=since)

    def log_tail(self) -> str:
        """The end of the JSON log."""
        return self.tenure.tail(60)


class ApacheBroker:
    """Apache Kafka behind Broker."""

    restart_session_timeout_ms = 60_000

    def __init__(self, kafka: ApacheKafka | Kafka24) -> None:
        self.kafka = kafka

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""
        return self.kafka.bootstrap

    def kill(self) -> None:
        """SIGKILL."""
        self.kafka.kill()

    def start(self) -> None:
        """Start again on the same data and port."""
        self.kafka.start()

    def mark(self) -> int:
        """A position in the node's log."""
        return self.kafka.log_file.stat().st_size

    def rebalances(self, group: str, since: int, *, without: str = "") -> int:
        """Return the number of lines about the start of its rebalances."""
        line = rf"Preparing to rebalance group {re.escape(group)} "
        others = [self._count(f"{line}.*{reason}", since) for reason, kind in REASONS.items() if kind == without]
        return self._count(line, since) - sum(others)

    def replacements(self, group: str, since: int) -> int:
        """Return the number of lines about its replaced static members."""
        return self._count(rf"joins group {re.escape(group)} in .* Replacing previously mapped member", since)

    def _count(self, pattern: str, since: int) -> int:
        with self.kafka.log_file.open("rb") as log:
            log.seek(since)
            text = log.read().decode(errors="replace")
        return len(re.findall(pattern, text))

    def log_tail(self) -> str:
        """The end of the node's log."""
        return "\n".join(self.kafka.log_file.read_text(errors="replace").splitlines()[-30:])


def create_topic(bootstrap: str, name: str, partition_count: int) -> None:
    """Create a topic with an unmodified admin client, and wait until clients see it (see `make_topics`)."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    created = admin.create_topics([NewTopic(name, partition_count, 1)], operation_timeout=WITHIN_S)
    created[name].result(WITHIN_S)
    wait_until(lambda: name in admin.list_topics(timeout=WITHIN_S).topics, f"topic {name}", WITHIN_S)


def grow_topic(bootstrap: str, name: str, partition_count: int) -> None:
    """Give a topic more partitions with an unmodified admin client."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    grown = admin.create_partitions([NewPartitions(name, partition_count)], operation_timeout=WITHIN_S)
    grown[name].result(WITHIN_S)


def settings_of(bootstrap: str, topic: str) -> dict[str, str]:
    """Return a topic's settings that aren't defaults."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([asked])[asked].result(WITHIN_S).values()
    return {entry.name: entry.value for entry in entries if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
