"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: tools read settings, and change those of topics.

A broker's settings are those of coordinator.config. A topic's are its own and the defaults (nodes.topic_settings).
Groups have no settings, as in Kafka 3.9. Only a topic's settings can change while the server runs.

House rule: names, values and texts of settings come from the configuration; none is repeated here.
"""

from __future__ import annotations

from collections.abc import Generator
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
    from collections.abc import Callable

    from coordinator.config import Config
    from coordinator.server.nodes.topics import ChangeResult
    from coordinator.server.wire.call import Call, Services, Steps
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


Settings = Generator[None, None, dict[str, str]]
"""Makes settings by name, in steps."""

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
    shown: dict[tuple[Entry, bool], DescribeConfigsResponse.DescribeConfigsResourceResult] = {}
    entries_of: dict[tuple[int, str], list[Entry]] = {}
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
                entries = entries_of[kind, name] = _entries(services, kind, name)
        except _BadResource as problem:
            result.error_code = problem.error
            result.error_message = problem.message
            continue
        wanted = set(keys)
        for entry in entries:
            if not wanted or entry.name in wanted:
                is_broker = kind == BROKER
                one = shown.get((entry, is_broker))
                if one is None:
                    one = shown[entry, is_broker] = _shown(entry, call.api_version, request, read_only=is_broker)
                result.configs.append(one)
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


def alter_configs(services: Services, call: Call, request: AlterConfigsRequest) -> Steps:
    """AlterConfigs: a topic gets exactly these settings."""

    def altered(topic: Topic, resource: AlterConfigsRequest.AlterConfigsResource) -> Settings:  # noqa: ARG001
        configs = {}
        for config in resource.configs:
            configs[config.name] = _value(config.name, config.value)
            yield
        return configs

    return _alter(services, call, request, altered, AlterConfigsResponse)


def incremental_alter_configs(services: Services, call: Call, request: IncrementalAlterConfigsRequest) -> Steps:
    """IncrementalAlterConfigs: one setting at a time."""

    def altered(topic: Topic, resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> Settings:
        configs = dict(topic.configs)
        for config in resource.configs:
            yield
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

    return _alter(services, call, request, altered, IncrementalAlterConfigsResponse)


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
    values = dict.fromkeys(value.split(","))
    if appends:
        return ",".join(dict.fromkeys([*held, *values]))
    return ",".join(each for each in held if each not in values)


def _alter(
    services: Services, call: Call, request: Any, altered: Callable[[Topic, Any], Settings], answer_class: Any
) -> Steps:
    """Change each resource by itself; the answer waits until all changes are durable.

    altered: all settings of a topic after a resource's changes. answer_class: the response's.
    """
    counts = yield from count((resource.resource_type, resource.resource_name) for resource in request.resources)
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
            topic = yield from _alterable(services, resource)
            configs: dict[str, str | None] = dict.fromkeys(topic.configs)
            configs.update((yield from altered(topic, resource)))
            changed[topic.name] = Altered(topic.topic_id, configs=configs), result
        except _BadResource as problem:
            result.error_code, result.error_message = problem.error, problem.message
        yield

    def answer(outcome: ChangeResult) -> None:
        call.work(_altered(call, answer_class(responses=results), [each for _, each in changed.values()], outcome))

    if request.validate_only or not changed:
        answer({})
    else:
        change = Change(altered=[each for each, _ in changed.values()])
        services.discovery.topics.change(change, call.reply(answer).deliver)


def _altered(call: Call, body: Any, changed: list[Any], outcome: ChangeResult) -> Steps:
    """Answer with `body`. changed: its results of the changes. outcome: of them."""
    if isinstance(outcome, EngineError):
        for result in changed:
            result.error_code, result.error_message = ErrorCode.KAFKA_STORAGE_ERROR, short(str(outcome))
            yield
    call.answer(body)


def _alterable(services: Services, resource: Any) -> Generator[None, None, Topic]:
    """The topic whose settings a resource changes. Raises _BadResource."""
    if resource.resource_type in {BROKER, BROKER_LOGGER, CLIENT_METRICS}:
        message = "Only settings of topics can be changed while the server runs."
        raise _BadResource(ErrorCode.INVALID_REQUEST, message)
    if resource.resource_type != TOPIC:
        raise _BadResource(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    names = set()
    for config in resource.configs:
        names.add(config.name)
        yield
    if len(names) < len(resource.configs):
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


class CreatedConfigs:
    """All settings of topics as CreateTopics answers them (KIP-525). Settings that are alike are one object."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._shown: dict[Entry, CreateTopicsResponse.CreatableTopicConfigs] = {}

    def of(self, topic: Topic) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
        """Those of one topic."""
        return [self._shown.get(entry) or self._show(entry) for entry in topic_entries(self._config, topic)]

    def _show(self, entry: Entry) -> CreateTopicsResponse.CreatableTopicConfigs:
        shown = self._shown[entry] = CreateTopicsResponse.CreatableTopicConfigs(
            name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False
        )
        return shown


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
