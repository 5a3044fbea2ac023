"""DescribeConfigs: what consumer tools and administrators ask about settings.

A broker shows the settings of coordinator.config; a topic what it was created with and Kafka's defaults, although
nothing here depends on it; a group shows the two settings of the newer consumer protocol, as Kafka 3.9 does.

House rule: values come from the configuration; nothing is repeated here that stands there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.config import INT64_MAX, settings, topic_name_problem
from protocol.messages import CreateTopicsResponse, DescribeConfigsResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.config import Config
    from coordinator.log.topic_log import Limits
    from coordinator.log.topics import Topic
    from coordinator.server.call import Call, Services
    from protocol.messages import DescribeConfigsRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Resource types."""

TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5
"""Config sources."""

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""Config types."""


class Entry(NamedTuple):
    """One setting of a resource."""

    name: str
    value: str
    kind: int
    source: int = DEFAULT_CONFIG
    doc: str = ""


TOPIC_CONFIGS: dict[str, tuple[str, int]] = {
    "cleanup.policy": ("delete", LIST),
    "compression.gzip.level": ("-1", INT),
    "compression.lz4.level": ("9", INT),
    "compression.type": ("producer", STRING),
    "compression.zstd.level": ("3", INT),
    "delete.retention.ms": ("86400000", LONG),
    "file.delete.delay.ms": ("60000", LONG),
    "flush.messages": (str(INT64_MAX), LONG),
    "flush.ms": (str(INT64_MAX), LONG),
    "follower.replication.throttled.replicas": ("", LIST),
    "index.interval.bytes": ("4096", INT),
    "leader.replication.throttled.replicas": ("", LIST),
    "local.retention.bytes": ("-2", LONG),
    "local.retention.ms": ("-2", LONG),
    "max.compaction.lag.ms": (str(INT64_MAX), LONG),
    "max.message.bytes": ("1048588", INT),
    "message.downconversion.enable": ("true", BOOLEAN),
    "message.format.version": ("3.0-IV1", STRING),
    "message.timestamp.after.max.ms": (str(INT64_MAX), LONG),
    "message.timestamp.before.max.ms": (str(INT64_MAX), LONG),
    "message.timestamp.difference.max.ms": (str(INT64_MAX), LONG),
    "message.timestamp.type": ("CreateTime", STRING),
    "min.cleanable.dirty.ratio": ("0.5", DOUBLE),
    "min.compaction.lag.ms": ("0", LONG),
    "min.insync.replicas": ("1", INT),
    "preallocate": ("false", BOOLEAN),
    "remote.log.copy.disable": ("false", BOOLEAN),
    "remote.log.delete.on.disable": ("false", BOOLEAN),
    "remote.storage.enable": ("false", BOOLEAN),
    "retention.bytes": ("-1", LONG),
    "retention.ms": ("604800000", LONG),
    "segment.bytes": ("1073741824", INT),
    "segment.index.bytes": ("10485760", INT),
    "segment.jitter.ms": ("0", LONG),
    "segment.ms": ("604800000", LONG),
    "unclean.leader.election.enable": ("false", BOOLEAN),
}
"""What a topic may be configured with, and Kafka 3.9's defaults."""

GROUP_CONFIGS = (
    Entry("consumer.heartbeat.interval.ms", "5000", INT),
    Entry("consumer.session.timeout.ms", "45000", INT),
)


class _Refused(Exception):
    """A resource that can't be described."""

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
        except _Refused as refused:
            result.error_code = refused.error
            result.error_message = refused.message
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
            raise _Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        topic = services.discovery.topic(name)
        if topic is None:
            raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return topic_entries(services.config, topic)
    if resource_type in {BROKER, BROKER_LOGGER}:
        return _broker_entries(services.config, resource_type, name)
    if resource_type in {GROUP, CLIENT_METRICS}:
        if not name:
            raise _Refused(ErrorCode.INVALID_REQUEST, "The name must not be empty.")
        return list(GROUP_CONFIGS) if resource_type == GROUP else []
    raise _Refused(ErrorCode.INVALID_REQUEST, f"There are no resources of type {resource_type}.")


def _broker_entries(config: Config, resource_type: int, name: str) -> list[Entry]:
    if not name and resource_type == BROKER:
        return []  # what was set for all brokers at run time: nothing can be
    if name != str(config.node_id):
        raise _Refused(ErrorCode.INVALID_REQUEST, f"This is broker {config.node_id}, asked was '{name}'.")
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


def topic_defaults(config: Config) -> dict[str, tuple[str, int]]:
    """Value and kind of each of a topic's settings, where the topic says nothing."""
    return TOPIC_CONFIGS | {
        "max.message.bytes": (str(config.group.message_max_bytes), INT),
        "retention.bytes": (str(config.log_retention_bytes), LONG),
        "retention.ms": (str(config.log_retention_ms), LONG),
        "segment.bytes": (str(config.log_segment_bytes), INT),
        "segment.ms": (str(config.log_roll_ms), LONG),
    }


def topic_limits(config: Config, topic: Topic) -> Limits:
    """What a topic's configuration means for its logs."""
    from coordinator.log.topic_log import Limits  # noqa: PLC0415 - for records only

    defaults = topic_defaults(config)

    def said(name: str) -> str:
        return topic.configs.get(name, defaults[name][0])

    policies = said("cleanup.policy").split(",")
    return Limits(
        max_message_bytes=int(said("max.message.bytes")),
        segment_bytes=int(said("segment.bytes")),
        segment_ms=int(said("segment.ms")),
        retention_bytes=int(said("retention.bytes")),
        retention_ms=int(said("retention.ms")),
        is_compacted="compact" in policies,
        is_deleted="delete" in policies,
        has_append_time=said("message.timestamp.type") == "LogAppendTime",
    )


def topic_entries(config: Config, topic: Topic) -> list[Entry]:
    """What a topic is configured with."""
    defaults = topic_defaults(config)
    return [
        Entry(name, topic.configs[name], kind, TOPIC_CONFIG) if name in topic.configs else Entry(name, value, kind)
        for name, (value, kind) in defaults.items()
    ]


def created_configs(config: Config, topic: Topic) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    """The same as CreateTopics reports it (KIP-525)."""
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
    """A value as it would be written in a properties file."""
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
