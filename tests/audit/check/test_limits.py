"""What a broker allows where nobody says anything else."""

from __future__ import annotations

from coordinator.audit.check.limits import Limits


def test_defaults_are_kafkas() -> None:
    """As its documentation of group.max.session.timeout.ms and the others says."""
    week_ms, half_hour_ms, ten_minutes_ms, day_ms = 604_800_000, 1_800_000, 600_000, 86_400_000
    assert Limits() == (None, half_hour_ms, 10, week_ms, ten_minutes_ms, day_ms)
