"""`tenure log import` and `export` with `--store`: a whole cluster into etcd, and out of it.

Into etcd comes a stopped server's data folder, or the log folders of stopped brokers, which first become a data folder
beside. Out of etcd comes a new data folder, or the groups of a stopped broker that has none: then through a data folder
beside, too. So a broker's folders are read and written by the same code as without etcd (transfer.py).

A cluster has no transactions: transactional ids stay behind, and offsets of open transactions with them.

etcd keeps the newest value of each key, and no timestamps. A folder gets the records in the order of their keys' types,
committed offsets last, with the time of the move; each partition's epoch goes on.

House rule: a source is only read, and verified first; a target is complete, or no server uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time_ns
from uuid import uuid4

from coordinator.cli.log.locks import held
from coordinator.cli.log.report import ProgressLines
from coordinator.cli.log.transfer import (
    CannotMove,
    Moved,
    batches_of,
    checked,
    export_log,
    import_log,
    made_whole,
    note_epoch,
    require_ended,
    save_topics,
)
from coordinator.cli.log.verify import Summary, guess_id_partition_count
from coordinator.log.engine import EngineError
from coordinator.log.etcd.client import Access
from coordinator.log.etcd.moving import Mover, Stored
from coordinator.log.meta import note_partition_count, noted_cluster_id, noted_partition_count
from coordinator.log.segments.disk import Disk, write_all
from coordinator.log.segments.lock import noted_number, partition_lock
from coordinator.log.segments.outside import JournalsBeside, Log, find_logs, find_logs_of_ids, size_of
from coordinator.log.segments.segment import partition_folder, segment_at
from coordinator.log.segments.transactions import Transactions
from coordinator.log.topics.entries import entries_of, topics_of
from coordinator.log.topics.list import ENTRIES, TopicsFile, kafka_id
from coordinator.text import several
from protocol.records.batch import Record, encode_batch

BATCH_RECORDS = 500
SEGMENT_BYTES = 100 * 1024 * 1024
"""A new segment begins after so many bytes, as in a server with the default of offsets.topic.segment.bytes."""
OFFSET_VERSIONS = (b"\x00\x00", b"\x00\x01")
"""How keys of committed offsets begin."""


def import_into_store(sources: Sequence[Path], partition_count: int, access: Access, cluster: str) -> Moved:
    """Make a cluster in etcd from a data folder, or from brokers' log folders with so many partitions.

    Raises CannotMove, NotClean, FolderInUse or OSError; then no node uses the cluster.
    """
    if len(sources) == 1 and noted_partition_count(sources[0]) is not None:
        return _import_folder(sources[0], access, cluster, 0)
    with TemporaryDirectory(prefix="tenure-import-") as beside:
        folder = Path(beside) / "data"
        moved = import_log(sources, folder, partition_count)
        into = _import_folder(folder, access, cluster, moved.topics)
        into.summary.notes[:0] = moved.summary.notes
        return into


def _import_folder(data_dir: Path, access: Access, cluster: str, topic_count: int) -> Moved:
    with held(data_dir):
        try:
            logs = find_logs(data_dir)
        except FileNotFoundError:
            logs = []
        count = noted_partition_count(data_dir)
        assert count is not None
        ids = find_logs_of_ids(data_dir)
        summary = checked([*logs, *ids], count, guess_id_partition_count(data_dir))
        require_ended(ids)
        _leave_behind(summary)
        records: list[dict[bytes, bytes]] = [{} for _ in range(count)]
        epochs = [_noted_epoch(data_dir, partition) for partition in range(count)]
        journals, progress = JournalsBeside(), ProgressLines(size_of(logs), done="read")
        for log in logs:
            assert log.partition is not None
            records[log.partition] = newest(log, journals, progress)
            epochs[log.partition] = max(epochs[log.partition], summary.epoch_max.get(log.folder, -1))
        try:
            topics = TopicsFile(data_dir).load() or {}
        except EngineError as error:
            raise CannotMove(str(error)) from error
        entries = {name: value for topic in topics.values() for name, value in entries_of(topic).items()}
        cluster_id = noted_cluster_id(data_dir) or kafka_id(uuid4())
        stored = Stored(cluster_id, records, epochs, entries)
        try:
            with Mover(access, cluster, lambda: uuid4().hex) as mover:
                mover.write(stored)
        except EngineError as error:
            raise CannotMove(str(error)) from error
    return _moved(stored, summary, topic_count)


def _leave_behind(summary: Summary) -> None:
    """Note that transactional ids aren't moved."""
    if summary.transactional_ids:
        summary.notes.append(
            f"{several(summary.transactional_ids, 'transactional id')} left behind, as a cluster has no transactions; "
            "offsets of open ones don't count"
        )
        summary.transactional_ids = 0


