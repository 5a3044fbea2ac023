"""Settings of groups on Apache Kafka 4.4.0 and on Tenure: descriptions, changes, refusals, Kafka's own tools.

Both get the same requests, and their answers have to be the same. Kafka's controller answers a change before its broker
shows it; so each change is followed by a wait until the broker does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, cast

import pytest

from coordinator.server.nodes.group_settings import OWN_NAMES, expected_ids
from protocol.messages import (
    AlterConfigsResponse,
    ConsumerGroupHeartbeatRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
)
from tests.interop.java.tools import Tools
from tests.support.apache import VERSION_44, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection, ask
from tests.support.requests import configs_request, describe_configs_request, request
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

GROUP = 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, HEARTBEAT, INTERVAL = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)

SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.consumer.session.timeout.ms": "46000",
    "group.consumer.max.heartbeat.interval.ms": "50000",
}

Change = tuple[str, int, str | None]


class Servers(NamedTuple):
    """Kafka's port and Tenure's."""

    kafka: int
    tenure: int


@pytest.fixture(scope="module")
def servers(kafka_is_here: None) -> Iterator[Servers]:
    """Both, with the same settings."""
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(SETTINGS, version=VERSION_44))
        yield Servers(kafka.port, stack.enter_context(Tenure(SETTINGS)).port)


def described(port: int, name: str, *keys: str, version: int = 4) -> Any:
    """As `everything`, without Tenure's own settings."""
    code, fields = everything(port, name, *keys, version=version)
    return code, {setting: values for setting, values in fields.items() if setting not in OWN_NAMES}


