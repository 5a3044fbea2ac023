"""Settings of brokers and topics: described, changed while the server runs, and what they cover.

Kafka shows a change a moment after it has answered, so that a script waits for it.
"""

from __future__ import annotations

from collections.abc import Generator

from protocol.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from tests.oracle.stage import Client, Stage, script, script_for

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)

Changed = tuple[str, int, str | None]
"""Name, operation and value."""


@script_for(0, 1, 2, 3, 4)
def describe_settings(stage: Stage, version: int) -> None:
    """Of a broker and of a topic, by name: values, types, sources, what is read-only, and what they cover."""
    a = stage.client("a")
    _describe(a, BROKER, "1", *BROKERS, version=version)
    _describe(a, TOPIC, stage.topic("described", 1), version=version)
    _describe(a, BROKER, "", version=version)


BROKERS = (
    "auto.create.topics.enable",
    "broker.rack",
    "compression.type",
    "connections.max.idle.ms",
    "default.replication.factor",
    "delete.topic.enable",
    "group.max.size",
    "group.min.session.timeout.ms",
    "log.cleaner.backoff.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleanup.policy",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.check.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.hours",
    "log.roll.ms",
    "log.segment.bytes",
    "max.connections",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
    "offsets.retention.minutes",
    "socket.request.max.bytes",
    "unclean.leader.election.enable",
)


@script()
def change_settings_of_a_broker(stage: Stage) -> None:
    """For one node and for all nodes; the nearest is in effect, and a topic's own covers both."""
    a = stage.client("a")
    topic = stage.topic("covered", 1)
    _alter(a, "", ("segment.bytes", SET, "60000"), kind=TOPIC, topic=topic)
    _alter(a, "1", ("log.segment.bytes", SET, "50000"), ("log.flush.interval.ms", SET, "7"))
    _alter(a, "", ("log.segment.bytes", SET, "40000"), ("log.flush.interval.messages", SET, "9"))
    names = "log.segment.bytes", "log.flush.interval.ms", "log.flush.interval.messages"
    for sources in ({2, 3}, {3}):
        _until(stage, sources, *names)
        _describe(a, BROKER, "1", *names)
        _describe(a, BROKER, "", *names)
        _describe(a, TOPIC, topic, "segment.bytes", "flush.ms", "flush.messages")
        _alter(a, "1", ("log.segment.bytes", DELETE, None), ("log.flush.interval.ms", DELETE, None))
    _alter(a, "", *((name, DELETE, None) for name in names))
    _until(stage, set(), *names)
    _describe(a, BROKER, "1", *names)


@script()
def change_a_list_of_a_broker(stage: Stage) -> None:
    """Items are added and taken away; the list begins as the default."""
    a = stage.client("a")
    for operation, value in ((APPEND, "compact"), (APPEND, "compact"), (SUBTRACT, "delete"), (SET, "burn")):
        _alter(a, "1", ("log.cleanup.policy", operation, value))
    _until(stage, {2}, "log.cleanup.policy", value="compact")
    _describe(a, BROKER, "1", "log.cleanup.policy")
    _alter(a, "1", ("log.cleanup.policy", DELETE, None))
    _until(stage, set(), "log.cleanup.policy")


@script()
def replace_settings_of_a_broker(stage: Stage) -> None:
    """AlterConfigs removes what it doesn't name."""
    a = stage.client("a")
    _alter(a, "1", ("log.index.interval.bytes", SET, "50"))
    for settings in ({"log.preallocate": "true"}, {}):
        _until(stage, {2}, "log.preallocate" if not settings else "log.index.interval.bytes")
        configs = [AlterConfigsRequest.AlterableConfig(name=name, value=value) for name, value in settings.items()]
        resource = AlterConfigsRequest.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)
        a.ask(AlterConfigsRequest(resources=[resource]), 2)
    _until(stage, set(), "log.preallocate", "log.index.interval.bytes")
    _describe(a, BROKER, "1", "log.preallocate", "log.index.interval.bytes")


