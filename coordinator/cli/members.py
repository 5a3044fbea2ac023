"""`tenure members`: tell whether static members are at work, and make them leave, by instance id.

A static member that is gone for good keeps its seat until its session times out, which may take 30 minutes. An admin
who knows that it won't come back can free the seat at once: LeaveGroup with the instance id and an empty member id
(KIP-345). The others then rebalance once, also if several members go by one command. Standbys may spare them that.

`--all-absent` removes every static member whose program is away, by the rule of `tenure groups ready`. It names the
member id that the absent one had, so a member that restarts meanwhile keeps its seat. Apache Kafka doesn't tell who is
silent.

House rule: a dry run removes nobody.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, Timeout, cluster
from coordinator.cli.exit_codes import ExitCode, end, fail, warn
from coordinator.cli.groups import MEMBER_COLUMNS, group_of_consumers, member_row
from coordinator.cli.options import Command, OutputForm, commands, flag, names_or_all, option
from coordinator.cli.output import Output, show
from coordinator.cli.ready import AbsentAfter
from coordinator.client.client import Client
from coordinator.client.errors import error_name
from coordinator.client.examination import members_at_work, wall_ms, watch
from coordinator.client.groups import remove_seats
from coordinator.story.described import Member, member_json
from coordinator.story.progress import Progress
from coordinator.story.readiness import absent, tells_silence
from schemas.errors import ErrorCode

app = commands("Probe static members of a group, and remove them.")


@app.command("remove", cls=Command)
def remove_command(
    group_id: Annotated[str, option("--group", "GROUP", "The group's id.")],
    instance_ids: Annotated[
        list[str] | None, option("--instance-id", "ID", "A member's group.instance.id; may be repeated.")
    ] = None,
    all_absent: Annotated[
        bool, flag("--all-absent", "All static members that are away, in place of --instance-id.")
    ] = False,
    absent_after: AbsentAfter = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only show the members to remove, and their partitions.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Remove static members that won't come back, before their session times out."""
    instance_ids = list(dict.fromkeys(instance_ids or ()))
    what = "name the members to remove with --instance-id"
    names_or_all(what, is_named=bool(instance_ids), are_all=all_absent, option="--all-absent")
    with cluster(bootstrap_server, timeout, command_config) as client:
        if all_absent:
            errors = _remove_absent(client, group_id, absent_after, output, dry_run=dry_run)
        elif dry_run:
            errors = _show(client, group_id, instance_ids, output)
        else:
            errors = _remove(client, group_id, instance_ids, output)
    end(_failures(group_id, errors))


@app.command("alive", cls=Command)
def alive_command(
    group_id: Annotated[str, option("--group", "GROUP", "The group's id.")],
    instance_id: Annotated[str, option("--instance-id", "ID", "The member's group.instance.id.")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = None,
) -> None:
    """Tell whether a static member is at work: it has topic partitions, and reads them or has read all.

    Exit code 0 if it is, 1 if it isn't, 3 if the group has no such member, 4 if the cluster doesn't show it. If there
    are records to read, the command looks for 30 s at most whether members commit. The user needs Describe on the group
    and its topics.
    """
    progress = Progress()
    with cluster(bootstrap_server, timeout, command_config) as client:
        watch(client, [group_id], progress, wall_ms, time.sleep)
        group = group_of_consumers(client, group_id)
        work = members_at_work(client, group, progress, wall_ms()).get(instance_id)
    if work is None:
        fail(ExitCode.NOT_FOUND, f"no member of group {group_id} has instance id {instance_id}")
    if not work.is_known:
        fail(ExitCode.REFUSED, f"it isn't known whether {instance_id} is at work: {work.why}")
    if work.why:
        fail(ExitCode.FINDINGS, f"{instance_id} is not at work: {work.why}")


def _remove_absent(
    client: Client, group_id: str, absent_ms: int | None, output: Output, *, dry_run: bool
) -> dict[str, int]:
    """Remove the static members that are away, or only show them; returns error codes by instance id."""
    group = group_of_consumers(client, group_id)
    if not tells_silence(group) and group.consumer is None:
        fail(ExitCode.REFUSED, f"the coordinator of {group_id} doesn't tell which members are silent: name them")
    gone = [member for member in absent(group.members, absent_ms) if member.group_instance_id is not None]
    if not gone:
        warn(f"no static member of group {group_id} is away")
    if dry_run:
        _print_shown(group_id, gone, output)
        return {}
    seats = {member.group_instance_id or "": member.member_id for member in gone}
    errors = remove_seats(client, group_id, seats) if seats else {}
    _print_removed(group_id, errors, output)
    return errors


def _remove(client: Client, group_id: str, instance_ids: list[str], output: Output) -> dict[str, int]:
    """Remove the members and print what happened to each; returns error codes by instance id."""
    errors = remove_seats(client, group_id, dict.fromkeys(instance_ids, ""))
    if all(error == ErrorCode.UNKNOWN_MEMBER_ID for error in errors.values()):
        group_of_consumers(client, group_id)  # Kafka gives a group that doesn't exist the same code
    _print_removed(group_id, errors, output)
    return errors


def _print_removed(group_id: str, errors: Mapping[str, int], output: Output) -> None:
    told = [(instance_id, error_name(error) if error else None) for instance_id, error in errors.items()]
    value = [{"group_id": group_id, "group_instance_id": instance_id, "error": error} for instance_id, error in told]
    rows = [(group_id, instance_id, error or "removed") for instance_id, error in told]
    show(output, value, ("GROUP", "GROUP-INSTANCE-ID", "RESULT"), rows)


def _show(client: Client, group_id: str, instance_ids: list[str], output: Output) -> dict[str, int]:
    """Print the members that would be removed; returns the error code of each removal by instance id."""
    group = group_of_consumers(client, group_id)
    wanted = [member for member in group.members if member.group_instance_id in instance_ids]
    _print_shown(group_id, wanted, output)
    found = {member.group_instance_id for member in wanted}
    return {
        instance_id: ErrorCode.NONE if instance_id in found else ErrorCode.UNKNOWN_MEMBER_ID
        for instance_id in instance_ids
    }


def _print_shown(group_id: str, members: Sequence[Member], output: Output) -> None:
    value = [{"group_id": group_id, **member_json(member)} for member in members]
    show(output, value, MEMBER_COLUMNS, [member_row(group_id, member) for member in members])


def _failures(group_id: str, errors: Mapping[str, int]) -> list[tuple[ExitCode, str]]:
    """The failures of the command: one for all absent members, and one for each refused removal."""
    absent = [instance_id for instance_id, error in errors.items() if error == ErrorCode.UNKNOWN_MEMBER_ID]
    failures = [
        (ExitCode.REFUSED, f"{instance_id}: {error_name(error)}")
        for instance_id, error in errors.items()
        if error and instance_id not in absent
    ]
    if absent:
        failures.append((ExitCode.NOT_FOUND, f"no member of group {group_id} has instance id {', '.join(absent)}"))
    return failures
