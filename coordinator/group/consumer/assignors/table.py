"""A table of how many partitions of each topic each member has, and of all topics, while targets are made.

House rule: members are numbers, and a count says nothing about which partitions a member has. `targets` decides that.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from coordinator.group.consumer.assignors.subscriber import Assignment, Pauses, topic_order


@dataclass(slots=True, eq=False, repr=False)
class Topic:
    """A topic: who subscribes to it, which partitions each member owned, and how many it has."""

    topic_id: UUID
    partitions: int
    subscribers: list[int] = field(default_factory=list)
    owned: dict[int, list[int]] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)

    def loss(self, member: int) -> int:
        """How many more partitions move if the member gives one away: none if it has more than it owned."""
        return int(self.held[member] <= len(self.owned.get(member, ())))

    def gain(self, member: int) -> int:
        """How many more partitions move if the member takes one: one less if it has fewer than it owned."""
        return -int(self.held.get(member, 0) < len(self.owned.get(member, ())))


class Table:
    """Topics by id, in the order of their ids; sizes: how many partitions each member has.

    subscribed: the topics of each member.
    """

    def __init__(self, subscribed: list[tuple[UUID, ...]]) -> None:
        self.subscribed = subscribed
        self.sizes = [0] * len(subscribed)
        self.topics: dict[UUID, Topic] = {}

    def index(self, partitions: Mapping[UUID, int], pauses: Pauses) -> Generator[None, None, None]:
        """Learn the subscribers of each topic."""
        topics: dict[UUID, Topic] = {}
        for member, topic_ids in enumerate(self.subscribed):
            for topic_id in topic_ids:
                topic = topics.get(topic_id)
                if topic is None:
                    topic = topics[topic_id] = Topic(topic_id, partitions[topic_id])
                topic.subscribers.append(member)
                if pauses.due(4):
                    yield None
        self.topics = {topic_id: topics[topic_id] for topic_id in sorted(topics, key=topic_order)}
        if pauses.due(4 * len(topics)):
            yield None

    def keep(self, owned: list[Mapping[UUID, frozenset[int]]], pauses: Pauses) -> Generator[None, None, None]:
        """Leave members what they own and subscribe to. Of two owners the first keeps a partition."""
        taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in self.topics}
        for member, theirs in enumerate(owned):
            subscribed = frozenset(self.subscribed[member]) if theirs else frozenset()
            for topic_id, numbers in theirs.items():
                if topic_id not in subscribed:
                    continue
                topic = self.topics[topic_id]
                free = sorted(number for number in numbers - taken[topic_id] if number < topic.partitions)
                if free:
                    taken[topic_id].update(free)
                    topic.owned[member] = free
                    topic.held[member] = len(free)
                    self.sizes[member] += len(free)
                if pauses.due(8 + 2 * len(numbers)):
                    yield None
            if pauses.due(1 + 4 * len(subscribed)):
                yield None

    def give(self, topic: Topic, member: int) -> None:
        """The member has one partition more."""
        topic.held[member] = topic.held.get(member, 0) + 1
        self.sizes[member] += 1

    def take(self, topic: Topic, member: int) -> None:
        """The member has one partition less."""
        topic.held[member] -= 1
        self.sizes[member] -= 1
        assert topic.held[member] >= 0

    def targets(self, pauses: Pauses) -> Generator[None, None, list[Assignment]]:
        """Each member's partitions: its own, the first ones, and then those that nobody else keeps."""
        targets: list[Assignment] = [{} for _ in self.sizes]
        for topic in self.topics.values():
            kept = {member: topic.owned.get(member, [])[: topic.held[member]] for member in topic.held}
            taken = {number for numbers in kept.values() for number in numbers}
            if pauses.due(4 * len(kept) + 2 * len(taken)):
                yield None
            free = (number for number in range(topic.partitions) if number not in taken)
            for member in sorted(kept):
                mine = kept[member]
                mine += (next(free) for _ in range(topic.held[member] - len(mine)))
                if mine:
                    targets[member][topic.topic_id] = frozenset(mine)
                if pauses.due(6 + 2 * len(mine)):
                    yield None
        return targets
