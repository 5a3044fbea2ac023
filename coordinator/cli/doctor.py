"""`tenure doctor`: what is wrong with a group, or with all of them, and what to do about it.

It looks at what the server kept (coordinator.client.events) and at the groups as they are
(coordinator.client.diagnosis). The exit code is 1 if there is a finding. JSON is a list of objects with `kind`,
`group_id`, `found` and `advice`.

House rule: what to find is decided in coordinator.client.diagnosis.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from coordinator.cli.cluster import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT,
    BootstrapServer,
    OutputForm,
    Since,
    Timeout,
    cluster,
)
from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.explain import reader_of
from coordinator.cli.groups import CLASSIC
from coordinator.cli.output import Output, print_json
from coordinator.client.client import Client
from coordinator.client.diagnosis import Finding, findings
from coordinator.client.errors import Refused
from coordinator.client.groups import Group, describe_groups, list_groups
from coordinator.client.timeline import Timeline
from coordinator.client.topics import partition_counts


def command(
    group_id: Annotated[str | None, typer.Argument(metavar="GROUP", help="The group's id.")] = None,
    since: Since = None,
    every: Annotated[bool, typer.Option("--all", help="Look at every group.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Say what is wrong with a group, with what to do about it."""
    if (group_id is None) != every:
        fail(ExitCode.USAGE, "doctor: either GROUP or --all")
    with cluster(bootstrap_server, timeout) as client:
        found = _examine(client, group_id, since)
    if output is Output.JSON:
        print_json([finding._asdict() for finding in found])
    else:
        for finding in found:
            print(f"{finding.group_id}: {finding.found}\n    {finding.advice}")
        if not found:
            print("nothing found")
    raise typer.Exit(ExitCode.FINDINGS if found else ExitCode.DONE)


def _examine(client: Client, group_id: str | None, since_ms: int | None) -> list[Finding]:
    events = reader_of(client, group_id, since_ms).read()
    if group_id is None:
        wanted = [group.group_id for group in list_groups(client) if group.group_type.lower() in CLASSIC]
    else:
        wanted = [group_id]
    groups: dict[str, Group | None] = {}
    for name, group in describe_groups(client, wanted).items():
        groups[name] = None if isinstance(group, Refused) else group
    timelines = {name: Timeline(name) for name in wanted}
    for event in events:
        if event["group"] in timelines:
            timelines[event["group"]].add(event)
    if group_id is not None and groups[group_id] is None and not timelines[group_id].entries:
        fail(ExitCode.NOT_FOUND, f"no such group, and nothing is told of one: {group_id}")
    members = [member for group in groups.values() if group is not None for member in group.members]
    counts = partition_counts(client, {topic for member in members for topic in member.subscription or ()})
    now_ms = time.time_ns() // 1_000_000
    return [finding for name in wanted for finding in findings(timelines[name], groups[name], counts, now_ms)]
