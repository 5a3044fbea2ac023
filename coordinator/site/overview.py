"""All groups with their rebalances and restarts of the last hour, counted from the events in memory.

The list has a group that doesn't exist while there are events of it: often a person looks for exactly this group.

House rule: counts agree with timelines (coordinator.story.entries) and with the findings of `tenure doctor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypedDict

from msgspec import Struct
from msgspec.structs import asdict, replace

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import ListedGroup, describe_groups, listed_json
from coordinator.client.lag import SumsJson, known_lines, lag_json
from coordinator.group.notes import CLASSIC
from coordinator.story.counts import REJOIN, RESTART, RETURN, TAKEOVER
from coordinator.story.described import Group
from coordinator.story.diagnosis import Finding
from coordinator.story.entries import Entry, Timeline, counts
from coordinator.story.events import (
    EventsDropped,
    GroupDeleted,
    RebalanceCause,
    RebalanceEnded,
    RebalanceEvent,
    RebalanceStarted,
    UnixMs,
    says,
)
from coordinator.story.lag_time import LagTimes
from coordinator.story.lanes import LaneJson
from coordinator.story.rebalances import RETURN_EVENTS, Rebalances
from coordinator.story.runs import Run, RunJson, runs
from coordinator.story.words import EntryJson

HOUR_MS = 3_600_000

DELETED, MISSING = "deleted", "unknown"
"""The states of a group that doesn't exist: its newest event is its deletion, or nothing says why it is missing."""


class Churn(Struct, frozen=True):
    """Counts of a group (coordinator.story.counts): restarts and returns without those that no healthy member makes."""

    rebalances: Annotated[int, says("rebalances that began, the first one too, however they ended")] = 0
    static_restarts: int = 0
    suspect_restarts: Annotated[
        int, says("restarts and returns that no healthy member makes; the other numbers lack them")
    ] = 0
    static_rejoins: Annotated[
        int, says("the first returns of seats since the group was loaded: a restart, or only a rejoin")
    ] = 0
    takeovers: Annotated[int, says("seats that a second program took")] = 0
    static_returns: Annotated[int, says("restarts, takeovers or rejoins: the log of groups doesn't say which")] = 0


class OverviewJson(Struct):
    """A group of the overview as JSON, which has the fields of a listed group and of Churn too."""

    state: Annotated[str, says("of a group that doesn't exist: deleted if that is its newest event, else unknown")]
    node_id: Annotated[int | None, says("the coordinator's; null of a group that doesn't exist")]
    last_event_ms: Annotated[UnixMs | None, says("time of its newest event; null if none is in memory")]


class LagsJson(SumsJson):
    """The sums of a group as JSON."""

    group_id: str
    members: int
    standbys: int
    topics: Annotated[int, says("how many are assigned, or of which a client committed an offset")]


class NoLagsJson(TypedDict):
    """A group without sums as JSON."""

    group_id: str
    error: Annotated[str, says("why the group has none of the following")]


class TimelineJson(Struct):
    """A group's timeline as JSON."""

    group_id: str
    timeline: list[EntryJson]
    counts: Churn
    findings: Annotated[list[Finding], says("of tenure doctor, the worst first; none about a group that doesn't exist")]
    runs: Annotated[list[RunJson], says("restarts of the timeline to show as one")]
    lanes: Annotated[list[LaneJson], says("the seats, by name: when each was taken")]


def overview(listed: Sequence[ListedGroup], events: Sequence[RebalanceEvent], now_ms: int) -> list[dict[str, Any]]:
    """Groups as JSON, existing ones first. events: of all groups, in the order of time. now_ms: Unix time."""
    counted = churn(events, now_ms - HOUR_MS, now_ms)
    newest_ms = {event.group: event.at_ms for event in events}
    return [
        listed_json(group)
        | asdict(counted.get(group.group_id, Churn()))
        | asdict(OverviewJson(group.state, group.node_id, newest_ms.get(group.group_id)))
        for group in [*listed, *gone(listed, events)]
    ]


def lags(times: LagTimes, names: Sequence[str], client: Client) -> list[LagsJson | NoLagsJson]:
    """The sums of these groups as JSON, in their order: members, topics, topic partitions and lag.

    times: what earlier looks tell of their lag in time.

    Of a group that its coordinator doesn't describe, or whose offsets it refuses, only `error` says why.
    """
    told: dict[str, LagsJson | NoLagsJson] = {}
    groups: list[Group] = []
    for name, answer in describe_groups(client, names).items():
        if isinstance(answer, Refused):
            told[name] = {"group_id": name, "error": str(answer)}
        else:
            groups.append(answer)
    lines_of = known_lines(client, groups, stable=True)
    for group in groups:
        lines = lines_of[group.group_id]
        if isinstance(lines, Refused):
            told[group.group_id] = {"group_id": group.group_id, "error": str(lines)}
            continue
        standbys = sum(member.standby_ms is not None for member in group.members)
        told[group.group_id] = {
            "group_id": group.group_id,
            "members": len(group.members) - standbys,
            "standbys": standbys,
            "topics": len({line.topic for line in lines} - {None}),
            **lag_json(lines, times.of(group.group_id).sums.get(None)),
        }
    return [told[name] for name in names]


def gone(listed: Iterable[ListedGroup], events: Iterable[RebalanceEvent]) -> list[ListedGroup]:
    """The groups that have events and are not listed, by group id."""
    newest: dict[str, RebalanceEvent] = {}
    types: dict[str, str] = {}
    protocol_types: dict[str, str] = {}
    for event in events:
        if isinstance(event, EventsDropped):
            continue
        newest[event.group] = event
        if isinstance(event, RebalanceStarted | RebalanceCause | RebalanceEnded):
            types[event.group] = event.group_type or CLASSIC
        protocol_type = event.protocol_type if isinstance(event, RebalanceEnded) else None
        protocol_types[event.group] = protocol_type or protocol_types.get(event.group, "")
    return [
        ListedGroup(
            name,
            types.get(name, CLASSIC),
            protocol_types[name],
            DELETED if isinstance(newest[name], GroupDeleted) else MISSING,
        )
        for name in sorted(newest.keys() - {group.group_id for group in listed})
    ]


def churn(events: Iterable[RebalanceEvent], since_ms: int, now_ms: int) -> Mapping[str, Churn]:
    """The counts of each group since a time (Unix time in ms).

    Building whole timelines of all groups for a few numbers would take long, so timelines have the events of returns
    only.
    """
    rebalances: dict[str, Rebalances] = {}
    seats: dict[str, list[RebalanceEvent]] = {}
    for event in events:
        group = event.group
        if group is None:
            continue
        if group not in rebalances:
            rebalances[group] = Rebalances(since_ms)
        rebalances[group].add(event)
        if isinstance(event, RETURN_EVENTS):
            seats.setdefault(group, []).append(event)
    found: dict[str, Churn] = {}
    for group, begun in rebalances.items():
        entries = Timeline(group).add_all(seats.get(group, ())).entries
        found[group] = replace(counted(entries, runs(group, entries, now_ms), since_ms), rebalances=begun.count)
    return found


def counted(entries: Iterable[Entry], found: Iterable[Run], since_ms: int = 0) -> Churn:
    """The counts of a group's entries since a time. found: its runs."""
    suspects = {id(entry) for run in found if run.finding for entry in run.restarts}
    late = [entry for entry in entries if entry.at_ms >= since_ms]
    number = counts(entry for entry in late if id(entry) not in suspects)
    suspect = sum(id(entry) in suspects for entry in late)
    return Churn(number["rebalance"], number[RESTART], suspect, number[REJOIN], number[TAKEOVER], number[RETURN])
