"""The assignor "uniform": every member gets equally many partitions, and keeps those it owns as far as that allows.

Balance comes first: of members with equal subscriptions none has two partitions more than another. Ownership comes
second. If all members subscribe to the same topics, sizes follow from the numbers alone: `alike` takes from those with
too many, and fills those with too few. Else `mixed` does the same topic by topic, and then moves single partitions.

House rule: a partition that its owner may keep stays, unless balance needs it elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from itertools import chain, islice
from uuid import UUID

from coordinator.group.consumer.assignors.mixed import mixed
from coordinator.group.consumer.assignors.subscriber import Assignment, Pauses, Subscriber, ordered, subscriptions


def uniform(
    members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]
) -> Iterator[dict[str, Assignment] | None]:
    """See `Assignor` of this package."""
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
    least, more = divmod(sum(map(len, free.values())), len(owned))
    missing: list[int] = []
    released: list[tuple[UUID, int]] = []
    for member, mine in enumerate(kept):
        size = sum(map(len, mine.values()))
        # The one partition more is for those that have it; without one, only the last members must take it.
        quota = least + (more > 0 and (size > least or len(owned) - member <= more))
        more -= quota > least
        missing.append(max(0, quota - size))
        if size > quota:
            released += _release(mine, size - quota)
        if pauses.due(1 + max(0, size - quota)):
            yield None
    waiting = chain(_free_ones(free), released)
    targets: list[Assignment] = []
    for count, mine in zip(missing, kept, strict=True):
        for topic_id, partition in islice(waiting, count):
            mine.setdefault(topic_id, []).append(partition)
            if pauses.due(3):
                yield None
        targets.append({topic_id: frozenset(numbers) for topic_id, numbers in mine.items() if numbers})
        if pauses.due(2 + count + least):
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


def _release(mine: Kept, count: int) -> list[tuple[UUID, int]]:
    """Take `count` partitions from a member, the last ones of its last topics; in the member's order."""
    taken: list[tuple[UUID, int]] = []
    for topic_id in reversed(mine):
        numbers = mine[topic_id]
        while numbers and len(taken) < count:
            taken.append((topic_id, numbers.pop()))
    return taken[::-1]


def _free_ones(free: dict[UUID, bytearray]) -> Iterator[tuple[UUID, int]]:
    """Partitions that nobody has, topic by topic."""
    for topic_id, is_free in free.items():
        partition = is_free.find(1)
        while partition >= 0:
            yield topic_id, partition
            partition = is_free.find(1, partition + 1)
