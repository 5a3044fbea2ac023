"""The cluster that an admin command talks to: the options for it, and how a failure ends the command.

House rule: each failure between us and a server is one line and an exit code here, never a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf, nan
from typing import Annotated

import typer

from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.output import Output
from coordinator.client.client import TIMEOUT, Client
from coordinator.client.errors import Refused, Unreachable
from protocol.errors import ProtocolError

BootstrapServer = Annotated[
    str,
    typer.Option("--bootstrap-server", metavar="HOST:PORT", help="A server of the cluster, Tenure or Apache Kafka."),
]
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


Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", parser=seconds, help="How long to try before giving up."),
]
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

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
DEFAULT_TIMEOUT = TIMEOUT


@contextmanager
def cluster(bootstrap_server: str, timeout: float) -> Iterator[Client]:
    """A client of the cluster for a block; a failure of the client inside the block ends the command."""
    try:
        client = Client(bootstrap_server, timeout)
    except ValueError as error:
        fail(ExitCode.USAGE, f"--bootstrap-server: {error}")
    with client:
        try:
            yield client
        except Refused as error:
            fail(ExitCode.REFUSED, str(error))
        except (Unreachable, ProtocolError) as error:
            fail(ExitCode.UNREACHABLE, str(error))
