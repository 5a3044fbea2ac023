"""What the coordinators that wrote a log allow: the settings that a log doesn't tell and the checks depend on.

The defaults are those of coordinator.config, which are Kafka's.

House rule: imports nothing that is heavy, as the command line shows these defaults.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.config import Config, GroupConfig

REBALANCES_PER_HOUR_MAX = 10
"""A deployment of ten members that aren't static makes twice as many; a quiet group makes none."""

_GROUP = GroupConfig()
_LOG = Config()


class Limits(NamedTuple):
    """What a coordinator allows, times in ms.

    partition_count: offsets.topic.num.partitions, None if it isn't known. session_ms_max:
    group.max.session.timeout.ms. offsets_retention_ms: offsets.retention.minutes. offsets_check_ms: how often a
    coordinator looks for expired offsets, offsets.retention.check.interval.ms. delete_retention_ms: how long a
    tombstone stays, log.cleaner.delete.retention.ms.
    """

    partition_count: int | None = None
    session_ms_max: int = _GROUP.group_max_session_timeout_ms
    rebalances_per_hour_max: int = REBALANCES_PER_HOUR_MAX
    offsets_retention_ms: int = _GROUP.offsets_retention_ms
    offsets_check_ms: int = _LOG.offsets_retention_check_interval_ms
    delete_retention_ms: int = _LOG.log_cleaner_delete_retention_ms
