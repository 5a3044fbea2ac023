"""All findings about some groups and their servers, for `tenure doctor` and the page.

House rule: coordinator.story decides what is a finding; this module only asks for what it looks at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from coordinator.client.ahead import look_ahead
from coordinator.client.client import COORDINATOR_MOVED, Client
from coordinator.client.errors import Refused, Unreachable, error_name
from coordinator.client.groups import describe_groups, topics_of
from coordinator.client.lag import known_offsets, lines_of, offset_lines
from coordinator.client.retention import Retention
from coordinator.client.topics import Leaders, log_end_offsets, node_health, partition_owners
from coordinator.client.transactions import holders_at, holding_transactions
from coordinator.story.cluster_diagnosis import cluster_findings, not_listed, unavailable
from coordinator.story.described import SHARE, Group
from coordinator.story.diagnosis import Case, Finding, log_findings, worst_first
from coordinator.story.entries import Entry
from coordinator.story.group_diagnosis import group_findings
from coordinator.story.lag_time import LagTimes
from coordinator.story.offsets import GroupOffsets, HoldingTransaction, OffsetLine
from coordinator.story.progress import GroupProgress, Progress
from coordinator.story.progress_diagnosis import Work, at_work

DESCRIBED_AT_ONCE = 100
"""The groups of one request: its answer keeps a server's loop busy for a few milliseconds."""

LOOKING = Lock()
"""Threads that answer requests of the page share one memory of looks."""

AGE_QUESTIONS = 8
"""Questions about the ages of records in a command: enough to tell them to a tenth."""

WATCHED_MS, LOOK_S = 30_000, 1.0
"""How long, and how often, one examination looks at groups that may be stuck."""


def examine(
    client: Client,
    entries: Mapping[str, Sequence[Entry]],
    problems: Iterable[Refused],
    now_ms: int,
    away: Iterable[int] = (),
    progress: Progress | None = None,
) -> tuple[dict[str, Group | Refused], list[Finding]]:
    """How the coordinators of these groups describe them, and the findings, the worst first.

    entries: the timelines, by group. problems: of nodes that can't list all their groups. now_ms: Unix time. away: ids
    of nodes that didn't answer before. progress: of earlier looks; it gets this one.
    """
    health = node_health(client)
    answers = _described(client, entries)
    groups = {name: answer for name, answer in answers.items() if isinstance(answer, Group)}
    leaders = Leaders()
    counts = leaders.counts(client, topics_of(groups.values()))
    known = Progress() if progress is None else progress
    seen = look(client, groups.values(), counts, known, now_ms, leaders, Retention())
    owners, absent = partition_owners(client), sorted({*health.away, *away})
    holding = holding_transactions(client, groups, owners)
    found = [
        *log_findings(health.failing, health.failing_count, now_ms),
        *cluster_findings(owners.nobody, entries, health.stores, absent, now_ms),
        *not_listed(map(str, problems)),
    ]
    for name, answer in answers.items():
        if isinstance(answer, Group):
            held = holding.get(name, ())
            found += group_findings(Case(name, entries[name], answer, counts, now_ms, seen[name].progress, held))
        elif answer.error_code in COORDINATOR_MOVED:
            found.append(unavailable(name, error_name(answer.error_code)))
            found += group_findings(Case(name, entries[name], None, counts, now_ms))
    return answers, worst_first(found)


def _described(client: Client, names: Iterable[str]) -> dict[str, Group | Refused]:
    asked = list(names)
    answers: dict[str, Group | Refused] = {}
    for begin in range(0, len(asked), DESCRIBED_AT_ONCE):
        answers |= describe_groups(client, asked[begin : begin + DESCRIBED_AT_ONCE])
    return answers


class Look(NamedTuple):
    """A look at a group. offsets: None if they can't be seen; the refusal, if the cluster refuses them."""

    group: Group
    progress: GroupProgress
    offsets: GroupOffsets | Refused | None

    @property
    def lines(self) -> Sequence[OffsetLine] | Refused | None:
        """The offsets as lines."""
        return lines_of(self.group, self.offsets) if isinstance(self.offsets, Mapping) else self.offsets


def look(
    client: Client,
    groups: Iterable[Group],
    counts: Mapping[str, int],
    progress: Progress,
    now_ms: int,
    leaders: Leaders,
    retention: Retention | None = None,
) -> dict[str, Look]:
    """Look how far these groups are. counts: partitions by topic. leaders, retention: as of `known_offsets`."""
    seen: dict[str, Look] = {}
    wanted = list(groups)
    for begin in range(0, len(wanted), DESCRIBED_AT_ONCE):
        some = wanted[begin : begin + DESCRIBED_AT_ONCE]
        offsets: Mapping[str, GroupOffsets | Refused] = {}
        begun = progress.looks
        try:
            offsets = known_offsets(client, some, starts=True, stable=True, leaders=leaders, retention=retention)
        except (Refused, Unreachable):  # a node is away, or Kafka before 3.0
            leaders.forget()
        for group in some:
            own = offsets.get(group.group_id)
            if own is not None and not isinstance(own, Refused) and group.kind != SHARE:
                own = _with_aheads(client, progress, group.group_id, own, now_ms, leaders)
            with LOOKING:
                taken = progress.look(group, None if isinstance(own, Refused) else own, counts, now_ms, begun)
            seen[group.group_id] = Look(group, taken, own)
    return seen


