"""The cluster that an admin command talks to: the options for it, and how a failure ends the command.

On a terminal, a line says what a command waits for while no server has answered yet; the answer erases the line.

House rule: each failure between us and a server is one line and an exit code here, never a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from shutil import get_terminal_size
from typing import Annotated

import typer

from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.options import seconds
from coordinator.client.client import TIMEOUT, Client
from coordinator.client.errors import Refused, Unreachable
from protocol.errors import ProtocolError

BootstrapServer = Annotated[
    str,
    typer.Option("--bootstrap-server", metavar="HOST:PORT", help="A server of the cluster, Tenure or Apache Kafka."),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        parser=seconds,
        help="How long to try before giving up; less for a closed port of this machine.",
    ),
]
DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
DEFAULT_TIMEOUT = TIMEOUT


class WaitLine:
    """A line about a wait on a terminal, on standard error, until `close`; elsewhere nothing."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._shown = ""

    def wait(self, waits: bool) -> None:
        """Show the line when a wait begins, erase it when it ends."""
        if not waits:
            self.close()
        elif not self._shown and sys.stderr.isatty():
            self._shown = self._text[: get_terminal_size().columns - 1]  # a line that wraps couldn't be erased
            print(self._shown, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Erase the line, with nothing but what every terminal knows."""
        if self._shown:
            print(f"\r{' ' * len(self._shown)}\r", end="", file=sys.stderr, flush=True)
            self._shown = ""


@contextmanager
def cluster(bootstrap_server: str, timeout: float) -> Iterator[Client]:
    """A client of the cluster for a block; a failure of the client inside the block ends the command."""
    line = WaitLine(f"tenure: waiting for {bootstrap_server}, up to {timeout:g} s")
    try:
        client = Client(bootstrap_server, timeout, on_wait=line.wait)
    except ValueError as error:
        fail(ExitCode.USAGE, f"--bootstrap-server: {error}")
    with client:
        try:
            with closing(line):
                yield client
        except Refused as error:
            fail(ExitCode.REFUSED, str(error))
        except (Unreachable, ProtocolError) as error:
            fail(ExitCode.UNREACHABLE, str(error))
