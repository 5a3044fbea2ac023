"""`tenure audit`: checks a metadata log and reports what each group did.

The audit needs packages that no other command needs: the extra `audit`, and on Spark the extra `spark` too.

House rule: exit code 0 means only one thing: the audit read a log and found nothing. The command refuses an option that
would change nothing.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from coordinator.audit.check.limits import LIMIT_OPTIONS, Limits, limits_of
from coordinator.cli.cluster import CommandConfig, cluster, read_command_config
from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.options import argument, flag, option, whole_number
from coordinator.client.client import Cluster

if TYPE_CHECKING:
    from rich.console import Console

    from coordinator.audit.audit import AuditResult, Options

POLL_S = 1.0
"""How often `--follow` asks Spark whether the stream still runs."""


def _limit(name: str) -> Any:
    limit = LIMIT_OPTIONS[name]
    return option(limit.flag, limit.metavar, limit.help, whole_number)


def _default(name: str) -> int | None:
    return LIMIT_OPTIONS[name].default


DataDir = Annotated[
    Path | None, argument("DATA_DIR", "A data folder of Tenure, a broker's log folder, or a copy of one.")
]
Out = Annotated[Path | None, option("--out", "DIR", "Write findings, tables, summary and an HTML page here.")]
Before = Annotated[Path | None, option("--before", "DIR", "The same log before a compaction: find keys that it lost.")]
Bootstrap = Annotated[
    str | None, option("--bootstrap-server", "HOST:PORT", "Read a cluster instead of a folder, on Spark.")
]
Follow = Annotated[
    bool, flag("--follow", "Write tables, findings and summary below --out as the log grows, on Spark, until SIGINT.")
]
OnSpark = Annotated[bool, flag("--spark", "Work on Spark: for logs of many gigabytes.")]
Master = Annotated[str | None, option("--master", "URL", "Spark's master, local[*] if none is named.")]


def command(
    context: typer.Context,
    path: DataDir = None,
    out: Out = None,
    before: Before = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    follow: Follow = False,
    spark: OnSpark = False,
    master: Master = None,
    partitions: Annotated[int | None, _limit("partitions")] = _default("partitions"),
    max_session_ms: Annotated[int | None, _limit("max_session_ms")] = _default("max_session_ms"),
    max_rebalances: Annotated[int | None, _limit("max_rebalances")] = _default("max_rebalances"),
    offsets_retention_minutes: Annotated[int | None, _limit("offsets_retention_minutes")] = _default(
        "offsets_retention_minutes"
    ),
    delete_retention_ms: Annotated[int | None, _limit("delete_retention_ms")] = _default("delete_retention_ms"),
) -> None:
    """Read group metadata and report what is wrong, what is unusual, and what happened."""
    limits = limits_of({
        "partitions": partitions, "max_session_ms": max_session_ms, "max_rebalances": max_rebalances,
        "offsets_retention_minutes": offsets_retention_minutes, "delete_retention_ms": delete_retention_ms,
    })  # fmt: skip
    is_on_spark = spark or follow or path is None
    if (path is None) == (bootstrap_server is None):
        raise typer.BadParameter("either DATA_DIR or --bootstrap-server")
    if follow and (path is None or out is None):
        raise typer.BadParameter("--follow takes DATA_DIR and --out")
    if master is not None and not is_on_spark:
        raise typer.BadParameter("--master is for --spark, --follow and --bootstrap-server")
    _refuse_unused(context, follow=follow, is_cluster=path is None, is_compared=before is not None)
    _check_out(out)
    security = None if command_config is None else read_command_config(command_config)
    where = None if bootstrap_server is None else Cluster(bootstrap_server, security)
    _run(path, where, out, before, limits, follow=follow, is_on_spark=is_on_spark, master=master)


def _refuse_unused(context: typer.Context, *, follow: bool, is_cluster: bool, is_compared: bool) -> None:
    """Refuse options that would change nothing."""
    if follow:
        _refuse(context, ("before",), "--follow has no earlier log to compare with")
    if is_cluster:
        _refuse(context, ("before", "partitions"), "a cluster reports its partitions, and has no earlier log")
    if not is_compared:
        _refuse(context, ("delete_retention_ms",), "it is for --before")
    if not is_cluster:
        _refuse(context, ("command_config",), "it is for --bootstrap-server")


def _run(
    path: Path | None,
    where: Cluster | None,
    out: Path | None,
    before: Path | None,
    limits: Limits,
    *,
    follow: bool,
    is_on_spark: bool,
    master: str | None,
) -> None:
    """Audit, print the report, and end the command with its exit code."""
    try:
        from coordinator.audit.audit import NothingRead, Options, audit
    except ModuleNotFoundError as error:
        _miss(error)
    options = Options(limits, before)
    try:
        if follow:
            assert path is not None
            assert out is not None
            _follow(path, out, limits, master)
            return
        if is_on_spark:
            result = _on_spark(path, where, out, options, master)
        else:
            assert path is not None
            folder = path
            result = _with_progress(folder, options, lambda progress: audit(folder, out, options, progress))
        from coordinator.audit.show.page import publish

        publish(result, out, sys.stdout)
    except ModuleNotFoundError as error:
        _miss(error)
    except NothingRead as error:
        fail(ExitCode.USAGE, str(error))
    except OSError as error:
        from coordinator.log.meta import noted_partition_count

        if path is not None and path.is_dir() and noted_partition_count(path) and isinstance(error, FileNotFoundError):
            fail(ExitCode.USAGE, f"no group yet: a server made this data folder, and no group wrote to it: {path}")
        file = f": {error.filename}" if error.filename else ""
        fail(ExitCode.USAGE, f"{error.strerror or error}{file}")
    if result.findings:
        raise typer.Exit(ExitCode.FINDINGS)


def _refuse(context: typer.Context, names: tuple[str, ...], why: str) -> None:
    """Refuse these options if they are on the command line."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"--{name.replace('_', '-')}: {why}")


