"""The findings of `tenure doctor` about all groups, from the events in memory and the groups as they are now.

To describe a group costs its coordinator work, so at most EXAMINED_MAX groups are looked at: first those that are not
at rest, then those with the newest events. The answer says how many there are.

House rule: coordinator.story decides what is a finding; this module only asks for what it looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from coordinator.client.client import Client
from coordinator.client.examination import examine
from coordinator.client.groups import ListedGroup, list_known_groups
from coordinator.story.diagnosis import DROPPED, Finding
from coordinator.story.entries import timelines
from coordinator.story.events import RebalanceEvent, UnixMs, says
from coordinator.story.progress import Progress

EXAMINED_MAX = 500
"""The most groups that are looked at, with their timelines."""

FINDINGS_MAX = 500
"""The most findings in an answer, the worst first."""

AT_REST = frozenset({"", "Stable", "Empty"})


class FindingsJson(Struct):
    """The findings about all groups, as JSON."""

    at_ms: UnixMs
    groups: Annotated[int, says("how many there are")]
    looked_at: Annotated[int, says("how many of them were looked at")]
    findings: Annotated[list[Finding], says("the worst first")]
    further_findings: Annotated[int, says("how many are not in the list")]


def examined(
    client: Client, events: Sequence[RebalanceEvent], now_ms: int, progress: Progress | None = None
) -> FindingsJson:
    """The findings about all groups and their servers, as JSON. events: in the order of time. now_ms: Unix time.

    progress: of earlier looks; it gets this one.
    """
    listed, problems = list_known_groups(client)
    names = _worth_a_look(listed, events)[:EXAMINED_MAX]
    entries = {name: timeline.entries for name, timeline in timelines(names, events).items()}
    found = examine(client, entries, problems, now_ms, progress=progress)[1]
    # Events that were dropped may be of any group, so they are one finding, of none.
    once = [replace(finding, group_id=None) if finding.kind == DROPPED else finding for finding in found]
    told = list(dict.fromkeys(once))
    return FindingsJson(now_ms, len(listed), len(names), told[:FINDINGS_MAX], max(len(told) - FINDINGS_MAX, 0))


def _worth_a_look(listed: Sequence[ListedGroup], events: Sequence[RebalanceEvent]) -> list[str]:
    """The ids of the groups: those that are not at rest first, then those with the newest events."""
    newest = {event.group: place for place, event in enumerate(events)}
    ordered = sorted(listed, key=lambda group: (group.state in AT_REST, -newest.get(group.group_id, -1)))
    return [group.group_id for group in ordered]
