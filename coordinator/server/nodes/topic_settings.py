"""The settings of a topic: their names, types, ranges and defaults, and what they mean for its logs.

All topic settings of Kafka 3.9 are here, so that tools can read and set them. `topic_limits` uses those that have an
effect in Tenure.

House rule: if the broker has a setting for all topics, its value is the topic's default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from coordinator.config import INT32_MAX, INT64_MAX, Config, settings
from coordinator.log.topics.list import Topic
from coordinator.log.topics.partition import Limits
from protocol.primitives import STRING_SIZE_MAX

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, PASSWORD = 1, 2, 3, 4, 5, 6, 7, 9
"""Config types."""


class Bound(NamedTuple):
    """A broker's setting that limits those of groups, and its default: Tenure has not all of them."""

    name: str
    default: int


class OwnSetting(NamedTuple):
    """A setting that a topic, or a group, may have of its own.

    default: Kafka's. kind: its config type. broker: the broker's setting for all of them, "" if there is none.
    doc: what it means. low: the smallest value, if not any number of the type will do. choices: the values that it, or
    each item of a list, can have; none: any value of the type. least, most: what a broker allows. is_internal: only a
    group that has it shows it.
    """

    default: str
    kind: int
    broker: str
    doc: str
    low: int | None = None
    choices: frozenset[str] = frozenset()
    least: Bound | None = None
    most: Bound | None = None
    is_internal: bool = False


_NEVER = str(INT64_MAX)
_UNUSED = "Has no effect here."

TOPIC_CONFIGS: dict[str, OwnSetting] = {
    "cleanup.policy": OwnSetting(
        "delete",
        LIST,
        "log.cleanup.policy",
        "delete: old segments are removed. compact: each key keeps its last record.",
        choices=frozenset({"compact", "delete"}),
    ),
    "compression.gzip.level": OwnSetting("-1", INT, "compression.gzip.level", _UNUSED),
    "compression.lz4.level": OwnSetting("9", INT, "compression.lz4.level", _UNUSED),
    "compression.type": OwnSetting(
        "producer",
        STRING,
        "compression.type",
        "Has no effect here: batches stay compressed as the producer sent them.",
        choices=frozenset({"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"}),
    ),
    "compression.zstd.level": OwnSetting("3", INT, "compression.zstd.level", _UNUSED),
    "delete.retention.ms": OwnSetting(
        "86400000",
        LONG,
        "log.cleaner.delete.retention.ms",
        "How long a tombstone stays after the first compaction that saw it.",
        0,
    ),
    "file.delete.delay.ms": OwnSetting("60000", LONG, "log.segment.delete.delay.ms", _UNUSED, 0),
    "flush.messages": OwnSetting(
        _NEVER, LONG, "log.flush.interval.messages", "Has no effect here: every append is flushed.", 1
    ),
    "flush.ms": OwnSetting(_NEVER, LONG, "log.flush.interval.ms", "Has no effect here: every append is flushed.", 0),
    "follower.replication.throttled.replicas": OwnSetting("", LIST, "", _UNUSED),
    "index.interval.bytes": OwnSetting("4096", INT, "log.index.interval.bytes", _UNUSED, 0),
    "leader.replication.throttled.replicas": OwnSetting("", LIST, "", _UNUSED),
    "local.retention.bytes": OwnSetting("-2", LONG, "log.local.retention.bytes", _UNUSED, -2),
    "local.retention.ms": OwnSetting("-2", LONG, "log.local.retention.ms", _UNUSED, -2),
    "max.compaction.lag.ms": OwnSetting(
        _NEVER, LONG, "log.cleaner.max.compaction.lag.ms", "How old a record may get before it must be compacted.", 1
    ),
    "max.message.bytes": OwnSetting("1048588", INT, "message.max.bytes", "The largest record batch.", 0),
    "message.downconversion.enable": OwnSetting("true", BOOLEAN, "log.message.downconversion.enable", _UNUSED),
    "message.format.version": OwnSetting("3.0-IV1", STRING, "log.message.format.version", _UNUSED),
    "message.timestamp.after.max.ms": OwnSetting(_NEVER, LONG, "log.message.timestamp.after.max.ms", _UNUSED, 0),
    "message.timestamp.before.max.ms": OwnSetting(_NEVER, LONG, "log.message.timestamp.before.max.ms", _UNUSED, 0),
    "message.timestamp.difference.max.ms": OwnSetting(
        _NEVER, LONG, "log.message.timestamp.difference.max.ms", _UNUSED, 0
    ),
    "message.timestamp.type": OwnSetting(
        "CreateTime",
        STRING,
        "log.message.timestamp.type",
        "CreateTime: a record has the producer's time. LogAppendTime: it gets the server's.",
        choices=frozenset({"CreateTime", "LogAppendTime"}),
    ),
    "min.cleanable.dirty.ratio": OwnSetting(
        "0.5",
        DOUBLE,
        "log.cleaner.min.cleanable.ratio",
        "A partition is compacted when more than this part of its closed segments has never been compacted.",
    ),
    "min.compaction.lag.ms": OwnSetting(
        "0", LONG, "log.cleaner.min.compaction.lag.ms", "How old a record must be before compaction may remove it.", 0
    ),
    "min.insync.replicas": OwnSetting("1", INT, "min.insync.replicas", _UNUSED, 1),
    "preallocate": OwnSetting("false", BOOLEAN, "log.preallocate", _UNUSED),
    "remote.log.copy.disable": OwnSetting("false", BOOLEAN, "", _UNUSED),
    "remote.log.delete.on.disable": OwnSetting("false", BOOLEAN, "", _UNUSED),
    "remote.storage.enable": OwnSetting("false", BOOLEAN, "", _UNUSED),
    "retention.bytes": OwnSetting(
        "-1", LONG, "log.retention.bytes", "How large a partition may get before its oldest segments go; -1: no limit."
    ),
    "retention.ms": OwnSetting("604800000", LONG, "log.retention.ms", "How long records stay; -1: for ever.", -1),
    "segment.bytes": OwnSetting(
        "1073741824", INT, "log.segment.bytes", "The size at which a segment is closed and a new one begins.", 14
    ),
    "segment.index.bytes": OwnSetting("10485760", INT, "log.index.size.max.bytes", _UNUSED, 4),
    "segment.jitter.ms": OwnSetting("0", LONG, "log.roll.jitter.ms", _UNUSED, 0),
    "segment.ms": OwnSetting(
        "604800000", LONG, "log.roll.ms", "The age of its first record at which a segment is closed.", 1
    ),
    "unclean.leader.election.enable": OwnSetting("false", BOOLEAN, "unclean.leader.election.enable", _UNUSED),
}
"""Every setting of a topic."""

