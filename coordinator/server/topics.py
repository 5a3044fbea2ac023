"""The topics of the users: names, ids, how many partitions. There is no more to a topic here, it holds no records.

A topic is seen by nobody before it is durable. The file is written by one thread at a time, and what is created
meanwhile goes into the next writing together.

House rule: nothing else changes the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from coordinator.log.engine import EngineError
from coordinator.server.discovery import OFFSETS_TOPIC

if TYPE_CHECKING:
    from coordinator.log.topics import Topic

Created = Callable[[EngineError | None], None]
Write = Callable[[Sequence["Topic"], Created], None]
"""Makes a list of topics durable and then calls back, on the loop's thread, with None or what went wrong."""


class Topics:
    """All topics."""

    def __init__(self, topics: Mapping[str, Topic], write: Write) -> None:
        self._write = write
        self._by_name = dict(sorted(topics.items()))
        self._by_id = {topic.topic_id: topic for topic in topics.values()}
        # Also of topics that are being created, and of the one that is not for users.
        self._plain_names = {plain(name): name for name in (OFFSETS_TOPIC, *topics)}
        self._waiting: list[tuple[Sequence[Topic], Created]] = []
        self._writing: list[tuple[Sequence[Topic], Created]] = []
        self._on_idle: Callable[[], None] | None = None

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Topic | None:
        """A topic by its name."""
        return self._by_name.get(name)

    def get_by_id(self, topic_id: UUID) -> Topic | None:
        """A topic by its id."""
        return self._by_id.get(topic_id)

    def is_taken(self, name: str) -> bool:
        """Whether a topic of that name exists or is being created."""
        return name in self._by_name or self._plain_names.get(plain(name)) == name

    def collision(self, name: str) -> str | None:
        """A topic whose name differs in '.' and '_' only: names of metrics could not tell them apart."""
        other = self._plain_names.get(plain(name))
        return other if other != name else None

    def create(self, topics: Sequence[Topic], done: Created) -> None:
        """Create topics whose names are free; `done` when they are durable, or why they aren't."""
        names = {plain(topic.name): topic.name for topic in topics}
        assert len(names) == len(topics)
        assert names.keys().isdisjoint(self._plain_names)
        self._plain_names.update(names)
        self._waiting.append((topics, done))
        if not self._writing:
            self._write_waiting()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back, perhaps at once, when nothing is being written."""
        self._on_idle = callback
        if not self._writing:
            callback()

    def _write_waiting(self) -> None:
        self._writing, self._waiting = self._waiting, []
        fresh = [topic for topics, _ in self._writing for topic in topics]
        self._write([*self._by_name.values(), *fresh], self._written)

    def _written(self, error: EngineError | None) -> None:
        written, self._writing = self._writing, []
        for topics, _ in written:
            for topic in topics:
                if error is None:
                    self._by_name[topic.name] = topic
                    self._by_id[topic.topic_id] = topic
                else:
                    del self._plain_names[plain(topic.name)]
        if self._waiting:
            self._write_waiting()
        for _, done in written:
            done(error)
        if self._on_idle is not None and not self._writing:
            self._on_idle()


def plain(name: str) -> str:
    """A name as metrics show it."""
    return name.replace(".", "_")
