"""The records of topics, as the event loop sees them: who leads a topic partition, its log, and who waits for more.

The logs and their thread (log/topics/logs.py) are made when they are first needed, so that a server of which nobody
wants records costs nothing for them. A server without a data folder keeps records in a temporary one.

What is old is given up, and compacted topics are compacted, by itself: on a timer the logs are told of those that are
to be looked at.

Who waits, waits for topic partitions: an append to one of them, or its end, lets each have another look.

House rule: nothing here waits for the disk; what comes back from the thread comes by a callback on the loop.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from coordinator.server.telemetry.log_reports import report

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory
    from uuid import UUID

    from coordinator.config import Config
    from coordinator.log.segments.counts import Counts
    from coordinator.log.segments.view import Ends, View
    from coordinator.log.topics.compactions import Compacted
    from coordinator.log.topics.list import Topic
    from coordinator.log.topics.log import TopicLog
    from coordinator.log.topics.logs import TopicLogs
    from coordinator.log.topics.partition import TopicPartition
    from coordinator.log.topics.thread import Result
    from coordinator.server.clock import Clock
    from coordinator.server.nodes.discovery import Discovery
    from coordinator.server.runtime.pace import Pace
    from coordinator.server.telemetry.lines import Lines

Key = tuple["UUID", int]
"""Topic id and partition."""


ANSWERS_SIZE_MAX = 256 * 1024 * 1024
"""Bytes of records in answers that clients haven't taken yet, of all connections: a few that ask for all that a Fetch
may bring (fetch.max.bytes, 55 MiB). Beyond it an answer has the first batch alone, as without that nobody goes on."""


class Budget:
    """So many bytes that are shared, by any threads."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._guard = Lock()

    @property
    def left(self) -> int:
        """Bytes that nobody has."""
        return self._left

    def take(self, wanted: int) -> int:
        """Have up to so many bytes; returns how many."""
        with self._guard:
            taken = max(min(wanted, self._left), 0)
            self._left -= taken
            return taken

    def give(self, size: int) -> None:
        """Give some back; or have so many more, however many are left, if it is negative."""
        with self._guard:
            self._left += size


