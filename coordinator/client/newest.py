"""Timelines (coordinator.story.entries) of some groups, if possible without reading all events.

The reader goes back from the end of the topic until each group has enough entries that began in the part that was read.
Restarts that repeat each other count as one entry (coordinator.story.folding). An entry that may have begun earlier
doesn't count, because its first events may be further back.

House rule: the newest entries equal those of a full read, in every field.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coordinator.story.entries import Timeline, timelines
from coordinator.story.folding import whole

if TYPE_CHECKING:
    from coordinator.client.offsets_log import GroupReader


def read_timelines(reader: GroupReader, group_ids: Iterable[str], last: int | None = None) -> dict[str, Timeline]:
    """The timelines of these groups, from the reader's position on.

    last: the caller needs only so many of the newest entries of each group, and a fold counts as one (folding.newest
    takes them). A timeline may have more entries; then the oldest of them may be incomplete.
    """
    wanted = list(group_ids)
    if last is None:
        return timelines(wanted, reader.read())
    found = timelines(wanted, ())
    for events, since_ms in reader.read_back():
        found = timelines(wanted, events)
        if all(_are_whole(timeline, last, since_ms) for timeline in found.values()):
            break
    return found


def _are_whole(timeline: Timeline, last: int, since_ms: int) -> bool:
    """Whether the newest entries equal those of a full read; a timeline with only gaps doesn't count."""
    return len(whole(timeline.entries, since_ms)) >= last and not timeline.is_empty
