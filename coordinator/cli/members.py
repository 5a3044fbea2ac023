"""`tenure members`: make static members leave, by instance id.

A static member that is gone for good keeps its seat until its session times out, which may take 30 minutes. An admin
who knows that it won't come back can free the seat at once: LeaveGroup with the instance id and an empty member id
(KIP-345). The rest of the group then rebalances once.

House rule: a dry run removes nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from coordinator.cli.cluster import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    CommandConfig,
    Timeout,
    cluster,
)
from coordinator.cli.exit_codes import ExitCode, end, fail
from coordinator.cli.groups import MEMBER_COLUMNS, group_failure, member_row
from coordinator.cli.options import Command, OutputForm
from coordinator.cli.output import Output, print_json, print_table
from coordinator.client.client import Client
from coordinator.client.errors import Refused, error_name
from coordinator.client.groups import describe_groups, member_json, remove_members
from schemas.errors import ErrorCode

app = typer.Typer(
    name="members", help="Remove static members from a group.", no_args_is_help=True, pretty_exceptions_enable=False
)


@app.callback()
def members() -> None:
    """Remove static members from a group."""


@app.command("remove", cls=Command)
def remove_command(
    group_id: Annotated[str, typer.Option("--group", metavar="GROUP", help="The group's id.")],
    instance_ids: Annotated[
        list[str], typer.Option("--instance-id", metavar="ID", help="A member's group.instance.id; may be repeated.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show who would be removed, and what it owns.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Remove static members that won't come back, before their session times out."""
    instance_ids = list(dict.fromkeys(instance_ids))
    with cluster(bootstrap_server, timeout, command_config) as client:
        errors = (
            _show(client, group_id, instance_ids, output)
            if dry_run
            else _remove(client, group_id, instance_ids, output)
        )
    end(_failures(group_id, errors))


def _remove(client: Client, group_id: str, instance_ids: list[str], output: Output) -> dict[str, int]:
    """Remove the members and print what happened to each; returns error codes by instance id."""
    errors = remove_members(client, group_id, instance_ids)
    if all(error == ErrorCode.UNKNOWN_MEMBER_ID for error in errors.values()):
        group = describe_groups(client, [group_id])[group_id]  # Kafka gives a group that doesn't exist the same code
        if isinstance(group, Refused):
            fail(*group_failure(group_id, group))
    if output is Output.JSON:
        print_json(
            [
                {"group_id": group_id, "group_instance_id": instance_id, "error": error_name(error) if error else None}
                for instance_id, error in errors.items()
            ]
        )
    else:
        rows = [
            (group_id, instance_id, error_name(error) if error else "removed") for instance_id, error in errors.items()
        ]
        print_table(("GROUP", "GROUP-INSTANCE-ID", "RESULT"), rows)
    return errors


def _show(client: Client, group_id: str, instance_ids: list[str], output: Output) -> dict[str, int]:
    """Print the members that would be removed; returns the error code of each removal by instance id."""
    group = describe_groups(client, [group_id])[group_id]
    if isinstance(group, Refused):
        fail(*group_failure(group_id, group))
    wanted = [member for member in group.members if member.group_instance_id in instance_ids]
    if output is Output.JSON:
        print_json([{"group_id": group_id, **member_json(member)} for member in wanted])
    else:
        print_table(MEMBER_COLUMNS, [member_row(group_id, member) for member in wanted])
    found = {member.group_instance_id for member in wanted}
    return {
        instance_id: ErrorCode.NONE if instance_id in found else ErrorCode.UNKNOWN_MEMBER_ID
        for instance_id in instance_ids
    }


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