def _miss(error: ModuleNotFoundError) -> NoReturn:
    package = (error.name or "").partition(".")[0]
    on_spark = package in {"pyspark", "py4j"}
    target, extra = ("install", "spark") if on_spark else ("install-audit", "audit")
    advice = f"`pip install 'tenure[{extra}]'` installs it, and so does `make {target}` in a clone"
    fail(ExitCode.USAGE, f"the audit{' on Spark' if on_spark else ''} needs {package}: {advice}")


def _on_spark(
    path: Path | None, where: Cluster | None, out: Path | None, options: Options, master: str | None
) -> AuditResult:
    if where is not None:
        with cluster(where.bootstrap, security=where.security) as client:
            client.nodes()  # fails here as in every other command
    from coordinator.audit.read.logs import look
    from coordinator.audit.spark.job import audit_folder
    from coordinator.audit.spark.live import audit_cluster, list_partitions
    from coordinator.audit.spark.session import spark_session

    # If there is nothing to read, the command fails here, before Spark starts.
    if path is not None:
        look(path)
    else:
        assert where is not None
        list_partitions(where)
    with spark_session(master, kafka=path is None) as session:
        if path is not None:
            return audit_folder(session, path, out, options)
        assert where is not None
        return audit_cluster(session, where, out, options)


def _follow(path: Path, out: Path, limits: Limits, master: str | None) -> None:
    from coordinator.audit.read.logs import look
    from coordinator.audit.spark.follow import follow
    from coordinator.audit.spark.session import spark_session

    look(path)
    with spark_session(master) as session:
        ended = threading.Event()
        for ending in (signal.SIGINT, signal.SIGTERM):
            # Spark's own handler of SIGINT would call the JVM in the middle of another call.
            signal.signal(ending, lambda _number, _frame: ended.set())
        query = follow(session, path, out, limits)
        print(f"following {path} into {out}, until SIGINT", flush=True)
        while query.isActive and not ended.wait(POLL_S):
            pass
        error = query.exception()
        query.stop()
        if error is not None:
            raise error


def _check_out(out: Path | None) -> None:
    """End the command if a file is where the folder is to be."""
    found = next((each for each in (out, *out.parents) if each.exists()), None) if out else None
    if found and not found.is_dir():
        fail(ExitCode.USAGE, f"--out: {found} is a file, and the audit needs a folder")


def _with_progress(path: Path, options: Options, run: Callable[[Callable[[int], None]], AuditResult]) -> AuditResult:
    """Call `run` with a progress bar on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from coordinator.audit.read.logs import look
    from coordinator.log.segments.outside import size_of

    console: Console = Console(stderr=True)
    size = sum(size_of(look(each).logs) for each in (path, options.before) if each is not None)
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=size)
        return run(lambda done: progress.advance(task, done))
