"""A heartbeat of the consumer protocol that a client repeats: the same bytes, but for the correlation id.

A client sends the heartbeats of one member through its connection, and those of a steady member are all alike. So a
connection keeps the last one that dispatch answered, with the bytes of its answer. While the member stays steady
(`group.consumer.steady`), the same bytes get the same answer. Dispatch handles every other heartbeat.

House rule: a request with one other byte is another request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group.consumer.steady import Steady
from coordinator.server.wire.call import Services
from coordinator.server.wire.repeated_heartbeats import BEFORE, BEHIND, CORRELATION_ID, ID, pack_size
from protocol.connection import SIZE_BYTES
from protocol.header import encode_response
from protocol.messages import API_KEYS, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from protocol.messages import ConsumerGroupHeartbeatRequest

CONSUMER_HEARTBEAT = API_KEYS["ConsumerGroupHeartbeat"]

BYTES_MAX = 512
"""Longer heartbeats are not kept, because a client can choose long names. One with ids of 36 characters has 130 bytes.
"""


class Beat:
    """A connection's last heartbeat of a steady member."""

    __slots__ = ("_before", "_behind", "_head", "_measures", "_ms", "_steady", "_tail")

    def __init__(self, services: Services, frame: bytes, outcome: bytes, steady: Steady) -> None:
        self._measures = services.measures
        self._ms = services.clock.ms
        self._steady = steady
        self._before = pack_size(len(frame)) + frame[:4]
        self._behind = frame[8:]
        self._head, self._tail = outcome[: CORRELATION_ID.start], outcome[CORRELATION_ID.stop :]

    def answer(self, data: bytes) -> bytes | None:
        """The answer to a request, both with their sizes; None if dispatch has to answer."""
        if data[BEHIND] != self._behind or data[BEFORE] != self._before or not self._steady.again(self._ms()):
            return None
        self._measures.repeated_beats += 1
        return self._head + data[ID] + self._tail


class LeasedBeat(Beat):
    """`Beat` on a node of a cluster: see `LeasedHeartbeats`."""

    __slots__ = ("_is_sure",)

    def __init__(self, services: Services, frame: bytes, outcome: bytes, steady: Steady) -> None:
        super().__init__(services, frame, outcome, steady)
        self._is_sure = services.runtime.is_sure

    def answer(self, data: bytes) -> bytes | None:
        """As `Beat.answer`."""
        return super().answer(data) if self._is_sure() else None


def beat_of(
    services: Services, frame: bytes, version: int, request: ConsumerGroupHeartbeatRequest, outcome: object
) -> Beat | None:
    """The `Beat` of a request that dispatch has just answered; None if the answer may differ next time."""
    if len(frame) + SIZE_BYTES > BYTES_MAX or not isinstance(outcome, bytes):
        return None
    steady = services.runtime.partition_of(request.group_id).steady(request.group_id, request.member_id)
    if steady is None:
        return None
    # A refusal, or an answer with an assignment, has other bytes.
    expected = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=steady.epoch, heartbeat_interval_ms=steady.interval_ms
    )
    correlation_id = int.from_bytes(frame[CORRELATION_ID], signed=True)
    if encode_response(CONSUMER_HEARTBEAT, version, correlation_id, expected) != outcome:
        return None
    kind = Beat if services.runtime.lease is None else LeasedBeat
    return kind(services, frame, outcome, steady)
