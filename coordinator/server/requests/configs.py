"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: tools read settings, and change those of topics.

A broker's settings are those of coordinator.config. A topic's are its own and the defaults (nodes.topic_settings).
Groups have no settings, as in Kafka 3.9. Only a topic's settings can change while the server runs.

House rule: names, values and texts of settings come from the configuration; none is repeated here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.config import INT64_MAX, settings, topic_name_problem
from coordinator.log.engine import EngineError
from coordinator.log.topics.list import Topic
from coordinator.server.nodes.topic_settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    config_problem,
    topic_defaults,
    trimmed,
)
from coordinator.server.nodes.topics import Altered, Change
from protocol.messages import (
    AlterConfigsResponse,
    CreateTopicsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.config import Config
    from coordinator.server.nodes.topics import ChangeResult
    from coordinator.server.wire.call import Call, Services
    from protocol.messages import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
"""Resource types. Kafka 3.9 has no settings for groups (32) yet."""

TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5
"""Config sources."""


class Entry(NamedTuple):
    """One setting of a resource."""

    name: str
    value: str
    kind: int
    source: int = DEFAULT_CONFIG
    doc: str = ""


SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""The operations of IncrementalAlterConfigs."""


class _BadResource(Exception):
    """A resource that can't be described, or a change that it can't have."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def describe_configs(services: Services, call: Call, request: DescribeConfigsRequest) -> None:
    """DescribeConfigs."""
    results = []
    for resource in request.resources:
        result = DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=""
        )
        try:
            entries = _entries(services, resource.resource_type, resource.resource_name)
        except _BadResource as problem:
            result.error_code = problem.error
            result.error_message = problem.message
        else:
            wanted = set(resource.configuration_keys or ())
            result.configs = [
                _shown(entry, call.api_version, request, read_only=resource.resource_type == BROKER)
                for entry in entries
                if not wanted or entry.name in wanted
            ]
        results.append(result)
    call.answer(DescribeConfigsResponse(results=results))