def _with_aheads(
    client: Client,
    progress: Progress,
    group_id: str,
    offsets: GroupOffsets,
    now_ms: int,
    leaders: Leaders,
) -> GroupOffsets:
    """The offsets, with what is ahead of those that would be named as a stall."""
    with LOOKING:
        known, asked, held = progress.recall(group_id, offsets, now_ms)
    found = look_ahead(client, asked, leaders) if asked else {}
    holders = holders_at(client, held, leaders) if held else {}
    if not found and not holders:
        return known
    return {
        topic: told._replace(
            lines={
                index: line._replace(
                    ahead=found.get((topic, index), line.ahead), holder=holders.get((topic, index), line.holder)
                )
                for index, line in told.lines.items()
            }
        )
        for topic, told in known.items()
    }


def look_at_lag(
    client: Client, groups: Sequence[Group], progress: Progress, times: LagTimes, now_ms: int, questions: int
) -> dict[str, Look]:
    """Look how far these groups are, for their lag in time. questions: how often to ask for the ages of records."""
    leaders = Leaders()
    seen = look(client, groups, leaders.counts(client, topics_of(groups)), progress, now_ms, leaders)
    with LOOKING:
        for name, each in seen.items():
            times.take(name, each.progress)
    for _ in range(questions):
        if not ask_ages(client, times, seen, leaders):
            break
    return seen


def watch_lag(
    client: Client, groups: Sequence[Group], seconds: float, now_ms: Callable[[], int], pause: Callable[[float], None]
) -> tuple[dict[str, Sequence[OffsetLine]], LagTimes]:
    """The lines of these groups, with their lag in time. Raises `Refused` if the offsets of a group are refused.

    seconds: how long to look for rates; 0 for one look.
    """
    progress, times = Progress(), LagTimes()
    seen = look_at_lag(client, groups, progress, times, now_ms(), AGE_QUESTIONS)
    if seconds:
        pause(seconds)
        seen = look_at_lag(client, groups, progress, times, now_ms(), 0)
    lines: dict[str, Sequence[OffsetLine]] = {}
    for name, each in seen.items():
        own = each.lines
        if own is None:
            return {**offset_lines(client, groups)}, times
        if isinstance(own, Refused):
            raise own
        lines[name] = own
    return lines, times


def ask_ages(client: Client, times: LagTimes, names: Iterable[str], leaders: Leaders) -> bool:
    """Ask how old the records are that these groups read next; returns whether there was a question."""
    asked = times.questions(names)
    if asked:
        found = log_end_offsets(client, asked, asked, leaders)
        with LOOKING:
            times.learn(asked, found)
    return bool(asked)


def watch(
    client: Client, names: Iterable[str], progress: Progress, now_ms: Callable[[], int], pause: Callable[[float], None]
) -> None:
    """Look at these groups, and again at those of which another look may show more, for WATCHED_MS at most."""
    until_ms = now_ms() + WATCHED_MS
    wanted = list(names)
    while wanted:
        groups = [answer for answer in _described(client, wanted).values() if isinstance(answer, Group)]
        at_ms, leaders = now_ms(), Leaders()
        seen = look(client, groups, leaders.counts(client, topics_of(groups)), progress, at_ms, leaders)
        wanted = [name for name, each in seen.items() if each.progress.is_open(at_ms)]
        if not wanted or at_ms >= until_ms:
            return
        pause(LOOK_S)


def members_at_work(client: Client, group: Group, progress: Progress, now_ms: int) -> dict[str, Work]:
    """By instance id, whether a static member of one group is at work. progress: of earlier looks."""
    leaders = Leaders()
    counts = leaders.counts(client, topics_of([group]))
    return at_work(group, look(client, [group], counts, progress, now_ms, leaders)[group.group_id].progress, now_ms)


def wall_ms() -> int:
    """The time, as Unix time in ms."""
    return time.time_ns() // 1_000_000


def holding_back(client: Client, group: Group) -> list[HoldingTransaction]:
    """The transactions in which offsets of one group are pending."""
    holding = holding_transactions(client, {group.group_id: group}, partition_owners(client))
    return holding.get(group.group_id, [])
