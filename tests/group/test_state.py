"""The table of states, and the answer to each request in each state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.group.group import Group
from coordinator.group.state import NEXT, State
from schemas.errors import ErrorCode
from tests.group.harness import INITIAL_DELAY_MS, Bench, Call, Peer

WAITS = None
"""Expects that a request has no answer yet."""


def empty() -> tuple[Bench, Peer]:
    """A group whose last member left; the peer still has its old ids."""
    bench = Bench()
    peer = bench.dynamic("a")
    bench.settle(peer)
    bench.leave(members=[(peer.member_id, None)])
    return bench, peer


def preparing() -> tuple[Bench, Peer]:
    """A group that waits for the peer to rejoin, because another member joined."""
    bench = Bench()
    peer = bench.dynamic("a")
    bench.settle(peer)
    bench.dynamic("b").enter()
    return bench, peer


def completing() -> tuple[Bench, Peer]:
    """A group in its new generation; the peer is a follower, and the leader has not synced."""
    bench = Bench()
    leader, peer = bench.dynamic("a"), bench.dynamic("b")
    for each in (leader, peer):
        each.enter()
    bench.advance(2 * INITIAL_DELAY_MS)
    assert leader.leads
    return bench, peer


def stable() -> tuple[Bench, Peer]:
    """A Stable group; the peer is a follower."""
    bench = Bench()
    leader, peer = bench.dynamic("a"), bench.dynamic("b")
    bench.settle(leader, peer)
    assert not peer.leads
    return bench, peer


def dead() -> tuple[Bench, Peer]:
    """A group whose partition was unloaded."""
    bench, peer = stable()
    bench.unload()
    return bench, peer


GROUPS = {
    State.EMPTY: empty,
    State.PREPARING_REBALANCE: preparing,
    State.COMPLETING_REBALANCE: completing,
    State.STABLE: stable,
    State.DEAD: dead,
}

REQUESTS: dict[str, Callable[[Peer], Call[Any]]] = {
    "join": lambda peer: peer.join(),
    "sync": lambda peer: peer.sync(),
    "heartbeat": lambda peer: peer.heartbeat(),
    "leave": lambda peer: peer.leave(),
    "commit": lambda peer: peer.commit(7),
}

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
NONE = ErrorCode.NONE

ANSWERS: list[tuple[State, str, ErrorCode | None, State]] = [
    (State.EMPTY, "join", UNKNOWN, State.EMPTY),
    (State.EMPTY, "sync", UNKNOWN, State.EMPTY),
    (State.EMPTY, "heartbeat", UNKNOWN, State.EMPTY),
    (State.EMPTY, "leave", UNKNOWN, State.EMPTY),
    (State.EMPTY, "commit", UNKNOWN, State.EMPTY),
    # The group waited for this member only.
    (State.PREPARING_REBALANCE, "join", NONE, State.COMPLETING_REBALANCE),
    (State.PREPARING_REBALANCE, "sync", IN_PROGRESS, State.PREPARING_REBALANCE),
    (State.PREPARING_REBALANCE, "heartbeat", IN_PROGRESS, State.PREPARING_REBALANCE),
    (State.PREPARING_REBALANCE, "leave", NONE, State.COMPLETING_REBALANCE),
    (State.PREPARING_REBALANCE, "commit", NONE, State.PREPARING_REBALANCE),
    (State.COMPLETING_REBALANCE, "join", NONE, State.COMPLETING_REBALANCE),
    (State.COMPLETING_REBALANCE, "sync", WAITS, State.COMPLETING_REBALANCE),
    (State.COMPLETING_REBALANCE, "heartbeat", NONE, State.COMPLETING_REBALANCE),
    (State.COMPLETING_REBALANCE, "leave", NONE, State.PREPARING_REBALANCE),
    (State.COMPLETING_REBALANCE, "commit", IN_PROGRESS, State.COMPLETING_REBALANCE),
    (State.STABLE, "join", NONE, State.STABLE),
    (State.STABLE, "sync", NONE, State.STABLE),
    (State.STABLE, "heartbeat", NONE, State.STABLE),
    (State.STABLE, "leave", NONE, State.PREPARING_REBALANCE),
    (State.STABLE, "commit", NONE, State.STABLE),
    (State.DEAD, "join", NOT_AVAILABLE, State.DEAD),
    (State.DEAD, "sync", NOT_AVAILABLE, State.DEAD),
    (State.DEAD, "heartbeat", NOT_AVAILABLE, State.DEAD),
    (State.DEAD, "leave", NOT_AVAILABLE, State.DEAD),
    (State.DEAD, "commit", NOT_AVAILABLE, State.DEAD),
]
"""The answer to a follower's request in each state, and the state afterwards."""


def error_of(call: Call[Any]) -> ErrorCode | None:
    """The error code of an answer, wherever its message has it; None while the request waits."""
    if call.waits:
        return WAITS
    body = call.response
    rows = getattr(body, "members", None) if hasattr(body, "members") and not hasattr(body, "generation_id") else None
    if hasattr(body, "topics") or (rows and not body.error_code):
        return call.errors[0]
    return call.error


@pytest.mark.parametrize(("before", "request_name", "expected", "after"), ANSWERS)
def test_each_request_in_each_state(before: State, request_name: str, expected: ErrorCode | None, after: State) -> None:
    """A follower of the current generation gets the answer, and the group the state, of the table ANSWERS."""
    bench, peer = GROUPS[before]()
    assert bench.group().state is before
    call = REQUESTS[request_name](peer)
    assert error_of(call) is expected
    assert bench.group().state is after


def test_the_tables_cover_every_state_and_request() -> None:
    """The table ANSWERS has a row for each state of the classic protocol."""
    states = {state for state in State if state not in {State.ASSIGNING, State.RECONCILING}}
    assert {(before, name) for before, name, _, _ in ANSWERS} == {
        (state, name) for state in states for name in REQUESTS
    }


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_only_the_tables_transitions_happen(before: State, after: State) -> None:
    """Any other change of state fails an assertion."""
    group = Group("g", None)
    group.state = before
    if after in NEXT[before]:
        group.transition_to(after, 5)
        assert (group.state, group.state_since_ms) == (after, 5)
    else:
        with pytest.raises(AssertionError):
            group.transition_to(after, 5)


def test_nothing_leads_out_of_dead() -> None:
    """A Dead group stays Dead; a join with the id of a deleted group starts a new group."""
    assert NEXT[State.DEAD] == frozenset()
