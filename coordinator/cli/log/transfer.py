"""`tenure log import` and `export`: move the groups and transactional ids of a stopped broker to Tenure, and back.

Both commands first check the whole log (verify) and move nothing if that has a finding. They copy segments batch by
batch, and check the CRC of each batch once more; offsets stay the same.

Import makes a new data folder. It writes everything into a folder beside it, syncs that and renames it, so the data
folder is complete or absent. The new epochs go on above the broker's; the lock files of the partitions hold them
(log.segments.lock). Import takes all log folders of one broker, or of several brokers, at once. If they hold several
replicas of a partition, it takes the replica that Raft and Kafka's own election would take: the one with the highest
epoch, and the longest of these. That replica has every acknowledged record, and perhaps some later ones that were never
acknowledged.

Import also takes the broker's topics over, without their records, and export writes the broker's ids of topics in place
of Tenure's, both for groups of the consumer protocol (topic_ids).

Export fills the folders that a broker made for its own `__consumer_offsets` and never wrote to. It can't make these
folders, because their topic id is in the broker's metadata, and it can't replace them in one step. So it first makes a
folder GUARD in the broker's log folder: no broker starts with that, because it belongs to no topic. It makes the copies
in GUARD, moves them into the folders of the partitions, and removes GUARD last. After an interruption, the broker
either finds its empty folders or refuses to start, and another run of the export begins anew. Epochs start at 0 again,
because the broker counts from there. No checksum covers an epoch, and it has no meaning outside of its cluster. The
coordinator's epoch in a marker is one of these, too: a broker refuses a marker with a lower one than it has seen.

Both take `__transaction_state` along, so an open transaction stays open. Import also takes one whose end was answered
and whose markers aren't written everywhere: Tenure writes them. A broker may skip them at its start (known-bugs.md), so
export refuses such a log, and an import into etcd does, too. Producer ids of Tenure and of brokers don't meet: Tenure's
begin at the time, a broker's at 0.

House rule: a source is only read.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from coordinator.cli.log.locks import held
from coordinator.cli.log.report import FINDINGS_MAX, ProgressLines
from coordinator.cli.log.topic_ids import NewIds, broker_topics, new_ids
from coordinator.cli.log.verify import (
    BROKER_SWAP_SUFFIX,
    BrokenRule,
    Summary,
    guess_id_partition_count,
    guess_partition_count,
    verify,
)
from coordinator.log.engine import EngineError
from coordinator.log.files import read_regular
from coordinator.log.meta import note_partition_count
from coordinator.log.segments.disk import Disk, write_all
from coordinator.log.segments.lock import Lock, partition_lock
from coordinator.log.segments.outside import (
    JournalsBeside,
    Log,
    NoBatch,
    OpenSegment,
    find_logs,
    find_logs_of_ids,
    opened,
    read_segment,
    size_of,
)
from coordinator.log.segments.partition import EPOCH_MAX
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Frame, partition_folder, segment_at
from coordinator.log.topics.list import TOPICS_NAME, Topic, TopicsFile
from coordinator.text import NAMED_MAX, names_text, several
from coordinator.transaction.records import Replay
from protocol.records.batch import Header
from protocol.records.rewrite import encode_slices, slice_records
from protocol.records.walk import Batch, decode_records

GUARD = "export.unfinished"
"""While this folder is in a broker's log folder, the broker doesn't start: its name is not that of a partition."""

EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
"""Kafka's list of epochs of a partition: two lines of header, then a line `epoch first-offset` for each epoch."""

KEPT_FILE = "partition.metadata"
"""This file has the topic id, by which a broker recognizes its folder."""

EPOCH_CHECKPOINT_SIZE_MAX = 16 * 1024 * 1024
"""Bytes of a broker's list of epochs: a line for each change of the leader since the oldest record."""

COUNT_SETTINGS = {
    OFFSETS_TOPIC: "offsets.topic.num.partitions",
    TRANSACTIONS_TOPIC: "transaction.state.log.num.partitions",
}
"""The setting of a topic's number of partitions."""

