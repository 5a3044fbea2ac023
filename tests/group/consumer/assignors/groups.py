"""Random groups for the tests of assignors, and what must hold for every target.

House rule: nothing here knows how an assignor works.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import strategies as st

from coordinator.group.consumer.assignors import ASSIGNORS, Assignment, Subscriber

Group = tuple[dict[str, Subscriber], dict[UUID, int]]
Targets = Mapping[str, Assignment]


def topic(number: int) -> UUID:
    """A topic id."""
    return UUID(int=number + 1)


def targets_of(name: str, members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    """The last value of an assignor; all before are None."""
    *pauses, targets = ASSIGNORS[name](members, partitions)
    assert all(pause is None for pause in pauses)
    assert targets is not None
    return targets


def owning(members: Mapping[str, Subscriber], targets: Targets) -> dict[str, Subscriber]:
    """The members once they own their targets."""
    return {member: each._replace(owned=targets.get(member, {})) for member, each in members.items()}


def size(assignment: Mapping[UUID, frozenset[int]]) -> int:
    """The number of partitions."""
    return sum(map(len, assignment.values()))


def moved(members: Mapping[str, Subscriber], targets: Targets) -> int:
    """How many partitions have another owner than before; those that nobody owned don't count."""
    return sum(
        len(numbers - targets[member].get(topic_id, frozenset()))
        for member, each in members.items()
        for topic_id, numbers in each.owned.items()
    )


def check(members: Mapping[str, Subscriber], partitions: Mapping[UUID, int], targets: Targets) -> None:
    """Every partition of a subscribed topic has exactly one member, a subscriber; and every member has an entry."""
    assert set(targets) == set(members)
    given = [
        (topic_id, number) for each in targets.values() for topic_id, numbers in each.items() for number in numbers
    ]
    wanted = {
        (topic_id, number)
        for each in members.values()
        for topic_id in each.topics
        for number in range(partitions.get(topic_id, 0))
    }
    assert len(given) == len(set(given))
    assert set(given) == wanted
    for member, target in targets.items():
        assert set(target) <= set(members[member].topics)
        assert all(target.values())


@st.composite
def groups(
    draw: st.DrawFn, *, alike: bool = False, owned: bool = True, members_max: int = 7, topics_max: int = 5
) -> Group:
    """Members and topics. owned: some members own partitions, also of topics that are gone or not theirs.

    alike: all subscribe to the same topics.
    """
    topics = [topic(number) for number in range(draw(st.integers(1, topics_max)))]
    partitions = {topic_id: draw(st.integers(1, 9)) for topic_id in topics}
    gone = topic(99)
    some = st.sets(st.sampled_from([*topics, gone]))
    names = [f"m{number}" for number in range(draw(st.integers(1, members_max)))]
    everyone = draw(some)
    members = {
        name: Subscriber(draw(st.none() | st.just(f"i{name}")), frozenset(everyone if alike else draw(some)), {})
        for name in draw(st.permutations(names))
    }
    if not owned:
        return members, partitions
    mine: dict[str, dict[UUID, set[int]]] = {name: {} for name in names}
    # Deleted topics and partitions that a topic made anew doesn't have are owned, too.
    for topic_id, count in {**{key: count + 1 for key, count in partitions.items()}, gone: 2}.items():
        for number in range(count):
            owner = draw(st.none() | st.sampled_from(names))
            if owner is not None:
                mine[owner].setdefault(topic_id, set()).add(number)
    return {
        name: each._replace(owned={key: frozenset(numbers) for key, numbers in mine[name].items()})
        for name, each in members.items()
    }, partitions
