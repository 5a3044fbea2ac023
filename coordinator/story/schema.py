"""The topic `__rebalance_events`: its name, and what the server queues for it.

`events` has the events and their JSON, `making` makes them of notes. Both need a library that a start of the server has
no time for, so this module imports neither.

House rule: constants and plain values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from coordinator.group import notes

EVENTS_TOPIC = "__rebalance_events"
"""Tenure's internal topic for events, with a partition for each node."""

NOTHING: Mapping[str, Any] = {}

STREAMS = "streams"
"""`group_type` of an event of a streams group, which Apache Kafka has (KIP-1071)."""

SELF, CONFLICT = "self", "conflict"
"""Kinds of a fencing: a client met an earlier request of its own, or two programs have one instance id."""

UNKNOWN = "unknown"
"""The kind of an inferred cause where several kinds fit; `possible` has them (coordinator.story.inference)."""


class TimedNote(NamedTuple):
    """A note, and when it happened (Unix time in ms). extra: fields that the server adds to the note's."""

    at_ms: int
    note: notes.Note
    extra: Mapping[str, Any] = NOTHING


class Gap(NamedTuple):
    """Events that could not be kept: how many, and the first and last time (Unix time in ms)."""

    events: int
    first_ms: int
    last_ms: int


@cache
def event_name(class_name: str) -> str:
    """The stable name of a note's class: rebalance_started for RebalanceStarted."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()
