"""Counts of the requests that clients sent, per API and client id.

The count watches the server's faults, which see each request: while somebody watches, no connection answers a repeated
heartbeat or commit by its bytes.

House rule: a request counts when it arrives, whatever becomes of it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from protocol.messages import API_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.server.faults.faults import Asked
    from coordinator.server.faults.plan import Fault
    from coordinator.server.wire.connection import Connection


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

    def see(self, _connection: Connection, asked: Asked, _fault: Fault | None) -> None:
        """Count a request: see `Faults.watch`."""
        self._counts[asked.api, asked.client_id or ""] += 1
