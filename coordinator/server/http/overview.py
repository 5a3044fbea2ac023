"""All groups with their rebalances and restarts of the last hour, counted from the events in memory.

The list has a group that doesn't exist while there are events of it: often a person looks for exactly this group.

House rule: counts agree with timelines (coordinator.timeline.entries) and with the findings of `tenure doctor`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.client.groups import ListedGroup, listed_json
from coordinator.timeline.entries import Timeline
from coordinator.timeline.runs import runs

if TYPE_CHECKING:
    from coordinator.timeline.schema import RebalanceEvent

HOUR_MS = 3_600_000

CLASSIC = "classic"
"""The type of all groups that have events."""

DELETED, UNKNOWN = "deleted", "unknown"
"""The states of a group that doesn't exist: its newest event is its deletion, or nothing says why it is missing."""


class Churn(NamedTuple):
    """Counts of a group: rebalances that began, static restarts, and restarts that no healthy member makes."""

    rebalances: int = 0
    static_restarts: int = 0
    suspect_restarts: int = 0


def overview(listed: Sequence[ListedGroup], events: Sequence[RebalanceEvent], now_ms: int) -> list[dict[str, Any]]:
    """Groups as JSON, existing ones first. events: of all groups, in the order of time. now_ms: Unix time."""
    counted = churn(events, now_ms - HOUR_MS, now_ms)
    return [
        listed_json(group) | counted.get(group.group_id, Churn())._asdict()
        for group in [*listed, *gone(listed, events)]
    ]


def gone(listed: Iterable[ListedGroup], events: Iterable[RebalanceEvent]) -> list[ListedGroup]:
    """The groups that have events and are not listed, by group id."""
    newest: dict[str, RebalanceEvent] = {}
    protocol_types: dict[str, str] = {}
    for event in events:
        if event["group"] is not None:
            newest[event["group"]] = event
            protocol_types[event["group"]] = event.get("protocol_type") or protocol_types.get(event["group"], "")
    return [
        ListedGroup(
            name, CLASSIC, protocol_types[name], DELETED if newest[name]["type"] == "group_deleted" else UNKNOWN
        )
        for name in sorted(newest.keys() - {group.group_id for group in listed})
    ]


def churn(events: Iterable[RebalanceEvent], since_ms: int, now_ms: int) -> Mapping[str, Churn]:
    """The counts of each group since a time (Unix time in ms).

    A rebalance counts from its start, however it ends. A seat that a second program took over is no restart. Building
    whole timelines of all groups for a few numbers would take long, so timelines have the events of restarts only.
    """
    rebalances = Counter[str]()
    begun: dict[str, int] = {}
    seats: dict[str, list[RebalanceEvent]] = {}
    for event in events:
        group = event["group"]
        match event["type"]:
            case "rebalance_started":
                begun[group] = event["generation"]
                rebalances[group] += event["at_ms"] >= since_ms
            case "rebalance_ended":
                if begun.pop(group, None) != event["generation_before"]:
                    rebalances[group] += event["began_ms"] >= since_ms
            case "group_loaded" | "group_deleted":
                begun.pop(group, None)
            case "member_replaced" | "member_fenced":
                seats.setdefault(group, []).append(event)
    return {
        group: Churn(rebalances[group], *_restarts(group, seats.get(group, ()), since_ms, now_ms))
        for group in rebalances.keys() | seats.keys()
    }


def _restarts(group: str, events: Iterable[RebalanceEvent], since_ms: int, now_ms: int) -> tuple[int, int]:
    """The numbers of plain and of suspect restarts since a time. events: those of restarts."""
    entries = Timeline(group).add_all(events).entries
    suspects = [entry for run in runs(group, entries, now_ms) if run.is_suspect for entry in run.restarts]
    all_of_them = [entry for entry in entries if entry["type"] == "static_restart"]
    suspect, every = (sum(entry["at_ms"] >= since_ms for entry in some) for some in (suspects, all_of_them))
    return every - suspect, suspect