@script_for(0, 1)
def refuse_settings_of_a_broker(stage: Stage, version: int) -> None:
    """Read-only names, wrong values, other nodes, no value, no operation, one name twice."""
    a = stage.client("a")
    for name, change in (
        ("1", ("node.id", SET, "2")),
        ("", ("node.id", SET, "2")),
        ("1", ("group.max.size", SET, "2")),
        ("1", ("num.partitions", SET, "2")),
        ("1", ("log.retention.hours", SET, "2")),
        ("", ("listeners", SET, "PLAINTEXT://127.0.0.1:1")),
        ("1", ("advertised.listeners", SET, "PLAINTEXT://127.0.0.1:1")),
        ("1", ("log.segment.bytes", SET, "13")),
        ("1", ("log.roll.ms", SET, "0")),
        ("1", ("log.retention.ms", SET, "0")),
        ("1", ("log.retention.ms", SET, "soon")),
        ("1", ("message.max.bytes", SET, "12345678901")),
        ("1", ("message.max.bytes", SET, "")),
        ("1", ("max.connections", SET, "-1")),
        ("1", ("log.cleaner.min.cleanable.ratio", SET, "1.5")),
        ("1", ("min.insync.replicas", SET, "0")),
        ("1", ("log.preallocate", SET, "maybe")),
        ("1", ("message.max.bytes", SET, None)),
        ("1", ("message.max.bytes", APPEND, "1")),
        ("1", ("message.max.bytes", 9, "1")),
        ("2", ("message.max.bytes", SET, "1")),
        ("x", ("message.max.bytes", SET, "1")),
        ("-1", ("message.max.bytes", SET, "1")),
        ("", ("sasl.kerberos.min.time.before.relogin", SET, "58000")),
        ("1", ("node.id", DELETE, None)),
        ("1", ("never.set", DELETE, None)),
    ):
        _alter(a, name, change, version=version)
    _alter(a, "1", ("log.preallocate", SET, "true"), ("node.id", SET, "2"), version=version)
    _alter(a, "1", ("log.preallocate", SET, "true"), ("log.preallocate", DELETE, None), version=version)
    _alter(a, "1", ("log.preallocate", SET, "true"), version=version, validate_only=True)
    _alter(a, "1", version=version)
    _describe(a, BROKER, "1", "log.preallocate")


@script_for(0, 1)
def refuse_settings_of_a_topic(stage: Stage, version: int) -> None:
    """Names that no topic has, or can have; and values out of range."""
    a = stage.client("a")
    topic = stage.topic("refused", 1)
    for name in ("", "a b", "no-such-topic"):
        _alter(a, "", ("retention.ms", SET, "1"), kind=TOPIC, topic=name, version=version)
    for setting, value in (
        ("flush.messages", "0"),
        ("index.interval.bytes", "-1"),
        ("local.retention.ms", "-3"),
        ("min.insync.replicas", "0"),
        ("segment.index.bytes", "3"),
        ("no.such.setting", "1"),
    ):
        _alter(a, "", (setting, SET, value), kind=TOPIC, topic=topic, version=version)


@script(restarts=True)
def changed_settings_last(stage: Stage) -> Generator[None, None, None]:
    """After a restart the changes of one node and of all nodes are in effect."""
    a = stage.client("a")
    _alter(a, "1", ("log.segment.delete.delay.ms", SET, "70000"))
    _alter(a, "", ("log.index.size.max.bytes", SET, "8000000"))
    yield
    names = "log.segment.delete.delay.ms", "log.index.size.max.bytes"
    _until(stage, {2, 3}, *names)
    _describe(a, BROKER, "1", *names)
    _describe(a, BROKER, "", *names)


def _alter(
    client: Client,
    node: str,
    *changes: Changed,
    kind: int = BROKER,
    topic: str = "",
    version: int = 1,
    validate_only: bool = False,
) -> None:
    """IncrementalAlterConfigs of a node ("": all nodes), or of a topic."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=topic if kind == TOPIC else node, configs=configs
    )
    client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), version)


def _request(kind: int, name: str, *keys: str, with_synonyms: bool = True) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=with_synonyms)


def _describe(client: Client, kind: int, name: str, *keys: str, version: int = 4) -> None:
    client.ask(_request(kind, name, *keys, with_synonyms=version >= 1), version)


def _until(stage: Stage, sources: set[int], *names: str, value: str | None = None) -> None:
    """Wait until changes of just these sources (2: node 1, 3: all nodes) are in effect, one of them to `value`."""

    def is_so(answer: DescribeConfigsResponse) -> bool:
        configs = answer.results[0].configs
        found = {each.config_source for each in configs if each.config_source in {2, 3}}
        return found == sources and (value is None or value in {each.value for each in configs})

    stage.until_answer(_request(BROKER, "1", *names), 4, is_so)
