"""The targets of the assignor "uniform" when members subscribe to different topics.

1. Members keep what they own and still subscribe to.
2. Free partitions go to the subscriber with the fewest partitions, topics with most partitions per subscriber first.
3. As long as a partition has a subscriber with at least two partitions less than its holder, it moves there. Its topic
   is looked at again whenever one of its subscribers changes size.
4. Partitions go back to their owners where sizes stay as balanced as they are. Then step 3 again, until neither does
   anything.

House rule: members and topics are numbers here, in an order that the input alone decides.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from uuid import UUID

from coordinator.group.consumer.assignors.subscriber import Assignment, Pauses, topic_order

NOBODY = -1

MOVES_PER_PARTITION = 16
"""Balancing ends after so many moves for each partition. Topics that overlap in long chains could take very long."""


def mixed(
    subscribed: list[tuple[UUID, ...]],
    owned: list[Mapping[UUID, frozenset[int]]],
    partitions: Mapping[UUID, int],
    pauses: Pauses,
) -> Generator[None, None, list[Assignment]]:
    """The targets of members. subscribed, owned: by member."""
    table = Table(subscribed, partitions)
    yield from table.index(pauses)
    yield from table.keep(owned, pauses)
    yield from table.fill(pauses)
    yield from table.settle(pauses)
    return (yield from table.targets(pauses))


class Topic:
    """A topic: who subscribes to it, who owned each partition, and who has it."""

    __slots__ = ("by_member", "holder", "owner", "subscribers", "topic_id")

    def __init__(self, topic_id: UUID, partitions: int) -> None:
        self.topic_id = topic_id
        self.subscribers: list[int] = []
        self.owner = [NOBODY] * partitions
        self.holder = [NOBODY] * partitions
        self.by_member: dict[int, list[int]] = {}
        """Partitions that a member has; an empty list for one that had some."""

    def give(self, partition: int, member: int) -> None:
        """Let a member have a partition that nobody has."""
        self.holder[partition] = member
        self.by_member.setdefault(member, []).append(partition)

    def move(self, partition: int, to: int) -> None:
        """Let another member have a partition."""
        self.by_member[self.holder[partition]].remove(partition)
        self.give(partition, to)

    def cheapest(self, giver: int, taker: int) -> int:
        """The partition that the giver should give the taker: the taker's own, one that isn't the giver's, the last."""
        best, best_rank = NOBODY, -1
        for partition in self.by_member[giver]:
            owner = self.owner[partition]
            rank = 2 if owner == taker else 1 if owner != giver else 0
            if (rank, partition) > (best_rank, best):
                best, best_rank = partition, rank
        return best


