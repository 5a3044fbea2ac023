"""Heartbeats that repeat one that got a plain yes: the same bytes, but for the correlation id.

A member's heartbeats differ in nothing else until its group rebalances. So what `Api.dispatch` let through once is
remembered by its bytes, with the member that they are about, and the next one is answered by that: whose it is, is
found with one look-up, among however many groups, and whether it still holds, the member knows by itself (`again`).
Any answer but a plain yes is left to dispatch.

What no longer holds is forgotten when it is heard of, and what isn't heard of for long. There are two tables: of those
heard of since a while ago, and of those only before; the latter goes when the next while begins, and with it the last
that is known of a member that is gone.

House rule: what isn't the same to the last byte isn't the same request.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

from coordinator.group.classic.heartbeat import again, remember
from coordinator.server.clock import Alarm
from protocol.connection import SIZE_BYTES
from protocol.header import encode_response
from protocol.messages import API_KEYS, HeartbeatResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.group.group import Group, Member
    from coordinator.server.wire.call import Services

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

BEFORE, ID, BEHIND = slice(8), slice(8, 12), slice(12, None)
"""Before, at and behind the correlation id in a request with its size in front. Before Python 3.12, to make a slice
takes a third of the time that it takes to cut."""

pack_size = struct.Struct(">i").pack


class Heartbeats:
    """Those of all connections of one principal: the same bytes get the same answer, whichever connection they use."""

    def __init__(self, services: Services) -> None:
        self._measures = services.measures
        self._ms = services.clock.ms
        self._alarm: Alarm[str] = Alarm(services.clock, self._begin)
        # By all of the request but its correlation id.
        self._recent: dict[bytes, Member] = {}
        self._older: dict[bytes, Member] = {}
        # What stands before and behind the correlation id of the answer, by what stands before that of the request.
        self._answers: dict[bytes, tuple[bytes, bytes]] = {}

    def answer(self, data: bytes) -> bytes | None:
        """The answer, size included, to the request that `data` is, size included; None if dispatch has to answer."""
        if len(data) > BYTES_MAX:
            return None
        before = data[BEFORE]
        beat = before + data[BEHIND]
        member = self._recent.get(beat) or self._older_one(beat)
        if member is None:
            return None
        if not again(member, beat, self._ms()):
            # Its member keeps another one, or none.
            del self._recent[beat]
            return None
        self._measures.repeated_heartbeats += 1
        head, tail = self._answers[before]
        return head + data[ID] + tail

    def _older_one(self, beat: bytes) -> Member | None:
        member = self._older.pop(beat, None)
        if member is not None:
            self._keep(beat, member)
        return member

    def remember(self, frame: bytes, version: int, group: Group, member: Member) -> None:
        """Remember a heartbeat that just got NONE."""
        if len(frame) + SIZE_BYTES > BYTES_MAX:
            return
        before = pack_size(len(frame)) + frame[:4]
        beat = before + frame[8:]
        if before not in self._answers:
            self._answers[before] = template(version, ErrorCode.NONE)
        remember(group, member, beat)
        self._keep(beat, member)

    def _keep(self, beat: bytes, member: Member) -> None:
        if len(self._recent) >= REMEMBERED_MAX:
            self._begin()
        elif "while" not in self._alarm:
            self._expect()
        self._recent[beat] = member

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
def template(version: int, error: int) -> tuple[bytes, bytes]:
    """What stands before and behind the correlation id of a heartbeat's answer."""
    whole = encode_response(HEARTBEAT, version, 0, HeartbeatResponse(error_code=error))
    return whole[: CORRELATION_ID.start], whole[CORRELATION_ID.stop :]
