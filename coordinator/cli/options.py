"""The common part of the commands' options: how a text becomes a value, and how the help shows an option.

Each parser here has words of its own for a text that it refuses; typer would show those of its validation library.
typer also prints the type of an argument in Python's words behind its name: `GROUP <list[str]>`. It has no setting for
that, but a command may have a class of its own.

House rule: an option with a value has a metavar, and a parser unless it takes any text; each command has the class
`Command`.
"""

from __future__ import annotations

import re
from math import inf, nan
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from coordinator.cli.output import Output

TIMEOUT_MIN_S = 0.1


def seconds(text: str) -> float:
    """Turn a timeout into a number."""
    try:
        found = float(text)
    except ValueError:
        found = nan
    if not TIMEOUT_MIN_S <= found < inf:
        raise typer.BadParameter(f"{text!r} is not a number of seconds, {TIMEOUT_MIN_S} or more")
    return found


def output_form(text: str) -> Output:
    """Turn the name of a form into an Output."""
    try:
        return Output(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(Output)}") from None


def whole_number(text: str | int) -> int:
    """Turn a number of things, 1 or more, into an int; typer passes a default of an option too."""
    if re.fullmatch(r"[0-9]{1,18}", str(text)) is None or not int(text):
        raise typer.BadParameter(f"{text!r} is not a whole number, 1 or more")
    return int(text)


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


Since = Annotated[
    int | None,
    typer.Option(
        "--since",
        metavar="DURATION",
        parser=duration_ms,
        help="Only what happened since so long ago: 90s, 15m, 2h, 7d.",
    ),
]
OutputForm = Annotated[
    Output, typer.Option("--output", metavar="table|json", parser=output_form, help="Columns, or JSON.")
]


class Command(TyperCommand):
    """A command whose help names no type of Python."""

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
