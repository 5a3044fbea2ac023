"""The cluster that an admin command talks to: the options for it, and how a failure ends the command.

`--command-config` names a client properties file, as for Kafka's tools (coordinator.client.properties). A failure of
TLS or of a login ends a command like an error of the server: another try would end alike.

On a terminal, a line says what a command waits for while no server has answered yet; the answer erases the line.

House rule: each failure between us and a server is one line and an exit code here, never a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

from coordinator import pages
from coordinator.cli.exit_codes import ExitCode, fail, warn
from coordinator.cli.options import option, seconds
from coordinator.client.client import TIMEOUT, Client, Cluster, parse_addresses
from coordinator.client.errors import OtherKind, PortClosed, Refused, Unauthenticated, Unreachable, error_name
from coordinator.text import printable
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from coordinator.client.security import Security

BootstrapServer = Annotated[
    str, option("--bootstrap-server", "HOST:PORT", "A server of the cluster, Tenure or Apache Kafka.")
]
CommandConfig = Annotated[
    Path | None, option("--command-config", "FILE", "Client properties for TLS and SASL, as Kafka's tools take them.")
]
Timeout = Annotated[
    float | None,
    option(
        "--timeout",
        "SECONDS",
        f"How long to try before giving up; without it request.timeout.ms of the client properties, or {TIMEOUT:g}.",
        seconds,
    ),
]
DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"


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


HINTS = {
    "_AUTHORIZATION_FAILED": f"; an ACL grants it ({pages.ALLOW})",
    "COORDINATOR_NOT_AVAILABLE": "; `tenure doctor GROUP` finds out why",
}
"""End of an error's name -> what a person can do."""


def refusal(error: Refused | Unauthenticated) -> str:
    """The line for an answer that refuses."""
    name = error_name(error.error_code) if isinstance(error, Refused) else ""
    return printable(str(error)) + next((hint for ends, hint in HINTS.items() if name.endswith(ends)), "")


def read_command_config(path: Path) -> Security:
    """How to connect as the file says; a wrong file ends the command. Ignored keys get a line."""
    from coordinator.client.properties import PropertiesError, read_file
    from coordinator.client.security import Security

    try:
        properties = read_file(path)
        if properties.warning:
            warn(properties.warning)
        return Security(properties)
    except PropertiesError as error:
        fail(ExitCode.USAGE, f"--command-config: {error}")


def named_cluster(bootstrap_server: str, command_config: Path | None) -> Cluster:
    """The cluster that these options name; a wrong option ends the command."""
    security = None if command_config is None else read_command_config(command_config)
    try:
        parse_addresses(bootstrap_server)
    except ValueError as error:
        fail(ExitCode.USAGE, f"--bootstrap-server: {error}")
    return Cluster(bootstrap_server, security)


@contextmanager
def cluster(
    bootstrap_server: str,
    timeout: float | None = None,
    command_config: Path | None = None,
    *,
    security: Security | None = None,
) -> Iterator[Client]:
    """A client of the cluster for a block; a failure of the client inside the block ends the command.

    timeout: in seconds; None: as the file `command_config` says, or TIMEOUT. security: in place of the file.
    """
    security = named_cluster(bootstrap_server, command_config).security or security
    seconds = timeout or (security and security.timeout_s) or TIMEOUT
    line = WaitLine(f"tenure: waiting for {bootstrap_server}, up to {seconds:g} s")
    with Client(bootstrap_server, seconds, on_wait=line.wait, security=security) as client:
        try:
            with closing(line):
                yield client
        except OtherKind as error:
            fail(ExitCode.OTHER_KIND, str(error))
        except (Refused, Unauthenticated) as error:
            fail(ExitCode.REFUSED, refusal(error))
        except PortClosed as error:
            fail(
                ExitCode.UNREACHABLE,
                f"{error}: no server is there; start `tenure serve`, or name one with --bootstrap-server",
            )
        except (Unreachable, ProtocolError) as error:
            fail(ExitCode.UNREACHABLE, str(error))
