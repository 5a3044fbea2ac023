"""Heartbeats that repeat one that got a plain yes: the same bytes, but for the correlation id.

A member's heartbeats differ in nothing else until its group rebalances. So what `Api.dispatch` let through once is
remembered by its bytes, with the member that they are about, and the next one is answered by that: whose it is, is
found with one look-up, among however many groups. Nothing is remembered of the answer; whatever may have changed is
seen in the member and its group each time, and any answer but a plain yes is left to dispatch.

What no longer holds is forgotten when it is heard of, and what isn't heard of for long. There are two tables: of those
heard of since a while ago, and of those only before; the latter goes when the next while begins, and with it the last
that is known of a group that was deleted.

House rule: what isn't the same to the last byte isn't the same request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from coordinator.group.heartbeat import again
from coordinator.server.clock import Alarm
from protocol.header import encode_response
from protocol.messages import API_KEYS, HeartbeatResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.group.group import Group, Member
    from coordinator.server.call import Services
    from coordinator.server.runtime import Partition
    from protocol.messages import HeartbeatRequest

HEARTBEAT = API_KEYS["Heartbeat"]

FORGOTTEN_MS = 60_000
"""Whoever isn't heard of for so long is forgotten, and at the latest after twice as long."""

BYTES_MAX = 512
"""Longer heartbeats are not remembered: a client may choose long names for itself. Those of Kafka Streams, in which the
client id stands twice, have some 260."""

REMEMBERED_MAX = 131_072
"""Heartbeats in one table: a client can make up any number of them. When there are more, the next while begins."""

CORRELATION_ID = slice(4, 8)
"""Where the correlation id stands: in a request's frame, and in a response with its size in front."""

BEHIND = slice(12, None)
"""What stands behind the correlation id in a request with its size in front. Before Python 3.12, to make a slice takes
a third of the time that it takes to cut."""

split: Callable[[bytes], tuple[bytes, bytes]] = struct.Struct("8s4s").unpack_from
"""What stands before the correlation id in a request with its size in front, and the id."""

pack_size = struct.Struct(">i").pack

Known = tuple[bytes, "Partition", int, "Group", "Member", str, int, bytes, bytes]
"""A heartbeat that got NONE: its bytes before the correlation id, size included; its partition, and that one's life;
group, member, member id, generation; the answer before and behind the correlation id.

A plain tuple, because one with names takes several times as long to take apart.
"""


class Heartbeats:
    """Those of all connections: whoever may send one gets the same answer.

    If it should matter who asks, as with ACLs, there is to be one of these for each who may.
    """

    def __init__(self, services: Services) -> None:
        self._measures = services.measures
        self._ms = services.clock.ms
        self._alarm: Alarm[str] = Alarm(services.clock, self._begin)
        # By what stands behind the correlation id.
        self._recent: dict[bytes, Known] = {}
        self._older: dict[bytes, Known] = {}

    def answer(self, data: bytes) -> bytes | None:
        """The answer, size included, to the request that `data` is, size included; None if dispatch has to answer."""
        if len(data) > BYTES_MAX:
            return None
        behind = data[BEHIND]
        known = self._recent.get(behind) or self._older_one(behind)
        if known is None:
            return None
        start, partition, life, group, member, member_id, generation, head, tail = known
        begins, correlation_id = split(data)
        if begins != start:
            return None
        if partition.life != life or not again(group, member, member_id, generation, self._ms()):
            # Nor will it ever hold again: generations and lives grow.
            del self._recent[behind]
            return None
        self._measures.repeated_heartbeats += 1
        return head + correlation_id + tail

    def _older_one(self, behind: bytes) -> Known | None:
        known = self._older.pop(behind, None)
        if known is not None:
            self._keep(behind, known)
        return known

    def remember(self, frame: bytes, version: int, request: HeartbeatRequest, partition: Partition) -> None:
        """Remember a heartbeat that got NONE; `partition`: where its group is."""
        if len(frame) + 4 > BYTES_MAX:
            return
        group = partition.coordinator.groups[request.group_id]
        member = group.members[request.member_id]
        known = (
            start_of(len(frame), frame[:4]),
            partition,
            partition.life,
            group,
            member,
            member.member_id,
            request.generation_id,
            *template(version, ErrorCode.NONE),
        )
        self._keep(frame[8:], known)

    def _keep(self, behind: bytes, known: Known) -> None:
        if len(self._recent) >= REMEMBERED_MAX:
            self._begin()
        elif "while" not in self._alarm:
            self._expect()
        self._recent[behind] = known

    def _expect(self) -> None:
        self._alarm.arm("while", self._ms() + FORGOTTEN_MS)

    def _begin(self, _: str = "") -> None:
        """The next while begins."""
        self._older, self._recent = self._recent, {}
        if self._older:
            self._expect()

    def forget(self) -> None:
        """Leave all to dispatch, until it has been asked once more."""
        self._alarm.stop()
        self._recent.clear()
        self._older.clear()


@cache
def start_of(frame_size: int, kind: bytes) -> bytes:
    """What stands before the correlation id; one for all that have the same, which so stays at hand."""
    return pack_size(frame_size) + kind


@cache
def template(version: int, error: int) -> tuple[bytes, bytes]:
    """What stands before and behind the correlation id of a heartbeat's answer."""
    whole = encode_response(HEARTBEAT, version, 0, HeartbeatResponse(error_code=error))
    return whole[: CORRELATION_ID.start], whole[CORRELATION_ID.stop :]
