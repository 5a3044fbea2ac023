"""Counts of the requests that clients sent, per API and client id.

The count watches the server's faults, which see each request: while somebody watches, no connection answers a repeated
heartbeat or commit by its bytes.

House rule: a request counts when it arrives, whatever becomes of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from coordinator.server.faults.faults import Asked
from coordinator.server.faults.plan import Fault
from coordinator.server.wire.connection import Connection
from protocol.messages import API_KEYS

TOPICS_MAX = 1_000
"""Topics that are kept, with the clients that asked for them."""


class Requests:
    """The counts since the start. Any thread may ask for them."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._topics: dict[str, dict[str, None]] = {}

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

    @property
    def topics(self) -> Mapping[str, Collection[str]]:
        """Topic -> ids of the clients that asked for it in a Metadata or subscribed to it, whether it exists or not."""
        return {topic: list(clients) for topic, clients in self._topics.copy().items()}

    def clear(self) -> None:
        """Count from zero."""
        self._counts.clear()
        self._topics.clear()

    def see(self, _connection: Connection, asked: Asked, _fault: Fault | None) -> None:
        """Count a request: see `Faults.watch`."""
        self._counts[asked.api, asked.client_id or ""] += 1
        if asked.api == "Metadata":
            names: Iterable[str | None] = [topic.name for topic in asked.body.topics or ()]
        elif asked.api == "ConsumerGroupHeartbeat":
            names = asked.body.subscribed_topic_names or ()
        else:
            return
        for name in names:
            if name in self._topics or (name is not None and len(self._topics) < TOPICS_MAX):
                self._topics.setdefault(name, {})[asked.client_id or ""] = None