class Table:
    """All topics with their holders, and how many partitions each member has."""

    def __init__(self, subscribed: list[tuple[UUID, ...]], partitions: Mapping[UUID, int]) -> None:
        self._subscribed = subscribed
        self._partitions = partitions
        self._sizes = [0] * len(subscribed)
        self._topics: dict[UUID, Topic] = {}
        self._order: list[Topic] = []
        self._moves_left = 0

    def index(self, pauses: Pauses) -> Generator[None, None, None]:
        """Learn the subscribers of each topic, and put topics in order."""
        for member, topics in enumerate(self._subscribed):
            for topic_id in topics:
                topic = self._topics.get(topic_id)
                if topic is None:
                    topic = self._topics[topic_id] = Topic(topic_id, self._partitions[topic_id])
                topic.subscribers.append(member)
                if pauses.due(4):
                    yield None

        def place(topic: Topic) -> tuple[float, int, int]:
            count = len(topic.subscribers)
            return -len(topic.holder) / count, count, topic_order(topic.topic_id)

        self._order = sorted(self._topics.values(), key=place)
        self._moves_left = MOVES_PER_PARTITION * sum(len(topic.holder) for topic in self._order)
        yield None

    def keep(self, owned: list[Mapping[UUID, frozenset[int]]], pauses: Pauses) -> Generator[None, None, None]:
        """Leave members what they own. Of two owners the first keeps a partition."""
        for member, theirs in enumerate(owned):
            mine = frozenset(self._subscribed[member]) if theirs else ()
            for topic_id in theirs:
                if topic_id not in mine:
                    continue
                topic = self._topics[topic_id]
                for partition in sorted(theirs[topic_id]):
                    if partition < len(topic.holder) and topic.holder[partition] == NOBODY:
                        topic.owner[partition] = member
                        topic.give(partition, member)
                        self._sizes[member] += 1
                if pauses.due(8 + 2 * len(theirs[topic_id])):
                    yield None
            if pauses.due(1 + 4 * len(mine)):
                yield None

    def fill(self, pauses: Pauses) -> Generator[None, None, None]:
        """Give each free partition to its smallest subscriber."""
        sizes = self._sizes
        for topic in self._order:
            free = [partition for partition, holder in enumerate(topic.holder) if holder == NOBODY]
            if pauses.due(len(topic.holder)):
                yield None
            if not free:
                continue
            heap = [(sizes[member], member) for member in topic.subscribers]
            heapify(heap)
            if pauses.due(2 * len(heap)):
                yield None
            for partition in free:
                size, member = heap[0]
                topic.give(partition, member)
                sizes[member] = size + 1
                heapreplace(heap, (size + 1, member))
                if pauses.due(4):
                    yield None

    def settle(self, pauses: Pauses) -> Generator[None, None, None]:
        """Move partitions until no move makes two members more equal, or keeps sizes and serves an owner."""
        waiting = dict.fromkeys(self._topics)
        while waiting and self._moves_left > 0:
            yield from self._balance(waiting, pauses)
            waiting = {}
            yield from self._note((yield from self._give_back(pauses)), waiting, pauses)

    def _balance(self, waiting: dict[UUID, None], pauses: Pauses) -> Generator[None, None, None]:
        """Move single partitions of the topics in `waiting`, and of topics that this unbalances."""
        while waiting and self._moves_left > 0:
            topic_id = next(iter(waiting))
            changed = yield from self._level(self._topics[topic_id], pauses)
            yield from self._note(changed, waiting, pauses)
            del waiting[topic_id]

    def _note(self, changed: list[int], waiting: dict[UUID, None], pauses: Pauses) -> Generator[None, None, None]:
        """Put the topics of members that changed size among those that wait."""
        for member in changed:
            waiting.update(dict.fromkeys(self._subscribed[member]))
            if pauses.due(4 * len(self._subscribed[member])):
                yield None

    def _level(self, topic: Topic, pauses: Pauses) -> Generator[None, None, list[int]]:
        """Move partitions of one topic from its largest holders to its smallest subscribers; who changed size."""
        sizes = self._sizes
        takers = [(sizes[member], member) for member in topic.subscribers]
        givers = [(-sizes[member], member) for member, mine in topic.by_member.items() if mine]
        heapify(takers)
        heapify(givers)
        if pauses.due(2 * len(takers) + 2 * len(givers)):
            yield None
        changed: dict[int, None] = {}
        while givers and self._moves_left > 0:
            size, giver = givers[0]
            if -size != sizes[giver] or not topic.by_member[giver]:
                heappop(givers)
                if topic.by_member[giver]:
                    heappush(givers, (-sizes[giver], giver))
                continue
            least, taker = takers[0]
            if least != sizes[taker]:
                heapreplace(takers, (sizes[taker], taker))
                continue
            if sizes[giver] - least < 2:
                break
            mine = len(topic.by_member[giver])
            topic.move(topic.cheapest(giver, taker), taker)
            sizes[giver] -= 1
            sizes[taker] += 1
            self._moves_left -= 1
            changed[giver] = changed[taker] = None
            if pauses.due(8 + mine):
                yield None
        return list(changed)

    def _give_back(self, pauses: Pauses) -> Generator[None, None, list[int]]:
        """Give partitions back to their owners where that unbalances nothing; who changed size."""
        changed: list[int] = []
        for topic in self._order:
            for partition, owner in enumerate(topic.owner):
                holder = topic.holder[partition]
                if owner not in (holder, NOBODY):
                    if self._return(topic, partition, holder, owner):
                        changed += (holder, owner)
                    if pauses.due(len(topic.by_member[owner])):
                        yield None
            if pauses.due(len(topic.owner)):
                yield None
        return changed

    def _return(self, topic: Topic, partition: int, holder: int, owner: int) -> bool:
        """Give a partition back for another of its topic, or if sizes stay as equal. True: sizes changed."""
        strange = [other for other in topic.by_member[owner] if topic.owner[other] != owner]
        if strange:
            topic.move(next((other for other in strange if topic.owner[other] == holder), strange[-1]), holder)
            topic.move(partition, owner)
            return False
        if self._sizes[holder] != self._sizes[owner] + 1:
            return False
        topic.move(partition, owner)
        self._sizes[holder] -= 1
        self._sizes[owner] += 1
        self._moves_left -= 1
        return True

    def targets(self, pauses: Pauses) -> Generator[None, None, list[Assignment]]:
        """What each member has."""
        targets: list[Assignment] = [{} for _ in self._sizes]
        for topic in sorted(self._order, key=lambda topic: topic_order(topic.topic_id)):
            for member, mine in topic.by_member.items():
                if mine:
                    targets[member][topic.topic_id] = frozenset(mine)
                if pauses.due(4 + len(mine)):
                    yield None
        return targets
