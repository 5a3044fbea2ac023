"""Settings, under Kafka's names.

House rule: imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What the group core needs to know; the defaults are Kafka's (GroupCoordinatorConfig).

    fixes: tickets whose better rule is switched on, lower case ("kafka-12759"); see docs/decisions.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    group_initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    message_max_bytes: int = 1_048_588
    fixes: frozenset[str] = frozenset()
