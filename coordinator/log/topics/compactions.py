"""Chooses the topic partition to compact next, and applies the result to its log.

Topics' logs are compacted as the groups' logs are: a Cleaner has a thread that waits and a process that works. Between
other calls, the thread of the logs looks at the logs for it, and swaps in the files that the process wrote. The first
compacted topic makes the Cleaner.

A log that was never opened since the server started is opened for its compaction. Each look opens one log at most, so
that other calls don't wait long.

House rule: a failed compaction is reported once and tried again later; it stops no other compaction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID

from coordinator.log.compaction.cleaner import RETRY_BACKOFFS, Cleaner, Work
from coordinator.log.compaction.task import Compaction
from coordinator.log.engine import EngineError
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk, describe
from coordinator.log.topics.log import TopicLog
from coordinator.log.topics.partition import TopicPartition
from coordinator.log.topics.thread import LogThread, forget
from coordinator.log.topics.upkeep import TopicUpkeep, may_need_compaction


class Compacted(NamedTuple):
    """The result of a compaction of the log in `folder` (its name). reason: why it was put off, "" if it wasn't."""

    folder: str
    size_before: int
    size_after: int
    duration_s: float
    reason: str = ""


class Logs(Protocol):
    """The logs, as the methods on their thread use them."""

    def log(self, partition: TopicPartition) -> TopicLog:
        """The open log of a topic partition. Raises EngineError."""

    def known(self, partition: TopicPartition) -> TopicLog | None:
        """The log, open or closed, if it was ever opened."""

    def folder(self, partition: TopicPartition) -> Path:
        """The log's folder."""


class Compactions:
    """See the module. compacted: called with the result of a compaction. counts: where compactions are counted."""

    def __init__(
        self, disk: Disk, logs: Logs, thread: LogThread, compacted: Callable[[Compacted], None], counts: Counts
    ) -> None:
        self._disk = disk
        self._logs = logs
        self._thread = thread
        self._compacted = compacted
        self._counts = counts
        self._cleaner: Cleaner | None = None
        # Below: only the thread of the logs uses these.
        self._watched: dict[tuple[UUID, int], TopicPartition] = {}
        self._upkeeps: dict[tuple[UUID, int], TopicUpkeep] = {}
        self._not_before_ms: dict[tuple[UUID, int], int] = {}
        self._watched_at_ms = self._backoff_ms = 0
        self._may_open = self._is_more_to_open = False

    # On any thread, one call at a time.

    def look(self, partitions: dict[tuple[UUID, int], TopicPartition], now_ms: int, backoff_ms: int) -> None:
        """Compact those of `partitions` that are dirty enough; forget all other partitions."""
        if self._cleaner is None and not partitions:
            return
        self._thread.call(partial(self.watch, partitions, now_ms, backoff_ms), forget)
        if self._cleaner is None:
            self._cleaner = Cleaner(None, self.find, self.finish, self._thread.call_and_wait)
            self._cleaner.start()
        self._cleaner.look()

    def stop(self) -> None:
        """End, and end a running compaction; the thread of the logs must run until then."""
        if self._cleaner is not None:
            self._cleaner.stop()

    # On the thread of the logs.

    def watch(self, partitions: dict[tuple[UUID, int], TopicPartition], now_ms: int, backoff_ms: int) -> None:
        """Set the partitions to compact."""
        self._watched, self._watched_at_ms, self._backoff_ms = partitions, now_ms, backoff_ms
        self._upkeeps = {key: upkeep for key, upkeep in self._upkeeps.items() if key in partitions}
        self._not_before_ms = {key: time_ms for key, time_ms in self._not_before_ms.items() if key in partitions}

    def forget(self, partition: TopicPartition) -> None:
        """Stop compacting a partition, because another topic may soon have its folder."""
        self._watched.pop(partition.key, None)

    def find(self, *, is_new_round: bool) -> Work | None:  # noqa: ARG002 - each look goes through all logs
        """Return the compaction of the dirtiest log; open one log at most."""
        self._may_open, self._is_more_to_open = True, False
        works = list(filter(None, map(self._look_at, self._watched.values())))
        self._counts.dirty_ratio = max((upkeep.dirty_ratio for upkeep in self._upkeeps.values()), default=0.0)
        if self._is_more_to_open and self._cleaner is not None:
            self._cleaner.look()
        for work in sorted(works, key=lambda work: work.ratio, reverse=True):
            upkeep = work.upkeep
            assert isinstance(upkeep, TopicUpkeep)
            try:
                upkeep.log.begin_compaction()
            except Exception as error:  # noqa: BLE001 - of the disk, or a mistake of ours
                self._failed(upkeep.key, upkeep.folder, 0.0, describe(error))
            else:
                return work
        return None

    def finish(self, work: Work, compaction: Compaction | None, reason: str, duration_s: float) -> None:
        """Apply and report the result of a compaction."""
        upkeep = work.upkeep
        assert isinstance(upkeep, TopicUpkeep)
        try:
            upkeep.finish(work, compaction)
        except Exception as error:  # noqa: BLE001 - of the disk, or a mistake of ours
            reason = describe(error)
        if compaction is not None and compaction.files:
            size_before, size_after = compaction.size_before, compaction.size_after
            self._counts.compacted(size_before, size_after, duration_s)
            self._compacted(Compacted(upkeep.folder.name, size_before, size_after, duration_s))
        if compaction is not None and compaction.clean_offset <= work.task.dirty_offset:
            self._put_off(upkeep.key)  # an open transaction is in the way
        if reason and not upkeep.was_given_up(work):
            self._failed(upkeep.key, upkeep.folder, duration_s, reason)

    def _look_at(self, partition: TopicPartition) -> Work | None:
        """The compaction of one log, if it is due; opens a log that may need one."""
        now_ms = self._watched_at_ms
        if now_ms < self._not_before_ms.get(partition.key, 0):
            return None
        folder = self._logs.folder(partition)
        try:
            upkeep = self._upkeeps.get(partition.key)
            if upkeep is None or not upkeep.log.is_open():
                known = self._logs.known(partition)
                if known is None and not may_need_compaction(self._disk, folder, partition.limits):
                    return None
                if known is None or not known.is_open():
                    if not self._may_open:
                        self._is_more_to_open = True
                        return None
                    self._may_open = False
                upkeep = TopicUpkeep(self._disk, folder, self._logs.log(partition), partition.key)
                self._upkeeps[partition.key] = upkeep
            return upkeep.look(partition.limits, now_ms)
        except (EngineError, OSError):  # the log can't be opened, and was reported
            self._put_off(partition.key)
        except Exception as error:  # noqa: BLE001 - a mistake of ours; other logs don't wait for it
            self._failed(partition.key, folder, 0.0, describe(error))
        return None

    def _put_off(self, key: tuple[UUID, int]) -> None:
        self._not_before_ms[key] = self._watched_at_ms + RETRY_BACKOFFS * self._backoff_ms

    def _failed(self, key: tuple[UUID, int], folder: Path, duration_s: float, reason: str) -> None:
        self._put_off(key)
        self._counts.compaction_failures += 1
        self._compacted(Compacted(folder.name, 0, 0, duration_s, reason))