TOPIC_CONFIG_OF = {setting.broker: name for name, setting in TOPIC_CONFIGS.items() if setting.broker}
"""The setting of a topic for which a broker's setting is the default."""


@lru_cache(maxsize=8)
def topic_defaults(config: Config) -> Mapping[str, str]:
    """The value that each setting has if the topic sets none."""
    stated = {
        TOPIC_CONFIG_OF[name]: str(setting.value_of(config))
        for name, setting in settings().items()
        if name in TOPIC_CONFIG_OF
    }
    return {name: setting.default for name, setting in TOPIC_CONFIGS.items()} | stated | dict(config.topic_defaults)


def topic_limits(config: Config, topic: Topic) -> Limits:
    """The limits of a topic's logs, from its settings."""
    from coordinator.log.topics.partition import Limits  # noqa: PLC0415 - for records only

    defaults = topic_defaults(config)

    def said(name: str) -> str:
        return trimmed(topic.configs.get(name, defaults[name]), TOPIC_CONFIGS[name].kind)

    policies = said("cleanup.policy").split(",")
    is_compacted = "compact" in policies
    segment_ms, max_lag_ms = int(said("segment.ms")), int(said("max.compaction.lag.ms"))
    return Limits(
        max_message_bytes=int(said("max.message.bytes")),
        segment_bytes=int(said("segment.bytes")),
        segment_ms=min(segment_ms, max_lag_ms) if is_compacted else segment_ms,
        retention_bytes=int(said("retention.bytes")),
        retention_ms=int(said("retention.ms")),
        is_compacted=is_compacted,
        is_deleted="delete" in policies,
        has_append_time=said("message.timestamp.type") == "LogAppendTime",
        min_cleanable_ratio=float(said("min.cleanable.dirty.ratio")),
        min_compaction_lag_ms=int(said("min.compaction.lag.ms")),
        max_compaction_lag_ms=max_lag_ms,
        delete_retention_ms=int(said("delete.retention.ms")),
    )


def trimmed(value: str, kind: int) -> str:
    """A value without the spaces around it, or around each item of a list: Kafka drops them when it reads a value."""
    if kind == LIST:
        return ",".join(each.strip() for each in value.split(","))
    return value.strip()


def config_problem(name: str, value: str | None) -> str | None:
    """The reason that a topic can't have this setting; None if it can."""
    if name not in TOPIC_CONFIGS:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    setting = TOPIC_CONFIGS[name]
    return value_problem(name, value, setting.kind, setting.low, setting.choices)


def value_problem(name: str, value: str, kind: int, low: int | None, choices: frozenset[str]) -> str | None:
    """The reason that a setting can't have this value; None if it can. kind, low, choices: as of OwnSetting."""
    if len(value.encode()) > STRING_SIZE_MAX:
        return f"Invalid value for configuration {name}: It has more than {STRING_SIZE_MAX} bytes"
    wrong = f"Invalid value {value} for configuration {name}"
    if kind in {INT, LONG}:
        high = INT64_MAX if kind == LONG else INT32_MAX
        if not re.fullmatch(r"[+-]?[0-9]{1,1000}", value.strip()) or not -high - 1 <= int(value) <= high:
            return f"{wrong}: Not a number of type {'LONG' if kind == LONG else 'INT'}"
        if low is not None and int(value) < low:
            return f"{wrong}: Value must be at least {low}"
    elif kind == BOOLEAN and value.strip().lower() not in {"true", "false"}:
        return f"{wrong}: Expected value to be either true or false"
    elif kind == DOUBLE and not re.fullmatch(r"0|0?\.[0-9]+|0\.[0-9]*|1|1\.0*", value.strip()):
        return f"{wrong}: Expected a number from 0 to 1"
    elif choices and not {each.strip() for each in value.split(",")} <= choices:
        return f"{wrong}: String must be one of: {', '.join(sorted(choices))}"
    return None