_EPOCH = struct.Struct(">i")
_EPOCH_AT = 12
_MARKER_EPOCH_AT = 3
"""In a marker, behind its key: the size of the value in one byte, and its version, come first."""


class CannotMove(Exception):
    """Nothing was moved; the text says why, for people."""


class NotClean(Exception):
    """The source has findings, so nothing was moved. findings: the first of all of them, FINDINGS_MAX at most."""

    def __init__(self, findings: Sequence[BrokenRule], count_of_all: int) -> None:
        super().__init__(f"{several(count_of_all, 'finding')}: nothing was moved")
        self.findings = findings


class Moved(NamedTuple):
    """The copied amounts. topics: those that import took over. records: of the newest values, where no segment is."""

    partitions: int
    segments: int
    size: int
    summary: Summary
    topics: int = 0
    records: int = 0


class _End(NamedTuple):
    """The end of a replica; of two replicas, the one with the greater end is better."""

    epoch: int
    next_offset: int


def import_log(
    kafka_dirs: Sequence[Path],
    data_dir: Path,
    partition_count: int,
    disk: Disk | None = None,
    *,
    id_partition_count: int | None = None,
) -> Moved:
    """Make `data_dir`, with `partition_count` partitions, from the log folders of stopped brokers.

    id_partition_count: of `__transaction_state`, if there is one; None: as many as the brokers have.
    Raises CannotMove, NotClean, FolderInUse or OSError; `data_dir` is unchanged then.
    """
    disk = disk or Disk()
    data_dir = data_dir.absolute()
    if data_dir.exists() and any(data_dir.iterdir()):
        raise CannotMove(
            f"{data_dir} is not empty: import makes a new data folder; name all log folders of the broker at once"
        )
    kafka_dirs = list({each.resolve(): each for each in kafka_dirs}.values())
    with ExitStack() as stack:
        for kafka_dir in kafka_dirs:
            stack.enter_context(held(kafka_dir))
        logs, notes = _replicas(kafka_dirs, OFFSETS_TOPIC)
        _require_count(kafka_dirs, logs, OFFSETS_TOPIC, partition_count)
        ids, id_notes = _replicas(kafka_dirs, TRANSACTIONS_TOPIC)
        if ids and id_partition_count is not None:
            _require_count(kafka_dirs, ids, TRANSACTIONS_TOPIC, id_partition_count)
        summary = checked([*logs, *ids], partition_count, len(ids))
        topics, topic_notes = broker_topics(kafka_dirs)
        summary.notes += [*notes, *id_notes, *topic_notes]
        journals, progress = JournalsBeside(), ProgressLines(size_of([*logs, *ids]), done="copied")
        with made_whole(disk, data_dir, "import") as staged:
            segments, size = 0, 0
            for log in (*logs, *ids):
                assert log.partition is not None
                topic = TRANSACTIONS_TOPIC if log.has_ids else OFFSETS_TOPIC
                folder = partition_folder(staged, log.partition, topic)
                with opened(log, journals) as sources:
                    if sources:
                        disk.make_folder(folder)
                    for source in sources:
                        size += _copy(disk, source, segment_at(folder, source.base_offset).path, progress)
                    segments += len(sources)
                    if sources:
                        disk.sync_folder(folder)
                epoch = max(summary.epoch_max[log.folder], _noted_epoch(log.folder))
                note_epoch(disk, staged, log.partition, epoch, topic)
            if topics:
                save_topics(TopicsFile(staged, disk), topics.values())
            note_partition_count(staged, partition_count, id_count=len(ids))
    return Moved(len(logs), segments, size, summary, len(topics))


@contextmanager
def made_whole(disk: Disk, data_dir: Path, how: str) -> Iterator[Path]:
    """A folder for a block, which becomes `data_dir` at its end; after an error nothing is left. how: part of its name.

    `data_dir` may exist, if it is empty.
    """
    staged = data_dir.with_name(f".{data_dir.name}.{how}")
    if staged.exists():
        shutil.rmtree(staged)  # from a run that was interrupted
    disk.make_folder(staged)
    try:
        yield staged
        disk.sync_folder(staged)
        disk.rename(staged, data_dir)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    disk.sync_folder(data_dir.parent)