def newest(log: Log, journals: JournalsBeside, progress: ProgressLines) -> dict[bytes, bytes]:
    """The newest value of each key in a log that was verified. Open transactions don't count."""
    found: dict[bytes, bytes | None] = {}
    transactions = Transactions()
    for batch in batches_of(log, journals, progress):
        header = batch.header
        counting = transactions.take(header.producer_id, header.attributes, batch.offsets, batch.records)
        found |= {each.key: each.value for each in counting}
    return {key: value for key, value in found.items() if value is not None}


def _noted_epoch(data_dir: Path, partition: int) -> int:
    """The last epoch of a partition, as its lock file has it; -1 if it has none."""
    path = partition_lock(data_dir, partition)
    number = noted_number(Disk(), path) if path.exists() else None
    return -1 if number is None else number


def export_from_store(access: Access, cluster: str, target: Path) -> Moved:
    """Make a new data folder from a cluster in etcd; or fill the empty `__consumer_offsets` of a stopped broker.

    Raises CannotMove, NotClean, FolderInUse or OSError.
    """
    try:
        with Mover(access, cluster, lambda: uuid4().hex) as mover:
            stored = mover.read()
        topics_of(stored.entries, SETS)  # an export without some of the topics would be no copy
    except (EngineError, ValueError) as error:
        raise CannotMove(str(error)) from error
    if not target.exists() or not any(target.iterdir()):
        write_folder(stored, target.absolute())
        topics = topics_of(stored.entries, {})
        return _moved(stored, _verified(target, len(stored.records)), len(topics))
    if noted_partition_count(target) is not None:
        raise CannotMove(f"{target} is a data folder already: export makes a new one")
    with TemporaryDirectory(prefix="tenure-export-") as beside:
        folder = Path(beside) / "data"
        write_folder(stored, folder)
        return export_log(folder, target)


def write_folder(stored: Stored, data_dir: Path) -> None:
    """Make a data folder, complete or not at all."""
    disk = Disk()
    with made_whole(disk, data_dir, "export") as staged:
        for partition, records in enumerate(stored.records):
            epoch = stored.epochs[partition]
            if records:
                folder = partition_folder(staged, partition)
                disk.make_folder(folder)
                _write_log(disk, folder, records, max(epoch, 0))
                disk.sync_folder(folder)
            note_epoch(disk, staged, partition, epoch)
        save_topics(TopicsFile(staged, disk), topics_of(stored.entries, SETS).values())
        note_partition_count(staged, len(stored.records), stored.cluster_id)


SETS = {entry.name: entry for entry in ENTRIES.values()}
"""The lists that are no topics, by name."""


def _write_log(disk: Disk, folder: Path, records: Mapping[bytes, bytes], epoch: int) -> None:
    now_ms = time_ns() // 1_000_000
    ordered = iter(Record(key, records[key], now_ms) for key in sorted(records, key=_place))
    offset = 0
    batches = _batches(ordered, epoch)
    first = next(batches, None)
    while first is not None:
        path = segment_at(folder, offset).path
        descriptor = disk.open(path, create=True)
        size = 0
        try:
            while first is not None and size < SEGMENT_BYTES:
                count, data = first
                write_all(disk, descriptor, [data], size)
                size, offset = size + len(data), offset + count
                first = next(batches, None)
            disk.fdatasync(descriptor)
        finally:
            disk.close(descriptor)


def _place(key: bytes) -> tuple[bool, bytes]:
    """Committed offsets come behind the records of groups."""
    return key.startswith(OFFSET_VERSIONS), key


def _batches(records: Iterator[Record], epoch: int) -> Iterator[tuple[int, bytes]]:
    """Batches, each with its number of records."""
    offset = 0
    while some := list(islice(records, BATCH_RECORDS)):
        yield len(some), encode_batch(some, offset, epoch)
        offset += len(some)


def _verified(data_dir: Path, partition_count: int) -> Summary:
    try:
        logs = find_logs(data_dir)
    except FileNotFoundError:
        logs = []
    return checked(logs, partition_count)


def _moved(stored: Stored, summary: Summary, topic_count: int) -> Moved:
    return Moved(
        len(stored.records),
        0,
        sum(len(key) + len(value) for records in stored.records for key, value in records.items()),
        summary,
        topic_count,
        sum(map(len, stored.records)),
    )
