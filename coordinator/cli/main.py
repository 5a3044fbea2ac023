"""`tenure`: the command line, and the list of its commands.

This module imports a command's module only when the command line names the command, so no command pays for the imports
of another. `serve` doesn't even import typer (coordinator.cli.serve). Without a command, or with an unknown one, all
modules are imported, because the help shows all commands.

House rule: a new command is one line in SECTIONS, and a module of its own.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING

from coordinator.cli.exit_codes import ExitCode, fail

if TYPE_CHECKING:
    from typer import Typer

SECTIONS = {
    "Run a server": {
        "serve": "Run a coordinator until SIGTERM or SIGINT.",
        "store": "Restore the store of a cluster.",
    },
    "Ask about groups": {
        "explain": "Show why a group rebalanced.",
        "watch": "Show what happens to groups as it happens.",
        "doctor": "Show what is wrong with groups, and what to do about it.",
        "observe": "Show why the groups of any Kafka rebalance, in a browser.",
        "mcp": "Answer a client of the Model Context Protocol about groups.",
        "groups": "List, describe, wait for, set and delete groups.",
        "migrate": "Check whether a group may move to the consumer protocol.",
        "transactions": "List, describe, find and abort transactions.",
    },
    "Change members and users": {
        "members": "Free the seats of static members.",
        "seats": "Free the seats of pods that Kubernetes scaled away.",
        "seat": "Run a program under a name that no other one has.",
        "users": "Add, list and remove users that log in by SCRAM.",
    },
    "Read and move logs": {
        "log": "Print a log, check it, move it.",
        "audit": "Report what happened to groups, from their log alone.",
    },
}
"""All commands: each under what it is for, with what it does, as the help shows them."""

MODULES = {"groups": "group_settings", "log": "log.command"}
"""The modules of commands that have another name than their module."""

COMMANDS = {
    name: f"coordinator.cli.{MODULES.get(name, name)}"
    for section in SECTIONS.values()
    for name in section
    if name != "serve"
}
"""Command -> its module, except `serve`. A module has a `typer.Typer` named `app`, or a function `command`."""


def main(arguments: list[str] | None = None) -> None:
    """The entry point of the `tenure` command; ends the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, TextIOWrapper):
        # Names of groups and clients have any character, and the encoding of a terminal may lack some.
        sys.stdout.reconfigure(errors="backslashreplace")
    for argument in arguments:
        if not _is_text(argument):
            fail(ExitCode.USAGE, f"an argument is not UTF-8: {os.fsencode(argument)!r}")
    if arguments[:1] == ["serve"]:
        # Modules leave little behind, and it stays: the garbage collector need not look at it.
        gc.disable()
        from coordinator.cli.serve import serve

        gc.freeze()
        gc.enable()
        serve(arguments[1:])
        return
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    make_app(command)(args=arguments, prog_name="tenure")


def make_app(command: str) -> Typer:
    """The command line with this command; with all commands if there is no such command."""
    import typer

    from coordinator.cli.options import Command, Commands

    class Sectioned(Commands):
        sections = SECTIONS

    app = typer.Typer(
        cls=Sectioned,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def about(
        version: bool = typer.Option(
            False, "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ) -> None:
        """A Kafka group coordinator whose members keep their seats."""

    @app.command("serve", add_help_option=False)
    def serve_command() -> None:
        """Run a coordinator until SIGTERM or SIGINT."""
        raise typer.BadParameter("`serve` must be the first argument")

    for name, module in COMMANDS.items():
        if command == name or command not in COMMANDS:
            loaded = import_module(module)
            if hasattr(loaded, "app"):
                app.add_typer(loaded.app, name=name)
            else:
                app.command(name, cls=Command)(loaded.command)
    return app


def _is_text(argument: str) -> bool:
    """Whether the argument can be sent and printed; bytes that are not UTF-8 arrive as lone surrogates (PEP 383)."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print("tenure", version("tenure"))
        sys.exit()


if __name__ == "__main__":
    main()
