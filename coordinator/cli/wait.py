"""`tenure groups wait`: return when a group is as a deployment wants it.

A script that restarts consumers one after the other goes on when the group is Stable with all its members. The command
describes the group again and again, also while no server answers or the coordinator is away, until its time is over. It
does the same on Apache Kafka. A static member that stops keeps its seat, so only another member id shows that its new
process is there (--restarted).

House rule: this command changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, NamedTuple

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, cluster
from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.groups import app, states_named
from coordinator.cli.options import Command, argument, number_or_none, option, seconds
from coordinator.client.client import Client
from coordinator.client.errors import Refused, Unreachable
from coordinator.client.groups import DEAD, describe_groups, is_unknown
from coordinator.group.consumer.group import AWAY
from coordinator.story.described import seated
from coordinator.text import several

__all__ = ["app"]

LOOK_AGAIN_AFTER_S = 0.2
"""Soon enough for a person or a script, and seldom enough for the coordinator, which describes the group each time."""


@app.command("wait", cls=Command)
def wait_command(
    group_id: Annotated[str, argument("GROUP", "The group's id.")],
    state: Annotated[
        list[str] | None,
        option("--state", "STATE", "The group is in this state, Stable unless given; may be repeated."),
    ] = None,
    members: Annotated[
        int | None,
        option(
            "--members", "N", "The group has N members; standbys and members that are away don't count.", number_or_none
        ),
    ] = None,
    restarted: Annotated[
        str | None, option("--restarted", "INSTANCE", "The seat of INSTANCE has another member id than --from.")
    ] = None,
    former: Annotated[
        str | None, option("--from", "MEMBER-ID", "The member id of INSTANCE before its restart.")
    ] = None,
    timeout: Annotated[float, option("--timeout", "SECONDS", "How long to wait.", seconds)] = 60.0,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Wait until a group is Stable, or as the options say; exit code 1 if it isn't in time."""
    states = states_named(state or ["Stable"])
    if (restarted is None) != (former is None):
        fail(ExitCode.USAGE, "--restarted needs --from, and --from needs --restarted: give both")

    def is_as_wanted(found: _Look) -> bool:
        return found.state in states and members in {None, found.size}

    def is_over(found: _Look) -> bool:
        is_back = restarted is None or found.member_ids.get(restarted, former) != former
        return is_as_wanted(found) and is_back

    with cluster(bootstrap_server, timeout, command_config) as client:
        found = _look_until(client, group_id, is_over, timeout)
    if is_over(found):
        return
    wanted = " or ".join(states) + ("" if members is None else f" with {several(members, 'member')}")
    how = "isn't there" if found.state == DEAD else f"is {found.state} with {several(found.size, 'member')}"
    begun = f"after {timeout:g} s group {group_id} {how}"
    fail(ExitCode.FINDINGS, f"{begun}, " + (f"and {restarted} is not back" if is_as_wanted(found) else f"not {wanted}"))


class _Look(NamedTuple):
    """A group's state, how many members with a seat are there, and the member id of each static one, standbys too."""

    state: str
    size: int
    member_ids: dict[str, str]


def _look_until(client: Client, group_id: str, is_over: Callable[[_Look], bool], timeout: float) -> _Look:
    """Look again and again; returns the first look that ends the wait, or the last one in time.

    Raises Unreachable if no server answers at the end of the time.
    """
    deadline = time.monotonic() + timeout
    while True:
        client.timeout = max(deadline - time.monotonic(), LOOK_AGAIN_AFTER_S)
        try:
            found = _look(client, group_id)
        except Unreachable:
            if time.monotonic() >= deadline:
                raise
        else:
            if is_over(found) or time.monotonic() >= deadline:
                return found
        time.sleep(LOOK_AGAIN_AFTER_S)


def _look(client: Client, group_id: str) -> _Look:
    """The group as it is now. A group that isn't there is Dead, as for Kafka."""
    group = describe_groups(client, [group_id])[group_id]
    if is_unknown(group):
        return _Look(DEAD, 0, {})
    if isinstance(group, Refused):
        raise group
    there = [member for member in group.members if member.seat is None or member.seat.epoch != AWAY]
    static = {member.group_instance_id: member.member_id for member in there if member.group_instance_id is not None}
    return _Look(group.state, len(seated(there)), static)
