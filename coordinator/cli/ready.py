"""`tenure groups ready`: may a deployment restart a member of this group now, so that nothing moves?

One line on standard output says yes or no and why; the exit code is 0 or 1, so that a script stops at the first seat
that isn't safe. coordinator.story.readiness has the rules. Apache Kafka doesn't tell some of it: the command looks
at the rest, and a line on standard error says what it left out.

House rule: this command changes nothing.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, Timeout, cluster
from coordinator.cli.exit_codes import ExitCode, fail, warn
from coordinator.cli.groups import group_of_consumers
from coordinator.cli.options import Command, argument, duration_ms, option, seconds, whole_number
from coordinator.cli.wait import app
from coordinator.client.client import Client
from coordinator.client.events import EventReader, NoEvents
from coordinator.client.newest import read_timelines
from coordinator.story.described import Group
from coordinator.story.entries import Entry
from coordinator.story.readiness import Wanted, verdict
from coordinator.text import printable

__all__ = ["AbsentAfter", "app"]


def _ms(text: str) -> int:
    """Turn seconds into milliseconds."""
    return round(seconds(text) * 1_000)


AbsentAfter = Annotated[
    int | None,
    option(
        "--absent-after",
        "SECONDS",
        "A member that was silent for this long is away: two thirds of its session unless given, and 10 at most. "
        "Give more than heartbeat.interval.ms.",
        _ms,
    ),
]
SINCE = 7 * 86_400_000


@app.command("ready", cls=Command)
def ready_command(
    group_id: Annotated[str, argument("GROUP", "The group's id.")],
    restart: Annotated[
        str | None,
        option("--restart", "INSTANCE", "The member to restart, by its group.instance.id; any member unless given."),
    ] = None,
    members: Annotated[
        int | None,
        option("--members", "N", "The group is ready only with N members; standbys don't count.", whole_number),
    ] = None,
    absent_after: AbsentAfter = None,
    since: Annotated[
        int | None,
        option(
            "--since",
            "DURATION",
            "How far back restarts and expired members count, 7d unless given: 90s, 15m, 2h, 7d.",
            duration_ms,
        ),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = None,
) -> None:
    """Say whether you can restart a static member now: exit code 0 if so, 1 if not.

    The group has to be Stable, no other member may be away, no expected member may be missing, no member may have
    expired a short time ago, and the session timeout has to be longer than the restarts of the last days.
    """
    with cluster(bootstrap_server, timeout, command_config) as client:
        group = group_of_consumers(client, group_id)
        if restart is not None and all(member.group_instance_id != restart for member in group.members):
            fail(ExitCode.NOT_FOUND, f"no member of group {group_id} has instance id {restart}")
        now_ms = time.time_ns() // 1_000_000
        entries = _entries(client, group, now_ms - (SINCE if since is None else since))
    is_ready, reason, untold = verdict(group, entries, Wanted(restart, members, absent_after), now_ms)
    print(printable(f"{'ready' if is_ready else 'not ready'}: {reason}"))
    if untold:
        warn(f"{bootstrap_server} doesn't tell {', '.join(untold)}: looked at the rest")
    raise typer.Exit(ExitCode.DONE if is_ready else ExitCode.FINDINGS)


def _entries(client: Client, group: Group, begin_ms: int) -> list[Entry] | None:
    """The group's timeline from a time on; None if the cluster keeps no events."""
    try:
        reader = EventReader(client, group.group_id)
    except NoEvents:
        return None
    reader.begin_at(begin_ms)
    return read_timelines(reader, [group.group_id])[group.group_id].entries
