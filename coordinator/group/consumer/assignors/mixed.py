"""The targets of the assignor "uniform" when members subscribe to different topics.

1. Members keep what they own and still subscribe to.
2. Free partitions go to the subscriber with the fewest partitions, topics with most partitions per subscriber first.
3. As long as a topic has a subscriber with at least two partitions less than one of its holders, a partition moves
   there. The topics of members that changed size are looked at again.
4. `exchange` looks for chains of moves that single moves don't find, as long as its limit of work allows.

All this counts how many partitions of a topic a member has. Partitions of a topic are alike in all but their owner, so
which ones they are follows in the end: a member has as many of its own as the count allows.

House rule: members are numbers here, and all orders follow from the input alone.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from uuid import UUID

from coordinator.group.consumer.assignors.exchange import exchange
from coordinator.group.consumer.assignors.subscriber import Assignment, Pauses, topic_order
from coordinator.group.consumer.assignors.table import Table, Topic

MOVES_PER_PARTITION = 16
"""Balancing ends after so many moves for each partition. Topics that overlap in long chains could take very long."""


def mixed(
    subscribed: list[tuple[UUID, ...]],
    owned: list[Mapping[UUID, frozenset[int]]],
    partitions: Mapping[UUID, int],
    pauses: Pauses,
) -> Generator[None, None, list[Assignment]]:
    """The targets of members. subscribed, owned: by member."""
    table = Table(subscribed)
    yield from table.index(partitions, pauses)
    yield from table.keep(owned, pauses)
    yield from fill(table, pauses)
    yield from level_all(table, pauses)
    yield from exchange(table, pauses)
    return (yield from table.targets(pauses))


def fill(table: Table, pauses: Pauses) -> Generator[None, None, None]:
    """Give free partitions to the smallest subscribers of their topics."""

    def place(topic: Topic) -> tuple[float, int, int]:
        count = len(topic.subscribers)
        return -topic.partitions / count, count, topic_order(topic.topic_id)

    sizes = table.sizes
    for topic in sorted(table.topics.values(), key=place):
        free = topic.partitions - sum(topic.held.values())
        if pauses.due(1 + len(topic.held)):
            yield None
        if not free:
            continue
        heap = [(sizes[member], member) for member in topic.subscribers]
        heapify(heap)
        if pauses.due(2 * len(heap)):
            yield None
        for _ in range(free):
            size, member = heap[0]
            table.give(topic, member)
            heapreplace(heap, (size + 1, member))
            if pauses.due(4):
                yield None


def level_all(table: Table, pauses: Pauses) -> Generator[None, None, None]:
    """Level topic after topic, and again those of members that changed size."""
    moves_left = MOVES_PER_PARTITION * sum(topic.partitions for topic in table.topics.values())
    waiting = dict.fromkeys(table.topics)
    while waiting and moves_left > 0:
        topic_id = next(iter(waiting))
        changed = yield from level(table, table.topics[topic_id], pauses)
        for member in changed:
            moves_left -= 1
            waiting.update(dict.fromkeys(table.subscribed[member]))
            if pauses.due(4 * len(table.subscribed[member])):
                yield None
        del waiting[topic_id]


def level(table: Table, topic: Topic, pauses: Pauses) -> Generator[None, None, list[int]]:
    """Move partitions from the largest holders of a topic to its smallest subscribers; who changed size.

    Of several alike a giver has partitions that it didn't own, and a taker lacks some that it owned.
    """
    sizes = table.sizes
    takers = [(sizes[member], topic.gain(member), member) for member in topic.subscribers]
    givers = [(-sizes[member], topic.loss(member), member) for member, count in topic.held.items() if count]
    heapify(takers)
    heapify(givers)
    if pauses.due(4 * len(takers) + 4 * len(givers)):
        yield None
    changed: dict[int, None] = {}
    while givers:
        giver = givers[0][2]
        here = (-sizes[giver], topic.loss(giver), giver)
        if givers[0] != here or not topic.held[giver]:
            heappop(givers)
            if topic.held[giver]:
                heappush(givers, here)
            continue
        taker = takers[0][2]
        there = (sizes[taker], topic.gain(taker), taker)
        if takers[0] != there:
            heapreplace(takers, there)
            continue
        if sizes[giver] - sizes[taker] < 2:
            break
        table.take(topic, giver)
        table.give(topic, taker)
        changed[giver] = changed[taker] = None
        if pauses.due(8):
            yield None
    return list(changed)
