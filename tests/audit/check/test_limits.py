"""The audit's default limits are a broker's defaults."""

from __future__ import annotations

from coordinator.audit.check.limits import Limits


def test_defaults_are_kafkas() -> None:
    """Each default is the one in Kafka's documentation, for example of group.max.session.timeout.ms."""
    week_ms, half_hour_ms, ten_minutes_ms, day_ms = 604_800_000, 1_800_000, 600_000, 86_400_000
    assert Limits() == (None, half_hour_ms, 10, week_ms, ten_minutes_ms, day_ms, 900_000, week_ms)
