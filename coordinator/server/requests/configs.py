"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: tools read and change settings of topics, brokers, groups.

ListConfigResources says which of them there are. A broker's settings are in nodes.broker_settings. A topic's are its
own and the defaults (nodes.topic_settings), which are a broker's. So are a group's (nodes.group_settings); it need not
exist.

House rule: names, values and texts of settings come from those tables; none is repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from coordinator.config import Config, Listener, served_listeners, topic_name_problem
from coordinator.log.topics.list import BROKERS, GROUPS, Topic
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
    limits_of_listeners,
    prefix_of,
    setting_problem,
    values_of,
    values_of_limit,
)
from coordinator.server.nodes.group_settings import (
    EXPECTED_IDS,
    GROUP_CONFIG,
    GROUP_CONFIGS,
    configs_of,
    default_of,
    group_of,
    group_problem,
    has_room,
    plain_text,
    text_problem,
    without_ids,
)
from coordinator.server.nodes.topic_settings import (
    LIST,
    TOPIC_CONFIGS,
    OwnSetting,
    config_problem,
    topic_defaults,
    trimmed,
)
from coordinator.server.nodes.topics import Altered, Change
from coordinator.server.requests.many import Refused, answer_changed, refuse_all
from coordinator.server.requests.rights import may
from coordinator.server.wire.call import Call, Steps, count
from protocol.messages import (
    AlterConfigsResponse,
    CreateTopicsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import (
        AlterConfigsRequest,
        DescribeConfigsRequest,
        IncrementalAlterConfigsRequest,
        ListConfigResourcesRequest,
    )

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Resource types."""

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


def describe_configs(call: Call, request: DescribeConfigsRequest) -> Steps:
    """DescribeConfigs. Resources that are alike share one result, and entries that are alike one object."""
    results = []
    known: dict[tuple[int, str, tuple[str, ...]], DescribeConfigsResponse.DescribeConfigsResult] = {}
    shown: dict[Entry, DescribeConfigsResponse.DescribeConfigsResourceResult] = {}
    entries_of: dict[tuple[int, str], list[Entry]] = {}
    defaults = {TOPIC: _default_entries(call)}
    yield
    defaults[GROUP] = _default_group_entries(call)
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
                entries = entries_of[kind, name] = _entries(call, kind, name, defaults)
        except Refused as problem:
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


def _entries(call: Call, resource_type: int, name: str, defaults: Mapping[int, Sequence[Entry]]) -> list[Entry]:
    """The settings of a resource. defaults: by type, those of a topic or group that sets none. Raises Refused."""
    _check_right(call, Operation.DESCRIBE_CONFIGS, resource_type, name)
    if resource_type == TOPIC:
        _check_topic_name(name)
        topic = call.services.discovery.topic(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return _with_own(topic.configs, defaults[TOPIC], TOPIC_CONFIG)
    if resource_type == GROUP:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        configs = configs_of(call.services.discovery.topics.entry(GROUPS).configs, name)
        entries = _with_own(configs, defaults[GROUP], GROUP_CONFIG)
        return [entry for entry in entries if entry.name in configs or not GROUP_CONFIGS[entry.name].is_internal]
    if resource_type in {BROKER, BROKER_LOGGER}:
        if resource_type == BROKER_LOGGER or name:
            _check_node(call, name)
        return [] if resource_type == BROKER_LOGGER else _broker_entries(call, for_all=not name)
    if resource_type == CLIENT_METRICS:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "The name must not be empty.")
        return []
    raise Refused(ErrorCode.INVALID_REQUEST, f"There are no resources of type {resource_type}.")


def _check_topic_name(name: str) -> None:
    """Raise Refused if no topic can have this name."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def _check_right(call: Call, operation: Operation, resource_type: int, name: str) -> None:
    """Raise Refused if the client may not do this to the settings of a resource."""
    if resource_type == TOPIC:
        if not may(call, operation, Kind.TOPIC, name):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif resource_type == GROUP:
        if not may(call, operation, Kind.GROUP, name):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    elif resource_type in ON_CLUSTER and not may(call, operation, Kind.CLUSTER):
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def _check_node(call: Call, name: str) -> None:
    """Raise Refused unless this is the node of that name."""
    if name != str(call.services.config.node_id):
        raise Refused(ErrorCode.INVALID_REQUEST, f"This is broker {call.services.config.node_id}, asked was '{name}'.")


def _broker_entries(call: Call, *, for_all: bool) -> list[Entry]:
    """All settings of this node; for_all: those that were changed for all nodes."""
    changes = _changes(call)
    if for_all:
        changes = Changes({}, changes.all_nodes)
    config = _addressed(call)
    entries = []
    for name, setting in BROKER_SETTINGS.items():
        if not for_all or name in changes.all_nodes:
            values = values_of(config, changes, name)
            value = values[0].value if values else None
            if for_all:
                values = values[:1]
            entries.append(Entry(name, value, setting.kind, values, setting.doc, is_read_only(name)))
    for name, limit in limits_of_listeners(config).items():
        values = values_of_limit(config, changes, name, limit)
        if values and (not for_all or name in changes.all_nodes):
            setting = BROKER_SETTINGS[limit]
            shown = values[:1] if for_all else values
            # Kafka, too, lets them be changed and says that they are read-only.
            entries.append(Entry(name, values[0].value, setting.kind, shown, setting.doc, is_read_only=True))
    return entries


def _changes(call: Call) -> Changes:
    return changes_of(call.services.discovery.topics.entry(BROKERS).configs, call.services.config.node_id)


def _addressed(call: Call) -> Config:
    """The configuration at the start, with the addresses and protocols that it leaves open as they are."""
    config, listeners = call.services.start_config, served_listeners(call.services.start_config)
    if "advertised.listeners" not in config.stated:
        nodes = [call.services.discovery.node(config.node_id, call, listener.name) for listener in listeners]
        advertised = [Listener(each.name, node.host, node.port) for each, node in zip(listeners, nodes, strict=True)]
        config = replace(config, advertised_listeners=tuple(advertised))
    if "listener.security.protocol.map" not in config.stated:
        protocols = tuple((each.name, config.security_protocol(each.name)) for each in listeners)
        config = replace(config, listener_security_protocol_map=protocols)
    return config


class _Target(NamedTuple):
    """A topic, a group, or one or all brokers, whose settings change.

    kind: the resource's type. topic_id: the topic's, or that of an entry (nodes.topics.ENTRIES). prefix: of the names
    there. configs: its own settings. table: all settings that it can have. limits: of a broker's listeners, with the
    broker's settings of the same meaning.
    """

    kind: int
    topic_id: UUID
    prefix: str
    configs: Mapping[str, str]
    table: Mapping[str, OwnSetting] | Mapping[str, BrokerSetting]
    limits: Mapping[str, str] = MappingProxyType({})

    def value(self, name: str, value: str | None) -> str:
        """Check a setting; returns the value to keep. Raises Refused."""
        if value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        if self.kind == GROUP:
            error, problem = ErrorCode.INVALID_CONFIG, text_problem(name, value)
        elif self.kind == BROKER:
            # Kafka's code for a broker's wrong value is another than for a topic's (KAFKA-13609).
            error = ErrorCode.INVALID_REQUEST
            problem = setting_problem(name, value, self.limits, for_all=self.prefix == prefix_of(""))
        else:
            error, problem = ErrorCode.INVALID_CONFIG, config_problem(name, value)
        if problem is not None:
            raise Refused(error, problem)
        return plain_text(name, value) if self.kind == GROUP else trimmed(value, self.table[name].kind)

    def listed(self, name: str, value: str, *, appends: bool) -> str:
        """A setting that is a list, with values added or taken away. Raises Refused."""
        if self.table[name].kind != LIST:
            operation = "APPEND" if appends else "SUBTRACT"
            message = f"Can't {operation} to key {name} because its type is not LIST."
            raise Refused(ErrorCode.INVALID_CONFIG, message)
        held = [each for each in self.configs.get(name, self.table[name].default or "").split(",") if each]
        values = dict.fromkeys(value.split(","))
        if appends:
            return ",".join(dict.fromkeys([*held, *values]))
        if name == EXPECTED_IDS:
            return without_ids(",".join(held), value)
        return ",".join(each for each in held if each not in values)

    def check(self, config: Config, changed: Mapping[str, str | None]) -> None:
        """Check all settings together, after a change. Raises Refused."""
        if self.kind == GROUP:
            after = {name: value for name, value in {**self.configs, **changed}.items() if value is not None}
            problem = group_problem(config, after)
            if problem is not None:
                raise Refused(ErrorCode.INVALID_CONFIG, problem)


LISTED = {0: (CLIENT_METRICS,), 1: (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)}
"""The types that each version of ListConfigResources knows, in the order of its answer."""


def list_config_resources(call: Call, request: ListConfigResourcesRequest) -> Steps:
    """ListConfigResources: groups that have settings of their own, and all topics and brokers."""
    listed = LISTED[call.api_version]
    wanted = set(request.resource_types or listed)
    body = ListConfigResourcesResponse()
    if not may(call, Operation.DESCRIBE_CONFIGS, Kind.CLUSTER):
        body.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif not wanted.issubset(listed):
        body.error_code = ErrorCode.UNSUPPORTED_VERSION
    else:
        for kind in listed:
            for name in _names_of(call, kind) if kind in wanted else ():
                if name is not None:
                    found = ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
                    body.config_resources.append(found)
                yield
    call.answer(body)


def _names_of(call: Call, resource_type: int) -> Iterator[str | None]:
    """The names of all resources of a type; None where a name was there already. There are no client metrics."""
    if resource_type == GROUP:
        found: set[str] = set()
        for name in call.services.discovery.topics.entry(GROUPS).configs:
            group_id = group_of(name)
            yield None if group_id in found else group_id
            found.add(group_id)
    elif resource_type == TOPIC:
        for topic in list(call.services.discovery.all_topics()):
            yield topic.name
    elif resource_type in {BROKER, BROKER_LOGGER}:
        for node in call.services.discovery.nodes(call):
            yield str(node.node_id)


def alter_configs(call: Call, request: AlterConfigsRequest) -> Steps:
    """AlterConfigs: a resource gets exactly these settings."""

    def altered(target: _Target, resource: AlterConfigsRequest.AlterConfigsResource) -> NewValues:
        configs: dict[str, str | None] = dict.fromkeys(target.configs)
        for config in resource.configs:
            configs[config.name] = target.value(config.name, config.value)
            yield
        return configs

    return _alter(call, request, altered, AlterConfigsResponse)


def incremental_alter_configs(call: Call, request: IncrementalAlterConfigsRequest) -> Steps:
    """IncrementalAlterConfigs: one setting at a time."""

    def altered(target: _Target, resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> NewValues:
        configs: dict[str, str | None] = {}  # the request's only: another node may change the others
        for config in resource.configs:
            yield
            name = config.name
            if config.config_operation == DELETE:
                if name in target.table or name in target.configs:
                    configs[name] = None
                continue
            value = target.value(name, config.value)
            if config.config_operation in {APPEND, SUBTRACT}:
                value = target.listed(name, value, appends=config.config_operation == APPEND)
            elif config.config_operation != SET:
                raise Refused(ErrorCode.INVALID_REQUEST, f"There is no operation {config.config_operation}.")
            configs[name] = target.value(name, value)
        return configs

    return _alter(call, request, altered, IncrementalAlterConfigsResponse)


def _alter(call: Call, request: Any, altered: Callable[[_Target, Any], NewValues], answer_class: Any) -> Steps:
    """Change each resource by itself; the answer waits until all changes are durable.

    altered: the settings of a target that a resource changes. answer_class: the response's.
    """
    counts = yield from count((resource.resource_type, resource.resource_name) for resource in request.resources)
    topics = call.services.discovery.topics
    groups: Mapping[str, str] | None = None
    results = []
    accepted: list[Any] = []
    of_groups: list[Any] = []
    changed: dict[UUID, dict[str, str | None]] = {}
    removed: set[str] = set()
    for resource in request.resources:
        result = answer_class.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        results.append(result)
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if resource.resource_type == GROUP and groups is None:
                groups = topics.newest_entry(GROUPS).configs
            target = yield from _alterable(call, resource, groups or {})
            configs = yield from altered(target, resource)
            target.check(call.services.config, configs)
            named = {target.prefix + name: value for name, value in configs.items()}
            changed.setdefault(target.topic_id, {}).update(named)
            removed.update(name for name, value in named.items() if value is None)
            (of_groups if target.kind == GROUP else accepted).append(result)
        except Refused as problem:
            result.error_code, result.error_message = problem.error, problem.message
        yield
    if not has_room(groups or {}, changed.get(GROUPS.topic_id, {}), removed):
        yield from refuse_all(of_groups, ErrorCode.POLICY_VIOLATION, "The settings of all groups are too many.")
        del changed[GROUPS.topic_id]
    else:
        accepted += of_groups
    change = Change(altered=[Altered(topic_id, configs=configs) for topic_id, configs in changed.items()])
    is_change = bool(changed) and not request.validate_only
    body = answer_class(responses=results)
    yield from answer_changed(call, change if is_change else None, body, accepted)


def _alterable(call: Call, resource: Any, groups: Mapping[str, str]) -> Generator[None, None, _Target]:
    """The topic, group or broker whose settings a resource changes. groups: GROUPS. Raises Refused."""
    kind, name = resource.resource_type, resource.resource_name
    if kind in {BROKER_LOGGER, CLIENT_METRICS}:
        _check_right(call, Operation.ALTER_CONFIGS, kind, name)
        message = "Only settings of topics, groups and brokers can be changed while the server runs."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    if kind not in {TOPIC, BROKER, GROUP}:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    names = set()
    for config in resource.configs:
        names.add(config.name)
        yield
    if len(names) < len(resource.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    topics = call.services.discovery.topics
    if kind == BROKER:
        if name:
            _check_node(call, name)
        _check_right(call, Operation.ALTER_CONFIGS, kind, name)
        changes = changes_of(topics.newest_entry(BROKERS).configs, call.services.config.node_id)
        configs = changes.node if name else changes.all_nodes
        limits = limits_of_listeners(call.services.config)
        table = {**BROKER_SETTINGS, **{each: BROKER_SETTINGS[limit] for each, limit in limits.items()}}
        return _Target(kind, BROKERS.topic_id, prefix_of(name), configs, table, limits)
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Topics and groups have no settings in common.")
    _check_right(call, Operation.ALTER_CONFIGS, kind, name)
    if kind == GROUP:
        return _Target(kind, GROUPS.topic_id, prefix_of(name), configs_of(groups, name), GROUP_CONFIGS)
    _check_topic_name(name)
    topic = topics.newest(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return _Target(kind, topic.topic_id, "", topic.configs, TOPIC_CONFIGS)


def _default_entries(call: Call) -> list[Entry]:
    """All settings of a topic that sets none."""
    changes, values = _changes(call), topic_defaults(call.services.config)
    return [
        Entry(
            name,
            values[name],
            setting.kind,
            values_of(call.services.start_config, changes, setting.broker) if setting.broker else (),
            setting.doc,
        )
        for name, setting in TOPIC_CONFIGS.items()
    ]


def _default_group_entries(call: Call) -> list[Entry]:
    """All settings of a group that sets none, internal ones too."""
    changes, entries = _changes(call), []
    for name, setting in GROUP_CONFIGS.items():
        if setting.broker in BROKER_SETTINGS:
            values = values_of(call.services.start_config, changes, setting.broker)
        else:
            values = (Value(setting.broker or name, setting.default, DEFAULT_CONFIG),)
        entries.append(Entry(name, default_of(call.services.config, name), setting.kind, values, setting.doc))
    return entries


def _with_own(configs: Mapping[str, str], defaults: Sequence[Entry], source: int) -> list[Entry]:
    """The entries, with the settings that a topic or group has itself."""
    return [_own(entry, configs[entry.name], source) if entry.name in configs else entry for entry in defaults]


def _own(entry: Entry, value: str, source: int) -> Entry:
    """A setting that a topic or group has itself."""
    return entry._replace(value=value, values=(Value(entry.name, value, source), *entry.values))


class CreatedConfigs:
    """All settings of topics as CreateTopics answers them (KIP-525). Defaults are the same objects for all topics."""

    def __init__(self, call: Call) -> None:
        self._defaults = [(entry, self._show(entry)) for entry in _default_entries(call)]

    def of(self, topic: Topic) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
        """The settings of one topic."""
        configs = topic.configs
        return [
            self._show(_own(entry, configs[entry.name], TOPIC_CONFIG)) if entry.name in configs else shown
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
