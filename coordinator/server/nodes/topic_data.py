"""The records of topics, as the event loop uses them: each topic partition's leader, its log, and the calls that wait.

The logs and their thread (log/topics/logs.py) are made for the first request that needs them. A server that serves no
records pays nothing for them. A server without a data folder keeps records in a temporary one.

Two timers make the thread look at its logs: one for retention, one for compaction.

A call waits for topic partitions (`wait`). It looks again when somebody appends to one of them, or when one is deleted.

Engines write `__consumer_offsets` and `__transaction_state`, and the thread reads their files. No reader misses an
append that a client knows of: before each read their engine writes out what it has reported. And a call that
found nothing compares `engine_writes` before it waits.

House rule: nothing here waits for the disk; the thread hands its outcomes to callbacks on the loop.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from coordinator.config import Config
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import reason
from coordinator.log.segments.view import Ends, View
from coordinator.log.store import WriteOut
from coordinator.log.topics.list import Topic
from coordinator.log.topics.log import TopicLog
from coordinator.log.topics.partition import TopicPartition
from coordinator.loop.clock import Clock
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.server.nodes.discovery import Discovery
from coordinator.server.telemetry.log_reports import report
from protocol.records.batch import Batch

if TYPE_CHECKING:
    from coordinator.log.scratch import Scratch
    from coordinator.log.topics.compactions import Compacted
    from coordinator.log.topics.logs import TopicLogs
    from coordinator.log.topics.thread import Result

Key = tuple[UUID, int]
"""Topic id and partition."""

ANSWERS_SIZE_MAX = 256 * 1024 * 1024
"""The most bytes of records in answers that clients haven't taken yet, of all connections: four of the largest answers
to a Fetch (fetch.max.bytes, 55 MiB). Above it an answer has only its first batch, which a consumer needs to go on.
"""

RETAINED_AT_ONCE = 25
"""Topic partitions whose retention is under way at a time, about 0.5 ms: clients may create hundreds of thousands."""

DELETED_AT_ONCE = 1_000
"""Logs that the logs' thread deletes in one go. Other calls wait for that; each go looks at all folders once."""


class Failing(NamedTuple):
    """A log that can't be used since a time (Unix time in ms), and why."""

    since_ms: int
    reason: str


