"""All settings of a broker and of its topics, on Apache Kafka and on Tenure, field by field.

Fields: value, type, source, read-only, sensitive, synonyms. Both servers are started with the same settings. Each
difference stands here with its reason, and nothing else may differ. The scripts of scripts/configs.py change settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from protocol.messages import IncrementalAlterConfigsResponse, MetadataRequest
from schemas.errors import ErrorCode
from tests.support.apache import ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection, ask
from tests.support.requests import configs_request, describe_configs_request, topics_request
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
OFFSETS = "__consumer_offsets"

Fields = dict[str, object]

DIFFERENT = {
    "advertised.listeners": "each server's own address; Tenure's can't be changed while it runs",
    "broker.id": "Tenure's default is 1, Kafka has none",
    "controller.listener.names": "Tenure has no controller of its own",
    "group.consumer.assignors": "Kafka 3.9 has the names of classes, Kafka 4.4 and Tenure those that clients send",
    "group.coordinator.append.linger.ms": "Kafka 3.9 waits 10 ms, Kafka 4.4 as its load asks for",
    "group.coordinator.rebalance.protocols": "Kafka 3.9 has the classic one alone",
    "listener.security.protocol.map": "Tenure's default has the listeners that there are, and can't be changed",
    "listeners": "each server's own address; Tenure's can't be changed while it runs",
    "log.dirs": "each server's own folder",
    "node.id": "Tenure's default is 1, Kafka has none",
    "offsets.topic.replication.factor": "Tenure's is always 1; a single Kafka has to be told so",
    "offsets.topic.segment.bytes": "Tenure's default is 4 MiB (docs/start/differences.md)",
    "socket.listen.backlog.size": "Tenure's default is larger (docs/start/differences.md)",
    "queued.max.request.bytes": "Tenure has a limit by default (docs/start/differences.md)",
}
"""Settings of a broker that differ in some field, and why."""

FIXED = {
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
}
"""Settings of a broker's listeners that differ in being read-only: Tenure reads again only the files that they name."""

NEWER = {
    "group.consumer.assignment.interval.ms",
    "group.consumer.assignor.offload.enable",
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.migration.policy",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.regex.refresh.interval.ms",
}
"""Settings that Kafka 4.4 has and 3.9 doesn't."""

OWN = {"transaction.version": "a feature in Kafka, which kafka-features changes"}
"""Settings of Tenure's alone, beside tenure.*, and why."""

NOT_SHOWN = {
    r"(sasl|ssl|password\.encoder|delegation|security|principal|connections\.max\.reauth)\..*": (
        "other parts of TLS and SASL"
    ),
    r"(zookeeper|controller|metadata|process\.roles|broker\.(heartbeat|session)|initial\.broker|early\.start).*": (
        "no ZooKeeper, no separate controller"
    ),
    r"(replica|replication|leader|follower|alter\.log|controlled|auto\.leader|num\.replica|eligible).*": "no replicas",
    r"(transaction|producer\.id|producer\.purgatory).*": (
        "a transaction is aborted at its timeout, a producer is forgotten for newer ones; other segments, no replicas"
    ),
    r"(remote|group\.(share|coordinator)).*": "no tiered storage, no share groups, no threads of coordinators",
    r"(client\.quota|metric|kafka\.metrics|auto\.include|telemetry).*": "no class for quotas; other metrics",
    r"(num\.(io|network|recovery)|background|queued|log\.cleaner\.(threads|io|dedupe)).*": "other threads and buffers",
    r"(socket\.(connection|receive|send)|connection\.failed).*": "other limits of connections",
    r"(fetch\.purgatory|delete\.records\.purgatory|max\.incremental|max\.request\.partition|request\.timeout).*": (
        "other ways to hold and limit requests"
    ),
    r"(.*\.policy\.class\.name|broker\.id\.generation|reserved\.broker|control\.plane|inter\.broker\.listener).*": (
        "no policies, no ids that are given out, no traffic between brokers"
    ),
    r"log\.(dir|dir\.failure\.timeout\.ms|flush\.(start\.)?offset.*)": "one folder of logs, no checkpoints of offsets",
    r"offsets\.(commit|load|topic\.compression).*": "commits and loads have no such settings",
}
"""Settings of Kafka's broker that Tenure doesn't show, and why: Kafka's value would not be true of it."""


