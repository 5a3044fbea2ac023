"""Pending offsets: those that a transaction has committed and whose marker hasn't come (KIP-98).

The place in the log decides between commits of one topic partition; the place of the marker doesn't count. So a pending
offset stays pending until its marker, but it counts for nothing once a later commit has come.

    written in a transaction   pending, with a place
    a plain commit             what is pending counts no more; it still makes the partition unstable
    a commit marker            each pending offset of the producer takes effect, unless it counts no more
    an abort marker            they are gone
    the offset is deleted      what is pending goes too

Offsets are found by their topic partition, however many producers have some there.

House rule: a group without pending offsets has NO_PENDING, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.group.any_group import NO_PENDING, AnyGroup, CommittedOffset, PendingOffsets

OFFSETS_MAX = 1_000_000
"""Pending offsets of one group, of all producers together: 580 MB."""


def has_room(group: AnyGroup, producer_id: int, offsets: Mapping[tuple[str, int], object], size_max: int) -> bool:
    """Whether the group may have these pending offsets too. size_max: how many the producer may have there."""
    held = group.pending_offsets
    keys = held.by_producer.get(producer_id, set())
    more = len(offsets.keys() - keys)
    return len(keys) + more <= size_max and held.size + more <= OFFSETS_MAX


def add(group: AnyGroup, producer_id: int, place: int, offsets: Mapping[tuple[str, int], CommittedOffset]) -> None:
    """A producer has written offsets in its transaction."""
    if group.pending_offsets is NO_PENDING:
        group.pending_offsets = PendingOffsets()
    group.pending_offsets.add(producer_id, place, offsets)


def supersede(group: AnyGroup, keys: Iterable[tuple[str, int]]) -> None:
    """A later commit of these topic partitions has come."""
    held = group.pending_offsets
    held.passed.update((key, held.place) for key in keys if key in held.by_partition)


def settle(group: AnyGroup, producer_id: int, *, is_commit: bool) -> None:
    """The marker of a producer's transaction has come."""
    held = group.pending_offsets
    keys = held.by_producer.pop(producer_id, ())
    held.size -= len(keys)
    for key in keys:
        producers = held.by_partition[key]
        place, committed = producers.pop(producer_id)
        if is_commit and committed is not None and place > held.passed.get(key, 0):
            topic, partition = key
            group.offsets.setdefault(topic, {})[partition] = committed
            held.passed[key] = place
        if not producers:
            del held.by_partition[key]
            held.passed.pop(key, None)
    if not held.by_producer:
        group.pending_offsets = NO_PENDING


def forget(group: AnyGroup, keys: Iterable[tuple[str, int]]) -> None:
    """The offsets of these topic partitions are deleted. A producer without offsets stays until its marker."""
    held = group.pending_offsets
    for key in keys:
        producers = held.by_partition.pop(key, ())
        for producer_id in producers:
            held.by_producer[producer_id].discard(key)
        held.size -= len(producers)
        held.passed.pop(key, None)


def is_pending(group: AnyGroup, topic: str, partition: int) -> bool:
    """Whether a topic partition has a pending offset."""
    return (topic, partition) in group.pending_offsets.by_partition
