"""The life of a member of the consumer protocol (KIP-848) without a client: heartbeats, and what their answers ask for.

It joins with epoch 0. When an answer has an assignment, it gives up what is not in it and says so with the next
heartbeat, at once unless it is slow. A static member that restarts says that it will be back, as a client does that
closes.

House rule: as in `member`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import ClassVar
from uuid import UUID, uuid4

from coordinator.client.client import metadata_request
from coordinator.client.errors import Refused, Unreachable
from coordinator.group.consumer.group import AWAY, JOINING, LEFT
from coordinator.testing.member import Crew, Doing, Life
from protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, MetadataResponse
from schemas.errors import ErrorCode

Owned = dict[UUID, frozenset[int]]
"""Topic id -> partitions."""


class ConsumerLife(Life):
    """One member. Its methods run on the loop."""

    JOINS_AGAIN: ClassVar[Collection[int]] = {ErrorCode.FENCED_MEMBER_EPOCH}

    def __init__(self, crew: Crew, index: int, instance_id: str | None) -> None:
        super().__init__(crew, index, instance_id)
        self._epoch = JOINING
        self._owned: Owned = {}
        self._names: dict[UUID, str] = {}
        self._says_owned = False
        self._interval_s = crew.interval_s

    async def restart(self) -> None:
        """End, and begin to live again. A static member says before that it will be back."""
        async with self._turn:
            await self.end()
            if self.seen.instance_id is not None and self.seen.doing is Doing.SEATED and not self.seen.is_silent:
                with suppress(Refused, Unreachable):
                    await self._say_goodbye(AWAY)
            self.start()

    async def _say_goodbye(self, epoch: int = LEFT) -> None:
        answer: ConsumerGroupHeartbeatResponse = await self._ask_last(self._request(epoch))
        if answer.error_code:
            raise Refused(answer.error_code, f"the last heartbeat of {self.name}")

    async def _enter(self) -> None:
        """Join, until the coordinator knows the member. Raises Unreachable, Refused."""
        while self.seen.doing is Doing.JOINING:
            self._crew.enters(self)
            if not self.seen.member_id:
                self._see(member_id=str(uuid4()))
            self._epoch, self._owned = JOINING, {}
            request = self._request(JOINING)
            request.rebalance_timeout_ms = self._crew.join.rebalance_timeout_ms
            request.subscribed_topic_names = list(self._crew.topics)
            request.topic_partitions = []
            answer: ConsumerGroupHeartbeatResponse = await self._ask(request)
            if self._goes_on("ConsumerGroupHeartbeat", answer.error_code):
                self._see(doing=Doing.SEATED, trouble="")
                await self._take(answer)
        self._crew.entered(self)

    async def _stay(self) -> None:
        """Send heartbeats until the coordinator doesn't know the member any more. Raises Unreachable, Refused."""
        while self.seen.doing is Doing.SEATED:
            if not self._says_owned:
                await self._pause_for(self._interval_s)
            request = self._request(self._epoch)
            if self._says_owned:
                request.topic_partitions = [
                    ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                    for topic_id, partitions in self._owned.items()
                ]
                self._says_owned = False
            answer: ConsumerGroupHeartbeatResponse = await self._ask(request)
            if self._goes_on("ConsumerGroupHeartbeat", answer.error_code):
                await self._take(answer)
            else:
                self._see(assignment={})

    async def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        """Take the epoch and the assignment of an answer; give up what is not in it, late if the member is slow."""
        self._interval_s = min(self._crew.interval_s, answer.heartbeat_interval_ms / 1_000)
        self._epoch = answer.member_epoch
        self._see(generation=answer.member_epoch)
        if answer.assignment is None:
            return
        given = {each.topic_id: frozenset(each.partitions) for each in answer.assignment.topic_partitions}
        if self.slow_s and any(held - given.get(topic_id, frozenset()) for topic_id, held in self._owned.items()):
            await self._work_on()
        names = await self._names_of(given)
        self._owned = given
        self._says_owned = True
        self._see(assignment={names[topic_id]: sorted(held) for topic_id, held in given.items()})

    async def _work_on(self) -> None:
        """Send heartbeats that give up nothing, until the member is slow no more."""
        began_s = self._time_s()
        while (left_s := began_s + self.slow_s - self._time_s()) > 0:
            await self._pause_for(min(left_s, self._interval_s))
            await self._ask(self._request(self._epoch))

    async def _names_of(self, topic_ids: Mapping[UUID, object]) -> dict[UUID, str]:
        """The names of topics; "" for one that is gone."""
        if topic_ids.keys() - self._names.keys():
            answer: MetadataResponse = await self._ask(metadata_request(self._crew.topics))
            self._names |= {topic.topic_id: topic.name or "" for topic in answer.topics}
        return {topic_id: self._names.get(topic_id, "") for topic_id in topic_ids}

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._crew.join.group_id,
            member_id=self.seen.member_id,
            member_epoch=epoch,
            instance_id=self.seen.instance_id,
        )
