"""The logs of all topic partitions that this server leads.

The first call that needs a log opens it, which reads all of it once. The first append makes its folder. If a log
failed, the next call opens it again.

All logs share one thread (thread.py). `append` and `call` queue a call for it and return at once; `call` runs the other
methods on that thread.

House rule: only the thread of the logs calls a log.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.log.advice import explain
from coordinator.log.engine import Damaged, EngineError, Unavailable
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk, closing, reason
from coordinator.log.segments.segment import ENGINES_TOPICS, list_segments, partition_folder, read_frames
from coordinator.log.segments.view import NO_OFFSET, OutsideView, View
from coordinator.log.topics.compactions import Compacted, Compactions
from coordinator.log.topics.folders import deleted_folders, is_anothers, set_aside_deleted, set_aside_stray
from coordinator.log.topics.log import TopicLog, Written, take_batch
from coordinator.log.topics.partition import TopicPartition
from coordinator.log.topics.producer_ids import ProducerIds
from coordinator.log.topics.producers import Described, Producers
from coordinator.log.topics.thread import Append, LogThread, Result
from protocol.records.batch import CorruptBatch

FILES_MAX = 24
"""How many logs keep a file open, the ones used last: a process may have a low limit of files (app.FILES_KEPT)."""


class Measured(NamedTuple):
    """Sizes in bytes: of the volume, of its free room for a user, and of each requested log."""

    total: int
    usable: int
    sizes: list[int]


class TopicLogs:
    """See the module.

    hand_over, died, call: see LogThread. append: likewise; the result is Written, Rejected or an EngineError.
    cut: called with (file, position, size) when a torn tail was cut off.
    failed: called with (folder, reason) when a log can't be opened or written; not again until that works in between.
    works: called with the folder when a log that failed works again.
    strayed: called with (folder, new folder) when a folder turned out to be another topic's.
    compacted: called with the result of a compaction; twice if the disk became full: for the part that was done, and
    for the rest that was put off.
    counts: where appends and compactions are counted.
    """

    def __init__(
        self,
        data_dir: Path,
        hand_over: Callable[[list[Result]], object],
        *,
        cut: Callable[[Path, int, int], None] = lambda _file, _position, _size: None,
        failed: Callable[[str, str], None],
        works: Callable[[str], None],
        strayed: Callable[[str, str], None],
        died: Callable[[str], object],
        compacted: Callable[[Compacted], None],
        disk: Disk | None = None,
        counts: Counts | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._data_dir = data_dir
        self._cut = cut
        self._failed = failed
        self._works = works
        self._strayed = strayed
        self._disk = disk or Disk()
        self._counts = counts or Counts()
        self._thread = LogThread(self._append, self._remove_deleted, self._end, hand_over, died, now_s)
        self.append, self.call = self._thread.append, self._thread.call
        self._compactions = Compactions(self._disk, self, self._thread, compacted, self._counts)
        # Below: only the thread of the logs uses these.
        self._remover: ThreadPoolExecutor | None = None
        self._producer_ids = ProducerIds(self._disk, data_dir)
        self._logs: dict[tuple[UUID, int], TopicLog] = {}
        self._views: dict[tuple[UUID, int], OutsideView] = {}
        self._reported: set[tuple[UUID, int]] = set()
        self._unwritable: set[tuple[UUID, int]] = set()

    # On any thread, one call at a time.

    def compact(self, partitions: dict[tuple[UUID, int], TopicPartition], now_ms: int, backoff_ms: int) -> None:
        """Compact each partition of the compacted topics, by key, that is dirty enough. They belong to the thread.

        A failed compaction is tried again after RETRY_BACKOFFS times `backoff_ms`.
        """
        self._compactions.look(partitions, now_ms, backoff_ms)

    def close(self) -> None:
        """Finish all queued calls, and end the thread; returns when it has ended."""
        self._compactions.stop()
        self._thread.close()

    # On the thread, by `call`.

    def log(self, partition: TopicPartition) -> TopicLog:
        """The open log of a user's topic partition. Raises EngineError."""
        assert partition.topic not in ENGINES_TOPICS
        log = self._logs.get(partition.key)
        if log is not None and log.is_open():
            self._use(partition, log)
            return log
        folder = self.folder(partition)
        try:
            if log is None:
                if is_anothers(folder, partition.topic_id):
                    # The folder of a former topic of the same name, deleted just before a crash or lost from the list.
                    self._strayed(str(folder), str(set_aside_stray(self._disk, folder)))
                segment_bytes = partition.limits.segment_bytes
                log = TopicLog(self._disk, folder, partition.topic_id, segment_bytes, self._cut, self._counts)
                # Keep also a log that can't be opened: it knows which writes failed.
                self._logs[partition.key] = log
            log.open()
        except (Damaged, OSError) as error:
            if log is not None:
                log.close(reason(error))
            self._has_failed(partition, explain(error))
            raise error if isinstance(error, Damaged) else Unavailable(reason(error)) from error
        if partition.key not in self._unwritable:
            self._has_worked(partition)
        self._use(partition, log)
        return log

    def view(self, partition: TopicPartition) -> View:
        """A log to read from, those of engines too. Raises EngineError."""
        if partition.topic not in ENGINES_TOPICS:
            return self.log(partition).view
        view = self._views.setdefault(partition.key, OutsideView(self._disk, self.folder(partition)))
        try:
            view.look()
        except OSError as error:
            raise Unavailable(reason(error)) from error
        return view

    def producers(self, partition: TopicPartition) -> list[tuple[Described, int]] | EngineError:
        """The producers of a topic partition, each with the first offset of its open transaction; -1 for none.

        That reads all of an engine's log.
        """
        try:
            if partition.topic in ENGINES_TOPICS:
                producers, view = self._read_producers(self.folder(partition))
            else:
                log = self.log(partition)
                producers, view = log.producers, log.view
        except OSError as error:
            return Unavailable(reason(error))
        except EngineError as error:
            return error
        return [(each, view.open.get(each.producer_id, NO_OFFSET)) for each in producers.describe()]

    def _read_producers(self, folder: Path) -> tuple[Producers, View]:
        """The producers in a log that another one writes. Raises OSError."""
        producers, view = Producers(), View(self._disk)
        for segment in list_segments(self._disk, folder):
            # A batch that is being written ends as a corrupt one does.
            with closing(self._disk, self._disk.open_to_read(segment.path)) as descriptor, suppress(CorruptBatch):
                for frame in read_frames(self._disk, descriptor, self._disk.size(descriptor)):
                    take_batch(producers, view, frame.header.base_offset, frame.header, frame.data, frame.at)
        return producers, view

    def measure(self, partitions: Iterable[TopicPartition]) -> Measured:
        """The sizes of logs, of `__consumer_offsets` too, and of their volume. Raises OSError."""
        volume = shutil.disk_usage(self._data_dir)
        return Measured(volume.total, volume.free, [self._size(each) for each in partitions])

    def _size(self, partition: TopicPartition) -> int:
        size = 0
        for segment in list_segments(self._disk, self.folder(partition)):
            with suppress(FileNotFoundError):  # another thread has removed it meanwhile
                size += segment.path.stat().st_size
        return size

    def known(self, partition: TopicPartition) -> TopicLog | None:
        """The log, open or closed, if it was ever opened."""
        return self._logs.get(partition.key)

    def folder(self, partition: TopicPartition) -> Path:
        """The log's folder; it may not exist."""
        return partition_folder(self._data_dir, partition.number, partition.topic)

    def may_retain(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether retention may have something to remove. Raises OSError.

        Opening a log reads all of it. So for a log that was never opened, the sizes and times of its files decide.
        """
        if partition.key in self._logs:
            return True
        limits = partition.limits
        if not limits.is_deleted:
            return False
        files = [each.path.stat() for each in list_segments(self._disk, self.folder(partition))]
        is_large = 0 <= limits.retention_bytes < sum(file.st_size for file in files)
        oldest_ms = min((file.st_mtime_ns // 1_000_000 for file in files if file.st_size), default=now_ms)
        return is_large or 0 <= limits.retention_ms < now_ms - oldest_ms

    def delete(self, partitions: Sequence[TopicPartition]) -> None:
        """Close the logs of a deleted topic and set their folders aside; after an error go on, and raise it at the end.

        Raises Damaged or OSError.
        """
        problem: Damaged | OSError | None = None
        for partition in partitions:
            log = self._logs.pop(partition.key, None)
            if log is not None:
                log.close("the topic is deleted")
            self._unwritable.discard(partition.key)
            self._has_worked(partition)
            self._compactions.forget(partition)
            try:
                set_aside_deleted(self._disk, self.folder(partition), partition.topic_id)
            except (Damaged, OSError) as error:
                problem = error
        self._remove_deleted()
        if problem is not None:
            raise problem

    def producer_id(self, now_ms: int) -> int:
        """A producer id that was never given out in this folder. Raises EngineError."""
        return self._producer_ids.take(now_ms)

    # The thread.

    def _append(self, appends: list[Append]) -> Sequence[Any]:
        """Append to one log, with one write and one fdatasync; return the result of each."""
        partition = appends[-1].partition
        try:
            log = self.log(partition)
            log.claim()
            batches, are_v2 = [each.data for each in appends], [each.is_v2 for each in appends]
            results = log.append_batches(batches, partition.limits, appends[-1].now_ms, are_v2=are_v2)
        except OSError as error:
            self._counts.failed()
            self._write_failed(partition, error)
            return [Unavailable(reason(error))] * len(appends)
        except EngineError as error:  # `log` has reported it
            self._counts.failed()
            return [error] * len(appends)
        except Exception as error:  # noqa: BLE001 - the callers get it
            self._give_up(partition, error)
            return [error] * len(appends)
        problem = next((result for result in results if isinstance(result, OSError)), None)
        if problem is not None:
            self._write_failed(partition, problem)
        elif partition.key in self._unwritable and any(isinstance(result, Written) for result in results):
            self._unwritable.discard(partition.key)
            self._has_worked(partition)
        return [Unavailable(reason(result)) if isinstance(result, OSError) else result for result in results]

    def _write_failed(self, partition: TopicPartition, error: OSError) -> None:
        """Note that a log can't be written: until a write works, a successful open proves nothing."""
        self._unwritable.add(partition.key)
        self._has_failed(partition, reason(error))

    def _has_failed(self, partition: TopicPartition, why: str) -> None:
        """Report that a log fails, once until it works."""
        if partition.key not in self._reported:
            self._reported.add(partition.key)
            self._failed(str(self.folder(partition)), why)

    def _has_worked(self, partition: TopicPartition) -> None:
        """Report that a log works again, if it failed."""
        if partition.key in self._reported:
            self._reported.discard(partition.key)
            self._works(str(self.folder(partition)))

    def _give_up(self, partition: TopicPartition, error: Exception) -> None:
        """Close a log after a bug of ours; the next call reads it again."""
        log = self._logs.get(partition.key)
        if log is not None:
            log.give_up(repr(error))

    def _use(self, partition: TopicPartition, log: TopicLog) -> None:
        """Note that the log was used last; close the file of the log that was used FILES_MAX logs before."""
        self._logs.pop(partition.key, None)
        self._logs[partition.key] = log
        for other in islice(reversed(self._logs.values()), FILES_MAX, FILES_MAX + 1):
            other.park()

    def _remove_deleted(self) -> None:
        """Remove the folders of deleted topics on another thread, as a large file would delay appends."""
        with suppress(OSError):  # the deletion of the next topic tries it again
            for folder in deleted_folders(self._disk, self._data_dir):
                self._remover = self._remover or ThreadPoolExecutor(1, "topics-remove")
                self._remover.submit(shutil.rmtree, folder, ignore_errors=True)

    def _end(self) -> None:
        for log in self._logs.values():
            log.close("the server ends")
        if self._remover is not None:
            self._remover.shutdown()
