"""`tenure groups wait`: return when a group is as a deployment wants it.

A script that restarts consumers one after the other goes on when the group is Stable with all its members. The command
describes the group again and again, also while its coordinator is away. On Apache Kafka it does the same.

House rule: this command changes nothing.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, cluster
from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.groups import app, states_named
from coordinator.cli.options import Command, seconds
from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import DEAD, describe_groups, is_unknown
from coordinator.group.consumer.group import AWAY

__all__ = ["app"]

LOOK_AGAIN_AFTER_S = 0.2
"""Soon enough for a person or a script, and seldom enough for the coordinator, which describes the group each time."""


@app.command("wait", cls=Command)
def wait_command(
    group_id: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Stable unless given; may be repeated.")
    ] = None,
    members: Annotated[
        int | None,
        typer.Option("--members", metavar="N", min=0, help="So many members, without those that are away."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", parser=seconds, help="How long to wait.")
    ] = 60.0,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Wait until a group is Stable, or as the options say; exit code 1 if it isn't in time."""
    states = states_named(state or ["Stable"])
    deadline = time.monotonic() + timeout
    with cluster(bootstrap_server, timeout, command_config) as client:
        while True:
            found, count = _look(client, group_id)
            if found in states and members in {None, count}:
                return
            if time.monotonic() >= deadline:
                break
            time.sleep(LOOK_AGAIN_AFTER_S)
    wanted = " or ".join(states) + ("" if members is None else f" with {_members(members)}")
    fail(ExitCode.FINDINGS, f"after {timeout:g} s group {group_id} is {found} with {_members(count)}, not {wanted}")


def _look(client: Client, group_id: str) -> tuple[str, int]:
    """A group's state and how many of its members are there; a group that isn't there is Dead, as for Kafka."""
    group = describe_groups(client, [group_id])[group_id]
    if is_unknown(group):
        return DEAD, 0
    if isinstance(group, Refused):
        raise group
    return group.state, sum(member.seat is None or member.seat.epoch != AWAY for member in group.members)


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"
