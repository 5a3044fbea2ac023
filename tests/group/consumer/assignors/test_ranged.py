"""Runs of neighbouring partitions: the assignor "range"."""

from __future__ import annotations

from hypothesis import given

from coordinator.group.consumer.assignors import Subscriber
from coordinator.group.consumer.assignors.ranged import Row
from tests.group.consumer.assignors.groups import Group, check, groups, owning, targets_of, topic

T1, T2 = topic(1), topic(2)


def test_row_serves_the_first_members_one_more() -> None:
    """Seven partitions for three members are 3, 2 and 2."""
    row = Row(7, 3)
    assert [row.serve() for _ in range(3)] == [range(3), range(3, 5), range(5, 7)]


def test_members_get_the_same_numbers_of_each_topic() -> None:
    """Two topics of three partitions are co-partitioned: a join of both finds its records in one member."""
    members = {name: Subscriber(None, (T1, T2), {}) for name in ("a", "b")}
    assert targets_of("range", members, {T1: 3, T2: 3}) == {
        "a": {T1: frozenset({0, 1}), T2: frozenset({0, 1})},
        "b": {T1: frozenset({2}), T2: frozenset({2})},
    }


def test_static_members_come_first_by_instance_id() -> None:
    """Instance ids are in the order of their texts, before all member ids."""
    members = {
        "a": Subscriber(None, (T1,), {}),
        "b": Subscriber("z", (T1,), {}),
        "c": Subscriber("i", (T1,), {}),
    }
    assert targets_of("range", members, {T1: 3}) == {
        "c": {T1: frozenset({0})},
        "b": {T1: frozenset({1})},
        "a": {T1: frozenset({2})},
    }


def test_ids_are_in_the_order_of_java() -> None:
    """Java compares UTF-16: a character beyond U+FFFF begins with a surrogate, which comes before U+FF5E."""
    members = {name: Subscriber(None, (T1,), {}) for name in ("\uff5e", "\U0001f600")}
    assert targets_of("range", members, {T1: 1}) == {"\U0001f600": {T1: frozenset({0})}, "\uff5e": {}}


@given(groups())
def test_each_partition_goes_to_one_subscriber(group: Group) -> None:
    """Every partition of a subscribed topic has exactly one member, and that subscribes to it."""
    check(*group, targets_of("range", *group))


@given(groups())
def test_runs_are_kafkas_arithmetic(group: Group) -> None:
    """The k-th of N members gets P // N partitions, one more if k < P % N, behind those of the one before."""
    members, partitions = group
    targets = targets_of("range", members, partitions)
    static = sorted((each.instance_id, name) for name, each in members.items() if each.instance_id is not None)
    row = [name for _, name in static] + sorted(name for name, each in members.items() if each.instance_id is None)
    for topic_id, count in partitions.items():
        theirs = [name for name in row if topic_id in members[name].topics]
        for place, name in enumerate(theirs):
            each, more = divmod(count, len(theirs))
            start = each * place + min(place, more)
            run = range(start, start + each + (place < more))
            assert targets[name].get(topic_id, frozenset()) == frozenset(run)


@given(groups())
def test_ownership_plays_no_part(group: Group) -> None:
    """The same members get the same, whatever they own."""
    members, partitions = group
    assert targets_of("range", owning(members, {}), partitions) == targets_of("range", members, partitions)
