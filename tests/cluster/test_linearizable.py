"""The checker of histories: it agrees with a search through all orders, and finds what is planted."""

from __future__ import annotations

import itertools
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.linearizable import BEFORE, Operation, check, violations
from tests.support.cluster_history import OK, Asked

NOT_COORDINATOR = 16


def has_order(operations: list[Operation]) -> bool:
    """Whether any order of the operations explains them; those that aren't sure may be left out."""
    must = {number for number, each in enumerate(operations) if each.is_sure}
    return any(
        explains([operations[number] for number in order])
        for size in range(len(must), len(operations) + 1)
        for order in itertools.permutations(range(len(operations)), size)
        if must <= set(order)
    )


def explains(order: list[Operation]) -> bool:
    """Whether an order keeps to the times, and each read finds the last write."""
    if any(later.end < earlier.start for earlier, later in itertools.combinations(order, 2)):
        return False
    value = BEFORE
    for each in order:
        if each.is_write:
            value = each.value
        elif each.value != value:
            return False
    return True


@st.composite
def operation(draw: st.DrawFn) -> Operation:
    """One with few values and times, so that much overlaps."""
    start = draw(st.integers(0, 6))
    end = draw(st.integers(start, 7).map(float))
    if draw(st.booleans()):
        return Operation(False, draw(st.integers(-1, 3)), float(start), end)
    is_sure = draw(st.booleans())
    has_end = is_sure or draw(st.booleans())
    return Operation(True, draw(st.integers(1, 3)), float(start), end if has_end else inf, is_sure)


@given(operations=st.lists(operation(), max_size=6))
def test_it_finds_an_order_if_there_is_one(operations: list[Operation]) -> None:
    """The same outcome as trying every order of the operations."""
    assert (check("r", operations) is None) == has_order(operations)


def asked(
    kind: str, sent: float, value: int = -1, *, node: int = 0, error: int | None = OK, got: float | None = None
) -> Asked:
    """A request of the group whose answer takes a tenth of a second."""
    return Asked("g", kind, 0, node, sent, None if error is None else got or sent + 0.1, error, value)


RIGHT = [
    asked("join", 0.0, 4),
    asked("commit", 1.0, 1),
    asked("fetch", 1.5, 1),
    asked("commit", 2.0, 2, error=None),  # node 0 freezes
    asked("fetch", 2.5, 1, got=9.1),  # it was asked before, and answered when node 0 woke up
    asked("join", 3.0, error=None),
    asked("join", 4.0, 4, node=1),
    asked("fetch", 4.5, 2, node=1),
    asked("commit", 5.0, 3, node=1),
    asked("heartbeat", 5.5, 4, node=1),
    asked("commit", 9.0, 4, error=NOT_COORDINATOR),  # node 0 is awake
    asked("fetch", 9.5, 3, node=1),  # from its answer on, the refused commit can no longer take effect
    asked("fetch", 9.65, 3, node=1),
]


def test_a_right_history_is_linearizable() -> None:
    """Answers that were lost may be done or not; a read that took long may be as old as its request."""
    assert violations(RIGHT) == []


def test_each_planted_violation_is_found() -> None:
    """The request that can't be explained is named."""
    planted = {
        "stale read": asked("fetch", 5.5, 2),
        "lost acknowledgement": asked("fetch", 9.76, 2, node=1),
        "late write, refused by its node": asked("fetch", 9.8, 4, node=1),
        "value that nobody wrote": asked("fetch", 9.8, 7, node=1),
        "commit gone": asked("fetch", 9.9, -1, node=1),
        "heartbeat of an older generation": asked("heartbeat", 5.6, 3, node=0),
    }
    for name, wrong in planted.items():
        assert [each.operation.asked for each in violations([*RIGHT, wrong])] == [wrong], name


def test_a_late_write_of_a_frozen_node_is_found() -> None:
    """Its commit had no answer; another node served the group since, so it must not be seen afterwards."""
    history = [
        *RIGHT[:4],
        asked("fetch", 4.5, 1, node=1),
        asked("commit", 5.0, 3, node=1),
        asked("fetch", 6.0, 2, node=1),
    ]
    assert [each.operation.asked for each in violations(history)] == [history[-1]]


def test_a_long_history_is_checked_in_one_pass() -> None:
    """Twenty thousand requests, one in fifty without an answer: the states stay few."""
    history = []
    for number in range(10_000):
        is_lost = number % 50 == 0
        history.append(asked("commit", float(number), number, error=None if is_lost else OK))
        if not is_lost:
            history.append(asked("fetch", number + 0.5, number))
    assert violations(history) == []
    history.append(asked("fetch", 10_001.0, 9_001))
    assert len(violations(history)) == 1
