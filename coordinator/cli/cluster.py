"""The cluster that an admin command talks to: the options for it, and how a failure ends the command.

House rule: each failure between us and a server is one line and an exit code here, never a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    typer.Option("--timeout", metavar="SECONDS", parser=seconds, help="How long to try before giving up."),
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
