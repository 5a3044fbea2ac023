"""Members of the consumer protocol that do only what a test says (KIP-848).

A member remembers its epoch and its partitions from the answers. It says what it owns only if the test has it say so.
"""

from __future__ import annotations

import uuid
from typing import Any
from uuid import UUID

from protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tests.support.raw import Connection
from tests.support.scripted import OPENED

AWAY, LEFT = -2, -1
TIMEOUT_MS = 60_000


class Beating:
    """A member of the consumer protocol.

    instance: None for a dynamic one. timeout_ms: its rebalance timeout. topics, regex: its subscription.
    partitions: those of its last assignment, by topic id.
    """

    def __init__(self, port: int, group: str, name: str, topics: list[str] | None = None, **says: Any) -> None:
        self.name = name
        self.group = group
        self.topics = topics
        self.regex = says.pop("regex", None)
        self.instance = says.pop("instance", None)
        self.timeout_ms = says.pop("timeout_ms", TIMEOUT_MS)
        assert not says
        self.connection = Connection(port, name)
        OPENED.append(self.connection)
        self.member_id = f"{name}-{uuid.uuid4()}"
        self.epoch = 0
        self.partitions: dict[UUID, list[int]] = {}

    def ask(self, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with this epoch and return its answer."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance, **fields
        )
        self.connection.send(request, 1)
        answer = self.connection.receive()
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def join(self) -> int:
        """Join, and return the error code."""
        return self._say_all(0, [])

    def beat(self, *, owns: bool = False) -> int:
        """Send a heartbeat and return the error code. owns: with the partitions of the last assignment."""
        return self._take(self.ask(self.epoch, topic_partitions=self._owned() if owns else None))

    def subscribe(self, topics: list[str]) -> int:
        """Subscribe to other topics, and return the error code."""
        self.topics = topics
        return self._say_all(self.epoch, self._owned())

    def leave(self, epoch: int = LEFT) -> int:
        """Leave for good, or with AWAY for a while; the error code."""
        return self.ask(epoch).error_code

    def _say_all(self, epoch: int, owned: list[ConsumerGroupHeartbeatRequest.TopicPartitions]) -> int:
        said = self.ask(
            epoch,
            rebalance_timeout_ms=self.timeout_ms,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.regex,
            topic_partitions=owned,
        )
        return self._take(said)

    def _owned(self) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in self.partitions.items()
        ]

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> int:
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.partitions = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer.error_code


def settle(*members: Beating) -> None:
    """Send heartbeats until each member has given up and got what the target wants: at most three rounds."""
    for _ in range(3):
        for member in members:
            assert member.beat(owns=True) == 0
