"""Equal shares that stay where they are: the assignor "uniform"."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from coordinator.group.consumer.assignors import Subscriber
from tests.group.consumer.assignors.groups import Group, check, groups, moved, owning, size, targets_of, topic

T1, T2, T3 = topic(1), topic(2), topic(3)


def subscriber(*topics: UUID, **owned: set[int]) -> Subscriber:
    """A member that subscribes to topics; owned by T1 and so on."""
    by_name = {"T1": T1, "T2": T2, "T3": T3}
    return Subscriber(None, topics, {by_name[name]: frozenset(numbers) for name, numbers in owned.items()})


def numbers(targets: Mapping[str, Mapping[UUID, frozenset[int]]]) -> dict[str, dict[UUID, set[int]]]:
    """Targets with plain sets."""
    return {member: {key: set(each) for key, each in target.items()} for member, target in targets.items()}


def test_first_member_gets_all() -> None:
    """One member of a group gets every partition of its topics."""
    assert numbers(targets_of("uniform", {"a": subscriber(T1, T2)}, {T1: 3, T2: 2, T3: 1})) == {
        "a": {T1: {0, 1, 2}, T2: {0, 1}}
    }


def test_newcomer_gets_the_last_of_the_owners() -> None:
    """The owner keeps its first partitions, and the odd one."""
    members = {"a": subscriber(T1), "b": subscriber(T1, T1={0, 1, 2, 3, 4, 5, 6})}
    assert numbers(targets_of("uniform", members, {T1: 7})) == {"a": {T1: {4, 5, 6}}, "b": {T1: {0, 1, 2, 3}}}


def test_no_members_no_topics() -> None:
    """Nobody, or nobody with a topic that exists, is no error."""
    assert targets_of("uniform", {}, {T1: 3}) == {}
    assert targets_of("uniform", {"a": subscriber(), "b": subscriber(T2)}, {T1: 3}) == {"a": {}, "b": {}}


def test_topic_gone_vanishes() -> None:
    """The partitions of a deleted topic are in no target, though they are owned and subscribed to."""
    members = {"a": subscriber(T1, T2, T2={0, 1}), "b": subscriber(T1, T2, T2={2})}
    assert numbers(targets_of("uniform", members, {T1: 2})) == {"a": {T1: {0}}, "b": {T1: {1}}}


def test_sole_subscriber_has_its_topic_alone() -> None:
    """A member with a topic of its own gets less of the topics that others want too."""
    members = {"a": subscriber(T1, T2), "b": subscriber(T1)}
    assert numbers(targets_of("uniform", members, {T1: 4, T2: 4})) == {"a": {T2: {0, 1, 2, 3}}, "b": {T1: {0, 1, 2, 3}}}


@given(groups())
def test_each_partition_goes_to_one_subscriber(group: Group) -> None:
    """Whatever is owned, every partition of a subscribed topic has exactly one member, and that subscribes to it."""
    check(*group, targets_of("uniform", *group))


@given(groups(alike=True))
def test_equal_subscriptions_get_equal_shares(group: Group) -> None:
    """If all subscribe to the same topics, no two members differ by more than one partition."""
    sizes = [size(target) for target in targets_of("uniform", *group).values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups(alike=True))
def test_equal_subscriptions_move_no_more_than_needed(group: Group) -> None:
    """Only partitions beyond a member's share move: P // N, and one more for the first P % N of the largest owners."""
    members, partitions = group
    targets = targets_of("uniform", members, partitions)
    total = sum(size(target) for target in targets.values())
    least, more = divmod(total, len(members))
    topics = next(iter(members.values())).topics
    owned = sorted(
        (
            sum(number < partitions.get(key, 0) for key in topics for number in each.owned.get(key, ()))
            for each in members.values()
        ),
        reverse=True,
    )
    needed = sum(max(0, count - least - (rank < more)) for rank, count in enumerate(owned))
    kept = sum(
        len(each & members[member].owned.get(key, set()))
        for member, target in targets.items()
        for key, each in target.items()
    )
    assert sum(owned) - kept == needed


@given(groups())
def test_no_single_move_makes_it_more_equal(group: Group) -> None:
    """No partition has a subscriber with two partitions less than the member that gets it."""
    members, partitions = group
    targets = targets_of("uniform", members, partitions)
    for member, target in targets.items():
        for other, each in members.items():
            if set(target) & set(each.topics):
                assert size(target) - size(targets[other]) < 2, (member, other)


@given(groups())
def test_nothing_moves_if_nothing_changes(group: Group) -> None:
    """Targets that are owned are the next targets."""
    members, partitions = group
    targets = targets_of("uniform", members, partitions)
    assert targets_of("uniform", owning(members, targets), partitions) == targets


@given(groups(), st.randoms(use_true_random=False))
def test_order_of_members_and_topics_does_not_matter(group: Group, chance: Random) -> None:
    """The same members in another order get the same partitions."""
    members, partitions = group
    shuffled = dict(chance.sample(sorted(members.items()), len(members)))
    reversed_topics = dict(reversed(partitions.items()))
    assert targets_of("uniform", shuffled, reversed_topics) == targets_of("uniform", members, partitions)


@given(groups(alike=True, owned=False))
def test_newcomer_takes_its_share_and_nothing_else_moves(group: Group) -> None:
    """After a join only as many partitions move as the newcomer gets."""
    members, partitions = group
    members = owning(members, targets_of("uniform", members, partitions))
    newcomer = next(iter(members.values()))._replace(owned={}, instance_id=None)
    members["new"] = newcomer
    targets = targets_of("uniform", members, partitions)
    assert moved(members, targets) == size(targets["new"])


@given(groups(owned=False))
def test_leaver_leaves_its_share_and_nothing_else_moves(group: Group) -> None:
    """After a member left a group, its partitions are given to others; if all subscribe alike, no others move."""
    members, partitions = group
    topics = next(iter(members.values())).topics
    members = {member: each._replace(topics=topics) for member, each in members.items()}
    members = owning(members, targets_of("uniform", members, partitions))
    del members[max(members)]
    assert moved(members, targets_of("uniform", members, partitions)) == 0
