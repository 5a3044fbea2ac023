"""`tenure`: the command line, and where its commands are.

A command's module is imported when the command is named on the command line: `tenure serve` starts without what the
others need. Without a command, or with one that doesn't exist, all are imported, so that the help shows them.

House rule: a new command is one line in COMMANDS, and `add(app)`'s business is in its own module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

COMMANDS = {
    "groups": "coordinator.cli.groups",
    "members": "coordinator.cli.members",
}
"""Command -> module with a `typer.Typer` named `app`. `serve` is defined here."""


def make_app(named: str | None) -> typer.Typer:
    """The command line, with `serve` and the command that is `named`; all of them if that is none of them."""
    app = typer.Typer(
        name="tenure",
        help="A Kafka group coordinator whose members keep their seats.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_about)
    app.command("serve")(serve_command)
    for command in [named] if named in COMMANDS else [] if named == "serve" else COMMANDS:
        app.add_typer(import_module(COMMANDS[command]).app, name=command)
    return app


def _about() -> None:
    """A Kafka group coordinator whose members keep their seats."""


def serve_command(
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 picks a free one.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="The folder for everything that is kept.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings, as a Java properties file.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting, under Kafka's name; may be repeated."),
    ] = None,
    log_format: Annotated[str | None, typer.Option("--log-format", metavar="text|json", help="How to log.")] = None,
) -> None:
    """Run a coordinator until SIGTERM or SIGINT."""
    from coordinator.cli.serve import serve

    raise typer.Exit(serve(listen, data_dir, config, sets or [], log_format))


def main(arguments: list[str] | None = None) -> None:
    """The entry point of the `tenure` command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    run: Callable[..., None] = make_app(named)
    run(args=arguments, prog_name="tenure")


if __name__ == "__main__":
    main()
