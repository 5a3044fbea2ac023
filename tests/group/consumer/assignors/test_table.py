"""The table behind the assignor "uniform" for different subscriptions."""

from __future__ import annotations

from coordinator.group.consumer.assignors.subscriber import Pauses
from coordinator.group.consumer.assignors.table import Table, Topic
from tests.group.consumer.assignors.groups import topic
from tests.group.consumer.assignors.test_subscriber import ended

T1, T2 = topic(1), topic(2)


def test_only_own_partitions_count_as_moves() -> None:
    """Giving away costs a move once a member has no more than it owned; taking saves one until it has as many."""
    mine = Topic(T1, 4)
    mine.owned = {0: [0, 1]}
    mine.held = {0: 3, 1: 1}
    assert (mine.loss(0), mine.gain(0)) == (0, 0)
    mine.held = {0: 2, 1: 2}
    assert (mine.loss(0), mine.gain(0)) == (1, 0)
    mine.held = {0: 1, 1: 3}
    assert (mine.loss(0), mine.gain(0)) == (1, -1)
    assert (mine.loss(1), mine.gain(1), mine.gain(2)) == (0, 0, 0)


def test_member_gets_its_own_first() -> None:
    """Counts become partitions: the first of its own, then the first that nobody keeps."""
    table = Table([(T1,), (T1, T2)])
    ended(table.index({T1: 5, T2: 1}, Pauses()))
    ended(table.keep([{T1: frozenset({1, 2, 9})}, {T1: frozenset({2, 4}), T2: frozenset({0})}], Pauses()))
    assert table.sizes == [2, 2]
    mine = table.topics[T1]
    table.take(mine, 0)
    for _ in range(3):
        table.give(mine, 1)
    _, targets = ended(table.targets(Pauses()))
    assert targets == [{T1: frozenset({1})}, {T1: frozenset({0, 2, 3, 4}), T2: frozenset({0})}]
