"""How far a group is behind: its committed offsets beside the ends of the logs.

A server that only coordinates groups has no records of their topics. Then an end is unknown, or the log is empty and
the committed offset lies beyond its end. Neither is a lag, so sums leave such topic partitions out and count them.

House rule: a missing number is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.client.errors import Refused
from coordinator.client.groups import committed_offsets
from coordinator.client.topics import log_end_offsets

if TYPE_CHECKING:
    from coordinator.client.client import Client
    from coordinator.client.groups import Group, Offsets
    from coordinator.story.described import Member


class OffsetLine(NamedTuple):
    """A topic partition of a group.

    member: None if the group only committed offsets for the topic partition. topic: None for a member that has no topic
    partition. current_offset: None if there is none, or if it is below 0.
    """

    topic: str | None
    partition: int | None
    current_offset: int | None
    log_end_offset: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        """Records behind the end; negative if the committed offset is beyond the end, as in Kafka's tool."""
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.current_offset

    @property
    def has_no_end(self) -> bool:
        """Whether nobody says where the log ends."""
        return self.log_end_offset is None

    @property
    def is_beyond_end(self) -> bool:
        """Whether the committed offset lies beyond the end of the log: its records are elsewhere, or were deleted."""
        return self.lag is not None and self.lag < 0


def offset_lines(client: Client, groups: Sequence[Group]) -> dict[str, list[OffsetLine]]:
    """Lines by group: assigned topic partitions, others with committed offsets, then members that have none.

    Raises `Refused` if the offsets of a group are refused.
    """
    committed: dict[str, Offsets] = {}
    for group_id, answer in committed_offsets(client, [group.group_id for group in groups]).items():
        if isinstance(answer, Refused):
            raise answer
        committed[group_id] = answer
    owners = {
        group.group_id: {pair: member for member in group.members for pair in member.topic_partitions}
        for group in groups
    }
    known = [pair for group in groups for pair in (*committed[group.group_id], *owners[group.group_id])]
    ends = log_end_offsets(client, known)

    def lines(group: Group) -> Iterator[OffsetLine]:
        offsets, owned = committed[group.group_id], owners[group.group_id]
        for pair in (*owned, *sorted(offsets.keys() - owned.keys())):
            yield OffsetLine(*pair, offsets.get(pair), ends.get(pair), owned.get(pair))
        for member in group.members:
            if not member.topic_partitions:
                yield OffsetLine(None, None, None, None, member)

    return {group.group_id: list(lines(group)) for group in groups}


def lag_json(lines: Sequence[OffsetLine]) -> dict[str, Any]:
    """The sums of these lines as JSON.

    lag: of the topic partitions where it is known; None if there are none. without_end, beyond_end: how many topic
    partitions with a committed offset have no lag, and why.
    """
    placed = [line for line in lines if line.topic is not None]
    known = [line.lag for line in placed if line.lag is not None and not line.is_beyond_end]
    committed = [line for line in placed if line.current_offset is not None]
    return {
        "partitions": len(placed),
        "assigned_partitions": sum(line.member is not None for line in placed),
        "lag": sum(known) if known else None,
        "without_end": sum(line.has_no_end for line in committed),
        "beyond_end": sum(line.is_beyond_end for line in committed),
    }


def topics_json(lines: Sequence[OffsetLine]) -> list[dict[str, Any]]:
    """The topics of these lines as JSON, by name, each with its sums and its topic partitions."""
    by_topic: dict[str, list[OffsetLine]] = {}
    for line in lines:
        if line.topic is not None:
            by_topic.setdefault(line.topic, []).append(line)
    return [
        {"topic": topic, **lag_json(own), "offsets": [line_json(line) for line in sorted(own, key=_index)]}
        for topic, own in sorted(by_topic.items())
    ]


def line_json(line: OffsetLine) -> dict[str, Any]:
    """A topic partition as JSON."""
    member = line.member
    return {
        "partition": line.partition,
        "current_offset": line.current_offset,
        "log_end_offset": line.log_end_offset,
        "lag": line.lag,
        "member_id": None if member is None else member.member_id,
        "group_instance_id": None if member is None else member.group_instance_id,
        "client_id": None if member is None else member.client_id,
        "client_host": None if member is None else member.client_host,
    }


def _index(line: OffsetLine) -> int:
    return -1 if line.partition is None else line.partition
