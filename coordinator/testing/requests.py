"""Counts of the requests that clients sent, per API and client id.

The count stands around `Api.dispatch`. A connection answers repeated heartbeats and commits before dispatch sees them,
so the count keeps each connection's `may_short_cut` off: a server under test works more slowly, and counts all.

House rule: a request counts when it arrives, whatever becomes of it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from protocol.errors import ProtocolError
from protocol.header import decode_request_header
from protocol.messages import API_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.server.wire.connection import Connection
    from coordinator.server.wire.listener import Dispatch

NAMES = {api_key: name for name, api_key in API_KEYS.items()}


class Requests:
    """The counts since the start. Any thread may ask for them."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, api: str | None = None, client_id: str | None = None) -> int:
        """How many requests came. api: as Kafka names it, "OffsetCommit"; None for all.

        client_id: "" for requests without one; None for all clients. Raises ValueError if there is no such API.
        """
        if api is not None and api not in API_KEYS:
            raise ValueError(f"there is no API {api!r}; Kafka's names are {', '.join(sorted(API_KEYS))}")
        return sum(
            number
            for (name, sender), number in self._counts.copy().items()
            if api in {None, name} and client_id in {None, sender}
        )

    @property
    def by_client(self) -> Mapping[str, Mapping[str, int]]:
        """Client id -> API -> number."""
        found: dict[str, dict[str, int]] = {}
        for (api, client_id), number in sorted(self._counts.copy().items()):
            found.setdefault(client_id, {})[api] = number
        return found

    def clear(self) -> None:
        """Count from zero."""
        self._counts.clear()

    def around(self, dispatch: Dispatch) -> Dispatch:
        """See `Server`: a dispatch that counts."""

        def counted(connection: Connection, frame: bytes) -> bytes | list[bytes] | None:
            try:
                api_key, _, _, client_id, _ = decode_request_header(frame)
            except ProtocolError:
                return dispatch(connection, frame)  # which says what is wrong with it
            self._counts[NAMES[api_key], client_id or ""] += 1
            answer = dispatch(connection, frame)
            connection.may_short_cut = False
            return answer

        return counted
