"""Members of the consumer protocol (KIP-848) on a stage.

    a = seat(stage, "a", topics=[topic])
    a.join()        # a full heartbeat at epoch 0
    a.beat()        # one that says nothing new
    a.confirm()     # one that says that the member owns what it was assigned last

A member's id is the name of its connection, so that it is the same on both servers: assignors order members by id, or
by the hash of the id. Names of one letter have the same order either way. The epoch and the assignment that a member
has are those of its last answer.

Short timeouts are settings of the group (`configure`): heartbeats don't name the session timeout.

House rule: no rule of the protocol is known here; a script says what each heartbeat carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from protocol.consumer import decode_versioned
from protocol.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode,
)
from schemas.errors import ErrorCode
from tests.oracle.stage import Client, Stage, commit_topics, protocol_list
from tests.oracle.transcript import STAYS_MS
from tests.support.requests import request

Owned = Mapping[str, Iterable[int]]
"""Partitions by topic."""
DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup

GROUP = 32
"""The type of a group's settings in DescribeConfigs and IncrementalAlterConfigs."""
SET = 0


class Seat:
    """A member of the consumer protocol, or a program that says to be one.

    topics, regex, instance, rack, assignor: sent with full heartbeats. assigned: what its last assignment was.
    """

    def __init__(
        self,
        client: Client,
        *,
        member_id: str,
        topics: Iterable[str] | None = None,
        regex: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        version: int = 1,
        rebalance_timeout_ms: int = STAYS_MS,
    ) -> None:
        self.client = client
        self.member_id = member_id
        self.topics = None if topics is None else list(topics)
        self.regex = regex
        self.rack = rack
        self.assignor = assignor
        self.version = version
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.epoch = 0
        self.assigned: dict[str, list[int]] = {}

    @property
    def stage(self) -> Stage:
        """Where it plays."""
        return self.client.stage

    # -- heartbeats

    def beat(self, *, owns: Owned | None = None, version: int | None = None, **changes: Any) -> None:
        """A heartbeat with its id and epoch, and its answer; nothing else unless it is given."""
        fields: dict[str, Any] = {
            "group_id": self.client.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.client.instance,
            "topic_partitions": None if owns is None else self._partitions(owns),
        }
        asked = request("ConsumerGroupHeartbeat", **{**fields, **changes})
        answer = self.client.ask(asked, self.version if version is None else version)
        self._take(cast("ConsumerGroupHeartbeatResponse", answer))

    def full(self, *, owns: Owned | None = None, **changes: Any) -> None:
        """A full heartbeat at its epoch, with its subscription; it owns what it was assigned unless `owns` differs."""
        fields: dict[str, Any] = {
            "rack_id": self.rack,
            "rebalance_timeout_ms": self.stage.timeout_ms(self.rebalance_timeout_ms),
            "subscribed_topic_names": self.topics,
            "subscribed_topic_regex": self.regex,
            "server_assignor": self.assignor,
        }
        self.beat(owns=self.assigned if owns is None else owns, **{**fields, **changes})

    def join(self, **changes: Any) -> None:
        """A full heartbeat at epoch 0, without partitions."""
        self.full(**{"member_epoch": 0, "owns": {}, **changes})

    def confirm(self, **changes: Any) -> None:
        """A heartbeat that says that it owns what it was assigned."""
        self.beat(owns=self.assigned, **changes)

    def leave(self, epoch: int = -1, **changes: Any) -> None:
        """Leave: -1 for good, -2 to come back (a static member)."""
        self.beat(**{"member_epoch": epoch, **changes})

    def until_epoch(self, epoch: int) -> None:
        """Send heartbeats, outside of the transcript, until the member is at this epoch."""

        def is_there() -> bool:
            self.beat_aside()
            return self.epoch == epoch

        self.stage.until_true(is_there)

    def beat_aside(self) -> None:
        """A heartbeat that says nothing new, outside of the transcript."""
        own = {"group_id": self.client.group, "member_id": self.member_id, "member_epoch": self.epoch}
        answer = self.stage.ask_aside(request("ConsumerGroupHeartbeat", **own), 1)
        self._take(cast("ConsumerGroupHeartbeatResponse", answer))

    # -- offsets

    def until_without(self, topic: str) -> None:
        """Send heartbeats, outside of the transcript, until the member has none of a topic's partitions."""

        def has_none() -> bool:
            self.beat_aside()
            return topic not in self.assigned

        self.stage.until_true(has_none)

    def until_group_epoch(self, epoch: int) -> None:
        """Send heartbeats, outside of the transcript, until the group is at this epoch."""

        def is_there() -> bool:
            self.beat_aside()
            return described(self.stage).group_epoch == epoch

        self.stage.until_true(is_there)

    def commit(
        self, topic: str, offset: int = 1, *, version: int = 9, partitions: Iterable[int] = (0,), **changes: Any
    ) -> None:
        """OffsetCommit with its id and epoch, and the answer."""
        fields: dict[str, Any] = {
            "group_id": self.client.group,
            "generation_id_or_member_epoch": self.epoch,
            "member_id": self.member_id,
            "group_instance_id": self.client.instance,
            "topics": commit_topics({topic: dict.fromkeys(partitions, offset)}),
        }
        self.client.ask(request("OffsetCommit", **{**fields, **changes}), version)

    def fetch(self, topic: str, *, version: int = 9, **changes: Any) -> None:
        """OffsetFetch of partition 0 with its id and epoch, and the answer."""
        fields: dict[str, Any] = {
            "group_id": self.client.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "topics": [{"name": topic, "partition_indexes": [0]}],
        }
        self.client.ask(request("OffsetFetch", groups=[{**fields, **changes}]), version)

    def describe(self, *groups: str, version: int = 1) -> None:
        """ConsumerGroupDescribe of its own group, or of `groups`, and the answer."""
        self.client.describe_consumers(*groups, version=version)

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.error_code != ErrorCode.NONE:
            return
        if answer.member_id:
            self.member_id = answer.member_id
        if answer.member_epoch > 0:
            self.epoch = answer.member_epoch
        if answer.assignment is not None:
            names = self.stage.transcript.topics
            assigned = (
                (names[entry.topic_id], sorted(entry.partitions)) for entry in answer.assignment.topic_partitions
            )
            self.assigned = dict(sorted(assigned))

    def _partitions(self, owned: Owned) -> list[dict[str, Any]]:
        ids = {name: topic_id for topic_id, name in self.stage.transcript.topics.items()}
        return [{"topic_id": ids[name], "partitions": list(partitions)} for name, partitions in owned.items()]


