"""The users' topics: names, ids, numbers of partitions, settings.

The list shows a change when the change is durable. One write is under way at a time; changes that come meanwhile go
into the next write together.

Each of several workers has the whole list. Their supervisor keeps the file and sends each change to all workers, which
apply changes in the order that it sent them. If two workers create the same name, the second gets the name refused.
An alteration names only what differs (`Altered`), so two alterations of one topic both count, whoever makes them.

A change may be about thousands of topics. So the list takes and shows changes in steps, one change after the other.
Its owner sets `work`, which does the steps; the server's spreads them over turns of the loop.

The list also keeps what else clients change while brokers run, in entries that are no topics (`ENTRIES`): settings of
brokers and of groups, ACLs, SCRAM credentials, quotas. So these changes last, and reach all workers, as the changes of
topics do.

House rule: nothing else changes the list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from coordinator.log.engine import EngineError
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from coordinator.log.topics.entries import plain
from coordinator.log.topics.list import ENTRIES, Topic
from coordinator.story.schema import EVENTS_TOPIC

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, EVENTS_TOPIC})
"""Clients can neither create nor change these, nor write to them; their names are taken even where they don't exist."""

ChangeResult = EngineError | Mapping[str, str]
"""An error if the change failed as a whole. Else the topics that were not created, each with the topic that has its
name.
"""

ChangeDone = Callable[[ChangeResult], None]


class Altered(NamedTuple):
    """A change of one topic, or of one of ENTRIES.

    partition_count: the new number; a smaller number than the topic's changes nothing. configs: new values by name;
    None removes the topic's value.
    """

    topic_id: UUID
    partition_count: int = 0
    configs: Mapping[str, str | None] = {}

    def of(self, topic: Topic) -> Topic:
        """The topic after this change."""
        configs = {name: value for name, value in {**topic.configs, **self.configs}.items() if value is not None}
        return Topic(topic.name, topic.topic_id, max(topic.partition_count, self.partition_count), configs)


class Change(NamedTuple):
    """A change of the list. deleted: the ids of topics."""

    created: Sequence[Topic] = ()
    altered: Sequence[Altered] = ()
    deleted: Collection[UUID] = ()


WriteChange = Callable[[Change, ChangeDone], None]
"""Makes a change durable, then calls back on the loop's thread."""


