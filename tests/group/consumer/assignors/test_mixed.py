"""Different subscriptions: how the assignor "uniform" settles them."""

from __future__ import annotations

from coordinator.group.consumer.assignors import Subscriber
from tests.group.consumer.assignors.groups import targets_of, topic

T1, T2 = topic(1), topic(2)


def test_owner_keeps_what_balance_does_not_need() -> None:
    """A newcomer with fewer topics gets only as much as makes it equal."""
    members = {
        "a": Subscriber(None, None, (T1, T2), {T1: frozenset(range(4)), T2: frozenset(range(2))}),
        "b": Subscriber(None, None, (T1,), {}),
    }
    assert targets_of("uniform", members, {T1: 4, T2: 2}) == {
        "a": {T1: frozenset({0}), T2: frozenset({0, 1})},
        "b": {T1: frozenset({1, 2, 3})},
    }
