"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: tools read and change settings of topics and brokers.

A broker's settings are in nodes.broker_settings. A topic's are its own and the defaults (nodes.topic_settings), which
are a broker's. Groups have no settings, as in Kafka 3.9.

House rule: names, values and texts of settings come from those tables; none is repeated here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from coordinator.config import Listener, served_listeners, topic_name_problem
from coordinator.log.engine import EngineError
from coordinator.security.acls import Kind, Operation
from coordinator.server.nodes.broker_settings import (
    BROKER_SETTINGS,
    DEFAULT_CONFIG,
    SECRETS,
    TOPIC_CONFIG,
    BrokerSetting,
    Changes,
    Value,
    changes_of,
    is_read_only,
    prefix_of,
    setting_problem,
    values_of,
)
from coordinator.server.nodes.topic_settings import (
    LIST,
    TOPIC_CONFIGS,
    TopicSetting,
    config_problem,
    topic_defaults,
    trimmed,
)
from coordinator.server.nodes.topics import BROKERS, Altered, Change
from coordinator.server.requests.rights import may
from coordinator.server.requests.texts import short
from coordinator.server.wire.call import count
from protocol.messages import (
    AlterConfigsResponse,
    CreateTopicsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coordinator.config import Config
    from coordinator.log.topics.list import Topic
    from coordinator.server.nodes.topics import ChangeResult
    from coordinator.server.wire.call import Call, Services, Steps
    from protocol.messages import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
"""Resource types. Kafka 3.9 has no settings for groups (32) yet."""

ON_CLUSTER = frozenset({BROKER, BROKER_LOGGER, CLIENT_METRICS})
"""Resource types whose settings need a right on the cluster."""


class Entry(NamedTuple):
    """One setting of a resource. values: from all sources, the one in effect first; () if it has no value."""

    name: str
    value: str | None
    kind: int
    values: tuple[Value, ...]
    doc: str
    is_read_only: bool = False

    @property
    def source(self) -> int:
        """Where its value comes from."""
        return self.values[0].source if self.values else DEFAULT_CONFIG


NewValues = Generator[None, None, dict[str, str | None]]
"""Makes the new values of settings by name, in steps; None removes a setting."""

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""The operations of IncrementalAlterConfigs."""


class _BadResource(Exception):
    """A resource that can't be described, or a change that it can't have."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        self.error = error
        self.message = short(message)
        super().__init__(self.message)


def describe_configs(services: Services, call: Call, request: DescribeConfigsRequest) -> Steps:
    """DescribeConfigs. Resources that are alike share one result, and entries that are alike one object."""
    results = []
    known: dict[tuple[int, str, tuple[str, ...]], DescribeConfigsResponse.DescribeConfigsResult] = {}
    shown: dict[Entry, DescribeConfigsResponse.DescribeConfigsResourceResult] = {}
    entries_of: dict[tuple[int, str], list[Entry]] = {}
    defaults = default_entries(services)
    for resource in request.resources:
        yield
        kind, name, keys = resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())
        result = known.get((kind, name, keys))
        if result is not None:
            results.append(result)
            continue
        result = known[kind, name, keys] = DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=kind, resource_name=name, error_message=""
        )
        results.append(result)
        try:
            entries = entries_of.get((kind, name))
            if entries is None:
                entries = entries_of[kind, name] = _entries(services, call, kind, name, defaults)
        except _BadResource as problem:
            result.error_code = problem.error
            result.error_message = problem.message
            continue
        wanted = set(keys)
        for entry in entries:
            if not wanted or entry.name in wanted:
                one = shown.get(entry)
                if one is None:
                    one = shown[entry] = _shown(entry, request)
                result.configs.append(one)
    call.answer(DescribeConfigsResponse(results=results))


