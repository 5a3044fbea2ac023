"""The assignor "uniform": every member gets equally many partitions, and keeps those it owns as far as that allows.

Balance comes first: of members with equal subscriptions none has two partitions more than another. Ownership comes
second. If all members subscribe to the same topics, sizes follow from the numbers alone: `alike` takes from those with
too many, and fills those with too few. Else `mixed` does the same topic by topic, and then moves single partitions.

House rule: a partition that its owner may keep stays, unless balance needs it elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from uuid import UUID

from coordinator.group.consumer.assignors.mixed import mixed
from coordinator.group.consumer.assignors.subscriber import Assignment, Pauses, Subscriber, ordered, subscriptions


def uniform(
    members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]
) -> Iterator[dict[str, Assignment] | None]:
    """See `assign` of this package."""
    pauses = Pauses()
    member_ids = yield from ordered(members, str)
    subscribed = yield from subscriptions(member_ids, members, partitions, pauses)
    owned = [members[member_id].owned for member_id in member_ids]
    if all(topics is subscribed[0] for topics in subscribed):
        topics = subscribed[0] if subscribed else ()
        targets = yield from alike(topics, owned, partitions, pauses)
    else:
        targets = yield from mixed(subscribed, owned, partitions, pauses)
    yield dict(zip(member_ids, targets, strict=True))


def alike(
    topics: tuple[UUID, ...],
    owned: list[Mapping[UUID, frozenset[int]]],
    partitions: Mapping[UUID, int],
    pauses: Pauses,
) -> Generator[None, None, list[Assignment]]:
    """The targets of members that all subscribe to `topics`. owned: by member."""
    if not owned:
        return []
    free = {topic_id: bytearray(b"\1" * partitions[topic_id]) for topic_id in topics}
    kept = yield from _keep(owned, free, pauses)
    sizes = [sum(map(len, mine.values())) for mine in kept]
    least, more = divmod(sum(map(len, free.values())), len(owned))
    # Members with most get the one partition more: every other choice would move more.
    largest = sorted(range(len(owned)), key=sizes.__getitem__, reverse=True)
    if pauses.due(2 * len(owned)):
        yield None
    quotas = [least] * len(owned)
    for member in largest[:more]:
        quotas[member] += 1
    for member, mine in enumerate(kept):
        if sizes[member] > quotas[member]:
            _release(mine, sizes[member] - quotas[member], free)
        if pauses.due(1 + max(0, sizes[member] - quotas[member])):
            yield None
    waiting = _free_ones(free)
    targets: list[Assignment] = []
    for member, mine in enumerate(kept):
        added = 0
        for _ in range(quotas[member] - sizes[member]):
            topic_id, partition = next(waiting)
            mine.setdefault(topic_id, []).append(partition)
            added += 1
            if pauses.due(3):
                yield None
        targets.append({topic_id: frozenset(numbers) for topic_id, numbers in mine.items() if numbers})
        if pauses.due(2 + added + quotas[member]):
            yield None
    return targets


Kept = dict[UUID, list[int]]


def _keep(
    owned: list[Mapping[UUID, frozenset[int]]], free: dict[UUID, bytearray], pauses: Pauses
) -> Generator[None, None, list[Kept]]:
    """The partitions that each member keeps, marked in `free` as taken. Of two owners the first keeps a partition."""
    kept: list[Kept] = []
    for theirs in owned:
        mine: Kept = {}
        for topic_id in sorted(theirs, key=lambda topic_id: topic_id.int):
            is_free = free.get(topic_id)
            if is_free is None:
                continue
            numbers = mine[topic_id] = []
            for partition in sorted(theirs[topic_id]):
                if partition < len(is_free) and is_free[partition]:
                    is_free[partition] = 0
                    numbers.append(partition)
            if pauses.due(4 + len(theirs[topic_id])):
                yield None
        kept.append(mine)
        if pauses.due(1):
            yield None
    return kept


def _release(mine: Kept, count: int, free: dict[UUID, bytearray]) -> None:
    """Take `count` partitions from a member, the last ones of its last topics first."""
    for topic_id in reversed(mine):
        numbers = mine[topic_id]
        while numbers and count:
            free[topic_id][numbers.pop()] = 1
            count -= 1


def _free_ones(free: dict[UUID, bytearray]) -> Iterator[tuple[UUID, int]]:
    """Partitions that nobody has, topic by topic."""
    for topic_id, is_free in free.items():
        partition = is_free.find(1)
        while partition >= 0:
            yield topic_id, partition
            partition = is_free.find(1, partition + 1)