class Topics:
    """All topics.

    topics: by name, as `kept` had them. is_shared: a supervisor keeps the list, and applies each change (`apply`)
    before it calls back; else `write` only writes.
    on_deleted: called with topics whose deletion is durable; its steps end their use. It calls back for each topic,
    when this node uses nothing of it. on_entry: called with one of ENTRIES after it has changed; its steps put that
    into effect. on_changed: called with the names of topics that were created, altered or deleted, and whether some
    were created. work: does steps, now or later.
    changes: how often anything in the list, or one of ENTRIES, has changed.
    """

    def __init__(self, topics: Mapping[str, Topic], write: WriteChange, *, is_shared: bool = False) -> None:
        self._write = write
        self._is_shared = is_shared
        self._by_name = dict(sorted(topics.items()))
        self._entries = {entry.topic_id: self._by_name.pop(entry.name, entry) for entry in ENTRIES.values()}
        self._by_id = {topic.topic_id: topic for topic in self}
        # It also has the names of topics that are being created, and of internal topics.
        self._plain_names = {plain(name): name for name in (*INTERNAL_TOPICS, *self._by_name)}
        self._waiting: list[tuple[Change, ChangeDone]] = []
        self._writing: list[tuple[Change, ChangeDone]] = []
        # By topic id, the changes that are not durable, in their order; None is a deletion.
        self._coming: dict[UUID, deque[Altered | None]] = {}
        self._steps: deque[Iterator[None]] = deque()
        self.on_deleted: Callable[[Sequence[Topic], Callable[[], None]], Iterable[None]] = _given_up
        self.on_entry: Callable[[Topic], Iterable[None]] = lambda _: ()
        self.on_changed: Callable[[frozenset[str], bool], None] = lambda _names, _created: None
        self.work: Callable[[Iterator[None]], None] = at_once
        self.changes = 0
        self._on_idle: Callable[[], None] | None = None

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Topic | None:
        """A topic by its name."""
        return self._by_name.get(name)

    def find(self, names: Iterable[str]) -> list[Topic]:
        """The topics of these names, as far as they exist; a request may name very many that don't."""
        return list(filter(None, map(self._by_name.get, names)))

    def get_by_id(self, topic_id: UUID) -> Topic | None:
        """A topic by its id."""
        return self._by_id.get(topic_id)

    def is_taken(self, name: str) -> bool:
        """Whether a topic of that name exists, is being created, or is internal."""
        return name in self._by_name or self._plain_names.get(plain(name)) == name

    def collision(self, name: str) -> str | None:
        """The other topic whose name differs only in '.' and '_'. Metrics could not tell the two apart."""
        other = self._plain_names.get(plain(name))
        return other if other != name else None

    def create(self, topics: Sequence[Topic], done: ChangeDone) -> None:
        """Create topics; `done` gets the result."""
        self.change(Change(created=topics), done)

    def change(self, change: Change, done: ChangeDone) -> None:
        """Make a change durable as a whole; `done` gets the result.

        Topics deleted meanwhile are skipped. A topic whose name is taken is not created.
        """
        self._do(self._take(change, done))

    def _take(self, change: Change, done: ChangeDone) -> Iterator[None]:
        created: list[Topic] = []
        taken: dict[str, str] = {}
        for topic in change.created:
            other = self._plain_names.get(plain(topic.name))
            if other is None:
                self._plain_names[plain(topic.name)] = topic.name
                created.append(topic)
            else:
                taken[topic.name] = other
            yield
        if taken:
            change, done = change._replace(created=created), partial(_with_taken, done, taken)
            if not any(change):
                done({})
                return
        for altered in change.altered:
            self._coming.setdefault(altered.topic_id, deque()).append(altered)
            yield
        for topic_id in change.deleted:
            self._coming.setdefault(topic_id, deque()).append(None)
            yield
        self._waiting.append((change, done))
        if not self._writing:
            self._write_waiting()

    def _do(self, steps: Iterator[None]) -> None:
        """Do steps behind all steps that wait."""
        self._steps.append(steps)
        if len(self._steps) == 1:
            self.work(self._all_steps())

    def _all_steps(self) -> Iterator[None]:
        while self._steps:
            try:
                yield from self._steps[0]
            finally:
                self._steps.popleft()
        if self._on_idle is not None and not self._writing:
            self._on_idle()

    def newest(self, name: str) -> Topic | None:
        """The topic with the changes that are not durable yet; None if they delete it, or there is no such topic."""
        topic = self._by_name.get(name)
        return None if topic is None else self._newest(topic)

    def entry(self, which: Topic) -> Topic:
        """One of ENTRIES, as durable changes made it."""
        return self._entries[which.topic_id]

    def newest_entry(self, which: Topic) -> Topic:
        """One of ENTRIES, with the changes that are not durable yet."""
        entry = self._newest(self.entry(which))
        assert entry is not None
        return entry

    def _newest(self, topic: Topic) -> Topic | None:
        for altered in self._coming.get(topic.topic_id, ()):
            if altered is None:
                return None
            topic = altered.of(topic)
        return topic

    def kept(self) -> list[Topic]:
        """All that lasts: the topics and ENTRIES."""
        return [*self, *self._entries.values()]

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when no change is under way; that may be at once."""
        self._on_idle = callback
        if not self._writing and not self._steps:
            callback()

    def apply(self, change: Change, done: Callable[[], None] = lambda: None) -> None:
        """Show a durable change, of any node; `done` when this node uses nothing of the deleted topics."""
        self._do(self._apply(change, done))

    def _apply(self, change: Change, done: Callable[[], None] = lambda: None) -> Iterator[None]:
        names = set()
        for topic in change.created:
            self.changes += 1
            names.add(topic.name)
            self._by_name[topic.name] = topic
            self._by_id[topic.topic_id] = topic
            self._plain_names[plain(topic.name)] = topic.name
            yield
        for altered in change.altered:
            self.changes += 1
            known = self._by_id.get(altered.topic_id)
            entry = self._entries.get(altered.topic_id)
            if entry is not None:
                self._entries[altered.topic_id] = changed_entry = altered.of(entry)
                yield from self.on_entry(changed_entry)
            elif known is not None:
                names.add(known.name)
                self._by_name[known.name] = self._by_id[known.topic_id] = altered.of(known)
            yield
        deleted = []
        for topic_id in change.deleted:
            self.changes += 1
            known = self._by_id.pop(topic_id, None)
            if known is not None:
                names.add(known.name)
                del self._by_name[known.name]
                deleted.append(known)
            yield
        if names:
            self.on_changed(frozenset(names), bool(change.created))
        in_use = len(deleted) + 1

        def given_up() -> None:
            nonlocal in_use
            in_use -= 1
            if in_use == 0:
                done()

        if deleted:
            yield from self.on_deleted(deleted, given_up)
        for topic in deleted:
            del self._plain_names[plain(topic.name)]
            yield
        given_up()

    def _write_waiting(self) -> None:
        self._writing, self._waiting = self._waiting, []
        parts = zip(*(change for change, _ in self._writing), strict=True)
        self._write(Change(*(list(chain.from_iterable(parts_of)) for parts_of in parts)), self._written)

    def _written(self, outcome: ChangeResult) -> None:
        self._do(self._show(outcome))

    def _show(self, outcome: ChangeResult) -> Iterator[None]:
        """Show the changes that were written, and write those that came meanwhile."""
        for change, _ in self._writing:
            if not isinstance(outcome, EngineError) and not self._is_shared:
                created = []
                for topic in change.created:
                    if topic.name not in outcome:
                        created.append(topic)
                    yield
                yield from self._apply(change._replace(created=created))
            for topic in change.created:
                if topic.name not in self._by_name and self._plain_names.get(plain(topic.name)) == topic.name:
                    del self._plain_names[plain(topic.name)]
                yield
            for altered in change.altered:
                self._is_over(altered.topic_id)
                yield
            for topic_id in change.deleted:
                self._is_over(topic_id)
                yield
        written, self._writing = self._writing, []
        if self._waiting:
            self._write_waiting()
        for _, done in written:
            done(outcome)

    def _is_over(self, topic_id: UUID) -> None:
        """The oldest change of a topic is written, or has failed."""
        coming = self._coming[topic_id]
        coming.popleft()
        if not coming:
            del self._coming[topic_id]


def changed(topics: Iterable[Topic], change: Change) -> Iterator[Topic]:
    """The topics, and the used ones of ENTRIES, after a change. Nothing is done before the first is asked for."""
    altered: dict[UUID, Topic] = {topic.topic_id: topic for topic in (*topics, *change.created)}
    for each in change.altered:
        if each.topic_id in altered:
            altered[each.topic_id] = each.of(altered[each.topic_id])
    for topic_id in change.deleted:
        altered.pop(topic_id, None)
    yield from (topic for topic in altered.values() if topic.configs or topic.topic_id not in ENTRIES)


def _with_taken(done: ChangeDone, taken: Mapping[str, str], outcome: ChangeResult) -> None:
    """Hand over the result of a change without the topics in `taken`, whose names others have."""
    done(outcome if isinstance(outcome, EngineError) else {**taken, **outcome})


def at_once(steps: Iterable[None]) -> None:
    """Do all steps now."""
    for _ in steps:
        pass


def _given_up(topics: Sequence[Topic], done: Callable[[], None]) -> Iterator[None]:
    """Nothing uses the topics."""
    for _ in topics:
        done()
        yield