def everything(port: int, name: str, *keys: str, version: int = 4) -> Any:
    """The code, and all fields of a group's settings. The documentation is each server's own text."""
    has_documentation = version >= 3
    shown = {"include_synonyms": True, "include_documentation": has_documentation}
    request = describe_configs_request(GROUP, name, keys=keys or None, **shown)
    (result,) = ask(port, request, version).results
    assert all(bool(each.documentation) == has_documentation for each in result.configs)
    fields = {
        each.name: (
            each.value,
            each.config_source,
            each.config_type,
            each.read_only,
            each.is_sensitive,
            [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
        )
        for each in result.configs
    }
    return result.error_code, fields


def altered(port: int, name: str, *changes: Change, version: int = 1) -> int:
    """The code of a change of single settings."""
    answer = ask(port, configs_request(GROUP, [name], changes), version)
    return int(cast("IncrementalAlterConfigsResponse", answer).responses[0].error_code)


def replaced(port: int, name: str, configs: dict[str, str | None]) -> int:
    """The code of a change of all settings."""
    made = [{"name": key, "value": value} for key, value in configs.items()]
    resource = {"resource_type": GROUP, "resource_name": name, "configs": made}
    answer = ask(port, request("AlterConfigs", resources=[resource]), 2)
    return int(cast("AlterConfigsResponse", answer).responses[0].error_code)


def own(port: int, name: str) -> dict[str, str]:
    """The settings that a group has itself."""
    code, fields = described(port, name)
    assert code == 0
    return {setting: value for setting, (value, source, *_) in fields.items() if source == 8}


def has(port: int, name: str, expected: Mapping[str, str | None]) -> bool:
    """Whether a group has these settings itself."""
    return own(port, name) == expected


def test_a_group_without_settings(servers: Servers) -> None:
    """Every setting is the broker's, with the same fields, in every version. No group is called ""."""
    for version in range(1, 5):
        expected, found = (described(port, "nobody", version=version) for port in servers)
        assert found == expected
        assert len(expected[1]) > 10
    for keys in ([SESSION], [SESSION, "no.such"], ["no.such"]):
        expected, found = (described(port, "nobody", *keys) for port in servers)
        assert found == expected
    expected, found = (described(port, "") for port in servers)
    assert found == expected


CHANGES: list[tuple[list[Change], dict[str, str]]] = [
    ([(SESSION, SET, "50000")], {SESSION: "50000"}),
    ([(HEARTBEAT, SET, " 6000 "), (INTERVAL, SET, "0")], {SESSION: "50000", HEARTBEAT: "6000", INTERVAL: "0"}),
    ([(SESSION, SET, "7"), (HEARTBEAT, DELETE, None)], {SESSION: "50000", HEARTBEAT: "6000", INTERVAL: "0"}),
    ([("no.such", DELETE, None), (INTERVAL, DELETE, None)], {SESSION: "50000", HEARTBEAT: "6000"}),
    ([(HEARTBEAT, SET, "48000")], {SESSION: "50000", HEARTBEAT: "48000"}),
    # The broker's session timeout, 46000, is not greater than the interval.
    ([(SESSION, DELETE, None)], {SESSION: "50000", HEARTBEAT: "48000"}),
    ([(SESSION, DELETE, None), (HEARTBEAT, DELETE, None)], {}),
]
"""Changes one after the other, and the settings after each."""


def test_settings_change_one_by_one(servers: Servers) -> None:
    """The codes are the same, and the settings are those that are expected."""
    for name in ("group", "with/slash", "with space", "ä"):
        for changes, expected in CHANGES:
            codes = [altered(port, name, *changes) for port in servers]
            assert codes[0] == codes[1], changes
            for port in servers:
                wait_until(partial(has, port, name, expected), f"{changes}", WITHIN_S)
            assert described(servers.tenure, name) == described(servers.kafka, name)


REFUSED: list[list[Change]] = [
    [("no.such", SET, "1")],
    [("", SET, "1")],
    [("group.consumer.session.timeout.ms", SET, "50000")],
    [("consumer.assignor.offload.enable", SET, "maybe")],
    [("errors.deadletterqueue.topic.name", SET, "__letters")],
    [("streams.assignor.name", SET, "Sticky")],
    [("streams.rack.aware.assignment.tags", SET, "a,b,a")],
    [("streams.rack.aware.assignment.tags", SET, "a,,b")],
    [(SESSION, SET, "long")],
    [(SESSION, SET, "")],
    [(SESSION, SET, "0")],
    [(SESSION, SET, "44999")],
    [(SESSION, SET, "60001")],
    [(SESSION, SET, str(2**31))],
    [(SESSION, SET, None)],
    [(SESSION, APPEND, "50000")],
    [(SESSION, SUBTRACT, "50000")],
    [("no.such", APPEND, "1")],
    [(SESSION, SET, "50000"), (SESSION, SET, "50000")],
    [(HEARTBEAT, SET, "4999")],
    [(HEARTBEAT, SET, "50001")],
    [(HEARTBEAT, SET, "46000")],
    [(HEARTBEAT, SET, "50000"), (SESSION, SET, "50000")],
    [(INTERVAL, SET, "-1")],
    [(INTERVAL, SET, "15001")],
    [("share.auto.offset.reset", SET, "none")],
    [("share.auto.offset.reset", SET, "by_duration")],
    [("share.auto.offset.reset", SET, "by_duration:PT")],
    [("share.auto.offset.reset", SET, "by_duration:-PT1H")],
    [("share.delivery.count.limit", SET, "1")],
    [("share.delivery.count.limit", SET, "11")],
    [("share.isolation.level", SET, "READ_COMMITTED")],
    [("share.partition.max.record.locks", SET, "99")],
    [("share.partition.max.record.locks", SET, "4001")],
    [("share.record.lock.duration.ms", SET, "14999")],
    [("share.record.lock.duration.ms", SET, "60001")],
    [("share.renew.acknowledge.enable", SET, "maybe")],
    [("streams.initial.rebalance.delay.ms", SET, "-1")],
    [("streams.num.standby.replicas", SET, "3")],
]
REFUSED += [
    [(f"{kind}.{setting}", SET, value)]
    for kind in ("share", "streams")
    for setting, value in (
        ("session.timeout.ms", "44999"),
        ("session.timeout.ms", "60001"),
        ("heartbeat.interval.ms", "4999"),
        ("heartbeat.interval.ms", "15001"),
        ("assignment.interval.ms", "15001"),
    )
]

TAKEN: dict[str, str | None] = {
    SESSION: "+55000",
    "share.auto.offset.reset": "by_duration:pt1h30m",
    "share.delivery.count.limit": "10",
    "share.isolation.level": "read_committed",
    "share.partition.max.record.locks": "4000",
    "share.record.lock.duration.ms": "15000",
    "share.renew.acknowledge.enable": "FALSE",
    "streams.initial.rebalance.delay.ms": "0",
    "streams.num.standby.replicas": "2",
}


@pytest.mark.parametrize("changes", REFUSED, ids=str)
def test_a_setting_that_no_group_can_have(servers: Servers, changes: list[Change]) -> None:
    """The same code, which is an error, and nothing changes."""
    expected, found = (altered(port, "refused", *changes) for port in servers)
    assert (found, expected != 0) == (expected, True)
    assert own(servers.tenure, "refused") == {}


def test_all_settings_are_replaced(servers: Servers) -> None:
    """AlterConfigs: the same codes, and the same fields afterwards."""
    steps: list[tuple[dict[str, str | None], dict[str, str] | None]] = [
        (TAKEN, {name: str(value).lstrip("+").replace("FALSE", "false") for name, value in TAKEN.items()}),
        ({SESSION: None}, None),
        ({"no.such": "1"}, None),
        ({HEARTBEAT: "9000"}, {HEARTBEAT: "9000"}),
        ({}, {}),
    ]
    for configs, taken in steps:
        expected, found = (replaced(port, "replaced", configs) for port in servers)
        assert (found, expected == 0) == (expected, taken is not None)
        if taken is not None:
            wait_until(partial(has, servers.kafka, "replaced", taken), "settings", WITHIN_S)
        assert described(servers.tenure, "replaced") == described(servers.kafka, "replaced")
    expected, found = (replaced(port, "", {HEARTBEAT: "9000"}) for port in servers)
    assert (found, expected != 0) == (expected, True)


COMMANDS = (
    "--describe --entity-name readers",
    "--alter --entity-name readers --add-config consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000",
    "--describe --entity-name readers",
    "--alter --entity-name readers --add-config consumer.session.timeout.ms=1",
    "--alter --entity-name readers --add-config no.such=1",
    "--alter --entity-name readers --delete-config consumer.heartbeat.interval.ms",
    "--describe --entity-name readers",
    "--describe --entity-name readers --all",
    "--describe",
    "--alter --entity-name readers --delete-config consumer.session.timeout.ms",
    "--describe --entity-name readers",
    "--describe",
)


def test_a_member_hears_of_them(servers: Servers) -> None:
    """With its next heartbeat it gets the interval of its group, and the broker's again when the group has none."""
    for port in servers:
        with Connection(port) as connection:

            def beat(epoch: int, connection: Connection = connection) -> Any:
                first: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
                request = ConsumerGroupHeartbeatRequest(
                    group_id="working",
                    member_id="m",
                    member_epoch=epoch,
                    subscribed_topic_names=[] if epoch == 0 else None,
                    **(first if epoch == 0 else {}),
                )
                answer = connection.ask(request, 1)
                assert answer.error_code == 0
                return answer

            def hears(interval_ms: int, epoch: int) -> bool:
                return bool(beat(epoch).heartbeat_interval_ms == interval_ms)

            joined = beat(0)
            assert joined.heartbeat_interval_ms == 5_000
            for change, interval_ms in (((HEARTBEAT, SET, "7000"), 7_000), ((HEARTBEAT, DELETE, None), 5_000)):
                assert altered(port, "working", change) == 0
                wait_until(partial(hears, interval_ms, joined.member_epoch), "the interval", WITHIN_S)


def listed(port: int, version: int, *types: int) -> tuple[int, list[tuple[int, str]]]:
    """The resources of these types."""
    request = ListConfigResourcesRequest(resource_types=list(types)) if version else ListConfigResourcesRequest()
    answer = ask(port, request, version)
    return answer.error_code, sorted((each.resource_type, each.resource_name) for each in answer.config_resources)


def test_resources_with_settings(servers: Servers) -> None:
    """Groups that have some, and all brokers; unknown types are refused as a whole."""
    for name in ("listed", "also listed"):
        assert [altered(port, name, (SESSION, SET, "50000")) for port in servers] == [0, 0]
        wait_until(partial(has, servers.kafka, name, {SESSION: "50000"}), "settings", WITHIN_S)
    for version, types in ((1, [GROUP]), (1, [4, 8]), (1, [GROUP, 16]), (1, [77]), (1, [GROUP, 0]), (0, [])):
        expected, found = (listed(port, version, *types) for port in servers)
        assert found == expected
    for name in ("listed", "also listed"):
        assert [altered(port, name, (SESSION, DELETE, None)) for port in servers] == [0, 0]
        wait_until(partial(has, servers.kafka, name, {}), "settings", WITHIN_S)


def test_kafkas_own_tool(servers: Servers) -> None:
    """kafka-configs of that release prints the same on both servers; the one of 3.9 knows no groups."""
    with Tools(VERSION_44) as tools:
        for command in COMMANDS:
            expected, found = (printed(tools, port, command) for port in servers)
            assert found == expected, command


def test_kafkas_own_tool_sets_expected_members(servers: Servers) -> None:
    """It takes brackets around a list, and takes brackets within it away: a range is understood without them."""
    command = ["--entity-type", "groups", "--alter", "--entity-name", "expecting", "--add-config"]
    with Tools(VERSION_44) as tools:
        bootstrap = ["--bootstrap-server", f"127.0.0.1:{servers.tenure}"]
        done = tools.run("configs", *bootstrap, *command, "expected.instance.ids=[worker-[0..3],x],target.group.size=4")
    assert done.code == 0, done.err
    code, fields = everything(servers.tenure, "expecting")
    assert code == 0
    assert fields["target.group.size"][0] == "4"
    assert expected_ids(fields["expected.instance.ids"][0]) == ("worker-0", "worker-1", "worker-2", "worker-3", "x")


def printed(tools: Tools, port: int, command: str) -> tuple[int, list[str], list[str]]:
    """Code and lines of kafka-configs, without code positions, what a library says of its own log, and Tenure's own."""
    bootstrap = f"127.0.0.1:{port}"
    done = tools.run("configs", "--bootstrap-server", bootstrap, "--entity-type", "groups", *command.split())
    trace = re.compile(r"(?m)^(\tat .*|\t... \d+ more|Caused by: .*|.* ERROR Reconfiguration failed: .*)$")
    out, err = (trace.sub("", text.replace(bootstrap, "ADDRESS")).splitlines() for text in (done.out, done.err))
    shared = [line for line in out if line and not line.lstrip().startswith(tuple(f"{name}=" for name in OWN_NAMES))]
    return done.code, sorted(shared), sorted(filter(None, err))
