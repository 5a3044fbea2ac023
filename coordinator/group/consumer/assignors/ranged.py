"""The assignor "range": each member gets one run of neighbouring partitions of each topic it subscribes to.

The members of a topic stand in a row: static ones first, by instance id, then the others by member id. Of P partitions
and N members each gets P // N, and the first P % N get one more. The runs follow each other from partition 0. If all
members subscribe to the same topics, and these have equally many partitions, a member gets the same numbers of each, so
that it can join their records.

Ownership plays no part. A static member that comes back keeps its place in the row, and so its partitions.

House rule: the partitions are those of Kafka's RangeAssignor, for every input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from coordinator.group.consumer.assignors.subscriber import (
    Assignment,
    Pauses,
    Subscriber,
    java_order,
    ordered,
    subscriptions,
)


class Row:
    """A topic whose members are served one after the other."""

    __slots__ = ("_each", "_more", "_next")

    def __init__(self, partitions: int, members: int) -> None:
        self._each, self._more = divmod(partitions, members)
        self._next = 0

    def serve(self) -> range:
        """The run of the next member."""
        start = self._next
        self._next += self._each
        if self._more:
            self._next += 1
            self._more -= 1
        return range(start, self._next)


def ranged(members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]) -> Iterator[dict[str, Assignment] | None]:
    """See `Assignor` of this package."""

    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].instance_id
        return (True, java_order(member_id)) if instance_id is None else (False, java_order(instance_id))

    pauses = Pauses()
    member_ids = yield from ordered(members, place)
    subscribed = yield from subscriptions(member_ids, members, partitions, pauses)
    counts: dict[UUID, int] = {}
    for topics in subscribed:
        for topic_id in topics:
            counts[topic_id] = counts.get(topic_id, 0) + 1
        if pauses.due(4 * len(topics)):
            yield None
    rows = {topic_id: Row(partitions[topic_id], count) for topic_id, count in counts.items()}
    targets: dict[str, Assignment] = {}
    for member_id, topics in zip(member_ids, subscribed, strict=True):
        target = targets[member_id] = {}
        for topic_id in topics:
            run = rows[topic_id].serve()
            if run:
                target[topic_id] = frozenset(run)
            if pauses.due(6 + len(run)):
                yield None
    yield targets
