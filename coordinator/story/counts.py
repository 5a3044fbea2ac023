"""How many rebalances and returns of static members a group had: the one definition, for every view.

    rebalance   the group begins to prepare: its first generation too, and however the rebalance ends; in the consumer
                protocol, the group epoch grows while all members are at their target
    return      a static member's seat goes to a new member id. Each return is one of three:
        restart    the program came back, and takes its own seat
        takeover   the old member id is still in use: a second program took the seat
        rejoin     the first that the coordinator hears of the seat since it loaded the group: the client restarted, or
                   lost its session while no coordinator answered and joined again; only the client knows

A timeline has an entry for each (`entries`), so counts are numbers of entries. A view of all groups counts rebalances
from events (`rebalances`), because to make all entries would take long.

The log of groups has fewer facts: no rebalance that never got a generation, no kind of a return. Its numbers are lower
bounds, "at least" (`number_text`).

A storm is STORM_MIN rebalances of a group that began within STORM_MS. It is over once a minute has fewer of them.

House rule: a view that counts otherwise is wrong, and so is one that says other words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

RESTART, TAKEOVER, REJOIN, RETURN = "static_restart", "takeover", "static_rejoin", "static_return"
"""Types of entries about a return; RETURN where only the log of groups shows it, which has no kind of a return."""

NOUNS = {RESTART: "static restart", REJOIN: "rejoin after an outage", TAKEOVER: "takeover", RETURN: "return"}
"""The words for one of each."""

PLURALS = {RESTART: "static restarts", REJOIN: "rejoins after an outage", TAKEOVER: "takeovers", RETURN: "returns"}

STORM_MIN, STORM_MS = 5, 60_000

ABSENT_MS = 10_000
"""A client sends a heartbeat every 3 s by default, so it missed three of them. No member is away later."""


def is_storm(newest: Sequence[int], at_ms: int) -> bool:
    """Whether STORM_MIN rebalances are a storm at a time. newest: when they began, in order."""
    return len(newest) == STORM_MIN and newest[0] > at_ms - STORM_MS


def away_after_ms(session_timeout_ms: int) -> int:
    """The silence after which a member is away: two thirds of its session, ABSENT_MS at most.

    A client sends three heartbeats or more in a session, so it missed one. When the session ends, the seat is gone.
    """
    return min(session_timeout_ms * 2 // 3, ABSENT_MS)


def number_text(number: int, noun: str, plural: str = "", *, at_least: bool = False) -> str:
    """A number of things, with "at least" where the records can't show all."""
    what = noun if number == 1 else plural or f"{noun}s"
    return f"{'at least ' if at_least else ''}{number:,} {what}"


def returns_text(numbers: Counter[str]) -> str:
    """How many returns of each type there were; empty without any."""
    said = [number_text(numbers[kind], NOUNS[kind], PLURALS[kind]) for kind in NOUNS if numbers[kind]]
    return ", ".join(said)


def unknown_returns_text(number: int) -> str:
    """A number of returns that only the log of groups shows."""
    return f"{number_text(number, 'return', at_least=True)} (restarts, takeovers or rejoins: the log doesn't say which)"