def _entries(services: Services, call: Call, resource_type: int, name: str, defaults: Sequence[Entry]) -> list[Entry]:
    """The settings of a resource. defaults: those of a topic that sets none. Raises _BadResource."""
    _check_right(services, call, Operation.DESCRIBE_CONFIGS, resource_type, name)
    if resource_type == TOPIC:
        _check_topic_name(name)
        topic = services.discovery.topic(name)
        if topic is None:
            raise _BadResource(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return topic_entries(topic, defaults)
    if resource_type in {BROKER, BROKER_LOGGER}:
        if resource_type == BROKER_LOGGER or name:
            _check_node(services, name)
        return [] if resource_type == BROKER_LOGGER else _broker_entries(services, call, for_all=not name)
    if resource_type == CLIENT_METRICS:
        if not name:
            raise _BadResource(ErrorCode.INVALID_REQUEST, "The name must not be empty.")
        return []
    raise _BadResource(ErrorCode.INVALID_REQUEST, f"There are no resources of type {resource_type}.")


def _check_topic_name(name: str) -> None:
    """Raise _BadResource if no topic can have this name."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise _BadResource(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def _check_right(services: Services, call: Call, operation: Operation, resource_type: int, name: str) -> None:
    """Raise _BadResource if the client may not do this to the settings of a resource."""
    if resource_type == TOPIC:
        if not may(services, call, operation, Kind.TOPIC, name):
            raise _BadResource(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif resource_type in ON_CLUSTER and not may(services, call, operation, Kind.CLUSTER):
        raise _BadResource(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def _check_node(services: Services, name: str) -> None:
    """Raise _BadResource unless this is the node of that name."""
    if name != str(services.config.node_id):
        raise _BadResource(ErrorCode.INVALID_REQUEST, f"This is broker {services.config.node_id}, asked was '{name}'.")


def _broker_entries(services: Services, call: Call, *, for_all: bool) -> list[Entry]:
    """All settings of this node; for_all: those that were changed for all nodes."""
    changes = _changes(services)
    if for_all:
        changes = Changes({}, changes.all_nodes)
    config = _addressed(services, call)
    entries = []
    for name, setting in BROKER_SETTINGS.items():
        if not for_all or name in changes.all_nodes:
            values = values_of(config, changes, name)
            value = values[0].value if values else None
            if for_all:
                values = values[:1]
            entries.append(Entry(name, value, setting.kind, values, setting.doc, is_read_only(name)))
    return entries


def _changes(services: Services) -> Changes:
    return changes_of(services.discovery.topics.entry(BROKERS).configs, services.config.node_id)


def _addressed(services: Services, call: Call) -> Config:
    """The configuration at the start, with the addresses and protocols that it leaves open as they are."""
    config, listeners = services.start_config, served_listeners(services.start_config)
    if "advertised.listeners" not in config.stated:
        nodes = [services.discovery.node(config.node_id, call, listener.name) for listener in listeners]
        advertised = [Listener(each.name, node.host, node.port) for each, node in zip(listeners, nodes, strict=True)]
        config = replace(config, advertised_listeners=tuple(advertised))
    if "listener.security.protocol.map" not in config.stated:
        protocols = tuple((each.name, config.security_protocol(each.name)) for each in listeners)
        config = replace(config, listener_security_protocol_map=protocols)
    return config


class _Target(NamedTuple):
    """A topic, or one or all brokers, whose settings change.

    topic_id: the topic's, or that of BROKERS. prefix: of the names there. configs: its own settings. table: all
    settings that it can have.
    """

    topic_id: UUID
    prefix: str
    configs: Mapping[str, str]
    table: Mapping[str, TopicSetting] | Mapping[str, BrokerSetting]

    def value(self, name: str, value: str | None) -> str:
        """Check a setting; returns the value to keep. Raises _BadResource."""
        if value is None:
            raise _BadResource(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        if self.topic_id == BROKERS.topic_id:
            # Kafka's code for a broker's wrong value is another than for a topic's (KAFKA-13609).
            error = ErrorCode.INVALID_REQUEST
            problem = setting_problem(name, value, for_all=self.prefix == prefix_of(""))
        else:
            error, problem = ErrorCode.INVALID_CONFIG, config_problem(name, value)
        if problem is not None:
            raise _BadResource(error, problem)
        return trimmed(value, self.table[name].kind)

    def listed(self, name: str, value: str, *, appends: bool) -> str:
        """A setting that is a list, with values added or taken away. Raises _BadResource."""
        if self.table[name].kind != LIST:
            operation = "APPEND" if appends else "SUBTRACT"
            message = f"Can't {operation} to key {name} because its type is not LIST."
            raise _BadResource(ErrorCode.INVALID_CONFIG, message)
        held = [each for each in self.configs.get(name, self.table[name].default or "").split(",") if each]
        values = dict.fromkeys(value.split(","))
        if appends:
            return ",".join(dict.fromkeys([*held, *values]))
        return ",".join(each for each in held if each not in values)


def alter_configs(services: Services, call: Call, request: AlterConfigsRequest) -> Steps:
    """AlterConfigs: a topic or broker gets exactly these settings."""

    def altered(target: _Target, resource: AlterConfigsRequest.AlterConfigsResource) -> NewValues:
        configs: dict[str, str | None] = dict.fromkeys(target.configs)
        for config in resource.configs:
            configs[config.name] = target.value(config.name, config.value)
            yield
        return configs

    return _alter(services, call, request, altered, AlterConfigsResponse)


def incremental_alter_configs(services: Services, call: Call, request: IncrementalAlterConfigsRequest) -> Steps:
    """IncrementalAlterConfigs: one setting at a time."""

    def altered(target: _Target, resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> NewValues:
        configs: dict[str, str | None] = {}  # the request's only: another node may change the others
        for config in resource.configs:
            yield
            name = config.name
            if config.config_operation == DELETE:
                if name in target.table:
                    configs[name] = None
                continue
            value = target.value(name, config.value)
            if config.config_operation in {APPEND, SUBTRACT}:
                value = target.listed(name, value, appends=config.config_operation == APPEND)
            elif config.config_operation != SET:
                raise _BadResource(ErrorCode.INVALID_REQUEST, f"There is no operation {config.config_operation}.")
            configs[name] = target.value(name, value)
        return configs

    return _alter(services, call, request, altered, IncrementalAlterConfigsResponse)


def _alter(
    services: Services, call: Call, request: Any, altered: Callable[[_Target, Any], NewValues], answer_class: Any
) -> Steps:
    """Change each resource by itself; the answer waits until all changes are durable.

    altered: the settings of a target that a resource changes. answer_class: the response's.
    """
    counts = yield from count((resource.resource_type, resource.resource_name) for resource in request.resources)
    results = []
    changed: list[tuple[Altered, Any]] = []
    for resource in request.resources:
        result = answer_class.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        results.append(result)
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise _BadResource(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            target = yield from _alterable(services, call, resource)
            configs = yield from altered(target, resource)
            if target.prefix:
                configs = {target.prefix + name: value for name, value in configs.items()}
            changed.append((Altered(target.topic_id, configs=configs), result))
        except _BadResource as problem:
            result.error_code, result.error_message = problem.error, problem.message
        yield

    def answer(outcome: ChangeResult) -> None:
        call.work(_altered(call, answer_class(responses=results), [each for _, each in changed], outcome))

    if request.validate_only or not changed:
        answer({})
    else:
        change = Change(altered=[each for each, _ in changed])
        services.discovery.topics.change(change, call.reply(answer).deliver)


def _altered(call: Call, body: Any, changed: list[Any], outcome: ChangeResult) -> Steps:
    """Answer with `body`. changed: its results of the changes. outcome: of them."""
    if isinstance(outcome, EngineError):
        for result in changed:
            result.error_code, result.error_message = ErrorCode.KAFKA_STORAGE_ERROR, short(str(outcome))
            yield
    call.answer(body)


def _alterable(services: Services, call: Call, resource: Any) -> Generator[None, None, _Target]:
    """The topic or broker whose settings a resource changes. Raises _BadResource."""
    kind, name = resource.resource_type, resource.resource_name
    if kind in {BROKER_LOGGER, CLIENT_METRICS}:
        _check_right(services, call, Operation.ALTER_CONFIGS, kind, name)
        message = "Only settings of topics and brokers can be changed while the server runs."
        raise _BadResource(ErrorCode.INVALID_REQUEST, message)
    if kind not in {TOPIC, BROKER}:
        raise _BadResource(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    names = set()
    for config in resource.configs:
        names.add(config.name)
        yield
    if len(names) < len(resource.configs):
        raise _BadResource(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    topics = services.discovery.topics
    if kind == BROKER:
        if name:
            _check_node(services, name)
        _check_right(services, call, Operation.ALTER_CONFIGS, kind, name)
        changes = changes_of(topics.newest_entry(BROKERS).configs, services.config.node_id)
        configs = changes.node if name else changes.all_nodes
        return _Target(BROKERS.topic_id, prefix_of(name), configs, BROKER_SETTINGS)
    if not name:
        raise _BadResource(ErrorCode.INVALID_REQUEST, "Topics have no settings in common.")
    _check_right(services, call, Operation.ALTER_CONFIGS, kind, name)
    _check_topic_name(name)
    topic = topics.newest(name)
    if topic is None:
        raise _BadResource(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return _Target(topic.topic_id, "", topic.configs, TOPIC_CONFIGS)


def default_entries(services: Services) -> list[Entry]:
    """All settings of a topic that sets none."""
    changes, values = _changes(services), topic_defaults(services.config)
    return [
        Entry(
            name,
            values[name],
            setting.kind,
            values_of(services.start_config, changes, setting.broker) if setting.broker else (),
            setting.doc,
        )
        for name, setting in TOPIC_CONFIGS.items()
    ]


def topic_entries(topic: Topic, defaults: Sequence[Entry]) -> list[Entry]:
    """All settings of a topic, its own and the defaults."""
    configs = topic.configs
    return [_own(entry, configs[entry.name]) if entry.name in configs else entry for entry in defaults]


def _own(entry: Entry, value: str) -> Entry:
    """The setting of a topic that sets it itself."""
    return entry._replace(value=value, values=(Value(entry.name, value, TOPIC_CONFIG), *entry.values))


class CreatedConfigs:
    """All settings of topics as CreateTopics answers them (KIP-525). Defaults are the same objects for all topics."""

    def __init__(self, services: Services) -> None:
        self._defaults = [(entry, self._show(entry)) for entry in default_entries(services)]

    def of(self, topic: Topic) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
        """Those of one topic."""
        configs = topic.configs
        return [
            self._show(_own(entry, configs[entry.name])) if entry.name in configs else shown
            for entry, shown in self._defaults
        ]

    def _show(self, entry: Entry) -> CreateTopicsResponse.CreatableTopicConfigs:
        return CreateTopicsResponse.CreatableTopicConfigs(
            name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False
        )


def _shown(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    synonyms = []
    is_secret = entry.name in SECRETS
    if request.include_synonyms:
        synonyms = [
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=each.name, value=None if is_secret else each.value, source=each.source
            )
            for each in entry.values
        ]
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=None if is_secret else entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=is_secret,
        synonyms=synonyms,
        config_type=entry.kind,
        documentation=entry.doc if request.include_documentation else None,
    )
