"""The logs of all topic partitions that this server leads, and the thread that works on them.

It is a thread of its own, beside the engine's, so that whoever reads or writes much doesn't hold up the groups; it
begins with the first call. All that is queued is taken at once: appends to one log share one write and one fdatasync,
everything else keeps its place between them. Outcomes are handed over as they are there, but not each by itself.

    queue -> everything that is queued -> per log: checks, one write, one fdatasync
                                       -> other calls, in their place
          -> hand over: outcomes, whenever HAND_OVER_AFTER_S have gone by, and those that are left

A log is opened, which reads all of it once, by the first call that needs it; a folder is made by the first append. A
log that can't be used is tried anew by the next call.

Logs of compacted topics are compacted as those of groups are: a Cleaner has a thread that waits and a process that
works, and this thread looks at the logs for it and swaps in what it wrote, between the calls. It is made when there
is such a topic.

House rule: callers get a value or an Exception, in the order of their calls; nothing raises on this thread.
"""

from __future__ import annotations

import shutil
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.log.compaction.cleaner import RETRY_BACKOFFS, Cleaner, Work, call_on
from coordinator.log.compaction.rewrite import Compaction
from coordinator.log.engine import Damaged, EngineError, Unavailable
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.lock import Lock
from coordinator.log.segments.segment import OFFSETS_TOPIC, list_segments
from coordinator.log.segments.view import OutsideView, View
from coordinator.log.topics.folders import deleted_folders, folder_of, is_anothers, set_aside_deleted, set_aside_stray
from coordinator.log.topics.log import Limits, TopicLog
from coordinator.log.topics.upkeep import TopicUpkeep, may_be_dirty

WINDOW_MAX = 256
"""Calls that are taken from the queue at once; a batch of a megabyte each may come with them."""

FILES_MAX = 24
"""Logs that have a file open, those that were used last: the process may have few files (app.FILES_KEPT)."""

IDS_PER_BLOCK = 1000
"""Producer ids that are noted as given out at a time, as in Kafka: a restart passes over the rest of a block."""

HAND_OVER_AFTER_S = 0.001
"""What outcomes wait for other work at most, about, before they are told: to wake the loop costs as much as a few."""

PRODUCER_IDS_NAME = ".producer-ids"


class TopicPartition(NamedTuple):
    """A topic partition."""

    topic: str
    topic_id: UUID
    number: int
    limits: Limits

    @property
    def key(self) -> tuple[UUID, int]:
        """What doesn't change about it."""
        return self.topic_id, self.number


class Compacted(NamedTuple):
    """How the compaction of the log in the folder of that name went. reason: why it was put off, "" if it wasn't."""

    folder: str
    size_before: int
    size_after: int
    duration_s: float
    reason: str = ""


Done = Callable[[Any], None]
Result = tuple[Done, Any]


class _Append(NamedTuple):
    partition: TopicPartition
    data: bytes
    now_ms: int
    done: Done


class _Call(NamedTuple):
    function: Callable[[], Any]
    done: Done


