"""The topics of the users: names, ids, how many partitions, settings.

A topic is seen by nobody before it is durable, and likewise what changes about it. One writing is under way at a time,
and what is to change meanwhile goes into the next one together. Of several workers each has the whole list; their
supervisor, which keeps the file, makes known to each what any of them changes, and whoever comes second with a name is
told so. Who changes a topic builds on its `newest` state, so that of two changes none is lost.

House rule: nothing else changes the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from coordinator.log.engine import EngineError
from coordinator.log.topics import Topic
from coordinator.server.discovery import OFFSETS_TOPIC

if TYPE_CHECKING:
    from coordinator.server.lines import Lines

Outcome = EngineError | Mapping[str, str]
"""Why nothing was created; or, if it was, what wasn't: by name, the topic that another worker created before."""

Created = Callable[[Outcome], None]


class Change(NamedTuple):
    """What changes about the list. changed: topics that there are, as they are to be. deleted: ids."""

    created: Sequence[Topic] = ()
    changed: Sequence[Topic] = ()
    deleted: Sequence[UUID] = ()


Write = Callable[[Change, Created], None]
"""Makes a change durable, and then calls back on the loop's thread."""


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
    """All topics.

    on_deleted: called with each topic that is no more, once that is durable.
    """

    def __init__(self, topics: Mapping[str, Topic], write: Write) -> None:
        self._write = write
        self._by_name = dict(sorted(topics.items()))
        self._by_id = {topic.topic_id: topic for topic in topics.values()}
        # Also of topics that are being created, and of the one that is not for users.
        self._plain_names = {plain(name): name for name in (OFFSETS_TOPIC, *topics)}
        self._waiting: list[tuple[Change, Created]] = []
        self._writing: list[tuple[Change, Created]] = []
        self.on_deleted: Callable[[Topic], None] = lambda _: None
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
        self.change(Change(created=topics), done)

    def change(self, change: Change, done: Created) -> None:
        """Do all of that, or nothing; `done` when it is durable, or why it isn't. What is no more isn't changed."""
        names = {plain(topic.name): topic.name for topic in change.created}
        assert len(names) == len(change.created)
        assert names.keys().isdisjoint(self._plain_names)
        self._plain_names.update(names)
        self._waiting.append((change, done))
        if not self._writing:
            self._write_waiting()

    def newest(self, name: str) -> Topic | None:
        """A topic as it is to be, once what is asked for is durable; None if there is none, or won't be."""
        topic = self._by_name.get(name)
        for change, _ in (*self._writing, *self._waiting):
            topic = next((each for each in change.changed if topic and each.topic_id == topic.topic_id), topic)
            if topic is not None and topic.topic_id in change.deleted:
                return None
        return topic

    def after(self, change: Change) -> list[Topic]:
        """The list with a change made."""
        topics = {topic.topic_id: topic for topic in (*self, *change.created)}
        topics |= {topic.topic_id: topic for topic in change.changed if topic.topic_id in topics}
        return [topic for topic in topics.values() if topic.topic_id not in change.deleted]

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back, perhaps at once, when nothing is being written."""
        self._on_idle = callback
        if not self._writing:
            callback()

    def take(self, change: Change) -> None:
        """Take in what is durable, whoever changed it."""
        for topic in change.created:
            self._by_name[topic.name] = topic
            self._by_id[topic.topic_id] = topic
            self._plain_names[plain(topic.name)] = topic.name
        for topic in change.changed:
            if topic.topic_id in self._by_id:
                self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        for topic_id in change.deleted:
            deleted = self._by_id.pop(topic_id, None)
            if deleted is not None:
                del self._by_name[deleted.name], self._plain_names[plain(deleted.name)]
                self.on_deleted(deleted)

    def _write_waiting(self) -> None:
        self._writing, self._waiting = self._waiting, []
        parts = zip(*(change for change, _ in self._writing), strict=True)
        self._write(Change(*([each for part in parts_of for each in part] for parts_of in parts)), self._written)

    def _written(self, outcome: Outcome) -> None:
        written, self._writing = self._writing, []
        for change, _ in written:
            if isinstance(outcome, EngineError):
                for topic in change.created:
                    if topic.name not in self._by_name and self._plain_names[plain(topic.name)] == topic.name:
                        del self._plain_names[plain(topic.name)]
            else:
                created = [topic for topic in change.created if topic.name not in outcome]
                self.take(change._replace(created=created))
        if self._waiting:
            self._write_waiting()
        for _, done in written:
            done(outcome)
        if self._on_idle is not None and not self._writing:
            self._on_idle()


def plain(name: str) -> str:
    """A name as metrics show it."""
    return name.replace(".", "_")
