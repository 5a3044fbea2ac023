"""Topics for a test on any server.

Kafka's controller answers CreateTopics before its broker knows the topic. A client of librdkafka that subscribes to
several topics in between takes part with those that the broker showed, and asks again five minutes later.
"""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.client.client import Client
from coordinator.client.topics import create_topic, user_topics
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until


def make_topics(bootstrap: str, partitions: Mapping[str, int]) -> None:
    """Create topics with these numbers of partitions, and wait until the server shows them to clients."""
    with Client(bootstrap, WITHIN_S) as client:
        for topic, count in partitions.items():
            create_topic(client, topic, count)
        wait_until(lambda: partitions.items() <= user_topics(client).items(), f"topics {[*partitions]}", WITHIN_S)
