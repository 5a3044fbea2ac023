"""The topics of the users: names, ids, how many partitions. There is no more to a topic here, it holds no records.

A topic is seen by nobody before it is durable. One writing is under way at a time, and what is created meanwhile goes
into the next one together. Of several workers each has the whole list; their supervisor, which keeps the file, makes
known to each what any of them creates, and whoever comes second with a name is told so.

House rule: nothing else changes the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from coordinator.log.engine import EngineError
from coordinator.log.topics import Topic
from coordinator.server.discovery import OFFSETS_TOPIC

if TYPE_CHECKING:
    from coordinator.server.lines import Lines

Outcome = EngineError | Mapping[str, str]
"""Why nothing was created; or, if it was, what wasn't: by name, the topic that another worker created before."""

Created = Callable[[Outcome], None]
Write = Callable[[Sequence["Topic"], Created], None]
"""Makes new topics durable, beside those that there are, and then calls back on the loop's thread."""


def declare(
    topics: Mapping[str, Topic], counts: Mapping[str, int], fresh_id: Callable[[], UUID], lines: Lines
) -> list[Topic]:
    """What the configuration changes about `topics`: those that are missing, or have fewer partitions than it says."""
    declared = []
    for name, count in counts.items():
        topic = topics.get(name)
        if topic is None:
            declared.append(Topic(name, fresh_id(), count))
        elif topic.partition_count < count:
            declared.append(Topic(name, topic.topic_id, count, topic.configs))
        elif topic.partition_count > count:
            text = f"tenure.topics: {name} has {topic.partition_count} partitions already, not {count}"
            lines.warn("topic_not_shrunk", text, topic=name, partitions=topic.partition_count)
    return declared


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
        """Create topics whose names are free as far as is known here; `done` when they are durable, or why not."""
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

    def add(self, topics: Sequence[Topic]) -> None:
        """Take in topics that are durable, whoever created them."""
        for topic in topics:
            self._by_name[topic.name] = topic
            self._by_id[topic.topic_id] = topic
            self._plain_names[plain(topic.name)] = topic.name

    def _write_waiting(self) -> None:
        self._writing, self._waiting = self._waiting, []
        self._write([topic for topics, _ in self._writing for topic in topics], self._written)

    def _written(self, outcome: Outcome) -> None:
        written, self._writing = self._writing, []
        for topics, _ in written:
            if isinstance(outcome, EngineError):
                for topic in topics:
                    if topic.name not in self._by_name and self._plain_names[plain(topic.name)] == topic.name:
                        del self._plain_names[plain(topic.name)]
            else:
                self.add([topic for topic in topics if topic.name not in outcome])
        if self._waiting:
            self._write_waiting()
        for _, done in written:
            done(outcome)
        if self._on_idle is not None and not self._writing:
            self._on_idle()


def plain(name: str) -> str:
    """A name as metrics show it."""
    return name.replace(".", "_")
