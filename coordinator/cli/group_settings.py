"""`tenure groups settings`: show a group's own settings, and change them, without Kafka's tools.

The server applies a change at once and keeps it. A group can have settings before it exists. All changes of one command
go with one request, so the server takes all of them or none.

House rule: the server knows the settings, and says what is wrong with a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, Timeout, cluster
from coordinator.cli.exit_codes import ExitCode, fail, warn
from coordinator.cli.options import Command, OutputForm, argument, option
from coordinator.cli.output import Output, print_json, print_table
from coordinator.cli.ready import app
from coordinator.client.group_settings import change_settings, names_of, settings_of

__all__ = ["app"]


@app.command("settings", cls=Command)
def settings_command(
    group_id: Annotated[str, argument("GROUP", "The group's id.")],
    given: Annotated[list[str] | None, option("--set", "NAME=VALUE", "Set this setting; may be repeated.")] = None,
    unset: Annotated[
        list[str] | None, option("--unset", "NAME", "Remove this setting: the server's value counts; may be repeated.")
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Show the settings that a group has of its own, after the changes of --set and --unset."""
    changes = _changes(given or [], unset or [])
    with cluster(bootstrap_server, timeout, command_config) as client:
        if changes:
            _check_names(changes, names_of(client, group_id))
            change_settings(client, group_id, changes)
        found = settings_of(client, group_id)
    if output is Output.JSON:
        print_json({"group_id": group_id, "settings": found})
    elif found:
        print_table(("GROUP", "SETTING", "VALUE"), [(group_id, name, value) for name, value in found.items()])
    else:
        warn(f"group {group_id} has no settings of its own")


def _check_names(names: Iterable[str], known: list[str]) -> None:
    """Refuse a name that no group has: the server would remove such a setting without a word, as Kafka does."""
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f", perhaps {close[0]}" if close else ""
            fail(ExitCode.USAGE, f"a group has no setting {name!r}{hint}")


def _changes(given: list[str], unset: list[str]) -> dict[str, str | None]:
    """The new value of each setting by name; None for one to remove."""
    changes: dict[str, str | None] = dict.fromkeys(unset)
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            fail(ExitCode.USAGE, f"--set: {text!r} is not NAME=VALUE")
        if name in changes:
            fail(ExitCode.USAGE, f"{name} is named twice")
        changes[name] = value
    return changes
