"""All findings about a group, and when a finding ends.

A finding about the present goes with its cause. One about the past has `last_at_ms`. It ends after FORGOTTEN_MS, and
with the group. It also ends when the group has no members, unless it is about the server. The modules
that make findings know further ends: a member is back, or a setting was changed.

House rule: every view of a group's findings asks here.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.story.consumer_diagnosis import consumer_findings, held_up_findings
from coordinator.story.diagnosis import (
    DROPPED,
    FORGOTTEN_MS,
    OVER_MS,
    WRITES_FAILED,
    Case,
    Finding,
    Severity,
    findings,
    wait_findings,
)
from coordinator.story.entries import Entry
from coordinator.story.events import EventsDropped, GroupDeleted
from coordinator.story.progress_diagnosis import loop_findings, progress_findings
from coordinator.story.seat_diagnosis import seat_findings
from coordinator.story.transaction_diagnosis import transaction_findings

ABOUT_THE_SERVER = frozenset({DROPPED, WRITES_FAILED})
"""Kinds of findings about the past that are about the server, and not about members."""


def group_findings(case: Case) -> list[Finding]:
    """The findings about a group that have not ended."""
    case = case._replace(entries=since_deleted(case.entries))
    # Of findings that are as bad, people look for those about progress first.
    finders = (progress_findings, findings, consumer_findings, seat_findings, loop_findings)
    found = [finding for find in finders for finding in find(case)]
    found += transaction_findings(case.group_id, case.transactions, case.now_ms)
    return [finding for finding in found if not _is_past(finding, case)]


def progress_findings_now(case: Case) -> list[Finding]:
    """The findings about a described group's progress, without those about something that is over.

    A rebalance whose server says for whom it waits is one of them once it is an error: before that it is any rebalance.
    """
    case = case._replace(entries=since_deleted(case.entries))
    group, now_ms = case.group, case.now_ms
    assert group is not None
    awaited = [*wait_findings(group, now_ms)]
    if group.consumer is not None:
        awaited += held_up_findings(group, group.consumer, now_ms)
    found = [
        *loop_findings(case),
        *progress_findings(case),
        *(each for each in awaited if each.severity is Severity.ERROR),
        *transaction_findings(case.group_id, case.transactions, now_ms),
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


def _is_past(finding: Finding, case: Case) -> bool:
    """Whether a finding about the past has ended."""
    if finding.last_at_ms is None:
        return False
    is_unused = case.group is not None and not case.group.members and finding.kind not in ABOUT_THE_SERVER
    return is_unused or case.now_ms - finding.last_at_ms >= FORGOTTEN_MS