class ClassicSeat:
    """A member of the classic protocol in a group of the consumer protocol, where each answer comes at once.

    topics: what it subscribes to. assigned: what its last SyncGroup brought; it says at each join that it owns that.
    """

    def __init__(self, client: Client, member_id: str) -> None:
        self.client = client
        self.given_id = member_id
        self.topics: list[str] = []
        self.assigned: dict[str, list[int]] = {}
        client.member_id = member_id

    def join(self, *, owns: Owned | None = None, **changes: Any) -> None:
        """JoinGroup and its answer."""
        client, owned = self.client, self.assigned if owns is None else owns
        metadata = owning(*self.topics, owned=owned, generation=client.generation)
        client.join(protocols=protocol_list({"range": metadata}), **changes)

    def sync(self, **changes: Any) -> None:
        """SyncGroup and its answer."""
        self.client.send_sync(**changes)
        answer = self.client.receive()
        if answer.error_code == ErrorCode.NONE:
            version, given = decode_versioned(ConsumerProtocolAssignment, answer.assignment)
            # Kafka has the topics in the order of a hash table.
            given.assigned_partitions.sort(key=lambda entry: entry.topic)
            answer.assignment = version.to_bytes(2, "big") + encode(given, version)
            self.assigned = {entry.topic: sorted(entry.partitions) for entry in given.assigned_partitions}

    def leave(self) -> None:
        """LeaveGroup and its answer; the same program may come back under the same id."""
        self.client.leave((self.client.member_id, None))
        self.client.member_id = self.given_id


