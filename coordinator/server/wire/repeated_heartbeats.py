"""Heartbeats that repeat one that got NONE: the same bytes, but for the correlation id.

A member's heartbeats stay the same until its group rebalances. So this module keeps a heartbeat that `Api.dispatch`
answered with NONE, by its bytes and with its member. The next one needs one look-up, however many groups there are; the
member itself knows whether the answer still holds (`again`). Dispatch handles every other answer.

A member has one entry: a client can send its heartbeat under any number of client ids, and each is another request.

Two tables, young and old. A hit moves an entry to young. Every ROTATE_MS old is dropped and young becomes old. So
nothing refers to a member for long after it is gone.

A node of a cluster looks before each answer whether it is sure of its groups. If not, dispatch decides.

House rule: a request with one other byte is another request.
"""

from __future__ import annotations

import struct
from functools import cache

from coordinator.group.classic.heartbeat import again, remember
from coordinator.group.group import Group, Member
from coordinator.loop.clock import Alarm
from coordinator.server.wire.call import Services
from protocol.connection import SIZE_BYTES
from protocol.header import encode_response
from protocol.messages import API_KEYS, HeartbeatResponse
from schemas.errors import ErrorCode

HEARTBEAT = API_KEYS["Heartbeat"]
HEARTBEAT_BYTES = HEARTBEAT.to_bytes(2)

ROTATE_MS = 60_000
"""How often the tables rotate. An entry without a hit goes after one to two such times."""

BYTES_MAX = 512
"""Longer heartbeats are not kept, because a client can choose long names. Kafka Streams' have about 260 bytes; the
client id stands in them twice.
"""

REMEMBERED_MAX = 131_072
"""Heartbeats in one table, because any number of members can join and leave. A full table rotates."""

CORRELATION_ID = slice(4, 8)
"""Position of the correlation id in a request's frame, and in a response with its size."""

KEY, BEFORE, ID, BEHIND = slice(4, 6), slice(8), slice(8, 12), slice(12, None)
"""The parts of a request with its size: API key, all before the correlation id, the id, all behind it. Before Python
3.12, making a slice takes a third of the time of cutting with it.
"""

pack_size = struct.Struct(">i").pack


class Heartbeats:
    """The heartbeats of all connections of one principal: equal bytes get the same answer on every connection."""

    def __init__(self, services: Services) -> None:
        self._measures = services.measures
        self._ms = services.clock.ms
        self._alarm: Alarm[str] = Alarm(services.clock, self._rotate)
        # The key is the request without its correlation id.
        self._young: dict[bytes, Member] = {}
        self._old: dict[bytes, Member] = {}
        # The answer's bytes around the correlation id, by the request's bytes before its own.
        self._answers: dict[bytes, tuple[bytes, bytes]] = {}

    def answer(self, data: bytes) -> bytes | None:
        """The answer to a request, both with their sizes; None if dispatch has to answer."""
        if data[KEY] != HEARTBEAT_BYTES or len(data) > BYTES_MAX:
            return None
        before = data[BEFORE]
        beat = before + data[BEHIND]
        member = self._young.get(beat) or self._find_old(beat)
        if member is None:
            return None
        if not again(member, beat, self._ms()):
            # The member keeps another heartbeat, or none.
            del self._young[beat]
            return None
        self._measures.repeated_heartbeats += 1
        head, tail = self._answers[before]
        return head + data[ID] + tail

    def _find_old(self, beat: bytes) -> Member | None:
        member = self._old.pop(beat, None)
        if member is not None:
            self._keep(beat, member)
        return member

    def remember(self, frame: bytes, version: int, group: Group, member: Member) -> None:
        """Keep a heartbeat that just got NONE."""
        if len(frame) + SIZE_BYTES > BYTES_MAX:
            return
        before = pack_size(len(frame)) + frame[:4]
        beat = before + frame[8:]
        if before not in self._answers:
            self._answers[before] = template(version, ErrorCode.NONE)
        former = remember(group, member, beat)
        if isinstance(former, bytes):
            self._young.pop(former, None)
            self._old.pop(former, None)
        self._keep(beat, member)

    def _keep(self, beat: bytes, member: Member) -> None:
        if len(self._young) >= REMEMBERED_MAX:
            self._rotate()
        elif "rotate" not in self._alarm:
            self._arm()
        self._young[beat] = member

    def _arm(self) -> None:
        self._alarm.arm("rotate", self._ms() + ROTATE_MS)

    def _rotate(self, _: str = "") -> None:
        """Drop the old table; the young one becomes old."""
        self._old, self._young = self._young, {}
        if self._old:
            self._arm()

    def forget(self) -> None:
        """Drop all entries: dispatch has to answer each heartbeat once more."""
        self._alarm.stop()
        self._young.clear()
        self._old.clear()


class LeasedHeartbeats(Heartbeats):
    """`Heartbeats` on a node of a cluster: it answers only while the node is sure of its lease."""

    # A class of its own: a server without a lease spends nothing on it.

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._is_sure = services.runtime.is_sure

    def answer(self, data: bytes) -> bytes | None:
        """As `Heartbeats.answer`."""
        return super().answer(data) if self._is_sure() else None


def heartbeats_of(services: Services) -> Heartbeats:
    """The heartbeats of one principal."""
    return Heartbeats(services) if services.runtime.lease is None else LeasedHeartbeats(services)


@cache
def template(version: int, error: int) -> tuple[bytes, bytes]:
    """The bytes of a heartbeat's answer before and behind the correlation id."""
    whole = encode_response(HEARTBEAT, version, 0, HeartbeatResponse(error_code=error))
    return whole[: CORRELATION_ID.start], whole[CORRELATION_ID.stop :]
