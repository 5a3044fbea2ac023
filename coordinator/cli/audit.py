"""`tenure audit`: what the metadata log tells about every group.

The audit needs packages that nothing else here needs; they are the extra `audit`.

House rule: exit code 0 is for a log that was read and in which nothing was found, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator.cli.exit_codes import ExitCode, fail

if TYPE_CHECKING:
    from rich.console import Console

    from coordinator.audit.audit import Options, Outcome


PIPE_WIDTH = 200
"""Columns of the report where nobody says how many there are."""


def command(
    path: Annotated[
        Path, typer.Argument(metavar="DATA_DIR", help="A data folder, or a broker's log folder, or a copy of one.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write findings, tables, summary and an HTML page.")
    ] = None,
    before: Annotated[
        Path | None, typer.Option("--before", metavar="DIR", help="The same log as it was before a compaction.")
    ] = None,
    partition_count: Annotated[
        int | None,
        typer.Option(
            "--partitions", metavar="N", min=1, help="offsets.topic.num.partitions; found out where it is left out."
        ),
    ] = None,
    session_ms_max: Annotated[
        int, typer.Option("--max-session-ms", metavar="MS", min=1, help="group.max.session.timeout.ms.")
    ] = 1_800_000,
    rebalances_per_hour_max: Annotated[
        int, typer.Option("--max-rebalances", metavar="N", min=1, help="How many rebalances in an hour are no storm.")
    ] = 10,
) -> None:
    """Read group metadata and say what is wrong, what is odd and what happened."""
    try:
        from coordinator.audit.audit import NothingRead, Options, audit
        from coordinator.audit.history import Limits
    except ModuleNotFoundError as error:
        fail(ExitCode.USAGE, f"the audit needs {error.name}: pip install 'tenure[audit]'")
    options = Options(Limits(partition_count, session_ms_max, rebalances_per_hour_max), before)
    try:
        outcome = _with_progress(path, options, lambda progress: audit(path, out, options, progress))
    except NothingRead as error:
        fail(ExitCode.USAGE, str(error))
    except OSError as error:
        file = f": {error.filename}" if error.filename else ""
        fail(ExitCode.USAGE, f"{error.strerror or error}{file}")
    _tell(outcome, out)


def _tell(outcome: Outcome, out: Path | None) -> None:
    """Print the report, write what belongs beside the tables, and end the command."""
    from rich.console import Console

    from coordinator.audit.page import write_page
    from coordinator.audit.report import print_report
    from coordinator.audit.summary import write_summary

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    print_report(outcome, console)
    if out is not None:
        try:
            write_summary(out, outcome)
            print(write_page(out, outcome))
        except OSError as error:
            fail(ExitCode.USAGE, f"{error.strerror or error}: {error.filename}")
    if outcome.findings:
        raise typer.Exit(ExitCode.FINDINGS)


def _with_progress(path: Path, options: Options, run: Callable[[Callable[[int], None]], Outcome]) -> Outcome:
    """Run it, with a bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console: Console = Console(stderr=True)
    size = sum(_size_of(each) for each in (path, options.before) if each is not None)
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=size)
        return run(lambda done: progress.advance(task, done))


def _size_of(path: Path) -> int:
    return sum(segment.stat().st_size for segment in path.rglob("*.log") if segment.is_file())