def _entries(services: Services, resource_type: int, name: str) -> list[Entry]:
    if resource_type == TOPIC:
        problem = topic_name_problem(name)
        if problem is not None:
            raise _BadResource(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        topic = services.discovery.topic(name)
        if topic is None:
            raise _BadResource(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return topic_entries(services.config, topic)
    if resource_type in {BROKER, BROKER_LOGGER}:
        return _broker_entries(services.config, resource_type, name)
    if resource_type == CLIENT_METRICS:
        if not name:
            raise _BadResource(ErrorCode.INVALID_REQUEST, "The name must not be empty.")
        return []
    raise _BadResource(ErrorCode.INVALID_REQUEST, f"There are no resources of type {resource_type}.")


def _broker_entries(config: Config, resource_type: int, name: str) -> list[Entry]:
    if not name and resource_type == BROKER:
        return []  # the settings of all brokers that were changed at run time: there are none
    if name != str(config.node_id):
        raise _BadResource(ErrorCode.INVALID_REQUEST, f"This is broker {config.node_id}, asked was '{name}'.")
    if resource_type == BROKER_LOGGER:
        return []
    return [
        Entry(
            setting.name,
            _text(setting.value_of(config)),
            _kind(setting.default, setting.high),
            STATIC_BROKER_CONFIG if setting.name in config.stated else DEFAULT_CONFIG,
            setting.doc,
        )
        for setting in settings().values()
    ]


def alter_configs(services: Services, call: Call, request: AlterConfigsRequest) -> None:
    """AlterConfigs: a topic gets exactly these settings."""

    def altered(topic: Topic, resource: AlterConfigsRequest.AlterConfigsResource) -> dict[str, str]:  # noqa: ARG001
        return {config.name: _value(config.name, config.value) for config in resource.configs}

    _alter(services, call, request, altered, AlterConfigsResponse)


def incremental_alter_configs(services: Services, call: Call, request: IncrementalAlterConfigsRequest) -> None:
    """IncrementalAlterConfigs: one setting at a time."""

    def altered(topic: Topic, resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> dict[str, str]:
        configs = dict(topic.configs)
        for config in resource.configs:
            name = config.name
            if config.config_operation == DELETE:
                configs.pop(name, None)
                continue
            value = _value(name, config.value)
            if config.config_operation in {APPEND, SUBTRACT}:
                value = _listed(services, topic, name, value, appends=config.config_operation == APPEND)
            elif config.config_operation != SET:
                raise _BadResource(ErrorCode.INVALID_REQUEST, f"There is no operation {config.config_operation}.")
            configs[name] = _value(name, value)
        return configs

    _alter(services, call, request, altered, IncrementalAlterConfigsResponse)


def _value(name: str, value: str | None) -> str:
    """Check a topic's setting; returns the value to keep. Raises _BadResource."""
    if value is None:
        raise _BadResource(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
    problem = config_problem(name, value)
    if problem is not None:
        raise _BadResource(ErrorCode.INVALID_CONFIG, problem)
    return trimmed(name, value)


def _listed(services: Services, topic: Topic, name: str, value: str, *, appends: bool) -> str:
    """A setting that is a list, with values added or taken away. Raises _BadResource."""
    default, kind = topic_defaults(services.config)[name]
    if kind != LIST:
        operation = "APPEND" if appends else "SUBTRACT"
        raise _BadResource(ErrorCode.INVALID_CONFIG, f"Can't {operation} to key {name} because its type is not LIST.")
    held = [each for each in topic.configs.get(name, default).split(",") if each]
    values = value.split(",")
    if appends:
        return ",".join(dict.fromkeys([*held, *values]))
    return ",".join(each for each in held if each not in values)


def _alter(
    services: Services, call: Call, request: Any, altered: Callable[[Topic, Any], dict[str, str]], answer_class: Any
) -> None:
    """Change each resource by itself; the answer waits until all changes are durable.

    altered: all settings of a topic after a resource's changes. answer_class: the response's.
    """
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    results = []
    changed: dict[str, tuple[Altered, Any]] = {}
    for resource in request.resources:
        result = answer_class.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        results.append(result)
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise _BadResource(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            topic = _alterable(services, resource)
            configs: dict[str, str | None] = dict.fromkeys(topic.configs)
            configs.update(altered(topic, resource))
            changed[topic.name] = Altered(topic.topic_id, configs=configs), result
        except _BadResource as problem:
            result.error_code, result.error_message = problem.error, problem.message

    def answer(outcome: ChangeResult) -> None:
        if isinstance(outcome, EngineError):
            for _, result in changed.values():
                result.error_code, result.error_message = ErrorCode.KAFKA_STORAGE_ERROR, str(outcome)
        call.answer(answer_class(responses=results))

    if request.validate_only or not changed:
        answer({})
    else:
        change = Change(altered=[each for each, _ in changed.values()])
        services.discovery.topics.change(change, call.reply(answer).deliver)


def _alterable(services: Services, resource: Any) -> Topic:
    """The topic whose settings a resource changes. Raises _BadResource."""
    if resource.resource_type in {BROKER, BROKER_LOGGER, CLIENT_METRICS}:
        message = "Only settings of topics can be changed while the server runs."
        raise _BadResource(ErrorCode.INVALID_REQUEST, message)
    if resource.resource_type != TOPIC:
        raise _BadResource(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise _BadResource(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    topic = services.discovery.topics.newest(resource.resource_name)
    if topic is None:
        message = f"The topic '{resource.resource_name}' does not exist."
        raise _BadResource(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return topic


def topic_entries(config: Config, topic: Topic) -> list[Entry]:
    """All settings of a topic, its own and the defaults."""
    defaults = topic_defaults(config)
    return [
        Entry(name, topic.configs[name], kind, TOPIC_CONFIG) if name in topic.configs else Entry(name, value, kind)
        for name, (value, kind) in defaults.items()
    ]


def created_configs(config: Config, topic: Topic) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    """All settings of a topic as CreateTopics answers them (KIP-525)."""
    return [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False
        )
        for entry in topic_entries(config, topic)
    ]


def _shown(
    entry: Entry, version: int, request: DescribeConfigsRequest, *, read_only: bool
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [
            DescribeConfigsResponse.DescribeConfigsSynonym(name=entry.name, value=entry.value, source=entry.source)
        ]
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=read_only,
        is_default=version == 0 and entry.source == DEFAULT_CONFIG,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=entry.kind,
        documentation=entry.doc if request.include_documentation else None,
    )


def _text(value: Any) -> str:
    """A value as a properties file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return str(value)
    if isinstance(value, tuple):
        return ",".join(
            ":".join(str(part) for part in item if part is not None)
            if isinstance(item, tuple) and not hasattr(item, "_fields")
            else str(item)
            for item in value
        )
    return str(value)


def _kind(default: Any, high: int | None) -> int:
    if isinstance(default, bool):
        return BOOLEAN
    if isinstance(default, int):
        return LONG if high == INT64_MAX else INT
    if isinstance(default, float):
        return DOUBLE
    return LIST if isinstance(default, tuple) else STRING