@pytest.fixture(scope="module")
def ports(kafka_is_here: None) -> Iterator[tuple[int, int]]:
    """Kafka's and Tenure's."""
    settings = {"node.id": "1", "offsets.topic.num.partitions": "4", "group.min.session.timeout.ms": "1"}
    settings |= {"group.initial.rebalance.delay.ms": "0", "log.retention.ms": "9000000", "message.max.bytes": "900000"}
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(settings))
        yield kafka.port, stack.enter_context(Tenure(settings)).port


def described(port: int, kind: int, name: str) -> tuple[dict[str, Fields], set[str]]:
    """All settings of a resource, and the names of those without documentation."""
    request = describe_configs_request(kind, name, include_synonyms=True, include_documentation=True)
    (result,) = ask(port, request, 4).results
    assert result.error_code == 0
    return {each.name: fields(each) for each in result.configs}, {e.name for e in result.configs if not e.documentation}


def fields(config: Any) -> Fields:
    """What is compared. Kafka's documentation is its own text."""
    return {
        "value": config.value,
        "type": config.config_type,
        "source": config.config_source,
        "is_read_only": config.read_only,
        "is_sensitive": config.is_sensitive,
        "synonyms": [(each.name, each.value, each.source) for each in config.synonyms],
    }


def test_settings_of_a_broker(ports: tuple[int, int]) -> None:
    """Those that both show are the same, but for DIFFERENT; the others of Kafka's are NOT_SHOWN; all are documented."""
    (expected, _), (found, undocumented) = (described(port, BROKER, "1") for port in ports)
    both = expected.keys() & found.keys()
    for name in FIXED:
        assert not expected[name].pop("is_read_only")
        assert found[name].pop("is_read_only")
    assert {name for name in both if expected[name] != found[name]} == set(DIFFERENT)
    assert all(expected[name]["is_sensitive"] == found[name]["is_sensitive"] for name in both)
    assert all(expected[name]["type"] == found[name]["type"] for name in both)
    hidden = expected.keys() - found.keys()
    assert not [name for name in hidden if not any(re.fullmatch(pattern, name) for pattern in NOT_SHOWN)]
    assert all(any(re.fullmatch(pattern, name) for name in hidden) for pattern in NOT_SHOWN)
    assert all(name.startswith("tenure.") or name in {*NEWER, *OWN} for name in found.keys() - expected.keys())
    assert not undocumented


def test_settings_of_topics(ports: tuple[int, int]) -> None:
    """The same settings, the same in every field, but for the default size of a segment of __consumer_offsets."""
    for port in ports:
        create(port)
    (expected, _), (found, undocumented) = (described(port, TOPIC, "orders") for port in ports)
    assert found == expected
    assert not undocumented
    (expected, _), (found, _) = (described(port, TOPIC, OFFSETS) for port in ports)
    assert [name for name in expected if expected[name] != found[name]] == ["segment.bytes"]
    assert found.keys() == expected.keys()


def create(port: int) -> None:
    """A topic that sets some itself."""
    configs = {"cleanup.policy": "compact", "segment.bytes": "70000", "retention.ms": "5000"}
    with Connection(port) as connection:
        connection.ask(topics_request({"orders": 1}, configs), 5)
        shown = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="orders")])
        wait_until(lambda: connection.ask(shown, 4).topics[0].error_code == 0, "topic", WITHIN_S)


def test_no_client_can_shut_everybody_out(ports: tuple[int, int]) -> None:
    """A limit on connections can't be changed to 0. Kafka takes 0 for one address; Tenure refuses that too."""
    for name, value in (
        ("max.connections", "0"),
        ("max.connections.per.ip", "0"),
        ("max.connection.creation.rate", "0"),
        ("max.connections.per.ip.overrides", "10.1.2.3:0"),
    ):
        codes = []
        for port in ports:
            answer = ask(port, configs_request(BROKER, ["1"], {name: value}, validate_only=True), 1)
            codes.append(cast("IncrementalAlterConfigsResponse", answer).responses[0].error_code)
        expected = [0, ErrorCode.INVALID_REQUEST] if "overrides" in name else [ErrorCode.INVALID_REQUEST] * 2
        assert (name, codes) == (name, expected)


def test_what_has_nothing_to_change(ports: tuple[int, int]) -> None:
    """No changes of all nodes, no client metrics; Kafka alone has loggers, which are those of its classes."""
    for kind, name in ((BROKER, ""), (CLIENT_METRICS, "any")):
        assert [described(port, kind, name)[0] for port in ports] == [{}, {}]
    assert [bool(described(port, BROKER_LOGGER, "1")[0]) for port in ports] == [True, False]
