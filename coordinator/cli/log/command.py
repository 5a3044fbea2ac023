"""`tenure log`: the commands on the files of the metadata log. They send no request to a server.

House rule: input that can't be read ends a command with one line and exit code 2; damage that it finds is exit code 1.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator.cli.exit_codes import ExitCode, fail, warn
from coordinator.cli.options import Command, argument, commands, option, output_form, whole_number
from coordinator.cli.output import Output
from coordinator.cli.store import ConfigFile, Settings, server_config, store_config
from coordinator.text import several

if TYPE_CHECKING:
    from coordinator.cli.log.transfer import Moved
    from coordinator.log.segments.outside import Log

app = commands("Print the log, check it, move it.")

SourcePath = Annotated[
    Path, argument("PATH", "A data folder, a broker's log folder, the folder of one partition, or a segment.")
]


@contextmanager
def _reading() -> Iterator[None]:
    """End the command on an error of the system. If nobody reads its output, end it as SIGPIPE would."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes standard output at its end
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        file = f": {error.filename}" if error.filename else ""
        fail(ExitCode.USAGE, f"{error.strerror or error}{file}")


def _logs(path: Path) -> list[Log]:
    """The logs at `path`; none in a data folder that a server made but never wrote to. Raises OSError."""
    from coordinator.log.meta import noted_partition_count
    from coordinator.log.segments.outside import find_logs
    from coordinator.log.segments.segment import segments_among

    if path.is_file() and not segments_among(path.parent, [path.name]) and not _begins_with_batch(path):
        raise OSError(errno.EINVAL, "No segment of a log", str(path))
    try:
        return find_logs(path)
    except FileNotFoundError:
        if path.is_dir() and noted_partition_count(path) is not None:
            return []
        raise


def _begins_with_batch(path: Path) -> bool:
    """Whether the first bytes of a file look like a batch: the file may be a segment under another name."""
    from protocol.records.batch import HEADER_SIZE, CorruptBatch, peek_header

    with path.open("rb") as file:
        head = file.read(HEADER_SIZE)
    try:
        return len(head) == HEADER_SIZE and peek_header(head).size > 0
    except CorruptBatch:
        return False


@app.command("dump", cls=Command)
def dump_command(
    path: SourcePath,
    group_id: Annotated[str | None, option("--group", "GROUP", "Only records of this group.")] = None,
    output: Annotated[
        Output, option("--output", "table|json", "Columns, or JSON: one object per line.", output_form)
    ] = Output.TABLE,
) -> None:
    """Print every record of the log, decoded. A folder of `__transaction_state` has transactional ids."""
    from coordinator.cli.log.dump import print_lines
    from coordinator.cli.log.report import ProgressLines
    from coordinator.log.segments.outside import size_of

    with _reading():
        logs = _logs(path)
        progress = ProgressLines(size_of(logs), done="read")
        counts = print_lines(logs, group_id, as_json=output is Output.JSON, progress=progress)
    for version, count in sorted(counts.unknown.items(), key=str):
        warn(f"{several(count, 'record')} of unknown key version {version}")
    if group_id is not None and not counts.records:
        absent = f"no such group, and no record of one: {group_id}"
        if not counts.damaged:
            fail(ExitCode.NOT_FOUND, absent)
        warn(absent)
    if counts.damaged:
        fail(ExitCode.FINDINGS, f"damage in {several(counts.damaged, 'place')}")


@app.command("verify", cls=Command)
def verify_command(
    path: SourcePath,
    partition_count: Annotated[
        int | None,
        option("--partitions", "N", "offsets.topic.num.partitions; by default found in the folder.", whole_number),
    ] = None,
    output: Annotated[Output, option("--output", "table|json", "Lines, or JSON.", output_form)] = Output.TABLE,
) -> None:
    """Check the log: checksums, order, every record, each group's last state. A folder's transactional ids, too."""
    from coordinator.cli.log.report import ProgressLines, print_report
    from coordinator.cli.log.verify import Summary, guess_id_partition_count, guess_partition_count, verify
    from coordinator.log.segments.outside import find_logs_of_ids, size_of

    summary = Summary()
    with _reading():
        logs = _logs(path)
        if partition_count is None:
            partition_count = guess_partition_count(path, logs)
        ids = find_logs_of_ids(path) if path.is_dir() else []
        id_count = guess_id_partition_count(path) if ids else None
        logs += ids
        findings = verify(
            logs, partition_count, summary, id_partition_count=id_count, progress=ProgressLines(size_of(logs))
        )
        count = print_report(findings, summary, partition_count, output)
    for problem in summary.unreadable:
        warn(problem)
    if summary.unreadable:
        fail(ExitCode.USAGE, f"{several(len(summary.unreadable), 'file')} could not be read")
    if count:
        fail(ExitCode.FINDINGS, several(count, "finding"))


