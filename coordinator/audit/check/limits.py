"""The settings of the coordinators that wrote a log, as far as checks depend on them; a log doesn't contain them.

The defaults are those of coordinator.config, which are Kafka's.

House rule: this module imports nothing heavy, as the command line shows these defaults.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.config import Config, GroupConfig

REBALANCES_PER_HOUR_MAX = 10
"""A quiet group has none; a rollout of ten dynamic members makes twenty."""

_GROUP = GroupConfig()
_LOG = Config()


class Limits(NamedTuple):
    """Settings of the coordinators, times in ms.

    partition_count: offsets.topic.num.partitions; None if it isn't known. session_ms_max: group.max.session.timeout.ms.
    offsets_retention_ms: offsets.retention.minutes. offsets_check_ms: offsets.retention.check.interval.ms, how often a
    coordinator looks for expired offsets. delete_retention_ms: log.cleaner.delete.retention.ms, how long a tombstone
    stays. transaction_ms_max: transaction.max.timeout.ms. id_expiration_ms: transactional.id.expiration.ms.
    """

    partition_count: int | None = None
    session_ms_max: int = _GROUP.group_max_session_timeout_ms
    rebalances_per_hour_max: int = REBALANCES_PER_HOUR_MAX
    offsets_retention_ms: int = _GROUP.offsets_retention_ms
    offsets_check_ms: int = _LOG.offsets_retention_check_interval_ms
    delete_retention_ms: int = _LOG.log_cleaner_delete_retention_ms
    transaction_ms_max: int = _LOG.transaction_max_timeout_ms
    id_expiration_ms: int = _LOG.transactional_id_expiration_ms
