"""The protocol name that wins a vote."""

from __future__ import annotations

import pytest

from coordinator.group.vote import trie_order, winner


def test_most_votes_win() -> None:
    """The order of the names doesn't matter."""
    assert winner({"roundrobin": 1, "range": 2}) == "range"
    assert winner({"range": 2, "roundrobin": 1}) == "range"


@pytest.mark.parametrize(
    ("one", "other", "first"),
    [
        ("range", "roundrobin", "roundrobin"),
        ("range", "sticky", "range"),
        ("range", "cooperative-sticky", "cooperative-sticky"),
        ("x", "y", "x"),
        ("a", "b", "a"),
    ],
)
def test_tie_falls_as_in_kafka(one: str, other: str, first: str) -> None:
    """The winner is Apache Kafka 3.9.1's, whatever the order of the members (tests/oracle compares it)."""
    assert winner({one: 1, other: 1}) == first
    assert winner({other: 1, one: 1}) == first


def test_names_of_one_hash_are_all_there() -> None:
    """Java hashes "Aa" and "BB" alike; the order keeps both."""
    assert sorted(trie_order(["Aa", "BB", "C"])) == ["Aa", "BB", "C"]