def save_topics(file: TopicsFile, topics: Iterable[Topic]) -> None:
    """Write the list of topics. Raises CannotMove."""
    try:
        file.save(topics)
    except EngineError as error:
        raise CannotMove(str(error)) from error


def _require_count(kafka_dirs: Sequence[Path], logs: Sequence[Log], topic: str, partition_count: int) -> None:
    if len(logs) != partition_count:
        setting = COUNT_SETTINGS[topic]
        raise CannotMove(
            f"{_names(kafka_dirs)} has {len(logs)} partitions, {setting} is {partition_count}: "
            f"if a disk or broker was left out, name its log folder too; if the topic has only these, "
            f"give --set {setting}={len(logs)} here and to the server"
        )


def _replicas(kafka_dirs: Sequence[Path], topic: str) -> tuple[list[Log], list[str]]:
    """The best replica of each partition, from 0 on without a hole; and a note for each choice that matters."""
    found: dict[int, list[Log]] = {}
    for kafka_dir in kafka_dirs:
        if (kafka_dir / TOPICS_NAME).exists():
            raise CannotMove(
                f"{kafka_dir} is a data folder of Tenure, which needs no import: copy it whole and serve it"
            )
        for log in find_logs(kafka_dir) if topic == OFFSETS_TOPIC else find_logs_of_ids(kafka_dir):
            if log.partition is None or log.folder == kafka_dir:
                raise CannotMove(f"{kafka_dir} is no log folder of a broker")
            found.setdefault(log.partition, []).append(log)
    missing = 1 + max(found, default=-1) - len(found)
    if missing:
        first = list(islice((partition for partition in count() if partition not in found), min(missing, NAMED_MAX)))
        named = names_text(list(map(str, first)), missing)
        raise CannotMove(
            f"{_names(kafka_dirs)} has not all partitions of {topic}: {named} missing; name all log.dirs of the "
            "broker, or those of all brokers"
        )
    chosen, notes = [], []
    rivals = [log for replicas in found.values() for log in replicas if len(replicas) > 1]
    journals, progress = JournalsBeside(), ProgressLines(size_of(rivals), done="compared")
    for _, replicas in sorted(found.items()):
        ends = {log: _end(log, journals, progress) for log in replicas} if len(replicas) > 1 else {}
        best = max(replicas, key=ends.__getitem__) if ends else replicas[0]
        notes += [
            f"{best.folder} is taken, up to offset {ends[best].next_offset} in epoch {ends[best].epoch}, and not "
            f"{log.folder}, up to {end.next_offset} in {end.epoch}"
            for log, end in ends.items()
            if end != ends[best]
        ]
        chosen.append(best)
    return chosen, notes


def _end(log: Log, journals: JournalsBeside, progress: ProgressLines) -> _End:
    end = _End(-1, 0)
    with opened(log, journals) as segments:
        for segment in segments:
            for found in read_segment(segment, progress):
                if isinstance(found, Frame):
                    end = _End(found.header.partition_leader_epoch, found.header.next_offset)
    return end


def _names(folders: Iterable[Path]) -> str:
    return ", ".join(map(str, folders))


