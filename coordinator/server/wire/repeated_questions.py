"""ApiVersions, Metadata and FindCoordinator that repeat another: the same bytes, but for correlation id and client id.

Each program asks all three when it starts, and the handler of Metadata makes ten times as many calls of Python for a
topic of a hundred partitions as a static member's restart. So this module keeps answers by the bytes of their requests,
by the client's rights, and by the way it reached this server. A handler says which answers may be kept
(`Call.may_repeat`). All of them go when the list of topics changes in any way: it has also the access rules and the
settings that clients change.

House rule: an answer with an error isn't kept, because its handler may do more than answer: log it, or create a topic.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.server.wire.call import Call, Services
from coordinator.server.wire.connection import Connection
from coordinator.server.wire.repeated_heartbeats import CORRELATION_ID
from protocol.messages import API_KEYS

API_VERSIONS = API_KEYS["ApiVersions"]
QUESTIONS = frozenset({API_VERSIONS, API_KEYS["Metadata"], API_KEYS["FindCoordinator"]})

SOFTWARE_SINCE = 3
"""The version of ApiVersions from which on a client gives its name and version."""

QUESTION_MAX = 32 * 1024
"""Bytes of a request that may be kept: a hundred topics. Looking for a larger one would hold up others."""

KEPT_BYTES_MAX = 1024 * 1024
"""Bytes of all kept requests and answers. If there are more, all go: clients can ask for any topics."""

OVERHEAD = 512
"""Bytes that a kept answer takes beside these."""

_Key = tuple[bytes, bytes, str, str, str, bool]


class _Kept(NamedTuple):
    """An answer around its correlation id. software: the name and version that an ApiVersions gives, else ""."""

    head: bytes
    tail: bytes
    software: str


class Questions:
    """The kept answers of all connections."""

    def __init__(self, services: Services) -> None:
        self._access = services.access
        self._discovery = services.discovery
        self._topics = services.discovery.topics
        self._answers = services.measures.answers
        self._kept: dict[_Key, _Kept] = {}
        self._size = 0
        # The number of changes of the list of topics that the kept answers know of.
        self._changes = 0

    def answer(
        self, connection: Connection, api_key: int, client_id: str | None, owner: str, frame: bytes, offset: int
    ) -> bytes | None:
        """The answer to a question, with its size; None if its handler has to answer.

        owner: who asks, and from where if that matters. offset: where the request's body starts.
        """
        if self._changes != self._topics.changes:
            self._forget()
        kept = self._kept.get(self._key(connection, owner, frame, offset))
        if kept is None or self._access.on_allowed is not None:
            return None
        head, tail, software = kept
        if software:
            connection.set_software(software)
        connection.client(client_id)  # faults find the connection by it
        self._answers[api_key, 0] += 1
        return head + frame[CORRELATION_ID] + tail

    def keep(self, connection: Connection, call: Call, owner: str, frame: bytes, offset: int, answer: bytes) -> None:
        """Keep the answer that a call was just given."""
        if self._changes != self._topics.changes:
            self._forget()
        self._size += len(frame) + len(answer) + OVERHEAD
        if self._size > KEPT_BYTES_MAX:
            self._forget()
            return
        gives_software = call.api_key == API_VERSIONS and call.api_version >= SOFTWARE_SINCE
        software = connection.software if gives_software else ""
        kept = _Kept(answer[: CORRELATION_ID.start], answer[CORRELATION_ID.stop :], software)
        self._kept[self._key(connection, owner, frame, offset)] = kept

    def _key(self, connection: Connection, owner: str, frame: bytes, offset: int) -> _Key:
        """API key and version, body, who asks, how it reached this server, whether it sees `__transaction_state`."""
        reached = connection.listener, connection.local_host
        return frame[:4], frame[offset:], owner, *reached, self._discovery.shows_ids

    def _forget(self) -> None:
        self._changes = self._topics.changes
        self._kept.clear()
        self._size = 0