KafkaLogDirs = Annotated[
    list[Path], argument("KAFKA_LOG_DIR", "All log.dirs of stopped brokers; with --store also a data folder.")
]
NewDataDir = Annotated[
    Path | None, option("--data-dir", "DIR", "The data folder to make; it must not exist yet, or be empty.")
]
StoreUrl = Annotated[
    str | None, option("--store", "etcd://HOST:PORT,...", "In place of --data-dir: a cluster in etcd.")
]
ClusterName = Annotated[str | None, option("--cluster", "NAME", "The name of the cluster in --store.")]


@app.command("import", cls=Command)
def import_command(
    kafka_dirs: KafkaLogDirs,
    data_dir: NewDataDir = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    store: StoreUrl = None,
    cluster: ClusterName = None,
) -> None:
    """Make a new data folder, or a cluster in etcd, from the groups of stopped brokers.

    A cluster can also be made from the data folder of a stopped Tenure.
    """
    from coordinator.cli.log.transfer import import_log

    sources = ", ".join(map(str, kafka_dirs))
    if _goes_to_store(data_dir, store):
        config, access = store_config(store, cluster, settings or [], config_file)
        from coordinator.cli.log.store_transfer import import_into_store

        _move(
            lambda: import_into_store(kafka_dirs, config.offsets_topic_num_partitions, access, config.cluster),
            f"{sources} is imported into cluster {config.cluster}",
        )
        return
    assert data_dir is not None
    config = server_config(settings or [], config_file)
    _move(
        lambda: import_log(
            kafka_dirs,
            data_dir,
            config.offsets_topic_num_partitions,
            id_partition_count=config.transaction_state_log_num_partitions,
        ),
        f"{sources} is imported into {data_dir}",
    )


@app.command("export", cls=Command)
def export_command(
    kafka_dir: Annotated[
        Path, argument("TARGET", "One of a stopped broker's log.dirs; with --store also a data folder to make.")
    ],
    data_dir: Annotated[Path | None, option("--data-dir", "DIR", "The data folder of a stopped Tenure.")] = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    store: StoreUrl = None,
    cluster: ClusterName = None,
) -> None:
    """Copy the groups of a data folder, or of a cluster in etcd, to a stopped broker that has no groups.

    The groups of a cluster can also go to a new data folder.
    """
    from coordinator.cli.log.transfer import export_log

    if _goes_to_store(data_dir, store):
        config, access = store_config(store, cluster, settings or [], config_file)
        from coordinator.cli.log.store_transfer import export_from_store

        _move(
            lambda: export_from_store(access, config.cluster, kafka_dir),
            f"cluster {config.cluster} is exported into {kafka_dir}",
        )
        return
    assert data_dir is not None
    _move(lambda: export_log(data_dir, kafka_dir), f"{data_dir} is exported into {kafka_dir}")


def _goes_to_store(data_dir: Path | None, store: str | None) -> bool:
    """Whether the other side is etcd, and not a data folder."""
    if (data_dir is None) == (store is None):
        raise typer.BadParameter("give either --data-dir, or --store and --cluster")
    return store is not None


def _move(move: Callable[[], Moved], done: str) -> None:
    """Move a log and report what was moved, or why it wasn't."""
    from coordinator.cli.log.locks import FolderInUse
    from coordinator.cli.log.report import finding_text
    from coordinator.cli.log.transfer import CannotMove, NotClean

    with _reading():
        try:
            moved = move()
        except (CannotMove, FolderInUse) as error:
            fail(ExitCode.USAGE, str(error))
        except NotClean as error:
            for finding in error.findings:
                print(finding_text(finding))
            fail(ExitCode.FINDINGS, str(error))
    for note in moved.summary.notes:
        print(f"note: {note}")
    for kind, number in sorted(moved.summary.skipped.items()):
        print(f"note: {several(number, 'record')} of {kind}, which Tenure skips")
    topics = f", {several(moved.topics, 'topic')} without records" if moved.topics else ""
    found = moved.summary.transactional_ids
    ids = f", {several(found, 'transactional id')}" if found else ""
    amount = (
        several(moved.records, "record") if moved.records or not moved.segments else several(moved.segments, "segment")
    )
    print(
        f"{done}: {several(moved.partitions, 'partition')}, {amount}, "
        f"{several(moved.size, 'byte')}, {several(moved.summary.groups, 'group')}{ids}{topics}"
    )
