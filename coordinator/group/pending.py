"""Pending offsets: those that a transaction has committed and whose marker hasn't come (KIP-98).

The place in the log decides between commits of one topic partition; the place of the marker doesn't count. So a pending
offset stays pending until its marker, but it counts for nothing once a later commit has come.

    written in a transaction   pending, with a place
    a plain commit             what is pending counts no more; it still makes the partition unstable
    a commit marker            each pending offset of the producer takes effect, unless it counts no more
    an abort marker            they are gone
    the offset is deleted      what is pending goes too

House rule: a group that never met a transaction has NO_PENDING, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING

from coordinator.group.any_group import NO_PENDING, Pending

if TYPE_CHECKING:
    from coordinator.group.any_group import AnyGroup, CommittedOffset, PendingOffsets


OFFSETS_MAX = 1_000_000
"""Pending offsets of one group, of all producers together: 370 MB."""


def has_room(group: AnyGroup, offsets: Mapping[tuple[str, int], CommittedOffset]) -> bool:
    """Whether the group may have these pending offsets too."""
    return sum(map(len, group.pending_offsets.values())) + len(offsets) <= OFFSETS_MAX


def add(group: AnyGroup, producer_id: int, place: int, offsets: Mapping[tuple[str, int], CommittedOffset]) -> None:
    """A producer has written offsets in its transaction."""
    if group.pending_offsets is NO_PENDING:
        group.pending_offsets = {}
    mine = group.pending_offsets.setdefault(producer_id, {})
    mine.update(zip(offsets, map(Pending, repeat(place), offsets.values()), strict=False))


def supersede(group: AnyGroup, keys: Iterable[tuple[str, int]], before: int | None = None) -> None:
    """A later commit of these topic partitions has come. before: its place; None: behind all that is pending."""
    for key in keys:
        for offsets in group.pending_offsets.values():
            held = offsets.get(key)
            if held is not None and (before is None or held.place < before):
                offsets[key] = Pending(held.place, None)


def settle(group: AnyGroup, producer_id: int, *, is_commit: bool) -> None:
    """The marker of a producer's transaction has come."""
    offsets: PendingOffsets = group.pending_offsets.pop(producer_id, {})
    for key, (place, committed) in offsets.items() if is_commit else ():
        if committed is not None:
            topic, partition = key
            group.offsets.setdefault(topic, {})[partition] = committed
            supersede(group, (key,), place)


def forget(group: AnyGroup, keys: Iterable[tuple[str, int]]) -> None:
    """The offsets of these topic partitions are deleted. A producer without offsets stays until its marker."""
    for key in keys:
        for offsets in group.pending_offsets.values():
            offsets.pop(key, None)


def is_pending(group: AnyGroup, topic: str, partition: int) -> bool:
    """Whether a topic partition has a pending offset."""
    return any((topic, partition) in offsets for offsets in group.pending_offsets.values())


def keys_of(group: AnyGroup) -> Iterator[tuple[str, int]]:
    """The topic partitions with pending offsets, each once."""
    return iter(dict.fromkeys(key for offsets in group.pending_offsets.values() for key in offsets))
