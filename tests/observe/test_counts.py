"""The metrics of an observer have the names of a server's, and a bound on series."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from coordinator.observe.counts import Counts
from coordinator.site.site import exposition
from coordinator.story.counts import STORM_MIN
from tests.support.told import cause, told


def ended(group: str, generation: int, kind: str = "member_joined") -> Any:
    """The end of a rebalance."""
    return told(
        "rebalance_ended",
        group=group,
        generation=generation,
        causes=[cause(kind)],
        outcome="completed",
        began_ms=1_000 * generation,
    )


def text_of(counts: Counts) -> str:
    """The text of a scrape."""
    return exposition(list(counts.families()), "")[0].decode()


def test_causes_outcomes_and_returns_count() -> None:
    """A rebalance counts with its first cause; a return with whether it rebalanced, unless it came behind a load."""
    counts = Counts(3)
    counts.take([ended("a", 1), ended("a", 2, "unknown"), ended("b", 1)])
    back = told("member_replaced", group="a")
    counts.take([back, replace(back, after_load=True)])
    text = text_of(counts)
    for line in (
        'tenure_rebalances_total{cause="member_joined",source="inferred"} 2.0',
        'tenure_rebalances_total{cause="unknown",source="inferred"} 1.0',
        'tenure_rebalances_ended_total{outcome="completed"} 3.0',
        'tenure_static_restarts_total{rebalances="false"} 1.0',
        'tenure_group_rebalances_total{group="a"} 2.0',
        'tenure_group_generation{group="a"} 2.0',
        'tenure_group_rebalance_causes_total{cause="unknown",group="a"} 1.0',
        'tenure_group_static_restarts_total{group="a",rebalances="false"} 1.0',
        'tenure_group_static_restarts_total{group="b",rebalances="false"} 0.0',
        'tenure_group_storms_total{group="a"} 0.0',
        "tenure_storms_total 0.0",
    ):
        assert line in text.splitlines()


def test_series_are_bounded_and_given_back() -> None:
    """The first groups have series of their own, all others share one; a deleted group makes room."""
    counts = Counts(3)
    counts.take([ended(f"g{number}", 1) for number in range(8)])
    assert len(counts.by_group) == 4
    assert counts.by_group[""] == 5
    counts.take([told("group_deleted", group="g0"), ended("late", 1)])
    assert "late" in counts.by_group


def test_a_storm_counts_once() -> None:
    """Five rebalances within a minute are one storm, however long it goes on; after a pause another one may come."""
    counts = Counts(3)
    counts.take(ended("a", generation) for generation in range(STORM_MIN - 1))
    assert 'tenure_group_storms_total{group="a"} 0.0' in text_of(counts)
    counts.take(ended("a", generation) for generation in range(STORM_MIN - 1, 20))
    assert 'tenure_group_storms_total{group="a"} 1.0' in text_of(counts)
    counts.take(ended("a", generation) for generation in range(100, 100 + STORM_MIN))
    assert "tenure_storms_total 2.0" in text_of(counts)


def test_a_deleted_group_takes_no_storm_away() -> None:
    """A counter never falls: a scrape would take that for a restart."""
    counts = Counts(3)
    counts.take(ended("a", generation) for generation in range(STORM_MIN))
    assert "tenure_storms_total 1.0" in text_of(counts)
    counts.take([told("group_deleted", group="a")])
    assert "tenure_storms_total 1.0" in text_of(counts)


def test_a_group_without_a_name_takes_no_other_series_away() -> None:
    """Kafka once took the empty group id; the series of all other groups has it too, and stays."""
    counts = Counts(1)
    counts.take([ended("a", 1), ended("b", 1), ended("", 1)])
    counts.take([told("group_deleted", group="")])
    assert 'tenure_group_rebalances_total{group=""} 2.0' in text_of(counts)


def test_the_empty_group_id_counts_among_the_others() -> None:
    """It takes none of the series away."""
    counts = Counts(1)
    counts.take([ended("", 1), ended("a", 1)])
    assert counts.by_group == {"": 1, "a": 1}
