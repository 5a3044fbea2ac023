"""`tenure log`: the commands on the files of the metadata log. No server is asked.

House rule: what can't be read ends a command with one line and exit code 2; damage that was found is exit code 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.exit_codes import ExitCode, fail, warn
from coordinator.cli.output import Output

app = typer.Typer(
    name="log", help="Look into the log, check it, move it.", no_args_is_help=True, pretty_exceptions_enable=False
)

Source = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A data folder, a broker's log folder, the folder of one partition, or a segment."
    ),
]


@app.callback()
def log() -> None:
    """Look into the metadata log, check it, and move it between Tenure and Apache Kafka."""


@contextmanager
def _reading() -> Iterator[None]:
    """What the system refuses ends the command."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        file = f": {error.filename}" if error.filename else ""
        fail(ExitCode.USAGE, f"{error.strerror or error}{file}")


@app.command("dump")
def dump_command(
    path: Source,
    group_id: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="Only records of this group.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", help="Columns, or JSON: an object a line.")] = Output.TABLE,
) -> None:
    """Print every record of the log, decoded."""
    from coordinator.cli.log.dump import print_lines
    from coordinator.cli.log.files import find_logs

    with _reading():
        counts = print_lines(find_logs(path), group_id, as_json=output is Output.JSON)
    for version, count in sorted(counts.unknown.items(), key=str):
        warn(f"{count} records of unknown key version {version}")
    if counts.damaged:
        fail(ExitCode.FINDINGS, f"damage in {counts.damaged} places")


@app.command("verify")
def verify_command(
    path: Source,
    partition_count: Annotated[
        int | None,
        typer.Option(
            "--partitions", metavar="N", min=1, help="offsets.topic.num.partitions; found out where it is left out."
        ),
    ] = None,
    output: Annotated[Output, typer.Option("--output", help="Lines, or JSON.")] = Output.TABLE,
) -> None:
    """Check the log: checksums, order, every record, each group's last state."""
    from coordinator.cli.log.files import find_logs
    from coordinator.cli.log.report import print_report
    from coordinator.cli.log.verify import Summary, guess_partition_count, verify

    summary = Summary()
    with _reading():
        logs = find_logs(path)
        if partition_count is None:
            partition_count = guess_partition_count(path, logs)
        count = print_report(verify(logs, partition_count, summary), summary, partition_count, output)
    for problem in summary.unreadable:
        warn(problem)
    if summary.unreadable:
        fail(ExitCode.USAGE, f"{len(summary.unreadable)} files could not be read")
    if count:
        fail(ExitCode.FINDINGS, f"{count} findings")
