"""The values that assignors take and give, the pauses of their work, and the order of members and topics.

House rule: whatever an assignor walks through is in an order that its arguments alone decide. Sets of ids have none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

Assignment = dict[UUID, frozenset[int]]
"""Partitions by topic; a topic without any has no entry."""

T = TypeVar("T")

UNITS_PER_PAUSE = 4_000
"""Units of work between two pauses. A unit is a member or a partition that is looked at: 0.1 to 0.5 µs."""
SORTED_AT_ONCE = 2_000
"""How many ids are sorted without a pause: less than 1 ms. Putting sorted runs together is much faster."""


class Subscriber(NamedTuple):
    """A member as assignors see it.

    topics: what it subscribes to. A collection that many members share is looked at once.
    owned: its current target. An assignor of a sticky kind leaves it there if balance allows.
    """

    instance_id: str | None
    topics: Collection[UUID]
    owned: Mapping[UUID, frozenset[int]]


class Pauses:
    """Counts units of work, and says when a pause is due."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = UNITS_PER_PAUSE

    def due(self, units: int) -> bool:
        """Add work that was done. True: yield now."""
        self._left -= units
        if self._left > 0:
            return False
        self._left = UNITS_PER_PAUSE
        return True


def ordered(items: Iterable[T], key: Callable[[T], Any]) -> Generator[None, None, list[T]]:
    """`items` in the order of `key`, sorted in runs with pauses between them."""
    waiting = list(items)
    runs: list[tuple[Any, T]] = []
    for start in range(0, len(waiting), SORTED_AT_ONCE):
        # Ties would compare the items themselves: no two keys of members or topics are equal.
        runs += sorted((key(item), item) for item in waiting[start : start + SORTED_AT_ONCE])
        if len(waiting) > SORTED_AT_ONCE:
            yield None
    if len(waiting) > SORTED_AT_ONCE:
        runs.sort()
        yield None
    return [item for _, item in runs]


def java_order(text: str) -> bytes:
    """A key that sorts texts as Java does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


topic_order = attrgetter("int")
"""A key that sorts topic ids by their bits."""


def subscriptions(
    member_ids: Iterable[str], members: Mapping[str, Subscriber], partitions: Mapping[UUID, int], pauses: Pauses
) -> Generator[None, None, list[tuple[UUID, ...]]]:
    """The existing topics that each member subscribes to, in the order of `member_ids`; topics in their own order.

    Equal subscriptions are the same object. Members share few collections, and each is looked at once.
    """
    by_identity: dict[int, tuple[UUID, ...]] = {}
    by_value: dict[frozenset[UUID], tuple[UUID, ...]] = {}
    found = []
    for member_id in member_ids:
        topics = members[member_id].topics
        known = by_identity.get(id(topics))
        if known is None:
            existing = frozenset(topic_id for topic_id in topics if topic_id in partitions)
            known = by_value.get(existing)
            if known is None:
                known = by_value[existing] = tuple((yield from ordered(existing, topic_order)))
            by_identity[id(topics)] = known
            # Hashing an id takes about four units, and each is hashed twice.
            if pauses.due(8 * len(topics)):
                yield None
        found.append(known)
        if pauses.due(1):
            yield None
    return found
