"""The topics of the users: names, ids, how many partitions, settings.

A topic is seen by nobody before it is durable, and likewise what changes about it. One writing is under way at a time,
and what is to change meanwhile goes into the next one together. Of several workers each has the whole list; their
supervisor, which keeps the file, makes known to each what any of them changes, and whoever comes second with a name is
told so. What changes about a topic is said by itself (`Altered`), so that of two changes, of two workers' too, none is
lost; and each worker makes all of them in the one order that they were made known in.

House rule: nothing else changes the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from coordinator.log.engine import EngineError
from coordinator.log.segments.segment import OFFSETS_TOPIC
from coordinator.log.topics.list import Topic

Outcome = EngineError | Mapping[str, str]
"""Why nothing was created; or, if it was, what wasn't: by name, the topic that another worker created before."""

Created = Callable[[Outcome], None]


class Altered(NamedTuple):
    """What changes about a topic.

    partition_count: it has so many from now on, if it has fewer. configs: by name; None: it says nothing about it now.
    """

    topic_id: UUID
    partition_count: int = 0
    configs: Mapping[str, str | None] = {}

    def of(self, topic: Topic) -> Topic:
        """The topic as it is then."""
        configs = {name: value for name, value in {**topic.configs, **self.configs}.items() if value is not None}
        return Topic(topic.name, topic.topic_id, max(topic.partition_count, self.partition_count), configs)


class Change(NamedTuple):
    """What changes about the list. deleted: ids."""

    created: Sequence[Topic] = ()
    altered: Sequence[Altered] = ()
    deleted: Sequence[UUID] = ()


Write = Callable[[Change, Created], None]
"""Makes a change durable, and then calls back on the loop's thread."""


class Topics:
    """All topics.

    makes_known: whether who writes also has each change taken in (`take`), before it calls back. on_deleted: called
    with each topic that is no more, once that is durable; it calls back when nothing of it is in use here any more.
    """

    def __init__(self, topics: Mapping[str, Topic], write: Write, *, makes_known: bool = False) -> None:
        self._write = write
        self._makes_known = makes_known
        self._by_name = dict(sorted(topics.items()))
        self._by_id = {topic.topic_id: topic for topic in topics.values()}
        # Also of topics that are being created, and of the one that is not for users.
        self._plain_names = {plain(name): name for name in (OFFSETS_TOPIC, *topics)}
        self._waiting: list[tuple[Change, Created]] = []
        self._writing: list[tuple[Change, Created]] = []
        self.on_deleted: Callable[[Topic, Callable[[], None]], None] = lambda _, done: done()
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
            for altered in change.altered:
                if topic is not None and altered.topic_id == topic.topic_id:
                    topic = altered.of(topic)
            if topic is not None and topic.topic_id in change.deleted:
                return None
        return topic

    def after(self, change: Change) -> list[Topic]:
        """The list with a change made."""
        topics = {topic.topic_id: topic for topic in (*self, *change.created)}
        for altered in change.altered:
            if altered.topic_id in topics:
                topics[altered.topic_id] = altered.of(topics[altered.topic_id])
        return [topic for topic in topics.values() if topic.topic_id not in change.deleted]

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back, perhaps at once, when nothing is being written."""
        self._on_idle = callback
        if not self._writing:
            callback()

    def take(self, change: Change, done: Callable[[], None] = lambda: None) -> None:
        """Take in what is durable, whoever changed it; `done` when nothing of what was deleted is in use here."""
        for topic in change.created:
            self._by_name[topic.name] = topic
            self._by_id[topic.topic_id] = topic
            self._plain_names[plain(topic.name)] = topic.name
        for altered in change.altered:
            known = self._by_id.get(altered.topic_id)
            if known is not None:
                self._by_name[known.name] = self._by_id[known.topic_id] = altered.of(known)
        deleted = [self._by_id.pop(topic_id) for topic_id in change.deleted if topic_id in self._by_id]
        in_use = len(deleted)

        def given_up() -> None:
            nonlocal in_use
            in_use -= 1
            if in_use == 0:
                done()

        for topic in deleted:
            del self._by_name[topic.name], self._plain_names[plain(topic.name)]
        for topic in deleted:
            self.on_deleted(topic, given_up)
        if not deleted:
            done()

    def _write_waiting(self) -> None:
        self._writing, self._waiting = self._waiting, []
        parts = zip(*(change for change, _ in self._writing), strict=True)
        self._write(Change(*([each for part in parts_of for each in part] for parts_of in parts)), self._written)

    def _written(self, outcome: Outcome) -> None:
        written, self._writing = self._writing, []
        for change, _ in written:
            if not isinstance(outcome, EngineError) and not self._makes_known:
                created = [topic for topic in change.created if topic.name not in outcome]
                self.take(change._replace(created=created))
            for topic in change.created:
                if topic.name not in self._by_name and self._plain_names.get(plain(topic.name)) == topic.name:
                    del self._plain_names[plain(topic.name)]
        if self._waiting:
            self._write_waiting()
        for _, done in written:
            done(outcome)
        if self._on_idle is not None and not self._writing:
            self._on_idle()


def plain(name: str) -> str:
    """A name as metrics show it."""
    return name.replace(".", "_")
