"""The settings of a topic: defaults, their meaning for its logs, and values that are refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from coordinator.config import Config
from coordinator.log.topics.list import Topic
from coordinator.log.topics.partition import Limits
from coordinator.server.nodes.topic_settings import (
    LIST,
    LONG,
    TOPIC_CONFIGS,
    config_problem,
    topic_defaults,
    topic_limits,
    trimmed,
)


def limits(**configs: str) -> Limits:
    """The limits of a topic with these settings."""
    return topic_limits(
        Config(), Topic("t", UUID(int=1), 1, {name.replace("_", "."): v for name, v in configs.items()})
    )


def test_each_default_is_a_value_that_can_be_set() -> None:
    """By the type, the lowest value and the choices of its setting."""
    for name, setting in TOPIC_CONFIGS.items():
        assert config_problem(name, setting.default) is None


def test_the_servers_settings_are_the_topics_defaults() -> None:
    """If the server has a setting of the same meaning."""
    config = Config(log_retention_ms=5, log_retention_bytes=6, log_segment_bytes=1_000_000)
    assert topic_defaults(config)["retention.ms"] == "5"
    found = topic_limits(config, Topic("t", UUID(int=1), 1, {"retention.bytes": "7"}))
    assert (found.retention_ms, found.retention_bytes, found.segment_bytes) == (5, 7, 1_000_000)


def test_a_compacted_topic_closes_its_segments_in_time_for_its_compaction() -> None:
    """As in Kafka, max.compaction.lag.ms limits segment.ms, for a compacted topic only."""
    lag = {"segment_ms": "1000", "max_compaction_lag_ms": "10"}
    assert limits(**lag).segment_ms == 1000
    found = limits(cleanup_policy=" compact , delete ", **lag)
    assert (found.segment_ms, found.is_compacted, found.is_deleted) == (10, True, True)


def test_spaces_around_a_value_are_not_kept() -> None:
    """Nor spaces around the items of a list."""
    assert trimmed(" 5 ", LONG) == "5"
    assert trimmed(" compact , delete ", LIST) == "compact,delete"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("no.such", "1", "Unknown topic config name: no.such"),
        ("retention.ms", None, "Null value not supported"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("retention.ms", "soon", "Not a number of type LONG"),
        ("segment.bytes", str(2**31), "Not a number of type INT"),
        ("preallocate", "yes", "either true or false"),
        ("min.cleanable.dirty.ratio", "1.1", "a number from 0 to 1"),
        ("cleanup.policy", "compact,forget", "String must be one of: compact, delete"),
    ],
)
def test_what_can_not_be_set_is_said(name: str, value: str | None, said: str) -> None:
    """In Kafka's words."""
    assert said in (config_problem(name, value) or "")
