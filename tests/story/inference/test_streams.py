"""Records of a streams group become rebalances, with tasks in place of topic partitions; tests/oracle has Kafka's."""

from __future__ import annotations

import struct
from typing import Any

from coordinator.group.records import group_key
from coordinator.story.entries import Rebalance, Timeline
from coordinator.story.inference.observed import Observed
from coordinator.story.records.consumer import (
    STREAMS_CURRENT,
    STREAMS_EPOCH,
    STREAMS_MEMBER,
    STREAMS_TARGET,
    STREAMS_TARGET_EPOCH,
    STREAMS_TOPOLOGY,
)
from coordinator.story.words import entry_lines
from protocol.messages import (
    ConsumerGroupTargetAssignmentMetadataValue,
    Message,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTopologyValue,
    encode,
)

SESSION_MS = 45_000
Placed = tuple[int, str | None, Message | None]


class Log:
    """The log of a group, batch by batch, and the timeline that the inference makes of it."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000
        self.timeline = Timeline("g")
        self._observed = Observed(streams_timeouts={"g": SESSION_MS})
        self._offset = 0

    def batch(self, *records: Placed) -> None:
        """One batch. A record: version and name of its key, and its value."""
        for version, name, value in records:
            key = struct.pack(">h", version) + group_key("g")[2:]
            if name is not None:
                key += struct.pack(">h", len(name)) + name.encode()
            data = None if value is None else b"\0\0" + encode(value, 0)
            self.timeline.add_all(self._observed.add(self._offset, self.at_ms, key, data))
            self._offset += 1
        self.timeline.add_all(self._observed.end_batch())

    @property
    def texts(self) -> list[str]:
        """The texts of the timeline."""
        return ["\n".join(entry_lines(entry)) for entry in self.timeline.entries]


def member(name: str, topology_epoch: int = 0) -> Placed:
    """A member's record."""
    value = StreamsGroupMemberMetadataValue(
        instance_id=None, client_id=name, client_host="/h", rebalance_timeout_ms=300_000, topology_epoch=topology_epoch
    )
    return STREAMS_MEMBER, name, value


def epoch(number: int, validated: int = -1) -> Placed:
    """The group's record."""
    value = StreamsGroupMetadataValue(epoch=number, metadata_hash=1, validated_topology_epoch=validated)
    return STREAMS_EPOCH, None, value


def target(number: int, **members: dict[str, list[int]]) -> list[Placed]:
    """The target of some members: by name, their partitions of subtopology 0 in each role."""
    value: Any = StreamsGroupTargetAssignmentMemberValue
    return [
        *((STREAMS_TARGET, name, value(**tasks(value, roles))) for name, roles in members.items()),
        (STREAMS_TARGET_EPOCH, None, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=number)),
    ]


def current(name: str, number: int, **roles: list[int]) -> Placed:
    """A member at its target."""
    value: Any = StreamsGroupCurrentMemberAssignmentValue
    return STREAMS_CURRENT, name, value(member_epoch=number, state=1, **tasks(value, roles))


def tasks(value: Any, roles: dict[str, list[int]]) -> dict[str, Any]:
    """The fields of these roles."""
    return {f"{role}_tasks": [value.TaskIds(subtopology_id="0", partitions=numbers)] for role, numbers in roles.items()}


def started() -> Log:
    """A group of two members: one has both tasks, the other is their standby."""
    log = Log()
    part = StreamsGroupTopologyValue.Subtopology(subtopology_id="0", source_topics=["t"])
    topology = STREAMS_TOPOLOGY, None, StreamsGroupTopologyValue(subtopologies=[part])
    log.batch(member("a"), topology, epoch(1), *target(1, a={"active": [0, 1]}), current("a", 1, active=[0, 1]))
    log.batch(member("b"), epoch(2), *target(2, a={"active": [0, 1]}, b={"standby": [0, 1]}))
    log.batch(current("a", 2, active=[0, 1]), current("b", 2, standby=[0, 1]))
    return log


def test_tasks_move_in_rebalances_with_a_cause() -> None:
    """A new member, one with another topology and one that is gone begin rebalances, which say what tasks moved."""
    log = started()
    log.batch(member("b", topology_epoch=1), epoch(3), *target(3, a={"active": [0]}, b={"active": [1]}))
    log.batch(current("a", 3, active=[0]), current("b", 3, active=[1]))
    log.batch(
        (STREAMS_MEMBER, "a", None), (STREAMS_CURRENT, "a", None), (STREAMS_TARGET, "a", None), epoch(4),
        *target(4, b={"active": [0, 1]}), current("b", 4, active=[0, 1]),
    )  # fmt: skip
    rebalances = [entry for entry in log.timeline.entries if isinstance(entry, Rebalance)]
    causes = [[cause.kind for cause in entry.causes] for entry in rebalances]
    assert causes == [["member_joined"], ["member_joined"], ["subscription_changed"], ["member_left"]]
    first, second, third, fourth = log.texts
    assert "epoch 0 -> 1" in first
    assert "2 tasks assigned (task 0-0 -> a, task 0-1 -> a)" in first
    assert "2 tasks assigned (standby 0-0 -> b, standby 0-1 -> b)" in second
    assert "1 task moved (task 0-1 a -> b), 2 tasks left without a member (standby 0-0 of b, standby 0-1 of b)" in third
    assert "1 task moved (task 0-0 a -> b)" in fourth


def test_a_record_of_the_same_epoch_is_no_rebalance() -> None:
    """Kafka writes the group's record again when its topology was checked: the epoch stays, and nothing begins."""
    log = started()
    before = log.texts
    log.batch(epoch(2, validated=0))
    assert log.texts == before


def test_commits_are_of_the_member_with_the_task() -> None:
    """A member that committed what its task reads was alive then, so it left."""
    log = started()
    for _ in range(30):
        log.at_ms += 5_000
        key = struct.pack(">h", 1) + group_key("g")[2:] + b"\0\1t" + struct.pack(">i", 1)
        log._observed.add(log._offset, log.at_ms, key, b"\0\3" + bytes(30))
        log._offset += 1
    log.at_ms += 10_000
    log.batch((STREAMS_MEMBER, "a", None), (STREAMS_CURRENT, "a", None), (STREAMS_TARGET, "a", None), epoch(3))
    assert "member a leaves" in log.texts[-1]


def test_a_deleted_group_is_gone() -> None:
    """The tombstone of the group's record is its end."""
    log = started()
    log.batch((STREAMS_EPOCH, None, None))
    assert log.timeline.entries[-1].type == "deleted"