class Budget:
    """A limited number of bytes that several threads take from."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._guard = Lock()

    @property
    def left(self) -> int:
        """Free bytes; negative if `give` of a negative size took more than there were."""
        return self._left

    def take(self, wanted: int) -> int:
        """Take up to `wanted` bytes; returns how many it took."""
        with self._guard:
            taken = max(min(wanted, self._left), 0)
            self._left -= taken
            return taken

    def give(self, size: int) -> None:
        """Give bytes back. A negative size takes that many, even if fewer are free."""
        with self._guard:
            self._left += size


class TopicData:
    """See the module.

    data_dir: None for a temporary folder. folder: of the logs; None for a temporary one that isn't made yet.
    hop: calls a function on the loop's thread, from any thread. died: called when the thread of the logs has ended and
    can neither read nor write. budget: bytes that were read for clients and that the clients have not taken.
    counts: counts appends. write_out: of the store.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        discovery: Discovery,
        lines: Lines,
        data_dir: Path | None,
        hop: Callable[[Callable[[], None]], object],
        pace: Pace,
        died: Callable[[], None],
        counts: Counts | None = None,
        write_out: WriteOut | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._discovery = discovery
        self._lines = lines
        self.folder = data_dir
        self._hop = hop
        self._pace = pace
        self._inbox: deque[Result] = deque()
        self._woken = False
        self.budget = Budget(ANSWERS_SIZE_MAX)
        self._died = died
        self._counts = counts
        self._is_dead = False
        self.failing: dict[str, Failing] = {}
        """Topic partitions whose logs can't be used, by the last try, as in "t-0"; the logs' thread changes it."""
        self._made: TopicLogs | None = None
        self._temporary: Scratch | None = None
        self._partitions: dict[UUID, tuple[Topic, dict[int, TopicPartition]]] = {}
        self._ends: dict[Key, Ends] = {}
        self._waiting: dict[Key, dict[Hashable, Callable[[], None]]] = {}
        self._expected: dict[int, list[set[Key]]] = {}
        self._write_out = write_out
        self._engine_writes: dict[UUID, list[int]] = {}
        """Appends of an engine so far, of each partition of its topic."""
        self._is_stopped = False
        self._compactable: dict[Key, TopicPartition] = {}
        """The dirty logs that the search under way has found so far."""
        self._retention_due()
        self._compaction_due()

    def reconfigure(self, config: Config) -> None:
        """Use other settings. Another time between compactions begins with a compaction."""
        former, self._config, self._partitions = self._config, config, {}
        if config.log_cleaner_backoff_ms != former.log_cleaner_backoff_ms:
            self._compaction.cancel()
            self._compact()

    @property
    def log_dir(self) -> str | None:
        """The absolute path of the folder; None if there is none yet."""
        return None if self.folder is None else str(self.folder.absolute())

    def leads(self, topic: Topic, partition: int) -> bool:
        """Whether this node leads a topic partition."""
        return self._discovery.leader(topic, partition) == self._config.node_id

    def topic_partition(self, topic: Topic, partition: int) -> TopicPartition:
        """A topic partition, as the logs identify it."""
        known, partitions = self._partitions.get(topic.topic_id, (None, {}))
        if known is not topic:
            known, partitions = self._partitions[topic.topic_id] = topic, {}
        if partition not in partitions:
            from coordinator.log.topics.partition import TopicPartition  # noqa: PLC0415 - see the module
            from coordinator.server.nodes.topic_settings import topic_limits  # noqa: PLC0415 - see the module

            other = next(iter(partitions.values()), None)
            limits = topic_limits(self._config, topic) if other is None else other.limits
            partitions[partition] = TopicPartition(topic.name, topic.topic_id, partition, limits)
        return partitions[partition]

    def own_topic_partition(self, topic: Topic) -> TopicPartition:
        """The first partition of a topic that this node leads."""
        return self.topic_partition(
            topic, next(index for index in range(topic.partition_count) if self.leads(topic, index))
        )

    def append(
        self, topic_partition: TopicPartition, data: bytes, done: Callable[[Any], None], *, is_v2: bool = False
    ) -> None:
        """Append a batch, then let waiting calls look again; `done` gets Written, Rejected or an EngineError.

        is_v2: see Producers.check.
        """
        appended = partial(self._appended, topic_partition.key, done)
        self._logs().append(topic_partition, data, self._clock.wall_ms(), appended, is_v2=is_v2)

    def _appended(self, key: Key, done: Callable[[Any], None], outcome: Any) -> None:
        self._ends.pop(key, None)
        done(outcome)
        if key in self._waiting:
            self.wake(key)

    def expect(self, producer_id: int, keys: set[Key]) -> None:
        """Appends of a producer to these are in its transaction, and due: a marker takes its topic partition out."""
        self._expected.setdefault(producer_id, []).append(keys)

    def expect_no_more(self, producer_id: int, keys: set[Key]) -> None:
        """These appends are done, or given up."""
        others = [each for each in self._expected.pop(producer_id) if each is not keys]
        if others:
            self._expected[producer_id] = others

    def append_marker(
        self,
        topic_partition: TopicPartition,
        marker: Batch,
        done: Callable[[Any], None],
        coordinator_epoch: int | None = None,
        *,
        is_higher: bool = False,
    ) -> None:
        """End a producer's transaction in a log, then let waiting calls look again; `done` gets Written or an error.

        coordinator_epoch, is_higher: see TopicLog.append_marker.
        """
        logs = self._logs()
        for keys in self._expected.get(marker.producer_id, ()):
            keys.discard(topic_partition.key)

        def append() -> Any:
            log = logs.log(topic_partition)
            log.claim()
            return log.append_marker(marker, topic_partition.limits, coordinator_epoch, is_higher=is_higher)

        logs.call(append, partial(self._appended, topic_partition.key, done))

    def read(
        self,
        function: Callable[[Callable[[TopicPartition], View]], Any],
        in_journals: Collection[int],
        done: Callable[[Any], None],
    ) -> None:
        """Call `function` on the logs' thread with a function that opens a log; `done` gets a result or Exception.

        in_journals: the partitions of engines' logs that it opens, by their `journal_number`.
        """
        logs = self._logs()
        self._call(logs, partial(function, logs.view), in_journals, done)

    def producers(
        self, partitions: Sequence[TopicPartition], in_journals: Collection[int], done: Callable[[Any], None]
    ) -> None:
        """As `read`; `done` gets what TopicLogs.producers returns for each partition."""
        logs = self._logs()
        self._call(logs, lambda: list(map(logs.producers, partitions)), in_journals, done)

    def _call(
        self, logs: TopicLogs, function: Callable[[], Any], in_journals: Collection[int], done: Callable[[Any], None]
    ) -> None:
        if in_journals and self._write_out is not None:
            self._write_out(in_journals, lambda: self._hop(partial(logs.call, function, done)))
        else:
            logs.call(function, done)

    def write(
        self, function: Callable[[Callable[[TopicPartition], TopicLog]], Any], done: Callable[[Any], None]
    ) -> None:
        """As `read`, for a function that changes logs."""
        logs = self._logs()

        def written(outcome: Any) -> None:
            self._ends.clear()
            done(outcome)

        logs.call(lambda: function(logs.log), written)

    def measure(self, partitions: Sequence[TopicPartition], done: Callable[[Any], None]) -> None:
        """Measure logs and their volume; `done` gets Measured, an OSError or an EngineError."""
        logs = self._logs()
        logs.call(partial(logs.measure, partitions), done)

    def delete(self, topics: Sequence[Topic], done: Callable[[], None]) -> Iterator[None]:
        """Delete this node's logs of deleted topics, and let calls that wait for them look again.

        Calls `done` for each topic after that. Yields where the caller may pause.
        """
        led: list[TopicPartition] = []
        asked = 0
        for number, topic in enumerate(topics, 1):
            _, partitions = self._partitions.pop(topic.topic_id, (None, {}))
            for partition in range(topic.partition_count):
                key = topic.topic_id, partition
                if key in self._waiting:
                    self.wake(key)
                self._ends.pop(key, None)
                self._compactable.pop(key, None)
                if self.leads(topic, partition):
                    led.append(partitions.get(partition) or self.topic_partition(topic, partition))
                yield
            self._partitions.pop(topic.topic_id, None)
            if len(led) >= DELETED_AT_ONCE or number == len(topics):
                self._delete_logs(led, number - asked, done)
                led, asked = [], number

    def _delete_logs(self, led: Sequence[TopicPartition], topics: int, done: Callable[[], None]) -> None:
        """Delete the logs of that many topics, then call `done` as often."""

        def deleted(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                report(self._lines, "topic_folder_left", reason=reason(outcome))
            for _ in range(topics):
                done()

        logs = self._logs()
        logs.call(partial(logs.delete, led), deleted)

    def producer_id(self, done: Callable[[Any], None]) -> None:
        """Make a new producer id; `done` gets it, or an EngineError."""
        logs = self._logs()
        logs.call(partial(logs.producer_id, self._clock.wall_ms()), done)

    def ends(self, key: Key) -> Ends | None:
        """The start and end of a log; None if the loop doesn't know them and has to ask the logs' thread."""
        return self._ends.get(key)

    def remember_ends(self, key: Key, ends: Ends) -> None:
        """Remember what the logs' thread found. Results come in the order of its work, so the last is the newest."""
        self._ends[key] = ends

    def engine_writes(self, keys: Iterable[Key]) -> int:
        """Appends of engines to these topic partitions since the engines were opened."""
        known = self._engine_writes
        return sum([known[topic_id][partition] for topic_id, partition in keys if topic_id in known])

    def on_written(self, topic: Topic) -> Callable[[int], None]:
        """A function for the engine of a topic: it is called with each partition that the engine has appended to."""
        topic_id, writes = topic.topic_id, [0] * topic.partition_count
        self._engine_writes[topic_id] = writes

        def written(partition: int) -> None:
            writes[partition] += 1
            if self._waiting and (topic_id, partition) in self._waiting:
                self.wake((topic_id, partition))

        return written

    def wait(self, call: Hashable, keys: Iterable[Key], again: Callable[[], None]) -> None:
        """Call `again`, once, when there may be more in one of these topic partitions."""
        for key in keys:
            self._waiting.setdefault(key, {})[call] = again

    def forget(self, call: Hashable, keys: Iterable[Key]) -> None:
        """End the wait of a call."""
        for key in keys:
            calls = self._waiting.get(key)
            if calls is not None and calls.pop(call, None) is not None and not calls:
                del self._waiting[key]

    def wake(self, key: Key) -> None:
        """Let the calls that wait for a topic partition look again."""
        self._pace.work(self._wake(key))

    def _wake(self, key: Key) -> Iterator[None]:
        for call in list(self._waiting.get(key, ())):
            again = self._waiting.get(key, {}).get(call)  # its wait may have ended meanwhile
            if again is not None:
                again()
                yield

    def idle(self, done: Callable[[], None]) -> None:
        """Call back when the logs' thread has done all its work."""
        if self._made is None or self._is_dead:
            done()
        else:
            self._made.call(lambda: None, lambda _: done())

    def stop(self) -> None:
        """Stop retention and compaction."""
        self._is_stopped, self._compactable = True, {}
        self._retention.cancel()
        self._compaction.cancel()

    def close(self) -> None:
        """Let the thread finish its work and end. This waits for the disk."""
        if self._made is not None:
            self._made.close()
        if self._temporary is not None:
            self._temporary.remove()

    def _logs(self) -> TopicLogs:
        if self._made is None:
            from coordinator.log.topics.logs import TopicLogs  # noqa: PLC0415 - see the module

            if self.folder is None:
                from coordinator.log.scratch import Scratch  # noqa: PLC0415 - see the module

                self._temporary = Scratch()
                self.folder = self._temporary.path
            self._made = TopicLogs(
                self.folder,
                self._arrived,
                cut=self._cut,
                failed=self._failed,
                works=self._works,
                strayed=self._strayed,
                compacted=self._compacted,
                died=lambda reason: self._hop(partial(self._has_died, reason)),
                counts=self._counts,
            )
        return self._made

    # Outcomes.

    def _arrived(self, outcomes: list[Result]) -> None:
        """On the logs' thread: wake the loop, once for all outcomes that wait."""
        self._inbox.extend(outcomes)
        if not self._woken:
            self._woken = True
            self._hop(self._land)

    def _land(self) -> None:
        self._woken = False  # first, so that an outcome that arrives meanwhile wakes the loop again
        for _ in range(len(self._inbox)):
            if not self._pace.has_time():
                self._woken = True
                self._pace.later(self._land)
                return
            done, outcome = self._inbox.popleft()
            try:
                done(outcome)
            except Exception:  # noqa: BLE001 - the other outcomes belong to other requests
                text = f"An outcome of a topic's log was lost: {traceback.format_exc()}"
                self._lines.error("records_broke", text)

    # Retention.

    def _retention_due(self) -> None:
        interval_ms = self._config.log_retention_check_interval_ms
        self._retention = self._clock.call_at(self._clock.ms() + interval_ms, self._retain)

    def _retain(self) -> None:
        """Apply retention to each log by itself, so that other work of the thread comes in between."""
        self._retain_next(filter(None, self._led(compacted=False)))

    def _retain_next(self, led: Iterator[TopicPartition]) -> None:
        """Go on with the next logs, and with others when the thread has done these."""
        if self._is_stopped or self._is_dead:
            return
        some = list(islice(led, RETAINED_AT_ONCE))
        for topic_partition in some:
            self._retain_partition(topic_partition)
        if some:
            self.idle(partial(self._retain_next, led))
        else:
            self._retention_due()

    def _led(self, *, compacted: bool) -> Iterator[TopicPartition | None]:
        """The topic partitions that this node leads, and None for others. compacted: only those of compacted topics.

        Topics may change and go between two of them.
        """
        for kept in list(self._discovery.kept_topics()):
            yield None
            for partition in range(kept.partition_count):
                topic = self._discovery.topic_by_id(kept.topic_id)
                if topic is None or (compacted and not self.topic_partition(topic, 0).limits.is_compacted):
                    break
                yield self.topic_partition(topic, partition) if self.leads(topic, partition) else None

    def _retain_partition(self, topic_partition: TopicPartition) -> None:
        logs, now_ms = self._logs(), self._clock.wall_ms()
        topic, partition = topic_partition.topic, topic_partition.number
        name, fields = f"{topic}-{partition}", {"topic": topic, "partition": partition}

        def retain() -> int:
            return (
                logs.log(topic_partition).retain(topic_partition.limits, now_ms)
                if logs.may_retain(topic_partition, now_ms)
                else 0
            )

        def done(outcome: Any) -> None:
            self._ends.pop(topic_partition.key, None)
            if isinstance(outcome, Exception):
                report(self._lines, "retention_failed", name, **fields, reason=reason(outcome))
            elif outcome:
                report(self._lines, "segments_removed", name, **fields, segments=outcome)

        logs.call(retain, done)

    # Compaction.

    def _compaction_due(self) -> None:
        backoff_ms = self._config.log_cleaner_backoff_ms
        self._compaction = self._clock.call_at(self._clock.ms() + backoff_ms, self._compact)

    def _compact(self) -> None:
        self._pace.work(self._compact_in_steps())

    def _compact_in_steps(self) -> Iterator[None]:
        """Let the thread compact the logs that need it. If there are none, that ends the watch over earlier logs."""
        partitions = self._compactable = {}
        for topic_partition in self._led(compacted=True):
            if self._compactable is not partitions:  # a later round, or the end
                return
            if topic_partition is not None:
                partitions[topic_partition.key] = topic_partition
            yield
        self._compactable = {}  # the thread has the other
        if partitions or self._made is not None:
            self._logs().compact(partitions, self._clock.wall_ms(), self._config.log_cleaner_backoff_ms)
        self._compaction_due()

    # Reports of the logs' thread.

    def _compacted(self, went: Compacted) -> None:
        topic, _, number = went.folder.rpartition("-")
        fields = {"topic": topic, "partition": int(number)}
        if went.reason:
            self._report_later("compaction_failed", went.folder, **fields, reason=went.reason)
        else:
            fields |= {"size_before": went.size_before, "size_after": went.size_after}
            self._report_later("compacted", went.folder, **fields, duration_s=round(went.duration_s, 3))

    def _cut(self, file: Path, position: int, size: int) -> None:
        self._report_later("tail_cut", file.parent.name, file=str(file), position=position, size=size)

    def _failed(self, folder: str, reason: str) -> None:
        self.failing[Path(folder).name] = Failing(self._clock.wall_ms(), reason)
        self._report_later("topic_partition_unavailable", folder, folder=folder, reason=reason)

    def _works(self, folder: str) -> None:
        self.failing.pop(Path(folder).name, None)
        self._report_later("topic_partition_available", folder, folder=folder)

    def _strayed(self, folder: str, stray: str) -> None:
        self._report_later("topic_folder_taken", folder, folder=folder, stray=stray)

    def _has_died(self, reason: str) -> None:
        self._is_dead = True
        report(self._lines, "engine_failed", "Topics", error=reason)
        self._died()

    def _report_later(self, name: str, log: str, **fields: object) -> None:
        self._hop(partial(report, self._lines, name, log, **fields))
