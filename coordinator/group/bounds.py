"""The bounds of the numbers in records: the number behind the last one, and the records that have the last one.

Generations and epochs are int32. Behind 2147483647 comes -2147483648, as in Kafka (measured on 3.9, 4.3 and 4.4):

- A classic group goes on: joins, syncs, heartbeats and commits work with negative generations.
- A group of the consumer protocol keeps its members and their partitions, but its target's epoch stays above the
  group's. So it gets no further target, and newcomers get no partitions, until the group is deleted.

All other numbers come from clients or from the clock, and fit their fields.

House rule: a number at its bound costs its own group at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.config import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from protocol.messages import GroupMetadataValue, OffsetCommitValue

INT32_MIN = -INT32_MAX - 1


def following(number: int) -> int:
    """The generation or epoch behind `number`; behind the last one comes the first one."""
    return number + 1 if number < INT32_MAX else INT32_MIN


def group_at_bound(value: GroupMetadataValue) -> str | None:
    """Which number of a classic group's record is at its bound, in words; None if none is."""
    if value.generation < 0:
        return f"its generation {value.generation} is behind {INT32_MAX}"
    if value.generation == INT32_MAX:
        return f"its generation is {INT32_MAX}, the last one: negative ones follow"
    if value.current_state_timestamp == INT64_MAX:
        return "the time of its state is the last that there is"
    return None


def offset_at_bound(value: OffsetCommitValue) -> str | None:
    """Which number of a committed offset's record is at its bound, in words; None if none is."""
    if value.offset == INT64_MAX:
        return "the committed offset is the last that there is"
    if value.leader_epoch == INT32_MAX:
        return "the leader epoch of the committed offset is the last that there is"
    if INT64_MAX in (value.commit_timestamp, value.expire_timestamp):
        return "the committed offset never expires: its time is the last that there is"
    return None


def epoch_at_bound(epoch: int) -> str | None:
    """Why the epoch of a group of the consumer protocol is at its bound, in words; None if it isn't."""
    if epoch < 0:
        return f"its epoch {epoch} is behind {INT32_MAX}: nobody gets further partitions until it is deleted"
    if epoch == INT32_MAX:
        return f"its epoch is {INT32_MAX}, the last one: behind it nobody gets further partitions until it is deleted"
    return None
