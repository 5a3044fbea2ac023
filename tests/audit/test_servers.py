"""What real servers wrote for real clients is clean, and its history is what the clients did."""

from __future__ import annotations

import pytest

from coordinator.audit.audit import Options, Outcome, audit
from coordinator.audit.summary import summary
from tests.audit.conftest import PARTITION_COUNT, TOPIC, Script


@pytest.fixture(scope="module")
def outcome(script: Script) -> Outcome:
    """What is found in the log."""
    return audit(script.folder, None, Options(), lambda _done: None)


def test_nothing_is_found(outcome: Outcome) -> None:
    """A roll, a storm of a few rebalances, commits and a deletion are all in order."""
    assert outcome.findings == []
    assert outcome.notes == []
    assert set(outcome.records_by_type) == {"group_metadata", "offset_commit"}
    assert set(outcome.sizes) <= set(range(PARTITION_COUNT))


def test_roll_is_restarts_without_rebalances(outcome: Outcome, script: Script) -> None:
    """Each seat was taken by a new member once, in one generation."""
    told = summary(outcome)["groups"][script.roll]
    assert told["static_restarts"] == dict.fromkeys(script.seats, 1)
    assert (told["rebalances"], told["generation"], told["members"]) == (0, 1, len(script.seats))
    assert told["committed"] == {f"{TOPIC}-0": 10 + len(script.seats) - 1}


def test_storm_is_rebalances(outcome: Outcome, script: Script) -> None:
    """Two for each that came and went, and one for the end, after which the group is empty."""
    told = summary(outcome)["groups"][script.storm]
    count = 2 * script.storm_rounds + 1
    assert (told["rebalances"], told["generation"], told["members"]) == (count, count + 1, 0)
    assert told["causes"] == {"joined": script.storm_rounds, "left or expired": script.storm_rounds + 1}
    assert told["committed"] == {f"{TOPIC}-0": 7}


def test_deleted_group_is_told_of(outcome: Outcome, script: Script) -> None:
    """It has neither members nor offsets."""
    told = summary(outcome)["groups"][script.deleted]
    assert (told["deleted"], told["members"], told["committed"]) == (True, 0, {})


def test_window_is_the_time_of_the_script(outcome: Outcome, script: Script) -> None:
    """First and last record are in order and not far apart."""
    window = summary(outcome)["groups"][script.roll]["window"]
    assert 0 < window["last_ms"] - window["first_ms"] < 600_000
