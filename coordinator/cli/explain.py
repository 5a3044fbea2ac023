"""`tenure explain`: why a group rebalanced, as a timeline.

It reads the events that the server kept (coordinator.client.events), oldest first, so the newest is at the bottom.
Without --since it reads the whole topic, with --since only later events. If a rebalance began before that, the timeline
has only its end. The last line says whether the group waits now, and for which members. JSON is an object: `group_id`,
`state` (as the server describes the group, null if there is none), `since_ms` (of --since, Unix time in ms, null
without), `timeline` (coordinator.story.entries), `waiting` (coordinator.client.groups, null if the group waits for
nobody), `held_back` (coordinator.story.transaction_diagnosis), `passed_over` (the number of records that could not be
read) and `inferred`.

A cluster such as Apache Kafka keeps no events. There the timeline is inferred from `__consumer_offsets`
(coordinator.client.offsets_log); a line on standard error says so, and `inferred` is true.

With --last it reads the topic backwards from its end, as far as the entries need (coordinator.client.newest). Restarts
that share one line count as one entry; JSON has each of them.

House rule: if something isn't known, the command says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, Timeout, cluster
from coordinator.cli.exit_codes import ExitCode, fail, warn
from coordinator.cli.options import OutputForm, Since, argument, option, whole_number
from coordinator.cli.output import Output, print_json
from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.events import absent_line
from coordinator.client.examination import holding_back
from coordinator.client.groups import described_group
from coordinator.client.newest import read_timelines
from coordinator.client.offsets_log import LIMITS, GroupReader, OffsetsReader
from coordinator.client.offsets_log import reader_of as any_reader_of
from coordinator.story.described import SHARE, Group, present_json
from coordinator.story.entries import REBALANCING, entry_json
from coordinator.story.events import fields_of
from coordinator.story.folding import newest
from coordinator.story.making import MEMBERS_MAX, MOVES_MAX
from coordinator.story.transaction_diagnosis import transaction_findings
from coordinator.story.words import (
    NOT_SAID,
    RECONCILING,
    expects_lines,
    folded_lines,
    held_up_lines,
    is_cut,
    waiting_lines,
)
from coordinator.text import printable, several, time_text
from schemas.errors import ErrorCode


def command(
    group_id: Annotated[str, argument("GROUP", "The group's id.")],
    since: Since = None,
    last: Annotated[
        int | None, option("--last", "N", "Only the newest N entries; a line of many restarts is one.", whole_number)
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Show why a group rebalanced: causes, missing members, what moved; the newest at the bottom."""
    with cluster(bootstrap_server, timeout, command_config) as client:
        told, lines = explained(client, group_id, None if since is None else time.time_ns() // 1_000_000 - since, last)
    if output is Output.JSON:
        print_json(told)
    else:
        print("\n".join(lines))


def explained(
    client: Client, group_id: str, since_ms: int | None = None, last: int | None = None
) -> tuple[dict[str, Any], list[str]]:
    """A group's timeline as JSON, and as lines. Ends the command if there is no such group."""
    reader = reader_of(client, group_id, since_ms)
    absent = reader.absent
    timeline = read_timelines(reader, [group_id], last)[group_id]
    if reader.absent != absent:
        warn(absent_line(reader.absent, reader.topic, reader.absent_nodes))
    group = described(client, group_id)
    holding = [] if group is None else holding_back(client, group)
    held_back = list(transaction_findings(group_id, holding, time.time_ns() // 1_000_000))
    state = None if group is None else group.state
    if state is None and timeline.is_empty:
        fail(ExitCode.NOT_FOUND, f"no such group, and no events of one{_looked(since_ms)}: {group_id}")
    entries = newest(timeline.entries, last)
    told = {
        "group_id": group_id,
        "state": state,
        "since_ms": since_ms,
        "timeline": list(map(entry_json, entries)),
        "held_back": list(map(fields_of, held_back)),
        "passed_over": reader.passed_over,
        "inferred": isinstance(reader, OffsetsReader),
    } | ({"waiting": None} if group is None else present_json(group))
    lines = [line for lines in folded_lines(entries) for line in lines]
    lines += [] if group is None else present_lines(group)
    for finding in held_back:
        lines += _indented((finding.found, finding.advice))
    if not entries:
        lines.append(f"No events of group {group_id}, which is {state}{_looked(since_ms)}")
    if any(map(is_cut, entries)):
        lines.append(
            f"Some lists are cut. --output json has up to {MEMBERS_MAX} members and {MOVES_MAX} moves of each rebalance"
        )
    if reader.passed_over:
        lines.append(f"{several(reader.passed_over, 'record')} could not be read")
    return told, list(map(printable, lines))


def present_lines(group: Group) -> list[str]:
    """Lines about the rebalance under way, and about the members that the group waits for."""
    lines = []
    if group.waiting is not None:
        lines += _indented(waiting_lines(group.state, group.waiting))
    if group.expects is not None:
        lines += expects_lines(group.expects)
    if group.state in RECONCILING and group.consumer is not None:
        lines += _indented(held_up_lines(group.state, group.consumer))
    elif group.state in REBALANCING and group.waiting is None:
        lines.append(f"The group is {group.state} now; {NOT_SAID}")
    return lines


def _indented(lines: Iterable[str]) -> list[str]:
    """All lines but the first below it."""
    first, *further = lines
    return [first, *(f"    {line}" for line in further)]


def reader_of(client: Client, group_id: str | None = None, since_ms: int | None = None) -> GroupReader:
    """A reader of the cluster's events. If it keeps none, a line says so, and they are inferred from the groups' log.

    group_id: only the events of this group. since_ms: only from this time on.
    """
    reader = any_reader_of(client, group_id)
    if isinstance(reader, OffsetsReader):
        warn(LIMITS)
    if reader.absent:
        warn(absent_line(reader.absent, reader.topic, reader.absent_nodes))
    if since_ms is not None:
        reader.begin_at(since_ms)
    return reader


def _looked(since_ms: int | None) -> str:
    """A remark for an empty answer: the time from which on the command looked."""
    return "" if since_ms is None else f", since {time_text(since_ms)} (without --since: in all kept events)"


def described(client: Client, group_id: str) -> Group | None:
    """The group as the server describes it; None if there is none. Nothing has the rebalances of share groups."""
    try:
        return described_group(client, group_id, besides=(SHARE,))
    except Refused as refused:
        if refused.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
