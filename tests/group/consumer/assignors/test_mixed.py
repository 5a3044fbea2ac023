"""Different subscriptions: how the assignor "uniform" settles them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TypeVar
from uuid import UUID

from coordinator.group.consumer.assignors import Pauses, Subscriber
from coordinator.group.consumer.assignors.mixed import fill, level
from coordinator.group.consumer.assignors.table import Table
from tests.group.consumer.assignors.groups import targets_of, topic

T1, T2 = topic(1), topic(2)
Result = TypeVar("Result")


def test_owner_keeps_what_balance_does_not_need() -> None:
    """A newcomer with fewer topics gets only as much as makes it equal."""
    members = {
        "a": Subscriber(None, (T1, T2), {T1: frozenset(range(4)), T2: frozenset(range(2))}),
        "b": Subscriber(None, (T1,), {}),
    }
    assert targets_of("uniform", members, {T1: 4, T2: 2}) == {
        "a": {T1: frozenset({0}), T2: frozenset({0, 1})},
        "b": {T1: frozenset({1, 2, 3})},
    }


def done(steps: Generator[None, None, Result]) -> Result:
    """Go on to the end of steps; their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def table_of(*owned: int, partitions: int) -> Table:
    """A topic whose members own so many partitions each."""
    table = Table([(T1,)] * len(owned))
    done(table.index({T1: partitions}, Pauses()))
    first = 0
    theirs: list[Mapping[UUID, frozenset[int]]] = []
    for count in owned:
        theirs.append({T1: frozenset(range(first, first + count))})
        first += count
    done(table.keep(theirs, Pauses()))
    return table


def test_a_free_partition_goes_to_the_smallest_subscriber() -> None:
    """Whichever place it has among the members, and each partition counts for the next one."""
    for owned, sizes in (((3, 2, 0, 1), [3, 2, 2, 2]), ((3, 1, 2, 0), [3, 2, 2, 2]), ((0, 4, 0, 3), [2, 4, 1, 3])):
        table = table_of(*owned, partitions=sum(owned) + 3)
        done(fill(table, Pauses()))
        assert table.sizes == sizes


def test_the_largest_holder_gives_to_the_smallest_subscriber() -> None:
    """Whichever places they have among the members; members of the right size neither give nor take.

    Each move counts for the next one: of two of one size that give, each gives half.
    """
    for owned, sizes, changed in (
        ((3, 2, 5, 2), [3, 3, 3, 3], {1, 2, 3}),
        ((2, 3, 1, 6), [3, 3, 3, 3], {0, 2, 3}),
        ((2, 2, 2, 0, 4), [2, 2, 2, 2, 2], {3, 4}),
        ((4, 4, 0, 0), [2, 2, 2, 2], {0, 1, 2, 3}),
    ):
        table = table_of(*owned, partitions=sum(owned))
        assert set(done(level(table, table.topics[T1], Pauses()))) == changed
        assert table.sizes == sizes


def test_a_partition_moves_from_who_got_it_to_who_owned_it() -> None:
    """Of holders alike, one that has more than it owned gives. Of subscribers alike, one that lost some takes."""
    table = table_of(3, 1, 1, partitions=7)
    t1 = table.topics[T1]
    for _ in range(2):
        table.give(t1, 1)
    assert table.sizes == [3, 3, 1]
    assert set(done(level(table, t1, Pauses()))) == {1, 2}
    table = table_of(4, 0, 1, partitions=5)
    t1 = table.topics[T1]
    table.take(t1, 2)
    table.take(t1, 0)
    table.take(t1, 0)
    assert table.sizes == [2, 0, 0]
    assert set(done(level(table, t1, Pauses()))) == {0, 2}
