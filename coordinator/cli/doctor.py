"""`tenure doctor`: what is wrong with a group, or with all groups, and what to do about it.

The doctor reads the events that the server kept (coordinator.client.events). It asks for the groups as they are now,
which logs of each server fail, and whether nodes have all partitions (coordinator.client.examination). A finding about
servers has no group id. A group whose coordinator isn't there is a finding too: the doctor says all it knows in the
outage for which one asks it.
A cluster such as Apache Kafka keeps no events: there they are inferred from `__consumer_offsets`. Each finding has a
severity. The exit code is 1 if there is an error or a warning; notices don't change it. JSON is a list of objects with
`severity`, `kind`, `group_id`, `found`, `advice`, `last_at_ms` and `times`, the worst first.

House rule: coordinator.story decides what is a finding and how bad it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, Timeout, cluster
from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.explain import reader_of
from coordinator.cli.options import OutputForm, Since, argument, flag, names_or_all, option, whole_number
from coordinator.cli.output import Output, print_json
from coordinator.client.client import COORDINATOR_MOVED, Client
from coordinator.client.examination import examine, wall_ms, watch
from coordinator.client.groups import list_known_groups
from coordinator.client.newest import read_timelines
from coordinator.story.cluster_diagnosis import UNAVAILABLE, UNAVAILABLE_ADVICE
from coordinator.story.described import Group
from coordinator.story.diagnosis import DROPPED, LOG_FAILS, SAY_HOW_OFTEN, TOO_OLD, Finding, Severity
from coordinator.story.events import fields_of
from coordinator.story.folding import newest
from coordinator.story.progress import Progress
from coordinator.story.progress_diagnosis import undecided_text
from coordinator.text import NAMED_MAX, names_text, printable, several, time_text
from schemas.errors import ErrorCode


def command(
    group_id: Annotated[str | None, argument("GROUP", "The group's id, unless you look at all with --all.")] = None,
    since: Since = None,
    last: Annotated[
        int | None,
        option("--last", "N", "Only the newest N entries of each group, counted as in explain.", whole_number),
    ] = None,
    every: Annotated[bool, flag("--all", "Look at every group, in place of GROUP.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Show what is wrong with a group, and what to do about it.

    Errors keep members from working. Warnings mean work that was useless or is missing. Notices are good to know. Exit
    code 1 for errors and warnings, 0 for notices and for no findings, 3 for an unknown group, 4 if the server refuses,
    5 if it can't be reached.
    """
    names_or_all("name a group, `tenure doctor GROUP`", is_named=group_id is not None, are_all=every)
    with cluster(bootstrap_server, timeout, command_config) as client:
        wanted, found, undecided = findings(client, group_id, since, last)
    if output is Output.JSON:
        print_json(list(map(fields_of, found)))
    else:
        print("\n".join(doctor_lines(wanted, found, undecided, every=every)))
    raise typer.Exit(ExitCode.FINDINGS if any(finding.severity.is_problem for finding in found) else ExitCode.DONE)


def findings(
    client: Client, group_id: str | None, since_ms: int | None = None, last: int | None = None
) -> tuple[list[str], list[Finding], dict[str, str]]:
    """The groups that were looked at, the findings, and by group what looks of this length can't tell, in words.

    group_id: the group that the command line names, None for all groups.
    """
    listed, problems = ([], []) if group_id is not None else list_known_groups(client)
    wanted = [group.group_id for group in listed]
    if group_id is not None:
        wanted = [group_id]
    progress = Progress()
    watch(client, wanted, progress, wall_ms, time.sleep)
    now_ms = wall_ms()
    reader = reader_of(client, group_id, None if since_ms is None else now_ms - since_ms)
    timelines = read_timelines(reader, wanted, last)
    entries = {name: newest(timeline.entries, last) for name, timeline in timelines.items()}
    answers, found = examine(client, entries, problems, now_ms, reader.absent_nodes, progress)
    for name, answer in answers.items():
        if isinstance(answer, Group) or answer.error_code in COORDINATOR_MOVED:
            continue
        if answer.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise answer
        if name == group_id and timelines[name].is_empty:
            fail(ExitCode.NOT_FOUND, f"no such group, and no events of one: {group_id}")
    texts = {name: undecided_text(progress.newest(name)) for name in wanted}
    return wanted, found, {name: text for name, text in texts.items() if text is not None}


def doctor_lines(
    wanted: Sequence[str], found: list[Finding], undecided: Mapping[str, str], *, every: bool
) -> Iterator[str]:
    """The findings in words. every: about all groups, so that some kinds have one line for several groups.

    undecided: as of `findings`.
    """
    together = _together(found) if every else {}
    for finding in found:
        if finding.kind not in together:
            yield printable(f"{_whose(finding)}: {finding.severity}: {finding.found}{_when(finding)}")
            yield f"    {finding.advice}"
    yield from map(printable, together.values())
    for name in [*undecided][:NAMED_MAX]:
        yield printable(f"{name}: {undecided[name]}")
    if len(undecided) > NAMED_MAX:
        yield f"{several(len(undecided) - NAMED_MAX, 'more group')}: too early to tell whether they are stuck"
    yield _summary(len(wanted), found)


def _whose(finding: Finding) -> str:
    """The group that a finding is about, or the server, or its cluster."""
    if finding.group_id is None:
        return "the server" if finding.kind == LOG_FAILS else "the cluster"
    return finding.group_id


def _together(found: list[Finding]) -> dict[str, str]:
    """By kind of finding, one line for all groups: dropped events, no coordinator, and clients that are too old."""
    lines = {}
    silent = [finding for finding in found if finding.kind == UNAVAILABLE]
    if len(silent) > 1:
        said = ", ".join(sorted({finding.found.rpartition(": ")[2] for finding in silent}))
        groups = [finding.group_id for finding in silent if finding.group_id is not None]
        lines[UNAVAILABLE] = (
            f"{several(len(groups), 'group')}: {Severity.ERROR}: their coordinators don't answer: {said}: "
            f"{names_text(groups)}; {UNAVAILABLE_ADVICE}"
        )
    dropped = [finding for finding in found if finding.kind == DROPPED]
    if len(dropped) > 1:
        first = dropped[0]
        lines[DROPPED] = f"any group: {first.severity}: {first.found}{_when(first)}; {first.advice}"
    for kind, too_old in TOO_OLD.items():
        groups = [finding.group_id for finding in found if finding.kind == kind and finding.group_id is not None]
        if len(groups) > 1:
            said = f"clients {too_old.text}: {names_text(groups)}"
            lines[kind] = f"{several(len(groups), 'group')}: {Severity.NOTICE}: {said}"
    return lines


def _when(finding: Finding) -> str:
    """The time when the finding last happened and how often it happened, as far as the finding has them."""
    if finding.last_at_ms is None:
        return ""
    is_said = finding.times is None or finding.times == 1 or finding.kind in SAY_HOW_OFTEN
    times = "" if is_said else f"{finding.times} times, "
    return f" ({times}last at {time_text(finding.last_at_ms)})"


def _summary(groups: int, found: list[Finding]) -> str:
    counts = [(severity, sum(finding.severity is severity for finding in found)) for severity in Severity]
    said = ", ".join(several(number, severity) for severity, number in counts if number)
    return f"{several(groups, 'group')} looked at: {said or 'nothing found'}"
