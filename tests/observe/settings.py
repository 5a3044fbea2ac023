"""The settings of a consumer's process.

House rule: imports no client, whose modules warn.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """A consumer's settings; times in ms.

    client: `confluent`, `aiokafka` or `kafka-python`. protocol: `classic` or `consumer`. commit_ms: how often it
    commits by itself; 0: never.
    """

    client: str
    bootstrap: str
    group: str
    topics: tuple[str, ...]
    name: str
    instance_id: str | None = None
    protocol: str = "classic"
    assignor: str = "range"
    session_ms: int = 3_000
    heartbeat_ms: int = 300
    max_poll_ms: int = 10_000
    commit_ms: int = 500

    def text(self) -> str:
        """The settings as the process takes them."""
        return json.dumps(asdict(self))
