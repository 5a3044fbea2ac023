"""The settings of a topic: their names, types, ranges and defaults, and what they mean for its logs.

All topic settings of Kafka 3.9 are here, so that tools can read and set them. `topic_limits` uses those that have an
effect in Tenure.

House rule: if the broker has a setting for all topics, its value is the topic's default.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from coordinator.config import INT32_MAX, INT64_MAX
from protocol.primitives import STRING_SIZE_MAX

if TYPE_CHECKING:
    from coordinator.config import Config
    from coordinator.log.topics.list import Topic
    from coordinator.log.topics.partition import Limits

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""Config types."""

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
"""Every setting of a topic: Kafka 3.9's default, and the type."""

CHOICES = {
    "cleanup.policy": {"compact", "delete"},
    "compression.type": {"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}
"""The values that these settings, or the items of a list, can have."""

LOWEST = {
    "delete.retention.ms": 0,
    "max.compaction.lag.ms": 1,
    "max.message.bytes": 0,
    "min.compaction.lag.ms": 0,
    "min.insync.replicas": 1,
    "retention.ms": -1,
    "segment.bytes": 14,
    "segment.ms": 1,
}
"""The smallest values of settings with an effect here that can't be just any number of their type."""


def topic_defaults(config: Config) -> dict[str, tuple[str, int]]:
    """The value that each setting has if the topic sets none, and its type."""
    return TOPIC_CONFIGS | {
        "delete.retention.ms": (str(config.log_cleaner_delete_retention_ms), LONG),
        "max.message.bytes": (str(config.group.message_max_bytes), INT),
        "min.cleanable.dirty.ratio": (str(config.log_cleaner_min_cleanable_ratio), DOUBLE),
        "min.compaction.lag.ms": (str(config.log_cleaner_min_compaction_lag_ms), LONG),
        "retention.bytes": (str(config.log_retention_bytes), LONG),
        "retention.ms": (str(config.log_retention_ms), LONG),
        "segment.bytes": (str(config.log_segment_bytes), INT),
        "segment.ms": (str(config.log_roll_ms), LONG),
    }


def topic_limits(config: Config, topic: Topic) -> Limits:
    """The limits of a topic's logs, from its settings."""
    from coordinator.log.topics.partition import Limits  # noqa: PLC0415 - for records only

    defaults = topic_defaults(config)

    def said(name: str) -> str:
        return trimmed(name, topic.configs.get(name, defaults[name][0]))

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


def trimmed(name: str, value: str) -> str:
    """A value without the spaces around it, or around each item of a list: Kafka drops them when it reads a value."""
    if TOPIC_CONFIGS[name][1] == LIST:
        return ",".join(each.strip() for each in value.split(","))
    return value.strip()


def config_problem(name: str, value: str | None) -> str | None:
    """The reason that a topic can't have this setting; None if it can."""
    if name not in TOPIC_CONFIGS:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    if len(value.encode()) > STRING_SIZE_MAX:
        return f"Invalid value for configuration {name}: It has more than {STRING_SIZE_MAX} bytes"
    kind = TOPIC_CONFIGS[name][1]
    wrong = f"Invalid value {value} for configuration {name}"
    if kind in {INT, LONG}:
        high = INT64_MAX if kind == LONG else INT32_MAX
        if not re.fullmatch(r"[+-]?[0-9]{1,1000}", value.strip()) or not -high - 1 <= int(value) <= high:
            return f"{wrong}: Not a number of type {'LONG' if kind == LONG else 'INT'}"
        if int(value) < LOWEST.get(name, -high - 1):
            return f"{wrong}: Value must be at least {LOWEST[name]}"
    elif kind == BOOLEAN and value.strip().lower() not in {"true", "false"}:
        return f"{wrong}: Expected value to be either true or false"
    elif kind == DOUBLE and not re.fullmatch(r"0|0?\.[0-9]+|0\.[0-9]*|1|1\.0*", value.strip()):
        return f"{wrong}: Expected a number from 0 to 1"
    elif name in CHOICES and not {each.strip() for each in value.split(",")} <= CHOICES[name]:
        return f"{wrong}: String must be one of: {', '.join(sorted(CHOICES[name]))}"
    return None
