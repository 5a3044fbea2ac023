"""Timelines (timeline.py) of some groups, of their newest entries alone where no more is asked for.

The events are read from the end backwards until what was read has so many entries of each group that began in it, where
restarts that repeat each other count as one (folding.py). An entry that may have begun before is not enough: what tells
its beginning may stand further back.

House rule: the newest entries are those that reading everything brings, to the last field.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coordinator.timeline.entries import Timeline
from coordinator.timeline.folding import whole

if TYPE_CHECKING:
    from coordinator.client.events import EventReader
    from coordinator.timeline.schema import RebalanceEvent


def read_timelines(reader: EventReader, group_ids: Iterable[str], last: int | None = None) -> dict[str, Timeline]:
    """What happened to these groups, from where the reader is on.

    last: no more than so many of the newest entries of each are needed, a fold counted as one (folding.newest takes
    them); there may be more, and the oldest then are not told whole.
    """
    wanted = list(group_ids)
    if last is None:
        return _timelines(wanted, reader.read())
    timelines = _timelines(wanted, ())
    for events, since_ms in reader.read_back():
        timelines = _timelines(wanted, events)
        if all(_are_whole(timeline, last, since_ms) for timeline in timelines.values()):
            break
    return timelines


def _timelines(group_ids: list[str], events: Iterable[RebalanceEvent]) -> dict[str, Timeline]:
    timelines = {group_id: Timeline(group_id) for group_id in group_ids}
    for event in events:
        if event["group"] is None:
            for timeline in timelines.values():
                timeline.add(event)
        elif event["group"] in timelines:
            timelines[event["group"]].add(event)
    return timelines


def _are_whole(timeline: Timeline, last: int, since_ms: int) -> bool:
    """Whether the newest entries are as they would be if all was read; a group of which only gaps are told is none."""
    return len(whole(timeline.entries, since_ms)) >= last and any(entry["type"] != "gap" for entry in timeline.entries)