def classic_seat(stage: Stage, name: str, *, instance: str | None = None) -> ClassicSeat:
    """A classic member on a connection of its own: a dynamic one names itself, a static one is given an id."""
    return ClassicSeat(stage.client(name, version=9, instance=instance), name if instance is None else "")


def seat(stage: Stage, name: str, *, instance: str | None = None, group: str | None = None, **settings: Any) -> Seat:
    """A member on a connection of its own; `settings` are Seat's fields."""
    client = stage.client(name, instance=instance, group=stage.group if group is None else group)
    return Seat(client, **{"member_id": name, **settings})


def settle(*members: Seat) -> None:
    """Heartbeats in turn, each confirming what the member was assigned, so often that nothing is left to move."""
    for _ in range(3):
        for member in members:
            member.confirm()


def described(stage: Stage, group: str | None = None) -> DescribedGroup:
    """A group's description, outside of the transcript."""
    asked = request("ConsumerGroupDescribe", group_ids=[stage.group if group is None else group])
    return cast("ConsumerGroupDescribeResponse", stage.ask_aside(asked, 1)).groups[0]


def until(stage: Stage, condition: Callable[[DescribedGroup], bool], group: str | None = None) -> None:
    """Wait until a group's description has a property."""
    stage.until_true(lambda: condition(described(stage, group)))


def until_epoch(stage: Stage, epoch: int, group: str | None = None) -> None:
    """Wait until the group is at this epoch by itself."""
    until(stage, lambda described: described.group_epoch == epoch, group)


def until_seats(stage: Stage, count: int, group: str | None = None) -> None:
    """Wait until the group has so many members."""
    until(stage, lambda described: len(described.members) == count, group)


def until_stable(stage: Stage) -> None:
    """Wait until the group is Stable."""
    until(stage, lambda described: described.group_state == "Stable")


def configure(stage: Stage, group: str | None = None, **values: str | int) -> None:
    """Settings of a group, outside of the transcript: session_timeout_ms=400 is consumer.session.timeout.ms.

    A topic that is created behind them is there only when they hold: Kafka brings changes to a coordinator in order.
    """
    configs = [
        {"name": f"consumer.{name.replace('_', '.')}", "config_operation": SET, "value": str(value)}
        for name, value in values.items()
    ]
    resource_name = stage.group if group is None else group
    resource = {"resource_type": GROUP, "resource_name": resource_name, "configs": configs}
    stage.ask_aside(request("IncrementalAlterConfigs", resources=[resource]), 1)
    stage.known_topic(f"fence.{stage.group}", 1)


def short_session(stage: Stage, timeout_ms: int) -> None:
    """A short session timeout for the members of the group."""
    configure(stage, heartbeat_interval_ms=100, session_timeout_ms=stage.timeout_ms(timeout_ms))


def delete_topic(stage: Stage, name: str) -> None:
    """Delete a topic, outside of the transcript."""
    stage.ask_aside(request("DeleteTopics", topics=[{"name": name}], timeout_ms=60_000), 6)


def grow_topic(stage: Stage, name: str, count: int) -> None:
    """Give a topic more partitions, outside of the transcript."""
    topic = {"name": name, "count": count, "assignments": None}
    stage.ask_aside(request("CreatePartitions", topics=[topic], timeout_ms=60_000), 2)


def owning(*topics: str, version: int = 3, owned: Owned | None = None, generation: int = -1) -> bytes:
    """A classic member's metadata: its subscription, in this version, and the partitions that it says it owns."""
    partitions = [
        ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=list(indexes))
        for name, indexes in (owned or {}).items()
    ]
    message = ConsumerProtocolSubscription(
        topics=list(topics), owned_partitions=partitions, generation_id=generation if version >= 2 else -1
    )
    return version.to_bytes(2, "big") + encode(message, version)


def assignment(**partitions: Iterable[int]) -> bytes:
    """A leader's assignment for a classic member, in version 0; a topic's name has _ in place of -."""
    assigned = [
        ConsumerProtocolAssignment.TopicPartition(topic=name.replace("_", "-"), partitions=list(indexes))
        for name, indexes in partitions.items()
    ]
    return b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), 0)
