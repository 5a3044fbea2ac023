"""The next events of a reader, without their places."""

from __future__ import annotations

from coordinator.client.events import Poller
from coordinator.story.events import RebalanceEvent


def poll(reader: Poller, wait_ms: int = 0) -> list[RebalanceEvent]:
    """Poll a reader, as `poll_placed` does."""
    return [each.event for each in reader.poll_placed(wait_ms)]
