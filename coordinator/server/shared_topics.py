"""The list of topics of several workers: their supervisor keeps it, and writes each change before any worker uses it.

A worker asks for a change. The supervisor makes it durable, sends it to every worker that runs, and answers the first
worker when all of them have applied it. A deleted topic's name stays taken until then, because a worker may still write
to the topic's folders.

House rule: no change waits for a worker whose channel has ended; its next process starts with the whole list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from coordinator.log.engine import Damaged, EngineError
from coordinator.log.segments.disk import Disk, reason
from coordinator.log.segments.segment import partition_folder
from coordinator.log.topics.entries import plain
from coordinator.log.topics.folders import set_aside_deleted
from coordinator.log.topics.list import Topic, TopicsFile
from coordinator.loop.lines import Lines
from coordinator.server.channel import Kind
from coordinator.server.nodes.topics import Change, ChangeDone, Topics, changed
from coordinator.server.telemetry.log_reports import report


class Peer(Protocol):
    """A worker. channel: identifies its process; None while no process runs."""

    @property
    def channel(self) -> object | None:
        """See above."""


P = TypeVar("P", bound=Peer)

Send = Callable[[P, str, Mapping[str, Any]], None]
"""Sends a message (kind and fields, see channel.py) to a worker that runs."""


@dataclass(slots=True)
class _Pending(Generic[P]):
    """A durable change that some workers have not applied yet.

    asker, channel, number: the worker that asked, its channel, and the number of its message. taken: names that were
    not created, with the topics that have them. waiting: the workers that have not applied the change. deleted: topics
    whose names stay taken until all workers have.
    """

    asker: P
    channel: object
    number: int
    taken: dict[str, str]
    waiting: set[P]
    deleted: list[Topic]


class SharedTopics(Generic[P]):
    """See the module.

    list: the topics. file: keeps them. data_dir: holds the folders of their records.
    """

    def __init__(
        self, topics: Mapping[str, Topic], file: TopicsFile, data_dir: Path, lines: Lines, send: Send[P]
    ) -> None:
        self.list = Topics(topics, self._save)
        self._file = file
        self._data_dir = data_dir
        self._lines = lines
        self._send = send
        self._pending: dict[int, _Pending[P]] = {}
        self._last_number = 0

    def change(self, asker: P, number: int, asked: Change, peers: Iterable[P]) -> None:
        """Make a change durable, then send it to `peers`: all workers that run, with the asker among them."""
        taken: dict[str, str] = {}
        names = {plain(each.name): each.name for pending in self._pending.values() for each in pending.deleted}
        created = []
        for wanted in asked.created:
            name = wanted.name if self.list.is_taken(wanted.name) else self.list.collision(wanted.name)
            other = name or names.get(plain(wanted.name))
            if other is not None:
                taken[wanted.name] = other
            else:
                created.append(wanted)
                names[plain(wanted.name)] = wanted.name
        change = asked._replace(created=created)
        deleted = [topic for each in asked.deleted if (topic := self.list.get_by_id(each)) is not None]
        outcomes: list[object] = []
        if any(change):
            self.list.change(change, outcomes.append)
            (outcome,) = outcomes  # `_save` has written the file
            if isinstance(outcome, EngineError):
                self._send(asker, Kind.CHANGE_RESULT, {"number": number, "taken": {}, "error": str(outcome)})
                return
        self._last_number += 1
        waiting = set(peers)
        assert asker in waiting
        self._pending[self._last_number] = _Pending(asker, asker.channel, number, taken, waiting, deleted)
        for peer in waiting:
            self._send(peer, Kind.APPLY, {"number": self._last_number, "change": change})

    def applied(self, worker: P, number: int) -> None:
        """Note that a worker has applied the change of that number. After the last worker, answer the asker."""
        pending = self._pending[number]
        pending.waiting.discard(worker)
        if not pending.waiting:
            del self._pending[number]
            self._clear_folders(pending.deleted)
            if pending.asker.channel is pending.channel:
                self._send(
                    pending.asker, Kind.CHANGE_RESULT, {"number": pending.number, "taken": pending.taken, "error": None}
                )

    def forget(self, worker: P) -> None:
        """Wait for this worker in no change: its channel has ended."""
        for number in list(self._pending):
            self.applied(worker, number)

    def _save(self, change: Change, done: ChangeDone) -> None:
        try:
            self._file.save(list(changed(self.list.kept(), change)))
        except EngineError as error:
            report(self._lines, "topics_not_written", reason=str(error))
            done(error)
        else:
            done({})

    def _clear_folders(self, topics: list[Topic]) -> None:
        """Set aside the folders of deleted topics whose worker ended before it could do so."""
        for topic in topics:
            for partition in range(topic.partition_count):
                folder = partition_folder(self._data_dir, partition, topic.name)
                try:
                    set_aside_deleted(Disk(), folder, topic.topic_id)
                except (Damaged, OSError) as error:
                    report(self._lines, "topic_folder_left", reason=reason(error))