class TopicData:
    """See the module.

    data_dir: None: a temporary folder. hop: has a function called on the loop's thread, from any thread. died: called
    when nothing can be read or written any more. budget: of what is read for clients and not yet on its way to them.
    counts: where appends are counted.
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
    ) -> None:
        self._config = config
        self._clock = clock
        self._discovery = discovery
        self._lines = lines
        self._data_dir = data_dir
        self._hop = hop
        self._pace = pace
        self._inbox: deque[Result] = deque()
        self._woken = False
        self.budget = Budget(ANSWERS_SIZE_MAX)
        self._died = died
        self._counts = counts
        self._is_dead = False
        self._made: TopicLogs | None = None
        self._temporary: TemporaryDirectory[str] | None = None
        self._places: dict[UUID, tuple[Topic, dict[int, TopicPartition]]] = {}
        self._ends: dict[Key, Ends] = {}
        self._waiting: dict[Key, dict[Hashable, Callable[[], None]]] = {}
        self._retention_due()
        self._compaction_due()

    @property
    def folder(self) -> Path | None:
        """Where the logs are; None before they are made, if they are temporary."""
        return self._data_dir if self._temporary is None else Path(self._temporary.name)

    def is_working(self) -> bool:
        """Whether anybody ever needed the logs."""
        return self._made is not None

    def leads(self, topic: Topic, partition: int) -> bool:
        """Whether this node does."""
        return self._discovery.leader(topic, partition) == self._config.node_id

    def place(self, topic: Topic, partition: int) -> TopicPartition:
        """What the logs know a topic partition by."""
        known, places = self._places.get(topic.topic_id, (None, {}))
        if known is not topic:
            known, places = self._places[topic.topic_id] = topic, {}
        if partition not in places:
            from coordinator.log.topics.partition import TopicPartition  # noqa: PLC0415 - see the module
            from coordinator.server.nodes.topic_settings import topic_limits  # noqa: PLC0415 - see the module

            places[partition] = TopicPartition(topic.name, topic.topic_id, partition, topic_limits(self._config, topic))
        return places[partition]

    def own_place(self, topic: Topic) -> TopicPartition:
        """The first partition of a topic that this node leads."""
        return self.place(topic, next(index for index in range(topic.partition_count) if self.leads(topic, index)))

    def append(self, place: TopicPartition, data: bytes, done: Callable[[Any], None]) -> None:
        """Append a batch; done: Written, Rejected or an EngineError. Whoever waits for records looks again."""

        def appended(outcome: Any) -> None:
            self._ends.pop(place.key, None)
            done(outcome)
            self.wake(place.key)

        self._logs().append(place, data, self._clock.wall_ms(), appended)

    def read(self, function: Callable[[Callable[[TopicPartition], View]], Any], done: Callable[[Any], None]) -> None:
        """Have `function` called where it may read: it gets what opens a log; done: its outcome, or an Exception."""
        logs = self._logs()
        logs.call(lambda: function(logs.view), done)

    def write(
        self, function: Callable[[Callable[[TopicPartition], TopicLog]], Any], done: Callable[[Any], None]
    ) -> None:
        """Likewise, for who changes logs of users' topics."""
        logs = self._logs()

        def written(outcome: Any) -> None:
            self._ends.clear()
            done(outcome)

        logs.call(lambda: function(logs.log), written)

    def delete(self, topic: Topic, done: Callable[[], None]) -> None:
        """A topic is no more: whoever waits for its records looks again, and its logs here go; `done` when they are."""
        _, places = self._places.pop(topic.topic_id, (None, {}))
        for key in [key for key in self._waiting if key[0] == topic.topic_id]:
            self.wake(key)
        led = []
        for partition in range(topic.partition_count):
            self._ends.pop((topic.topic_id, partition), None)
            if self.leads(topic, partition):
                led.append(places.get(partition) or self.place(topic, partition))
        self._places.pop(topic.topic_id, None)

        def deleted(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                report(self._lines, "topic_folder_left", reason=str(outcome))
            done()

        logs = self._logs()
        logs.call(partial(logs.delete, led), deleted)

    def producer_id(self, done: Callable[[Any], None]) -> None:
        """A new producer id, or an EngineError."""
        logs = self._logs()
        logs.call(partial(logs.producer_id, self._clock.wall_ms()), done)

    def ends(self, key: Key) -> Ends | None:
        """Where a log starts and ends, None if that isn't known here."""
        return self._ends.get(key)

    def saw(self, key: Key, ends: Ends) -> None:
        """The thread has found this; outcomes come in the order of what it does, so an older one is overwritten."""
        self._ends[key] = ends

    def wait(self, call: Hashable, keys: Iterable[Key], again: Callable[[], None]) -> None:
        """Call `again`, once, when there may be more in one of these topic partitions."""
        for key in keys:
            self._waiting.setdefault(key, {})[call] = again

    def forget(self, call: Hashable, keys: Iterable[Key]) -> None:
        """The call doesn't wait any more."""
        for key in keys:
            calls = self._waiting.get(key)
            if calls is not None and calls.pop(call, None) is not None and not calls:
                del self._waiting[key]

    def wake(self, key: Key) -> None:
        """Let whoever waits look again."""
        for again in list(self._waiting.get(key, {}).values()):
            again()

    def idle(self, done: Callable[[], None]) -> None:
        """Call back when all that was asked for so far is done."""
        if self._made is None or self._is_dead:
            done()
        else:
            self._made.call(lambda: None, lambda _: done())

    def stop(self) -> None:
        """Look for nothing by itself any more."""
        self._retention.cancel()
        self._compaction.cancel()

    def close(self) -> None:
        """Do what was asked for and end; waits for the disk."""
        if self._made is not None:
            self._made.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _logs(self) -> TopicLogs:
        if self._made is None:
            from coordinator.log.topics.logs import TopicLogs  # noqa: PLC0415 - see the module

            if self._data_dir is None:
                from tempfile import TemporaryDirectory  # noqa: PLC0415 - see the module

                self._temporary = TemporaryDirectory(prefix="tenure-")
            assert self.folder is not None
            self._made = TopicLogs(
                self.folder,
                self._arrived,
                cut=self._cut,
                failed=self._failed,
                strayed=self._strayed,
                compacted=self._compacted,
                died=lambda reason: self._hop(partial(self._has_died, reason)),
                counts=self._counts,
            )
        return self._made

    # Outcomes.

    def _arrived(self, outcomes: list[Result]) -> None:
        """On the thread of the logs: let the loop know, once for all that there are."""
        self._inbox.extend(outcomes)
        if not self._woken:
            self._woken = True
            self._hop(self._land)

    def _land(self) -> None:
        # First: whoever appends from here on wakes the loop again, so nothing is left lying.
        self._woken = False
        for _ in range(len(self._inbox)):
            if not self._pace.has_time():
                self._woken = True
                self._pace.later(self._land)
                return
            done, outcome = self._inbox.popleft()
            try:
                done(outcome)
            except Exception:  # noqa: BLE001 - those behind it are of others
                text = f"An outcome of a topic's log was lost: {traceback.format_exc()}"
                self._lines.error("records_broke", text)

    # Retention.

    def _retention_due(self) -> None:
        interval_ms = self._config.log_retention_check_interval_ms
        self._retention = self._clock.call_at(self._clock.ms() + interval_ms, self._retain)

    def _retain(self) -> None:
        """Give up what topics don't have to keep; a log at a time, so that others have their turn."""
        self._retention_due()
        for topic in self._discovery.kept_topics():
            for partition in range(topic.partition_count):
                if self.leads(topic, partition):
                    self._retain_partition(topic, partition)

    def _retain_partition(self, topic: Topic, partition: int) -> None:
        logs, place, now_ms = self._logs(), self.place(topic, partition), self._clock.wall_ms()
        name, fields = f"{topic.name}-{partition}", {"topic": topic.name, "partition": partition}

        def retain() -> int:
            return logs.log(place).retain(place.limits, now_ms) if logs.may_retain(place, now_ms) else 0

        def done(outcome: Any) -> None:
            self._ends.pop(place.key, None)
            if isinstance(outcome, Exception):
                report(self._lines, "retention_failed", name, **fields, reason=str(outcome))
            elif outcome:
                report(self._lines, "segments_removed", name, **fields, segments=outcome)

        logs.call(retain, done)

    # Compaction.

    def _compaction_due(self) -> None:
        backoff_ms = self._config.log_cleaner_backoff_ms
        self._compaction = self._clock.call_at(self._clock.ms() + backoff_ms, self._compact)

    def _compact(self) -> None:
        """Have looked at what is to be compacted; and, once that has begun, also at nothing."""
        self._compaction_due()
        places = [
            place
            for topic in self._discovery.kept_topics()
            for partition in range(topic.partition_count)
            if self.leads(topic, partition) and (place := self.place(topic, partition)).limits.is_compacted
        ]
        if places or self._made is not None:
            self._logs().compact(places, self._clock.wall_ms(), self._config.log_cleaner_backoff_ms)

    # What the thread reports.

    def _compacted(self, went: Compacted) -> None:
        topic, _, number = went.folder.rpartition("-")
        fields = {"topic": topic, "partition": int(number)}
        if went.reason:
            self._say("compaction_failed", went.folder, **fields, reason=went.reason)
        else:
            fields |= {"size_before": went.size_before, "size_after": went.size_after}
            self._say("compacted", went.folder, **fields, duration_s=round(went.duration_s, 3))

    def _cut(self, file: Path, position: int, size: int) -> None:
        self._say("tail_cut", file.parent.name, file=str(file), position=position, size=size)

    def _failed(self, folder: str, reason: str) -> None:
        self._say("topic_partition_unavailable", folder, folder=folder, reason=reason)

    def _strayed(self, folder: str, stray: str) -> None:
        self._say("topic_folder_taken", folder, folder=folder, stray=stray)

    def _has_died(self, reason: str) -> None:
        self._is_dead = True
        report(self._lines, "engine_failed", "Topics", error=reason)
        self._died()

    def _say(self, name: str, log: str, **fields: object) -> None:
        self._hop(partial(report, self._lines, name, log, **fields))
