"""Committed offsets: written by one consumer, read back by the next.

confluent-kafka counts the zero byte that ends a C string as part of the metadata: it commits one byte more than it was
given, and other clients read that byte back.

House rule: conftest.py's.
"""

from __future__ import annotations

import pytest

from tests.interop.brokers import Broker
from tests.interop.client import Ability
from tests.interop.clients import CLIENTS, clients_that
from tests.interop.fleet import Fleet

METADATA_MAX_BYTES = 4_096
COMMITTED = {0: (17, "where I was"), 1: (0, ""), 2: (9_007_199_254_740_993, "kůň"), 3: (4, "x" * 2_000)}
UNCOMMITTED = (4, 5)


@pytest.mark.parametrize("client", clients_that(Ability.COMMIT, Ability.BEYOND), indirect=True)
def test_the_next_consumer_reads_what_the_last_one_committed(
    broker: Broker, fleet: Fleet, client: str, group: str
) -> None:
    """Offsets and metadata outlive their consumer: the group's next member reads them, and so does another client."""
    able = Ability.METADATA not in CLIENTS[client].cannot
    committed = {partition: (offset, metadata if able else "") for partition, (offset, metadata) in COMMITTED.items()}
    writer = fleet.start(client, group)
    fleet.wait_until_shared([writer])
    assert fleet.commit(writer, committed)["event"] == "committed"
    fleet.close(writer)

    reader = fleet.start(client, group)
    fleet.wait_until_shared([reader])
    assert fleet.read_committed(reader, range(6)) == {**committed, **dict.fromkeys(UNCOMMITTED)}
    fleet.close(reader)

    stranger = fleet.start("kafka-python", group)
    fleet.wait_until_shared([stranger])
    end = "\0" if client == "confluent-kafka" else ""
    assert fleet.read_committed(stranger, committed) == {
        partition: (offset, metadata + end) for partition, (offset, metadata) in committed.items()
    }
    fleet.close(stranger)


@pytest.mark.parametrize("client", clients_that(Ability.METADATA, often={"confluent-kafka"}), indirect=True)
def test_metadata_that_is_too_large_is_refused(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """Metadata of one byte more than offset.metadata.max.bytes gets OFFSET_METADATA_TOO_LARGE; the client goes on."""
    largest = METADATA_MAX_BYTES - (client == "confluent-kafka")
    consumer = fleet.start(client, group)
    fleet.wait_until_shared([consumer])
    refused = fleet.commit(consumer, {0: (1, "x" * (largest + 1))})
    assert (refused["event"], refused["error"]) == ("commit_failed", "OFFSET_METADATA_TOO_LARGE")
    assert fleet.commit(consumer, {0: (2, "x" * largest)})["event"] == "committed"
    assert fleet.read_committed(consumer, [0]) == {0: (2, "x" * largest)}
