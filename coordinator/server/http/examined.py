"""The findings of `tenure doctor` about all groups, from the events in memory and the groups as they are now.

To describe a group costs its coordinator work, so at most EXAMINED_MAX groups are looked at: first those that are not
at rest, then those with the newest events. The answer says how many there are.

House rule: coordinator.story decides what is a finding; this module only asks for what it looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coordinator.client.client import COORDINATOR_MOVED
from coordinator.client.errors import Refused, error_name
from coordinator.client.groups import DESCRIBED, Group, ListedGroup, describe_groups, list_known_groups, topics_of
from coordinator.client.topics import node_health, partition_counts, partition_owners
from coordinator.story.cluster_diagnosis import cluster_findings, not_listed, unavailable
from coordinator.story.diagnosis import DROPPED, Finding, log_findings, worst_first
from coordinator.story.entries import timelines
from coordinator.story.group_diagnosis import group_findings

if TYPE_CHECKING:
    from coordinator.client.client import Client
    from coordinator.story.events import RebalanceEvent

EXAMINED_MAX = 500
"""The most groups that are looked at, with their timelines."""

DESCRIBED_AT_ONCE = 100
"""The groups of one request: its answer keeps a server's loop busy for a few milliseconds."""

FINDINGS_MAX = 500
"""The most findings in an answer, the worst first."""

AT_REST = frozenset({"", "Stable", "Empty"})


def examined(client: Client, events: Sequence[RebalanceEvent], now_ms: int) -> dict[str, Any]:
    """The findings about all groups and their servers, as JSON. events: in the order of time. now_ms: Unix time."""
    health = node_health(client)
    known, problems = list_known_groups(client)
    listed = [group for group in known if group.group_type.lower() in DESCRIBED]
    names = _worth_a_look(listed, events)[:EXAMINED_MAX]
    entries = {name: timeline.entries for name, timeline in timelines(names, events).items()}
    groups, silent = _described(client, names)
    counts = partition_counts(client, topics_of(groups.values()))
    found = [
        *not_listed(map(str, problems)),
        *(unavailable(name, error_name(refused.error_code)) for name, refused in silent.items()),
        *log_findings(health.failing, health.failing_count, now_ms),
        *cluster_findings(partition_owners(client).nobody, entries, health.stores, health.away, now_ms),
        *(
            finding
            for name in names
            if name in groups or name in silent
            for finding in group_findings(name, entries[name], groups.get(name), counts, now_ms)
        ),
    ]
    told = worst_first(_once(found))
    return {
        "at_ms": now_ms,
        "groups": len(listed),
        "looked_at": len(names),
        "findings": [finding._asdict() for finding in told[:FINDINGS_MAX]],
        "further_findings": max(len(told) - FINDINGS_MAX, 0),
    }


def _worth_a_look(listed: Sequence[ListedGroup], events: Sequence[RebalanceEvent]) -> list[str]:
    """The ids of the groups: those that are not at rest first, then those with the newest events."""
    newest = {event.group: place for place, event in enumerate(events)}
    ordered = sorted(listed, key=lambda group: (group.state in AT_REST, -newest.get(group.group_id, -1)))
    return [group.group_id for group in ordered]


def _described(client: Client, names: Sequence[str]) -> tuple[dict[str, Group], dict[str, Refused]]:
    """The groups that there are, as their coordinators describe them, and the groups without a coordinator."""
    groups: dict[str, Group] = {}
    silent: dict[str, Refused] = {}
    for begin in range(0, len(names), DESCRIBED_AT_ONCE):
        for name, answer in describe_groups(client, names[begin : begin + DESCRIBED_AT_ONCE]).items():
            if isinstance(answer, Group):
                groups[name] = answer
            elif answer.error_code in COORDINATOR_MOVED:
                silent[name] = answer
    return groups, silent


def _once(found: Sequence[Finding]) -> list[Finding]:
    """Findings without repetition: events that were dropped may be of any group, so they are one finding, of none."""
    dropped = [finding for finding in found if finding.kind == DROPPED]
    others = [finding for finding in found if finding.kind != DROPPED]
    return [*others, *(finding._replace(group_id=None) for finding in dropped[:1])]
