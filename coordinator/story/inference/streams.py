"""Turns the records of a streams group (KIP-1071) into those of the consumer protocol, whose inference then follows it.

The two protocols have the same kinds of records: a group's epoch, members, a target, the steps of members. In place of
topic partitions, members have tasks. A task becomes partition n of a topic that stands for its subtopology and role:
`task 0` for active tasks of subtopology 0, `standby 0`, `warm-up 0`. A member that brings another topology becomes one
that subscribes to something else.

House rule: the broker's states, epochs and order stay as they are.
"""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from coordinator.group.consumer.group import MemberState
from coordinator.group.consumer.records import CURRENT, EPOCH, MEMBER, TARGET, TARGET_EPOCH
from coordinator.story.records.consumer import (
    STREAMS_CURRENT,
    STREAMS_EPOCH,
    STREAMS_MEMBER,
    STREAMS_TARGET,
    STREAMS_TARGET_EPOCH,
    STREAMS_TOPOLOGY,
)
from protocol.compile import Message
from protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
)

ROLES = {"active_tasks": "task", "standby_tasks": "standby", "warmup_tasks": "warm-up"}
CONSUMER_VERSION = {
    STREAMS_EPOCH: EPOCH,
    STREAMS_MEMBER: MEMBER,
    STREAMS_TARGET_EPOCH: TARGET_EPOCH,
    STREAMS_TARGET: TARGET,
    STREAMS_CURRENT: CURRENT,
}
"""The version of a key -> that of the consumer protocol's record of this kind."""

STATES = {1: MemberState.STABLE, 2: MemberState.UNREVOKED, 3: MemberState.UNRELEASED}
"""The states of a member, as Kafka numbers them in such groups."""


class Streams:
    """A streams group. names: of the topics that stand for its tasks, by their ids."""

    def __init__(self) -> None:
        self.names: dict[UUID, str] = {}
        self._parts: dict[str, str] = {}
        self._epoch = -1

    def place(self, topic: str) -> str:
        """The topic that stands for the active tasks that read a topic."""
        return f"{ROLES['active_tasks']} {self._parts.get(topic)}"

    def consumer_value(self, version: int, said: Any) -> Message | None:
        """The value of the consumer protocol's record of this kind; None where it has none. said: no tombstone."""
        if version == STREAMS_EPOCH:
            former, self._epoch = self._epoch, said.epoch
            # Kafka also writes it when only its check of the topology is new.
            is_new = said.epoch != former
            return ConsumerGroupMetadataValue(epoch=said.epoch, metadata_hash=said.metadata_hash) if is_new else None
        if version == STREAMS_TOPOLOGY:
            self._parts = {
                topic: part.subtopology_id
                for part in said.subtopologies
                for topic in (*part.source_topics, *(each.name for each in part.repartition_source_topics))
            }
            return None
        made = {STREAMS_MEMBER: self._member, STREAMS_TARGET: self._target, STREAMS_CURRENT: self._current}.get(version)
        value: Message = said if made is None else made(said)
        return value

    def _member(self, said: Any) -> Message:
        return ConsumerGroupMemberMetadataValue(
            instance_id=said.instance_id,
            rack_id=said.rack_id,
            client_id=said.client_id,
            client_host=said.client_host,
            rebalance_timeout_ms=said.rebalance_timeout_ms,
            subscribed_topic_regex=f"topology {said.topology_epoch}",
            classic_member_metadata=None,
        )

    def _target(self, said: Any) -> Message:
        value = ConsumerGroupTargetAssignmentMemberValue
        return value(topic_partitions=self._tasks(value.TopicPartition, said))

    def _current(self, said: Any) -> Message:
        value = ConsumerGroupCurrentMemberAssignmentValue
        return value(
            member_epoch=said.member_epoch,
            previous_member_epoch=said.previous_member_epoch,
            state=STATES.get(said.state, MemberState.UNKNOWN).value,
            assigned_partitions=self._tasks(value.TopicPartitions, said),
            partitions_pending_revocation=self._tasks(value.TopicPartitions, said, "_pending_revocation"),
        )

    def _tasks(self, topic: Any, said: Any, suffix: str = "") -> list[Any]:
        """The tasks of a member in each role, as topic partitions."""
        return [
            topic(topic_id=self._topic_id(f"{role} {each.subtopology_id}"), partitions=each.partitions)
            for name, role in ROLES.items()
            for each in getattr(said, name + suffix)
        ]

    def _topic_id(self, name: str) -> UUID:
        topic_id = uuid5(NAMESPACE_OID, name)
        self.names[topic_id] = name
        return topic_id