def export_log(data_dir: Path, kafka_dir: Path, disk: Disk | None = None) -> Moved:
    """Fill the empty `__consumer_offsets-*` of a stopped broker's log folder with the log of `data_dir`.

    Raises CannotMove, NotClean, FolderInUse or OSError; the broker's folder is unchanged then, or GUARD is in it.
    """
    disk = disk or Disk()
    with ExitStack() as stack:
        stack.enter_context(held(data_dir))
        stack.enter_context(held(kafka_dir))
        source, ids = find_logs(data_dir), find_logs_of_ids(data_dir)
        partition_count, id_count = guess_partition_count(data_dir, source), guess_id_partition_count(data_dir)
        target = _broker_partitions(kafka_dir, OFFSETS_TOPIC, partition_count, data_dir)
        if ids:
            target += _broker_partitions(kafka_dir, TRANSACTIONS_TOPIC, id_count, data_dir)
        guard = kafka_dir / GUARD
        if not guard.exists():
            _require_empty(target)
        summary = checked([*source, *ids], partition_count, id_count)
        require_ended(ids)
        topic_ids = _new_ids(data_dir, source, kafka_dir, summary)
        source += ids
        disk.make_folder(guard)
        disk.sync_folder(kafka_dir)
        segments, size = 0, 0
        journals, progress = JournalsBeside(), ProgressLines(size_of(source), done="copied")
        copies: dict[str, list[Path]] = {}
        for log in source:
            staged = guard / log.folder.name
            if staged.exists():
                shutil.rmtree(staged)  # from an export that was interrupted
            disk.make_folder(staged)
            with opened(log, journals) as sources:
                paths = [segment_at(staged, each.base_offset).path for each in sources]
                for each, path in zip(sources, paths, strict=True):
                    size += _copy(disk, each, path, progress, 0, topic_ids)
            copies[log.folder.name] = paths
            segments += len(paths)
        for empty in target:
            _fill(disk, empty.folder, copies.get(empty.folder.name, []))
        shutil.rmtree(guard)
        disk.sync_folder(kafka_dir)
    return Moved(sum(not log.has_ids for log in target), segments, size, summary)


def _new_ids(data_dir: Path, logs: list[Log], kafka_dir: Path, summary: Summary) -> NewIds | None:
    """The broker's ids of topics, if they aren't Tenure's. Raises CannotMove for a list of topics that isn't whole."""
    try:
        ids, notes = new_ids(data_dir, logs, kafka_dir)
    except EngineError as error:
        raise CannotMove(str(error)) from error
    summary.notes += notes
    return ids


def checked(logs: list[Log], partition_count: int | None, id_partition_count: int | None = None) -> Summary:
    """Verify the logs. Raises CannotMove or NotClean, and OSError for a file that can't be read."""
    for log in logs:
        for path in log.folder.glob(f"*{BROKER_SWAP_SUFFIX}"):
            raise CannotMove(f"{path}: a compaction of the broker was interrupted: start it and stop it once")
    summary = Summary()
    progress = ProgressLines(size_of(logs))
    findings = verify(
        logs, partition_count, summary, id_partition_count=id_partition_count, may_be_live=False, progress=progress
    )
    first = list(islice(findings, FINDINGS_MAX))
    count_of_all = len(first) + sum(1 for _ in findings)
    if summary.unreadable:
        raise OSError("; ".join(summary.unreadable))
    if first:
        raise NotClean(first, count_of_all)
    return summary


def _broker_partitions(kafka_dir: Path, topic: str, partition_count: int | None, data_dir: Path) -> list[Log]:
    """The partitions of a broker's topic, from 0 on without a hole, as many as `data_dir` has."""
    try:
        logs = find_logs(kafka_dir, topic)
    except FileNotFoundError as error:
        raise CannotMove(f"{error.filename}: {error.strerror}: the broker has to create {topic} first") from error
    for partition, log in enumerate(logs):
        if log.partition != partition:
            raise CannotMove(
                f"{kafka_dir} has not all partitions of {topic}: {partition} missing; all have to be in one of log.dirs"
            )
        if not (log.folder / KEPT_FILE).exists():
            raise CannotMove(f"{log.folder} has no {KEPT_FILE}: it is no broker's")
    if len(logs) != partition_count:
        raise CannotMove(
            f"{data_dir} has {partition_count} partitions, {topic} in {kafka_dir} has {len(logs)}: "
            f"the broker has to create it with {COUNT_SETTINGS[topic]}={partition_count}"
        )
    return logs


def _require_empty(logs: list[Log]) -> None:
    journals = JournalsBeside()
    for log in logs:
        with opened(log, journals) as segments:
            for segment in segments:
                if segment.size:
                    raise CannotMove(f"{segment.path} is not empty: groups are never mixed into a broker's own")


