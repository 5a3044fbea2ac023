"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.config import settings
from coordinator.server.nodes import group_settings
from coordinator.server.nodes.broker_settings import BROKER_SETTINGS
from coordinator.server.nodes.group_settings import GROUP_CONFIGS
from coordinator.server.nodes.topic_settings import TOPIC_CONFIGS
from coordinator.server.nodes.topics import Altered, Change, ChangeDone
from protocol.messages import (
    ApiVersionsRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ListConfigResourcesRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, join_request, serving
from tests.server.requests.test_records import ONE, produce
from tests.support.batches import batch
from tests.support.raw import Connection, ask
from tests.support.requests import (
    commit_request,
    configs_request,
    describe_configs_request,
    first_heartbeat,
    request,
    topics_request,
)
from tests.support.tenure import Tenure

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


async def describe(server: Serving, kind: int, name: str, *keys: str, version: int = 4, **fields: Any) -> Any:
    """The description of one resource."""
    peer = await server.peer()
    answer = await peer.ask(describe_configs_request(kind, name, keys=keys or None, **fields), version)
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def synonyms_of(entry: Any) -> list[tuple[str, str, int]]:
    """Name, value and source of all synonyms."""
    return [(each.name, each.value, each.source) for each in entry.synonyms]


def values_of(result: Any) -> dict[str, tuple[str, int]]:
    """Value and source by name."""
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


@pytest.mark.parametrize("version", range(5))
async def test_a_broker_shows_its_settings(version: int) -> None:
    """Every setting with its name, its value as in a properties file, and whether the configuration sets it."""
    async with serving("group.max.size=7", "offsets.retention.minutes=5") as server:
        result = await describe(server, BROKER, "1", version=version)
        assert result.error_code == ErrorCode.NONE
        assert {entry.name for entry in result.configs} == set(BROKER_SETTINGS)
        values = {entry.name: entry.value for entry in result.configs}
        assert values["group.max.size"] == "7"
        assert values["offsets.retention.minutes"] == "5"
        assert values["auto.create.topics.enable"] == "true"
        assert values["listeners"] == "PLAINTEXT://127.0.0.1:0"
        assert values["advertised.listeners"] == f"PLAINTEXT://127.0.0.1:{server.server.address[1]}"
        assert values["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT"
        assert (values["broker.id"], values["default.replication.factor"]) == ("1", "1")
        assert values["tenure.topics"] == "orders:3"
        assert values["tenure.fix.kafka-12759"] == "false"
        if version >= 1:
            sources = {name: source for name, (_, source) in values_of(result).items()}
            assert (sources["group.max.size"], sources["num.partitions"]) == (4, 5)


async def test_only_what_is_asked_for_is_shown(server: Serving) -> None:
    """The settings that the request names, with synonyms and documentation if it wants them."""
    result = await describe(
        server, BROKER, "1", "group.max.size", "absent", include_synonyms=True, include_documentation=True
    )
    (entry,) = result.configs
    assert entry.config_type == 3
    assert entry.read_only
    assert entry.documentation == settings()["group.max.size"].doc
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [("group.max.size", "2147483647", 5)]
    result = await describe(server, BROKER, "1", "message.max.bytes")
    assert not result.configs[0].read_only
    result = await describe(server, BROKER, "1", "group.max.size")
    assert (result.configs[0].synonyms, result.configs[0].documentation) == ([], None)


async def test_a_secret_is_not_shown() -> None:
    """A client learns that a token is set, and not which; it can't change it either."""
    async with serving("tenure.control.token=not-told") as server:
        result = await describe(server, BROKER, "1", "tenure.control.token", include_synonyms=True)
        (entry,) = result.configs
        assert (entry.value, entry.is_sensitive, entry.read_only) == (None, True, True)
        assert [(each.value, each.source) for each in entry.synonyms] == [(None, 4)]
        result = await describe(server, BROKER, "1", "tenure.control")
        assert (result.configs[0].value, result.configs[0].is_sensitive) == ("", False)


async def test_a_topic_shows_what_it_was_created_with() -> None:
    """Its own settings; all others are the server's, which here has Kafka's, but for message.max.bytes."""
    async with connected("message.max.bytes=5000") as (server, peer):
        created = await peer.ask(topics_request({"fresh": 1}, {"cleanup.policy": "compact"}), 5)
        values = values_of(await describe(server, TOPIC, "fresh"))
        assert set(values) == set(TOPIC_CONFIGS)
        assert values["cleanup.policy"] == ("compact", 1)
        assert values["retention.ms"] == ("604800000", 5)
        assert values["max.message.bytes"] == ("5000", 4)
        asked_for = "cleanup.policy", "max.message.bytes", "retention.ms", "remote.storage.enable"
        result = await describe(server, TOPIC, "fresh", *asked_for, include_synonyms=True, include_documentation=True)
        assert {entry.name: synonyms_of(entry) for entry in result.configs} == {
            "cleanup.policy": [("cleanup.policy", "compact", 1), ("log.cleanup.policy", "delete", 5)],
            "max.message.bytes": [("message.max.bytes", "5000", 4), ("message.max.bytes", "1048588", 5)],
            "retention.ms": [],
            "remote.storage.enable": [],
        }
        assert all(entry.documentation for entry in result.configs)
        assert values_of(created.topics[0]) == values
        assert values_of(await describe(server, TOPIC, "orders"))["cleanup.policy"] == ("delete", 5)
        assert values_of(await describe(server, TOPIC, "__consumer_offsets"))


async def test_the_topic_of_offsets_is_shown_as_compacted() -> None:
    """With the settings that Kafka gives it, marked as set: tools check for them, and warn if they are missing."""
    async with serving("offsets.topic.segment.bytes=1000000") as server:
        values = values_of(await describe(server, TOPIC, "__consumer_offsets"))
        assert {name: value for name, (value, source) in values.items() if source == 1} == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "1000000",
        }


@pytest.mark.parametrize("kind, name", [(BROKER, ""), (BROKER_LOGGER, "1"), (CLIENT_METRICS, "any")])
async def test_some_resources_have_nothing_to_show(server: Serving, kind: int, name: str) -> None:
    """An empty answer without an error."""
    result = await describe(server, kind, name)
    assert (result.error_code, result.configs) == (ErrorCode.NONE, [])


@pytest.mark.parametrize(
    "kind, name, error",
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "in/valid", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_can_not_be_described_is_refused(server: Serving, kind: int, name: str, error: ErrorCode) -> None:
    """With the right error code, and no entries."""
    result = await describe(server, kind, name)
    assert (result.error_code, result.configs) == (error, [])


SET, DELETE, APPEND, SUBTRACT = range(4)


async def change(
    server: Serving,
    *changes: tuple[str, int, str | None],
    name: str = "orders",
    kind: int = TOPIC,
    version: int = 1,
    validate_only: bool = False,
) -> int:
    """The error code that a list of changes (setting, operation, value) gets."""
    peer = await server.peer()
    answer = await peer.ask(configs_request(kind, [name], changes, validate_only=validate_only), version)
    (result,) = answer.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert bool(result.error_message) == bool(result.error_code)
    return int(result.error_code)


async def given(server: Serving) -> dict[str, str]:
    """The settings that a topic sets itself."""
    result = await describe(server, TOPIC, "orders")
    return {name: value for name, (value, source) in values_of(result).items() if source == 1}


@pytest.mark.parametrize("version", range(2))
async def test_settings_of_a_topic_change_one_by_one(server: Serving, version: int) -> None:
    """Settings are set and removed, lists get longer and shorter; other settings stay."""
    assert await change(server, ("retention.ms", SET, "5"), ("segment.bytes", SET, "99"), version=version) == 0
    assert await given(server) == {"retention.ms": "5", "segment.bytes": "99"}
    assert await change(server, ("retention.ms", DELETE, None), version=version) == 0
    assert await change(server, ("cleanup.policy", APPEND, "compact"), version=version) == 0
    assert await given(server) == {"segment.bytes": "99", "cleanup.policy": "delete,compact"}
    assert await change(server, ("cleanup.policy", SET, " delete , compact "), version=version) == 0
    assert await given(server) == {"segment.bytes": "99", "cleanup.policy": "delete,compact"}
    assert await change(server, ("cleanup.policy", SUBTRACT, "delete"), version=version) == 0
    assert await given(server) == {"segment.bytes": "99", "cleanup.policy": "compact"}
    assert await change(server, ("segment.bytes", SET, "77"), version=version, validate_only=True) == 0
    assert await given(server) == {"segment.bytes": "99", "cleanup.policy": "compact"}


async def test_names_are_subtracted_from_a_range() -> None:
    """An operator takes one expected member off the list, as `kafka-configs` without its brackets sends it."""
    name = "expected.instance.ids"

    async def held() -> str:
        (entry,) = [each for each in (await describe(server, GROUP, "g")).configs if each.name == name]
        return str(entry.value)

    async with serving() as server:
        assert await change(server, (name, SET, "w-0..5"), kind=GROUP, name="g") == 0
        assert await change(server, (name, SUBTRACT, "w-3"), kind=GROUP, name="g") == 0
        assert await held() == "w-[0..2],w-[4..5]"
        assert await change(server, (name, APPEND, "w-3,x"), kind=GROUP, name="g") == 0
        assert await change(server, (name, SUBTRACT, "w-[0..9]"), kind=GROUP, name="g") == 0
        assert await held() == "x"


async def test_a_change_leaves_other_settings_to_other_nodes(server: Serving) -> None:
    """A setting that the request doesn't name keeps the value that another node gives it at the same time."""
    topics = server.server._topics
    orders, write = topics.get("orders"), topics._write
    assert orders is not None
    assert await change(server, ("retention.ms", SET, "5"), ("segment.ms", SET, "5")) == 0

    def after_another_node(mine: Change, done: ChangeDone) -> None:
        topics.apply(Change(altered=[Altered(orders.topic_id, configs={"retention.ms": "6"})]))
        write(mine, done)

    topics._write = after_another_node
    assert await change(server, ("segment.bytes", SET, "99"), ("segment.ms", DELETE, None)) == 0
    assert await given(server) == {"retention.ms": "6", "segment.bytes": "99"}


@pytest.mark.parametrize(
    ("setting", "operation", "value", "error"),
    [
        ("no.such", SET, "1", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SET, "long", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SET, "-2", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SET, str(2**63), ErrorCode.INVALID_CONFIG),
        ("segment.bytes", SET, str(2**31), ErrorCode.INVALID_CONFIG),
        ("segment.bytes", SET, "13", ErrorCode.INVALID_CONFIG),
        ("cleanup.policy", SET, "burn", ErrorCode.INVALID_CONFIG),
        ("message.timestamp.type", SET, "Never", ErrorCode.INVALID_CONFIG),
        ("preallocate", SET, "maybe", ErrorCode.INVALID_CONFIG),
        ("min.cleanable.dirty.ratio", SET, "1.5", ErrorCode.INVALID_CONFIG),
        ("min.cleanable.dirty.ratio", SET, "0.25", ErrorCode.NONE),
        ("preallocate", SET, "TRUE", ErrorCode.NONE),
        ("retention.ms", SET, None, ErrorCode.INVALID_REQUEST),
        ("retention.ms", APPEND, "1", ErrorCode.INVALID_CONFIG),
        ("retention.ms", 4, "1", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_setting_that_can_not_be(
    server: Serving, setting: str, operation: int, value: str | None, error: ErrorCode
) -> None:
    """It is refused and nothing changes; CreateTopics refuses the same values."""
    assert await change(server, (setting, operation, value)) == error
    assert bool(await given(server)) == (not error)
    if operation == SET and value is not None:
        peer = await server.peer()
        answer = await peer.ask(topics_request({"new": 1}, {setting: value}), 5)
        assert answer.topics[0].error_code == error


async def test_a_setting_has_its_effect_at_once(peer: Peer, server: Serving) -> None:
    """It applies to the next batch."""
    (taken,) = await produce(peer, ("orders", 0, ONE))
    assert (taken.error_code, taken.log_append_time_ms) == (ErrorCode.NONE, -1)
    assert await change(server, ("message.timestamp.type", SET, "LogAppendTime")) == 0
    (taken,) = await produce(peer, ("orders", 0, ONE))
    assert (taken.error_code, taken.log_append_time_ms) == (ErrorCode.NONE, server.clock.wall_ms())
    assert await change(server, ("cleanup.policy", SET, "compact")) == 0
    (refused,) = await produce(peer, ("orders", 0, batch([(None, b"v", 1)])))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert await change(server, ("max.message.bytes", SET, "10")) == 0
    (refused,) = await produce(peer, ("orders", 0, ONE))
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def changed(server: Serving, name: str = "1") -> dict[str, tuple[str, int]]:
    """The settings of a broker that were changed while it runs: value and source."""
    values = values_of(await describe(server, BROKER, name))
    return {setting: (value, source) for setting, (value, source) in values.items() if source in {2, 3}}


@pytest.mark.parametrize("version", range(2))
async def test_settings_of_a_broker_change_one_by_one(version: int) -> None:
    """For one node and for all; the node's own is in effect, and a removed one uncovers the one beneath."""
    async with serving("message.max.bytes=9000") as server:
        setting = "message.max.bytes"
        for name, value in (("", "7000"), ("1", " 8000 ")):
            assert await change(server, (setting, SET, value), kind=BROKER, name=name, version=version) == 0
        result = await describe(server, BROKER, "1", setting, include_synonyms=True)
        beneath = [(setting, "7000", 3), (setting, "9000", 4), (setting, "1048588", 5)]
        assert synonyms_of(result.configs[0]) == [(setting, "8000", 2), *beneath]
        assert await changed(server, "") == {setting: ("7000", 3)}
        assert values_of(await describe(server, TOPIC, "orders"))["max.message.bytes"] == ("8000", 2)
        assert await change(server, (setting, DELETE, None), kind=BROKER, name="1", version=version) == 0
        result = await describe(server, BROKER, "1", setting, include_synonyms=True)
        assert synonyms_of(result.configs[0]) == beneath
        assert await change(server, (setting, SET, "1"), kind=BROKER, name="1", validate_only=True) == 0
        assert await changed(server) == {setting: ("7000", 3)}
        assert [line["settings"] for line in server.events("settings_changed")] == [
            {setting: "7000"},
            {setting: "8000"},
            {setting: "7000"},
        ]
        policy = "log.cleanup.policy"
        assert await change(server, (policy, APPEND, "compact"), kind=BROKER, name="1", version=version) == 0
        assert (await changed(server))[policy] == ("delete,compact", 2)
        assert await change(server, (policy, SUBTRACT, "delete"), kind=BROKER, name="1", version=version) == 0
        assert values_of(await describe(server, TOPIC, "orders"))["cleanup.policy"] == ("compact", 2)


async def test_a_change_of_a_broker_has_its_effect_at_once(peer: Peer, server: Serving) -> None:
    """On the next batch, commit and connection, and on the default of topics."""
    for setting, value in (("message.max.bytes", "10"), ("max.connections", "3")):
        assert await change(server, (setting, SET, value), kind=BROKER, name="") == 0
    (refused,) = await produce(peer, ("orders", 0, ONE))
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    committed = await peer.ask(commit_request("g", {("orders", 0): 1}), 2)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    waiting = await server.peer()
    await waiting.send(ApiVersionsRequest(), 0)
    while len(server.server.connections) != 4:
        await peer.ask(commit_request("g", {("orders", 0): 1}), 2)
    assert waiting.is_silent()


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


async def own(server: Serving, group_id: str) -> dict[str, str]:
    """The settings that a group sets itself."""
    result = await describe(server, GROUP, group_id)
    return {name: value for name, (value, source) in values_of(result).items() if source == 8}


async def test_an_internal_setting_is_shown_where_a_group_has_it() -> None:
    """As in Kafka 4.4: an operator sees what was set, and nobody else sees it."""
    offload = "consumer.assignor.offload.enable"
    async with serving() as server:
        assert await change(server, (offload, SET, "false"), name="g", kind=GROUP) == 0
        assert await own(server, "g") == {offload: "false"}
        assert offload not in {entry.name for entry in (await describe(server, GROUP, "h")).configs}


async def test_a_group_shows_its_settings() -> None:
    """All that Kafka has, whether the group exists or not; a broker's setting is the default."""
    async with serving("group.consumer.session.timeout.ms=50000") as server:
        result = await describe(server, GROUP, "g", include_synonyms=True, include_documentation=True)
        assert {entry.name for entry in result.configs} == {
            name for name, setting in GROUP_CONFIGS.items() if not setting.is_internal
        }
        assert all(entry.documentation for entry in result.configs)
        assert not any(entry.read_only or entry.is_sensitive for entry in result.configs)
        by_name = {entry.name: entry for entry in result.configs}
        assert (by_name[SESSION].value, by_name[SESSION].config_source) == ("50000", 4)
        assert synonyms_of(by_name[HEARTBEAT]) == [("group.consumer.heartbeat.interval.ms", "5000", 5)]
        assert synonyms_of(by_name["share.isolation.level"]) == [("share.isolation.level", "read_uncommitted", 5)]
        assert await change(server, (SESSION, SET, "55000"), name="g", kind=GROUP) == 0
        (entry,) = (await describe(server, GROUP, "g", SESSION, include_synonyms=True)).configs
        assert (entry.value, entry.config_source, entry.config_type) == ("55000", 8, 3)
        broker = "group.consumer.session.timeout.ms"
        assert synonyms_of(entry) == [(SESSION, "55000", 8), (broker, "50000", 4), (broker, "45000", 5)]


@pytest.mark.parametrize("version", range(2))
async def test_settings_of_a_group_change_one_by_one(server: Serving, version: int) -> None:
    """Of this group alone. A name that nobody knows can be removed, but not set."""
    on: dict[str, Any] = {"name": "a/b", "kind": GROUP, "version": version}
    assert await change(server, (SESSION, SET, " 50000 "), (HEARTBEAT, SET, "6000"), **on) == 0
    assert await change(server, (HEARTBEAT, DELETE, None), ("no.such", DELETE, None), **on) == 0
    assert await change(server, (SESSION, SET, "51000"), **on, validate_only=True) == 0
    assert await own(server, "a/b") == {SESSION: "50000"}
    assert await own(server, "a") == {}


async def test_resources_are_listed(server: Serving) -> None:
    """Groups that have settings, once each, and all topics and brokers; version 0 asks for client metrics alone."""
    for name, setting in (("b", SESSION), ("a/b", SESSION), ("b", HEARTBEAT), ("c", SESSION)):
        assert (
            await change(server, (setting, SET, "50000" if setting == SESSION else "6000"), name=name, kind=GROUP) == 0
        )
    assert await change(server, (SESSION, DELETE, None), name="c", kind=GROUP) == 0
    peer = await server.peer()

    async def listed(*types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
        request = ListConfigResourcesRequest(resource_types=list(types)) if version else ListConfigResourcesRequest()
        answer = await peer.ask(request, version)
        return answer.error_code, [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert await listed(GROUP) == (0, [(GROUP, "b"), (GROUP, "a/b")])
    assert await listed(BROKER, TOPIC, BROKER) == (
        0,
        [(BROKER, "1"), (TOPIC, "__consumer_offsets"), (TOPIC, "orders")],
    )
    error, everything = await listed()
    assert (error, {kind for kind, _ in everything}) == (0, {GROUP, BROKER, BROKER_LOGGER, TOPIC})
    assert await listed(GROUP, 77) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert await listed(version=0) == (0, [])


async def test_many_groups_change_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one write; if there is no room for all, none of them changes, but a topic of that request does."""
    monkeypatch.setattr(group_settings, "KEPT_CHARACTERS_MAX", 10 * len(f"g0/{SESSION}50000"))
    async with connected() as (server, peer):
        groups = [f"g{number}" for number in range(10)]
        answer = await peer.ask(configs_request(GROUP, groups, {SESSION: "50000"}), 1)
        assert {each.error_code for each in answer.responses} == {0}
        assert await own(server, "g9") == {SESSION: "50000"}
        more = [(GROUP, "more", SESSION), (TOPIC, "orders", "retention.ms")]
        resources = [
            {"resource_type": kind, "resource_name": name, "configs": [{"name": setting, "value": "50000"}]}
            for kind, name, setting in more
        ]
        answer = await peer.ask(request("IncrementalAlterConfigs", resources=resources), 1)
        assert [each.error_code for each in answer.responses] == [ErrorCode.POLICY_VIOLATION, 0]
        assert (await own(server, "more"), await given(server)) == ({}, {"retention.ms": "50000"})


async def test_a_member_gets_the_settings_of_its_group_with_its_next_heartbeat(peer: Peer, server: Serving) -> None:
    """Interval and session timeout, the group's own win over the broker's."""
    first = await beat(peer, 0)
    assert first.heartbeat_interval_ms == 5_000
    assert await change(server, (HEARTBEAT, SET, "7000"), (SESSION, SET, "60000"), name="g", kind=GROUP) == 0
    assert (await beat(peer, first.member_epoch)).heartbeat_interval_ms == 7_000
    session = server.server.runtime.partition_of("g").coordinator.groups["g"].sessions["m"]
    assert session.session_timeout_ms == 60_000
    assert await change(server, (SESSION, DELETE, None), name="g", kind=GROUP) == 0
    assert (await beat(peer, first.member_epoch)).heartbeat_interval_ms == 7_000
    assert session.session_timeout_ms == 45_000


async def test_held_joins_come_in_when_the_expected_ids_are_deleted(peer: Peer, server: Serving) -> None:
    """A change of a group's settings has its effect at once, without a further request to the group."""
    assert await change(server, ("expected.instance.ids", SET, "a,b"), name="g", kind=GROUP) == 0
    await peer.send(join_request("g", instance="a"), 5)
    await server.barrier()
    assert peer.is_silent()
    assert await change(server, ("expected.instance.ids", DELETE, None), name="g", kind=GROUP) == 0
    assert (await peer.receive()).error_code == ErrorCode.NONE


def test_settings_of_groups_reach_all_workers_and_last() -> None:
    """A worker is told; each coordinator uses them, also after a kill of all."""
    with Tenure({"tenure.topics": "orders:1"}, arguments=["--workers", "2"]) as server:
        groups = ["a", "b", "c", "d", "e"]
        ask(server.ports[0], configs_request(GROUP, groups, {HEARTBEAT: "7000"}), 1)

        def intervals() -> list[int]:
            found = []
            for port in server.ports:
                with Connection(port) as connection:
                    for group in groups:
                        joined = first_heartbeat(group)
                        answer = connection.ask(joined, 1)
                        if answer.error_code != ErrorCode.NOT_COORDINATOR:
                            found.append(answer.heartbeat_interval_ms)
            return found

        assert intervals() == [7_000] * len(groups)
        server.restart()
        assert intervals() == [7_000] * len(groups)


async def beat(peer: Peer, epoch: int) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat of member m of group g; with epoch 0 it joins."""
    later = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    answer: ConsumerGroupHeartbeatResponse = await peer.ask(later if epoch else first_heartbeat("g"), 1)
    assert answer.error_code == ErrorCode.NONE
    return answer
