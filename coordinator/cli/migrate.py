"""`tenure migrate check`: whether a group may move to `group.protocol=consumer`, in which steps, and how it went.

coordinator.story.migration has the rules and the words. Exit code 0: the group may move, or has moved. 1: something
has to be done first, or some members are still classic. JSON is an object: `group_id`, `stage`, `points` (each with
`mark`, `kind`, `found`, `advice`), `steps`.

House rule: this command changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, Timeout, cluster
from coordinator.cli.exit_codes import ExitCode
from coordinator.cli.groups import group_of_consumers
from coordinator.cli.options import Command, OutputForm, argument, commands
from coordinator.cli.output import Output, print_json
from coordinator.client.migration import facts_of
from coordinator.story.events import fields_of
from coordinator.story.migration import STAGES, Checked, Stage, check
from coordinator.text import printable

app = commands("Check whether groups may change their protocol.")


@app.command("check", cls=Command)
def check_command(
    group_id: Annotated[str, argument("GROUP", "The group's id.")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Tell whether a group may move to group.protocol=consumer, in which steps; after the roll, how it went.

    Exit code 0 if it may move or has moved, 1 if something has to be done first, or some members are still classic.
    The user needs Describe on the group and its topics; further rights show more.
    """
    with cluster(bootstrap_server, timeout, command_config) as client:
        checked = check(facts_of(client, group_of_consumers(client, group_id)))
    if output is Output.JSON:
        print_json(fields_of(checked))
    else:
        print("\n".join(map(printable, _lines(checked))))
    is_good = checked.stage in {Stage.MAY_MOVE, Stage.MOVED}
    raise typer.Exit(ExitCode.DONE if is_good else ExitCode.FINDINGS)


def _lines(checked: Checked) -> Iterator[str]:
    yield f"{checked.group_id} {STAGES[checked.stage]}"
    for point in checked.points:
        yield f"  {point.mark:8}{point.found}"
        if point.advice and point.advice not in checked.steps:
            yield f"          {point.advice}"
    for number, step in enumerate(checked.steps, 1):
        yield f"  step {number}  {step}"
