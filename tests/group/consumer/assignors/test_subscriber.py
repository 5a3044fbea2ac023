"""Pauses, orders, and subscriptions that are looked at once."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from coordinator.group.consumer.assignors.subscriber import (
    SORTED_AT_ONCE,
    UNITS_PER_PAUSE,
    Pauses,
    Subscriber,
    ordered,
    subscriptions,
)
from tests.group.consumer.assignors.groups import topic

T = TypeVar("T")
T1, T2, T3 = topic(1), topic(2), topic(3)


def ended(steps: Generator[None, None, T]) -> tuple[int, T]:
    """How often the generator paused, and its value."""
    paused = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return paused, stop.value
        paused += 1


def test_pause_is_due_after_so_much_work() -> None:
    """Units add up, and count from zero after a pause."""
    pauses = Pauses()
    for _ in range(3):
        assert not pauses.due(UNITS_PER_PAUSE - 1)
        assert pauses.due(1)


def test_order_pauses_between_runs() -> None:
    """A long list is in order, with a pause for each run; a short one needs none."""
    items = [str(number) for number in range(SORTED_AT_ONCE * 2 + 1)]
    paused, result = ended(ordered(items, str))
    assert result == sorted(items)
    assert paused >= 3
    assert ended(ordered(["b", "a"], str)) == (0, ["a", "b"])


def test_subscriptions_pause_for_members_too() -> None:
    """Members that share their collection of topics cost little each; a large group has many."""
    members = dict.fromkeys(map(str, range(2 * UNITS_PER_PAUSE)), Subscriber(None, (T1,), {}))
    paused, found = ended(subscriptions(members, members, {T1: 1}, Pauses()))
    assert paused == 2
    assert set(found) == {(T1,)}


def test_equal_subscriptions_are_one_object() -> None:
    """Topics that don't exist are left out, and what remains is compared by value."""
    members = {
        "a": Subscriber(None, [T1, T2, T3], {}),
        "b": Subscriber(None, (T2, T1), {}),
        "c": Subscriber(None, {T3}, {}),
    }
    _, (a, b, c) = ended(subscriptions(members, members, {T1: 1, T2: 1}, Pauses()))
    assert a is b
    assert a == (T1, T2)
    assert c == ()
