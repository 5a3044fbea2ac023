"""How the numbers of rebalances and returns are said."""

from __future__ import annotations

from collections import Counter

from coordinator.story.counts import REJOIN, RESTART, TAKEOVER, number_text, returns_text


def test_numbers_in_words() -> None:
    """One thing, several, and a lower bound."""
    assert number_text(1, "rebalance") == "1 rebalance"
    assert number_text(2_000, "rebalance", at_least=True) == "at least 2,000 rebalances"
    assert returns_text(Counter({RESTART: 4, REJOIN: 3, TAKEOVER: 1})) == (
        "4 static restarts, 3 rejoins after an outage, 1 takeover"
    )
    assert returns_text(Counter()) == ""
