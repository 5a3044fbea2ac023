"""Chains of moves: the assignor "uniform" where single moves don't help."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from uuid import UUID

import pytest
from hypothesis import given

from coordinator.group.consumer.assignors import Assignment, Subscriber
from coordinator.group.consumer.assignors import exchange as module
from tests.group.consumer.assignors.groups import Group, check, groups, moved, size, targets_of, topic

T1, T2 = topic(1), topic(2)
ALL_WAYS_MAX = 4_000
"""Groups with more ways to assign their partitions aren't tried out."""

CHAIN = {
    "a": Subscriber(None, (T1,), {T1: frozenset({0, 1, 2})}),
    "b": Subscriber(None, (T1, T2), {T2: frozenset({0, 1})}),
    "c": Subscriber(None, (T2,), {T2: frozenset({2})}),
}


def test_two_moves_do_what_one_cannot() -> None:
    """A has 3, B 2 and C 1. A gives B a partition of one topic, and B gives C one of another."""
    assert targets_of("uniform", CHAIN, {T1: 3, T2: 3}) == {
        "a": {T1: frozenset({0, 1})},
        "b": {T1: frozenset({2}), T2: frozenset({0})},
        "c": {T2: frozenset({1, 2})},
    }


def test_work_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it no chains are looked for, and the targets are those of single moves."""
    monkeypatch.setattr(module, "EDGES_MAX", 0)
    assert targets_of("uniform", CHAIN, {T1: 3, T2: 3}) == {name: each.owned for name, each in CHAIN.items()}


def all_ways(group: Group) -> Iterator[dict[str, Assignment]]:
    """Every way to give each partition to one of its subscribers; none if there are too many."""
    members, partitions = group
    choices: list[list[tuple[str, UUID, int]]] = []
    ways = 1
    for topic_id, count in partitions.items():
        takers = [name for name in sorted(members) if topic_id in members[name].topics]
        if takers:
            choices += ([(name, topic_id, number) for name in takers] for number in range(count))
            ways *= len(takers) ** count
    if ways > ALL_WAYS_MAX:
        return
    for way in product(*choices):
        mine: dict[str, dict[UUID, set[int]]] = {name: {} for name in members}
        for name, topic_id, number in way:
            mine[name].setdefault(topic_id, set()).add(number)
        yield {name: {key: frozenset(each) for key, each in target.items()} for name, target in mine.items()}


@given(groups(members_max=4, topics_max=3))
def test_no_way_is_better(group: Group) -> None:
    """No other targets are more equal, nor as equal with fewer moves. All ways of small groups are tried out."""
    members, partitions = group
    targets = targets_of("uniform", members, partitions)
    check(members, partitions, targets)

    def badness(targets: dict[str, Assignment]) -> tuple[int, int]:
        return sum(size(target) ** 2 for target in targets.values()), moved(members, targets)

    assert badness(targets) <= min(map(badness, all_ways(group)), default=badness(targets))
