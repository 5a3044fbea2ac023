"""The common part of the commands' options: how a text becomes a value, and how the help shows an option.

Each parser here has words of its own for a text that it refuses; typer would show those of its validation library.
typer also prints the type of an argument in Python's words behind its name: `GROUP <list[str]>`. It has no setting for
that, but a command may have a class of its own.

House rule: an option with a value has a metavar, and a parser unless it takes any text; each command has the class
`Command`, and an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.output import Output

TIMEOUT_MIN_S = 0.1


def seconds(text: str) -> float:
    """Turn a timeout into a number."""
    return _amount(text, "seconds", TIMEOUT_MIN_S)


def minutes(text: str) -> float:
    """Turn a number of minutes into a number."""
    return _amount(text, "minutes", 0)


def _amount(text: str, unit: str, least: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = nan
    if not least <= found < inf:
        raise typer.BadParameter(f"{text!r} is not a number of {unit}, {least} or more")
    return found


def output_form(text: str) -> Output:
    """Turn the name of a form into an Output."""
    try:
        return Output(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(Output)}") from None


def whole_number(text: str | int, least: int = 1) -> int:
    """Turn a number of things, `least` or more, into an int; typer passes a default of an option too."""
    if re.fullmatch(r"[0-9]{1,18}", str(text)) is None or int(text) < least:
        raise typer.BadParameter(f"{text!r} is not a whole number, {least} or more")
    return int(text)


def number_or_none(text: str | int) -> int:
    """Turn a number of things, 0 or more, into an int."""
    return whole_number(text, least=0)


def option(flag: str, metavar: str, about: str, parser: Callable[[str], object] | None = None) -> Any:
    """An option with a value. about: for the help. parser: None for any text."""
    return typer.Option(flag, metavar=metavar, parser=parser, help=about)


def flag(name: str, about: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=about)


def argument(metavar: str, about: str) -> Any:
    """An argument."""
    return typer.Argument(metavar=metavar, help=about)


UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

DAYS_MAX, DIGITS_MAX = 10_000, 9
"""The longest duration, and the most digits of its number.

10,000 days ago is after 1970: no server knows a time before that. A number with more digits is too long in any unit.
"""


def duration_ms(text: str) -> int:
    """Turn a duration such as 90s, 15m, 2h or 7d into ms."""
    found = re.fullmatch(r"0*([0-9]+)([smhd])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a duration: 90s, 15m, 2h, 7d")
    duration = int(found[1][:DIGITS_MAX]) * UNITS_MS[found[2]]
    if len(found[1]) > DIGITS_MAX or duration > DAYS_MAX * UNITS_MS["d"]:
        raise typer.BadParameter(f"{text!r} is too long: {DAYS_MAX}d at most")
    return duration


Since = Annotated[int | None, option("--since", "DURATION", "How far back to look: 90s, 15m, 2h, 7d.", duration_ms)]
OutputForm = Annotated[Output, option("--output", "table|json", "Columns, or JSON.", output_form)]

EXIT_CODES = (
    "Exit codes: 0 done, 1 findings or a negative answer, 2 wrong usage, setting or input, 3 no such group, member or "
    "transaction, 4 the server refuses, 5 no server answers in time, 6 a share or streams group."
)

EXAMPLES = {
    "audit": "tenure audit data --out found",
    "doctor": "tenure doctor --all",
    "explain": "tenure explain orders --since 2h",
    "groups delete": "tenure groups delete orders",
    "groups describe": "tenure groups describe orders --members",
    "groups list": "tenure groups list --output json",
    "groups ready": "tenure groups ready orders --restart worker-3",
    "groups settings": "tenure groups settings orders --set target.group.size=5",
    "groups wait": "tenure groups wait orders --members 5 --timeout 60",
    "log dump": "tenure log dump data --group orders",
    "log export": "tenure log export broker-data --data-dir data",
    "log import": "tenure log import broker-data --data-dir data",
    "log verify": "tenure log verify data",
    "mcp": "tenure mcp --bootstrap-server kafka-1:9092",
    "members alive": "tenure members alive --group orders --instance-id worker-3",
    "members remove": "tenure members remove --group orders --instance-id worker-3 --dry-run",
    "migrate check": "tenure migrate check orders",
    "observe": "tenure observe --bootstrap-server kafka-1:9092",
    "seat run": "tenure seat run --pool 'orders-[0..7]' -- python worker.py",
    "seats": "tenure seats --bootstrap-server kafka-1:9092 --namespace shop",
    "store restore": "tenure store restore --store etcd://127.0.0.1:2379 --cluster main",
    "transactions abort": "tenure transactions abort --hanging --dry-run",
    "transactions describe": "tenure transactions describe billing-1",
    "transactions find-hanging": "tenure transactions find-hanging --older-than 60",
    "transactions list": "tenure transactions list --state Ongoing",
    "users add": "tenure users add alice --bootstrap-server 127.0.0.1:9092",
    "users list": "tenure users list --bootstrap-server 127.0.0.1:9092",
    "users remove": "tenure users remove alice --bootstrap-server 127.0.0.1:9092",
    "watch": "tenure watch orders",
}
"""A command line of each command that its help shows."""


def names_or_all(what: str, *, is_named: bool, are_all: bool, option: str = "--all") -> None:
    """End the command unless it has either names or the option for all. what: how to give names."""
    if is_named and are_all:
        fail(ExitCode.USAGE, f"{option} and names exclude each other")
    if not is_named and not are_all:
        fail(ExitCode.USAGE, f"{what}, or give {option}")


class Command(TyperCommand):
    """A command whose help names no type of Python, and ends with an example and the exit codes."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage: GROUP, not {GROUP}, which looks like a choice."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options, into the help."""
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                rows["Arguments"].append((str(parameter.metavar), record[1]))
            else:
                rows["Options"].append(record)
        for heading, under in rows.items():
            if under:
                with formatter.section(heading):
                    formatter.write_dl(under)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write an example, and the exit codes, behind the options."""
        example = EXAMPLES.get(ctx.command_path.partition(" ")[2])
        if example is not None:
            formatter.write(f"\nExample: {example}\n")
        formatter.write_paragraph()
        formatter.write_text(EXIT_CODES)


class Commands(TyperGroup):
    """A group of commands whose help has a whole sentence for each.

    sections: heading -> command -> what it does; without them, the first sentence of each command's own help.
    """

    sections: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        own = {name: _first_sentence(command.help or "") for name, command in commands.items() if command is not None}
        for heading, rows in (self.sections or {"Commands": own}).items():
            with formatter.section(heading):
                formatter.write_dl(list(rows.items()))


def commands(about: str) -> typer.Typer:
    """A command that has commands of its own. about: for its help."""
    app = typer.Typer(cls=Commands, help=about, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(lambda: None)  # a single command would take the place of the whole
    return app


def _first_sentence(text: str) -> str:
    first, end, _ = " ".join(text.split()).partition(". ")
    return first + end.strip()