def _fill(disk: Disk, folder: Path, staged: list[Path]) -> None:
    """Put the segments in place of the broker's empty one. The broker makes all other files itself."""
    for path in list(folder.iterdir()):
        if path.name != KEPT_FILE:
            path.unlink()
    for path in staged:
        disk.rename(path, folder / path.name)
    disk.sync_folder(folder)


def _copy(
    disk: Disk,
    segment: OpenSegment,
    target: Path,
    progress: ProgressLines,
    epoch: int | None = None,
    ids: NewIds | None = None,
) -> int:
    """Copy a segment, durably, with `epoch` and `ids` in each batch if they are given; return its size."""
    size = 0
    descriptor = disk.open(target, create=True)
    try:
        for found in read_segment(segment, progress):
            if isinstance(found, NoBatch):
                raise CannotMove(f"{segment.path} changed while it was copied: {found.reason} at byte {found.position}")
            batch = found.data[found.at : found.at + found.header.size]
            if ids is not None:
                batch = ids.put(batch)
            if epoch is not None:
                batch = _in_epoch(batch, found.header, epoch)
            write_all(disk, descriptor, [batch], size)
            size += len(batch)
        disk.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    return size


def batches_of(log: Log, journals: JournalsBeside, progress: ProgressLines) -> Iterator[Batch]:
    """The batches of a log that was verified."""
    with opened(log, journals) as segments:
        for segment in segments:
            for frame in read_segment(segment, progress):
                if isinstance(frame, NoBatch):
                    raise CannotMove(f"{segment.path} changed while it was read")
                yield decode_records(frame.data, frame.at, frame.header)


def require_ended(logs: list[Log]) -> None:
    """Raise CannotMove if a transaction in these logs, which were verified, has an end and lacks markers."""
    journals, progress = JournalsBeside(), ProgressLines(size_of(logs), done="read")
    for log in logs:
        replay = Replay()
        for batch in batches_of(log, journals, progress):
            replay.add(batch.records)
        for known in replay.groups_in_steps():
            if known.status.is_ending:
                raise CannotMove(
                    f"transactional id {known.group_id!r} has a transaction whose end isn't written everywhere: "
                    "start the server of this log and stop it once more"
                )


def _in_epoch(batch: bytes, header: Header, epoch: int) -> bytes:
    """The batch as a leader of this epoch writes it; a marker also names the epoch."""
    if header.is_control:
        slices = []
        for each in slice_records(batch, 0, header):
            assert each.key is not None
            at = each.data.index(each.key) + len(each.key) + _MARKER_EPOCH_AT
            slices.append(each._replace(data=each.data[:at] + _EPOCH.pack(epoch) + each.data[at + _EPOCH.size :]))
        batch = encode_slices(header, slices)
    return batch[:_EPOCH_AT] + _EPOCH.pack(epoch) + batch[_EPOCH_AT + _EPOCH.size :]


def note_epoch(disk: Disk, data_dir: Path, partition: int, epoch: int, topic: str = OFFSETS_TOPIC) -> None:
    """Make the epoch of the next owner higher than `epoch`; -1 means that there is none."""
    lock = Lock(disk, partition_lock(data_dir, partition, topic))
    try:
        if epoch >= 0:
            lock.note_number(epoch)
    finally:
        lock.release()


def _noted_epoch(folder: Path) -> int:
    """The highest epoch of the broker's checkpoint, even if its leader wrote nothing; -1 without a checkpoint."""
    path = folder / EPOCH_CHECKPOINT
    try:
        lines = read_regular(path, EPOCH_CHECKPOINT_SIZE_MAX).decode("ascii").splitlines()[2:]
        epoch = max((int(line.split()[0]) for line in lines), default=-1)
    except (FileNotFoundError, UnicodeDecodeError, ValueError, IndexError):
        return -1  # the batches have every epoch in which a leader wrote something
    if epoch > EPOCH_MAX:
        raise CannotMove(f"{path} has epoch {epoch}: the highest is {EPOCH_MAX}")
    return epoch