class TopicLogs:
    """See the module.

    hand_over: takes results, and has each `done` called with its value, in their order, on the caller's own thread.
    cut: called with (file, position, size) when a torn tail was cut off. failed: called with (folder, reason) of a log
    that can't be used, once until it can. strayed: called with (folder, new folder) of a folder that is another topic's.
    died: called with a traceback when a mistake of ours ended the thread; no call gets an answer after that.
    compacted: called with how a compaction went; if the disk became full, once for the part that was done, once for the
    rest that was put off. counts: where appends and compactions are counted.
    """

    def __init__(
        self,
        data_dir: Path,
        hand_over: Callable[[list[Result]], object],
        *,
        cut: Callable[[Path, int, int], None] = lambda _file, _position, _size: None,
        failed: Callable[[str, str], None] = lambda _folder, _reason: None,
        strayed: Callable[[str, str], None] = lambda _folder, _stray: None,
        died: Callable[[str], object] = lambda _reason: None,
        compacted: Callable[[Compacted], None] = lambda _compacted: None,
        disk: Disk | None = None,
        counts: Counts | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._data_dir = data_dir
        self._hand_over = hand_over
        self._now_s = now_s
        self._cut = cut
        self._failed = failed
        self._strayed = strayed
        self._died = died
        self._compacted = compacted
        self._disk = disk or Disk()
        self._counts = counts or Counts()
        self._queue: SimpleQueue[_Append | _Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._remover: ThreadPoolExecutor | None = None
        self._cleaner: Cleaner | None = None
        # Below: touched by the thread only.
        self._logs: dict[tuple[UUID, int], TopicLog] = {}
        self._views: dict[int, OutsideView] = {}
        self._reported: set[tuple[UUID, int]] = set()
        self._outcomes: list[Result] = []
        self._handed_over_s = 0.0
        self._next_id = self._ids_end = 0
        self._watched: dict[tuple[UUID, int], TopicPartition] = {}
        self._upkeeps: dict[tuple[UUID, int], TopicUpkeep] = {}
        self._not_before_ms: dict[tuple[UUID, int], int] = {}
        self._watched_at_ms = self._backoff_ms = 0
        self._may_open = self._is_more_to_open = False

    # Any thread, one at a time.

    def append(self, partition: TopicPartition, data: bytes, now_ms: int, done: Done) -> None:
        """Append the batch at the start of `data`; done: Written, Rejected or an EngineError."""
        self._put(_Append(partition, data, now_ms, done))

    def call(self, function: Callable[[], Any], done: Done) -> None:
        """Have `function` called on the thread; done: what it returns or raises."""
        self._put(_Call(function, done))

    def compact(self, partitions: Sequence[TopicPartition], now_ms: int, backoff_ms: int) -> None:
        """Compact what is worth it of these, the compacted ones; one that failed, after many times the backoff."""
        if self._cleaner is None and not partitions:
            return
        watched = {partition.key: partition for partition in partitions}
        self._put(_Call(partial(self._watch, watched, now_ms, backoff_ms), _forget))
        if self._cleaner is None:
            self._cleaner = Cleaner(None, self._find_work, self._finish_work, self._on_thread)
            self._cleaner.start()
        self._cleaner.look()

    def close(self) -> None:
        """Do what is queued and end; returns when that is done."""
        if self._cleaner is not None:
            self._cleaner.stop()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _put(self, call: _Append | _Call) -> None:
        self._queue.put(call)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="topics", daemon=True)
            self._thread.start()

    # On the thread, by `call`.

    def log(self, partition: TopicPartition) -> TopicLog:
        """The open log of a topic partition of a user's. Raises EngineError."""
        assert partition.topic != OFFSETS_TOPIC
        log = self._logs.get(partition.key)
        if log is not None and log.is_open():
            self._use(partition, log)
            return log
        folder = self._folder(partition)
        try:
            if log is None:
                if is_anothers(folder, partition.topic_id):
                    # A former topic's of the same name: deleted just before a crash, or lost from the list.
                    self._strayed(str(folder), str(set_aside_stray(self._disk, folder)))
                log = TopicLog(
                    self._disk, folder, partition.topic_id, partition.limits.segment_bytes, self._cut, self._counts
                )
                # Also one that can't be opened: it knows what the disk has failed for.
                self._logs[partition.key] = log
            log.open()
        except (Damaged, OSError) as error:
            if log is not None:
                log.close(str(error))
            problem = error if isinstance(error, Damaged) else Unavailable(_reason(error))
            if partition.key not in self._reported:
                self._reported.add(partition.key)
                self._failed(str(folder), str(problem))
            raise problem from error
        self._reported.discard(partition.key)
        self._use(partition, log)
        return log

    def view(self, partition: TopicPartition) -> View:
        """For reading alone. Raises EngineError."""
        if partition.topic != OFFSETS_TOPIC:
            return self.log(partition).view
        view = self._views.setdefault(partition.number, OutsideView(self._disk, self._folder(partition)))
        try:
            view.look()
        except OSError as error:
            raise Unavailable(_reason(error)) from error
        return view

    def may_retain(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether the log may have what retention gives up: of one that isn't open, as its files' sizes and times say.

        To open it, which reads all of it, takes too long to do it for nothing. Raises OSError.
        """
        if partition.key in self._logs:
            return True
        limits = partition.limits
        if not limits.is_deleted:
            return False
        files = [each.path.stat() for each in list_segments(self._disk, self._folder(partition))]
        is_large = 0 <= limits.retention_bytes < sum(file.st_size for file in files)
        oldest_ms = min((file.st_mtime_ns // 1_000_000 for file in files if file.st_size), default=now_ms)
        return is_large or 0 <= limits.retention_ms < now_ms - oldest_ms

    def delete(self, partitions: Sequence[TopicPartition]) -> None:
        """Give up the logs of a topic that is gone, each as far as it can be. Raises Damaged, OSError in the end."""
        problem: Damaged | OSError | None = None
        for partition in partitions:
            log = self._logs.pop(partition.key, None)
            if log is not None:
                log.close("the topic is deleted")
            self._reported.discard(partition.key)
            # Nobody looks at it again: its folder may soon be another topic's.
            self._watched.pop(partition.key, None)
            try:
                set_aside_deleted(self._disk, self._folder(partition), partition.topic_id)
            except (Damaged, OSError) as error:
                problem = error
        self._remove_deleted()
        if problem is not None:
            raise problem

    def producer_id(self, now_ms: int) -> int:
        """An id that was never given out in this folder. Raises EngineError.

        What is noted may be gone, or of an older copy of the folder. So a block starts at the time, in ms, if less is
        noted: nobody takes a block a second for as long as the clock runs.
        """
        if self._next_id == self._ids_end:
            try:
                lock = Lock(self._disk, self._data_dir / PRODUCER_IDS_NAME)
            except BlockingIOError as error:
                raise Unavailable("another worker takes producer ids just now") from error
            except OSError as error:
                raise Unavailable(_reason(error)) from error
            try:
                first = max(lock.read_number() or 0, now_ms)
                lock.note_number(first + IDS_PER_BLOCK)
                lock.sync()
                self._disk.sync_folder(self._data_dir)
            except OSError as error:
                raise Unavailable(_reason(error)) from error
            finally:
                lock.release()
            self._next_id, self._ids_end = first, first + IDS_PER_BLOCK
        self._next_id += 1
        return self._next_id - 1

    # Compaction.

    def _on_thread(self, call: Callable[[], object]) -> object:
        """Call on the thread, in the queue's order, and wait for it; None if it has ended."""
        assert self._thread is not None
        return call_on(self._thread, lambda queued: self._queue.put(_Call(queued, _forget)), call)

    def _watch(self, partitions: dict[tuple[UUID, int], TopicPartition], now_ms: int, backoff_ms: int) -> None:
        self._watched, self._watched_at_ms, self._backoff_ms = partitions, now_ms, backoff_ms
        self._upkeeps = {key: upkeep for key, upkeep in self._upkeeps.items() if key in partitions}
        self._not_before_ms = {key: time_ms for key, time_ms in self._not_before_ms.items() if key in partitions}

    def _find_work(self, *, is_new_round: bool) -> Work | None:  # noqa: ARG002 - what the last one left is looked at
        """The compaction that is most worth doing; one log is opened for it at most, so that others have their turn."""
        self._may_open, self._is_more_to_open = True, False
        works = list(filter(None, map(self._look, self._watched.values())))
        self._counts.dirty_ratio = max((upkeep.dirty_ratio for upkeep in self._upkeeps.values()), default=0.0)
        if self._is_more_to_open and self._cleaner is not None:
            self._cleaner.look()
        for work in sorted(works, key=lambda work: work.ratio, reverse=True):
            upkeep = work.upkeep
            assert isinstance(upkeep, TopicUpkeep)
            try:
                upkeep.begin()
            except Exception as error:  # noqa: BLE001 - of the disk, or a mistake of ours
                self._failed_compaction(upkeep.key, upkeep.folder, 0.0, _reason(error))
            else:
                return work
        return None

    def _look(self, partition: TopicPartition) -> Work | None:
        """What is to be done about a log; it is opened if it may need it. What can't be is looked at again later."""
        now_ms = self._watched_at_ms
        if now_ms < self._not_before_ms.get(partition.key, 0):
            return None
        try:
            upkeep = self._upkeeps.get(partition.key)
            if upkeep is None or not upkeep.is_open():
                folder = self._folder(partition)
                if partition.key not in self._logs and not may_be_dirty(self._disk, folder, partition.limits):
                    return None
                if not self._may_open and not self._is_open(partition):
                    self._is_more_to_open = True
                    return None
                self._may_open = self._may_open and self._is_open(partition)
                upkeep = self._upkeeps[partition.key] = TopicUpkeep(
                    self._disk, folder, self.log(partition), partition.key
                )
            return upkeep.look(partition.limits, now_ms)
        except (EngineError, OSError):  # of opening it; that was told
            self._put_off(partition.key)
        except Exception as error:  # noqa: BLE001 - a mistake of ours, which other logs don't wait for
            self._failed_compaction(partition.key, self._folder(partition), 0.0, _reason(error))
        return None

    def _is_open(self, partition: TopicPartition) -> bool:
        log = self._logs.get(partition.key)
        return log is not None and log.is_open()

    def _put_off(self, key: tuple[UUID, int]) -> None:
        self._not_before_ms[key] = self._watched_at_ms + RETRY_BACKOFFS * self._backoff_ms

    def _failed_compaction(self, key: tuple[UUID, int], folder: Path, duration_s: float, reason: str) -> None:
        self._put_off(key)
        self._counts.compaction_failures += 1
        self._compacted(Compacted(folder.name, 0, 0, duration_s, reason))

    def _finish_work(self, work: Work, compaction: Compaction | None, reason: str, duration_s: float) -> None:
        """Take note of how a compaction went."""
        upkeep = work.upkeep
        assert isinstance(upkeep, TopicUpkeep)
        try:
            upkeep.finish(work, compaction)
        except Exception as error:  # noqa: BLE001 - of the disk, or a mistake of ours
            reason = _reason(error)
        if compaction is not None and compaction.files:
            size_before, size_after = compaction.size_before, compaction.size_after
            self._counts.compacted(size_before, size_after, duration_s)
            self._compacted(Compacted(upkeep.folder.name, size_before, size_after, duration_s))
        if reason and not upkeep.was_given_up(work):
            self._failed_compaction(upkeep.key, upkeep.folder, duration_s, reason)

    # The thread.

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:  # noqa: BLE001 - nobody else would hear of it
            with suppress(RuntimeError):  # the loop is gone as well
                self._died(traceback.format_exc())
        for log in self._logs.values():
            log.close("the server ends")
        if self._remover is not None:
            self._remover.shutdown()

    def _remove_deleted(self) -> None:
        """On a thread of its own: a large file takes its time, and who appends doesn't have it."""
        with suppress(OSError):  # it is tried again when the next topic is deleted
            for folder in deleted_folders(self._disk, self._data_dir):
                self._remover = self._remover or ThreadPoolExecutor(1, "topics-remove")
                self._remover.submit(shutil.rmtree, folder, ignore_errors=True)

    def _serve(self) -> None:
        self._remove_deleted()
        while True:
            calls = [self._queue.get()]
            with suppress(Empty):
                while len(calls) < WINDOW_MAX:
                    calls.append(self._queue.get_nowait())
            self._work([call for call in calls if call is not None])
            if None in calls:
                break

    def _work(self, calls: list[_Append | _Call]) -> None:
        self._handed_over_s = self._now_s()
        window: dict[tuple[UUID, int], list[_Append]] = {}
        for call in calls:
            if isinstance(call, _Append):
                window.setdefault(call.partition.key, []).append(call)
                continue
            self._write(window)
            window = {}
            try:
                outcome = call.function()
            except Exception as error:  # noqa: BLE001 - the caller gets it
                outcome = error
            self._outcomes.append((call.done, outcome))
            self._hand_over_if_due()
        self._write(window)
        self._hand_over_all()

    def _hand_over_if_due(self) -> None:
        if self._now_s() - self._handed_over_s >= HAND_OVER_AFTER_S:
            self._hand_over_all()

    def _hand_over_all(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if outcomes:
            self._hand_over(outcomes)
        self._handed_over_s = self._now_s()

    def _write(self, window: dict[tuple[UUID, int], list[_Append]]) -> None:
        for appends in window.values():
            partition = appends[-1].partition
            outcomes: list[Any]
            try:
                log = self.log(partition)
                log.claim()
                outcomes = list(
                    log.append_batches([each.data for each in appends], partition.limits, appends[-1].now_ms)
                )
            except (EngineError, OSError) as error:
                outcomes = [error] * len(appends)
            except Exception as error:  # noqa: BLE001 - the callers get it
                self._give_up(partition, error)
                outcomes = [error] * len(appends)
            for append, outcome in zip(appends, outcomes, strict=True):
                failed = isinstance(outcome, OSError)
                self._outcomes.append((append.done, Unavailable(_reason(outcome)) if failed else outcome))
            self._hand_over_if_due()

    def _give_up(self, partition: TopicPartition, error: Exception) -> None:
        """A mistake of ours: the log is read anew."""
        log = self._logs.get(partition.key)
        if log is not None:
            log.give_up(repr(error))

    def _use(self, partition: TopicPartition, log: TopicLog) -> None:
        """Let the log be the one that was used last, and the one that this makes too many have no open file."""
        self._logs.pop(partition.key, None)
        self._logs[partition.key] = log
        for other in islice(reversed(self._logs.values()), FILES_MAX, FILES_MAX + 1):
            other.park()

    def _folder(self, partition: TopicPartition) -> Path:
        return folder_of(self._data_dir, partition.topic, partition.number)


def _forget(_outcome: object) -> None:
    """Nobody waits for it."""


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError):
        return repr(error)
    text = error.strerror or str(error)
    return f"{text}: {error.filename}" if error.filename else text
