"""All findings about some groups and their servers, for `tenure doctor` and the page.

House rule: coordinator.story decides what is a finding; this module only asks for what it looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.client.client import COORDINATOR_MOVED
from coordinator.client.errors import Refused, error_name
from coordinator.client.groups import Group, describe_groups, topics_of
from coordinator.client.topics import node_health, partition_counts, partition_owners
from coordinator.client.transactions import holding_transactions
from coordinator.story.cluster_diagnosis import cluster_findings, not_listed, unavailable
from coordinator.story.diagnosis import Finding, log_findings, worst_first
from coordinator.story.group_diagnosis import group_findings
from coordinator.story.transaction_diagnosis import transaction_findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coordinator.client.client import Client
    from coordinator.story.entries import Entry

DESCRIBED_AT_ONCE = 100
"""The groups of one request: its answer keeps a server's loop busy for a few milliseconds."""


def examine(
    client: Client,
    entries: Mapping[str, Sequence[Entry]],
    problems: Iterable[Refused],
    now_ms: int,
    away: Iterable[int] = (),
) -> tuple[dict[str, Group | Refused], list[Finding]]:
    """How the coordinators of these groups describe them, and the findings, the worst first.

    entries: the timelines, by group. problems: of nodes that can't list all their groups. now_ms: Unix time. away: ids
    of nodes that didn't answer before.
    """
    health = node_health(client)
    names = list(entries)
    answers: dict[str, Group | Refused] = {}
    for begin in range(0, len(names), DESCRIBED_AT_ONCE):
        answers |= describe_groups(client, names[begin : begin + DESCRIBED_AT_ONCE])
    groups = {name: answer for name, answer in answers.items() if isinstance(answer, Group)}
    counts = partition_counts(client, topics_of(groups.values()))
    owners, absent = partition_owners(client), sorted({*health.away, *away})
    holding = holding_transactions(client, groups, owners)
    found = [
        *log_findings(health.failing, health.failing_count, now_ms),
        *cluster_findings(owners.nobody, entries, health.stores, absent, now_ms),
        *not_listed(map(str, problems)),
    ]
    for name, answer in answers.items():
        if isinstance(answer, Group):
            found += group_findings(name, entries[name], answer, counts, now_ms)
            found += transaction_findings(name, holding.get(name, ()), now_ms)
        elif answer.error_code in COORDINATOR_MOVED:
            found.append(unavailable(name, error_name(answer.error_code)))
            found += group_findings(name, entries[name], None, counts, now_ms)
    return answers, worst_first(found)


def held_back_findings(client: Client, group: Group, now_ms: int) -> list[Finding]:
    """The findings about transactions in which offsets of one group are pending. now_ms: Unix time."""
    holding = holding_transactions(client, {group.group_id: group}, partition_owners(client))
    return list(transaction_findings(group.group_id, holding.get(group.group_id, ()), now_ms))
