"""All findings about a group, and when a finding ends.

A finding about the present goes with its cause. One about the past has `last_at_ms`. It ends after FORGOTTEN_MS, and
with the group. It also ends when the group has no members, unless it is about the server. The modules
that make findings know further ends: a member is back, or a setting was changed.

House rule: every view of a group's findings asks here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.story.consumer_diagnosis import consumer_findings, held_up_findings
from coordinator.story.described import Group
from coordinator.story.diagnosis import (
    DROPPED,
    FORGOTTEN_MS,
    OVER_MS,
    WRITES_FAILED,
    Finding,
    Severity,
    findings,
    wait_findings,
)
from coordinator.story.entries import Entry
from coordinator.story.events import EventsDropped, GroupDeleted
from coordinator.story.offsets import HoldingTransaction
from coordinator.story.progress import GroupProgress
from coordinator.story.progress_diagnosis import loop_findings, progress_findings
from coordinator.story.seat_diagnosis import seat_findings
from coordinator.story.transaction_diagnosis import transaction_findings

ABOUT_THE_SERVER = frozenset({DROPPED, WRITES_FAILED})
"""Kinds of findings about the past that are about the server, and not about members."""


def group_findings(
    group_id: str,
    entries: Sequence[Entry],
    group: Group | None,
    partition_counts: Mapping[str, int],
    now_ms: int,
    progress: GroupProgress | None = None,
    transactions: Sequence[HoldingTransaction] = (),
) -> list[Finding]:
    """The findings about a group that have not ended.

    entries: of its timeline. group: its description now, None if no coordinator describes it. partition_counts: by
    topic. now_ms: Unix time. progress: of the look that has this description, None if its offsets can't be seen.
    transactions: those that hold back offsets of the group.
    """
    entries = since_deleted(entries)
    found: list[Finding] = []
    if group is not None and progress is not None:  # of findings that are as bad, people look for these first
        found += progress_findings(group_id, entries, group, progress, now_ms, transactions)
    found += [
        finding
        for find in (findings, consumer_findings, seat_findings, loop_findings)
        for finding in find(group_id, entries, group, partition_counts, now_ms)
    ]
    found += transaction_findings(group_id, transactions, now_ms)
    return [finding for finding in found if not _is_past(finding, group, now_ms)]


def progress_findings_now(
    group_id: str,
    entries: Sequence[Entry],
    group: Group,
    partition_counts: Mapping[str, int],
    now_ms: int,
    progress: GroupProgress,
    transactions: Sequence[HoldingTransaction],
) -> list[Finding]:
    """The findings about a group's progress, without those about something that is over. As of `group_findings`.

    A rebalance whose server says for whom it waits is one of them once it is an error: before that it is any rebalance.
    """
    entries = since_deleted(entries)
    awaited = [*wait_findings(group, now_ms)]
    if group.consumer is not None:
        awaited += held_up_findings(group, group.consumer, now_ms)
    found = [
        *loop_findings(group_id, entries, group, partition_counts, now_ms),
        *progress_findings(group_id, entries, group, progress, now_ms, transactions),
        *(each for each in awaited if each.severity is Severity.ERROR),
        *transaction_findings(group_id, transactions, now_ms),
    ]
    return [each for each in found if each.last_at_ms is None or now_ms - each.last_at_ms < OVER_MS]


def since_deleted(entries: Sequence[Entry]) -> list[Entry]:
    """The entries since the group was deleted for the last time, and the gaps before."""
    deleted_at = max(
        (place for place, entry in enumerate(entries) if isinstance(entry.event, GroupDeleted)), default=-1
    )
    return [
        entry for place, entry in enumerate(entries) if place > deleted_at or isinstance(entry.event, EventsDropped)
    ]


def _is_past(finding: Finding, group: Group | None, now_ms: int) -> bool:
    """Whether a finding about the past has ended."""
    if finding.last_at_ms is None:
        return False
    is_unused = group is not None and not group.members and finding.kind not in ABOUT_THE_SERVER
    return is_unused or now_ms - finding.last_at_ms >= FORGOTTEN_MS
