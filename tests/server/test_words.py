"""Entries of a timeline in plain words; whole timelines are told in tests/cli/test_explain.py."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.server.words import duration_text, entry_lines, fencing_text, time_text

ONE = {"client_id": "app-1", "client_host": "/10.0.0.1"}
TWO = {"client_id": "app-2", "client_host": "/10.0.0.2"}
FENCED: dict[str, Any] = {
    "type": "fencing", "at_ms": 0, "group_instance_id": "i-1", "member_id": "m-1", "current_member_id": "m-2",
    "client": ONE, "current_client": TWO, "kind": "conflict",
}  # fmt: skip


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (59_999, "60.0 s"), (61_500, "1 min 1 s")]
)
def test_durations(ms: int, text: str) -> None:
    """As a person says them."""
    assert duration_text(ms) == text


def test_times_stand_beside_log_lines() -> None:
    """In UTC, with milliseconds."""
    assert time_text(1_500) == "1970-01-01 00:00:01.500Z"


def test_a_conflict_names_both_parties_and_a_client_of_its_own_does_not() -> None:
    """Who it is nobody knows is said to be unknown."""
    assert fencing_text(FENCED) == (
        "conflict: two programs are i-1: m-1 (app-1 at 10.0.0.1) is fenced by m-2 (app-2 at 10.0.0.2)"
    )
    assert "came after it from the same client" in fencing_text(FENCED | {"kind": "self"})
    assert "(unknown)" in fencing_text(FENCED | {"client": None})


def test_a_static_restart_says_whether_it_cost_a_rebalance() -> None:
    """In its own line."""
    entry = {"type": "static_restart", "group_instance_id": "i-1", "member_id": "m-2", "rebalances": False, **ONE}
    assert list(entry_lines(entry)) == [
        "restart: static member i-1 is back as m-2 (app-1 at 10.0.0.1), and nothing moves"
    ]
    assert next(entry_lines(entry | {"rebalances": True})).endswith("and the group rebalances")


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("joined", "it was used"),
        ("lapsed", "it lapsed unused"),
        (None, "not used yet, lapses 1970-01-01 00:00:05.000Z"),
    ],
)
def test_a_member_id_that_was_given_out(outcome: str | None, words: str) -> None:
    """And what became of it."""
    entry = {"type": "pending", "member_id": "m-1", "outcome": outcome, "lapses_ms": 5_000, **ONE}
    assert list(entry_lines(entry)) == [f"member id given out: m-1 (app-1 at 10.0.0.1); {words}"]


def test_a_gap_says_how_much_is_missing() -> None:
    """And between which times."""
    (line,) = entry_lines({"type": "gap", "events": 1, "first_ms": 0, "last_ms": 1_000})
    assert line.startswith("gap: 1 event could not be kept between 1970-01-01 00:00:00.000Z and")
