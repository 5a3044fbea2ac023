"""Spark's Kafka source reads a cluster's own topic, from Apache Kafka and from Tenure, made by real clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from coordinator.audit.audit import AuditResult, NothingRead, Options
from coordinator.audit.read.events import RecordedEvents
from coordinator.audit.show.summary import summary
from coordinator.audit.spark import live
from coordinator.audit.spark.live import audit_cluster, list_partitions
from coordinator.client.client import Client, Cluster
from coordinator.client.errors import Refused
from coordinator.client.properties import read
from coordinator.client.security import Security
from coordinator.client.topics import log_end_offsets
from protocol.records.batch import CorruptBatch
from schemas.errors import ErrorCode
from tests.audit.audited import audited
from tests.audit.conftest import PARTITION_COUNT, SETTINGS, TOPIC, Script, consumer, play, share
from tests.audit.spark.conftest import LEFT_OPEN
from tests.support.apache import ApacheKafka
from tests.support.certificates import make_certificates
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until
from tests.support.topics import make_topics

pytestmark = [pytest.mark.spark, LEFT_OPEN]

SCRIPT = Script(Path(), has_transactions=False)
"""Without transactions: a cluster shows no markers, and no records that an abort took back, so counts would differ."""


@pytest.fixture(scope="module", params=["apache", "tenure"])
def server(request: pytest.FixtureRequest) -> Iterator[ApacheKafka | Tenure]:
    """Yield a server on which the script was played."""
    with ApacheKafka(SETTINGS) if request.param == "apache" else Tenure(SETTINGS) as started:
        play(started.bootstrap, SCRIPT)
        yield started


def ends(bootstrap: str) -> dict[tuple[str, int], int]:
    """Return the end offsets of the topic's partitions."""
    with Client(bootstrap, WITHIN_S) as client:
        return log_end_offsets(client, [("__consumer_offsets", number) for number in range(PARTITION_COUNT)])


@pytest.mark.oracle
def test_live_is_what_the_files_say(connected: SparkSession, server: ApacheKafka | Tenure, tmp_path: Path) -> None:
    """The stories and findings equal those from the files, but for facts in files alone; the reading writes nothing."""
    before = ends(server.bootstrap)
    found = audit_cluster(connected, Cluster(server.bootstrap), tmp_path / "out", Options())
    assert ends(server.bootstrap) == before
    assert sum(found.records_by_type.values()) == sum(before.values())
    server.stop()
    folder = server.data_dir if isinstance(server, Tenure) else server.log_dir
    files: AuditResult = audited(folder)
    assert found.findings == files.findings == []
    assert summary(found)["groups"] == summary(files)["groups"]
    assert found.records_by_type == files.records_by_type
    assert sum(found.sizes.values()) == sum(story.bytes for story in files.stories)
    offsets = pq.read_table(tmp_path / "out" / "tables" / "offsets.parquet")
    assert offsets.num_rows == files.records_by_type["offset_commit"]


@pytest.mark.oracle
def test_a_cluster_with_tls_and_a_login(
    connected: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's Kafka source connects as the file of a command says, also to a truststore beside the command."""
    files = make_certificates(tmp_path)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = f"""ssl.keystore.type=PEM
ssl.keystore.location={files.server}
listener.name.both.sasl.enabled.mechanisms=PLAIN
listener.name.both.plain.sasl.jaas.config={module} user_alice="secret";
"""
    monkeypatch.chdir(tmp_path)
    client = f"""security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={module} username="alice" password="secret";
ssl.truststore.type=PEM
ssl.truststore.location={files.ca.name}
"""
    listeners = {"OPEN": "PLAINTEXT", "BOTH": "SASL_SSL"}
    with ApacheKafka(SETTINGS, listeners=listeners, properties=properties) as kafka:
        play(kafka.bootstrap_of("OPEN"), SCRIPT)
        where = Cluster(kafka.bootstrap_of("BOTH"), Security(read(client, "f")))
        found = audit_cluster(connected, where, None, Options())
        assert sum(found.records_by_type.values()) == sum(ends(kafka.bootstrap_of("OPEN")).values())


def test_events_of_a_server_are_read() -> None:
    """The audit reads the server's events for the causes of rebalances; without the topic it has none."""
    with Tenure(SETTINGS) as server:
        make_topics(server.bootstrap, {TOPIC: PARTITION_COUNT})
        with closing(consumer(server.bootstrap, "group")) as joins:
            share([joins])
        rebalances = wait_until(
            lambda: live.read_cluster_events(Cluster(server.bootstrap)).of("group").rebalances or None,
            "events",
            WITHIN_S,
        )
        assert rebalances[0].kind == "member joined"
    with Tenure({**SETTINGS, "tenure.events.enable": "false"}) as server:
        assert live.read_cluster_events(Cluster(server.bootstrap)) == RecordedEvents()


@pytest.mark.parametrize("error", [Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic"), CorruptBatch(0, "bytes")])
def test_a_topic_of_events_that_is_refused_is_a_note(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The audit of groups goes on if the cluster refuses the topic of events; a note says so.

    A cluster with ACLs refuses also a topic that doesn't exist.
    """

    def refuse(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(live, "EventReader", refuse)
    with Tenure(SETTINGS) as server:
        assert live.read_cluster_events(Cluster(server.bootstrap)) == RecordedEvents(refused=str(error))


def test_cluster_that_can_not_be_asked_is_no_clean_bill() -> None:
    """If no server listens at the address, the audit fails."""
    with pytest.raises(NothingRead):
        list_partitions(Cluster("127.0.0.1:1"))


def test_cluster_without_the_topic_is_no_clean_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the cluster doesn't have the topic, the audit fails."""
    monkeypatch.setattr(live, "OFFSETS_TOPIC", "nowhere")
    with Tenure() as server, pytest.raises(NothingRead, match="no topic nowhere"):
        list_partitions(Cluster(server.bootstrap))
