"""The list of topics of a node in a cluster: a change goes to the store of all nodes, and comes back from there.

A change that the list asks for becomes writes of entries (log/topics/entries.py), by the entries as they are at that
moment: a topic whose name another node has taken is not created. Each written change, of this node or another one,
comes back as changes of entries; they become changes of the list, in the same order. The list's own change is over when
it has come back.

An entry that can't be read (`readable`) is left out: the node uses the entry's former value, if it has seen one.

House rule: `Change` in, `Change` out; what isn't known in an entry stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from coordinator.log.engine import EngineError
from coordinator.log.topics.entries import (
    SET,
    TOPIC,
    SharedEntries,
    Writes,
    parse_set_entry,
    plain,
    read_topic,
    set_entry,
    topic_entry,
    topic_if_readable,
    topic_value,
    topics_of,
)
from coordinator.log.topics.list import ENTRIES, Topic
from coordinator.loop.clock import Hop
from coordinator.server.nodes.readable import is_readable
from coordinator.server.nodes.topics import Altered, Change, ChangeDone, Topics

SETS = {entry.name: entry for entry in ENTRIES.values()}
"""The lists that are no topics, by name."""


class ClusterTopics:
    """See the module.

    hop: makes a call on the loop's thread, in the order of the calls. on_unreadable: called with the name of an entry
    that can't be read. topics: the list.
    """

    def __init__(self, shared: SharedEntries, hop: Hop, on_unreadable: Callable[[str], object]) -> None:
        self._shared = shared
        self._hop = hop
        self._on_unreadable = on_unreadable
        self._unreadable: set[str] = set()
        entries = self._readable(shared.follow(lambda writes: hop(self._take, dict(writes))))
        # The newest readable value of each.
        self._entries = {entry: value for entry, value in entries.items() if value is not None}
        self.topics = Topics(topics_of(self._entries, SETS), self._write, is_shared=True)

    def _readable(self, writes: Writes) -> dict[str, bytes | None]:
        """The values that can be read. `on_unreadable` gets each other entry once."""
        readable: dict[str, bytes | None] = {}
        for entry, value in writes.items():
            if value is None or is_readable(entry, value):
                readable[entry] = value
                self._unreadable.discard(entry)
            elif entry not in self._unreadable:
                self._unreadable.add(entry)
                self._on_unreadable(entry)
        return readable

    def _write(self, change: Change, done: ChangeDone) -> None:
        taken: dict[str, str] = {}

        def decide(entries: Mapping[str, bytes]) -> Writes:
            writes, refused = writes_for(change, entries)
            taken.clear()
            taken.update(refused)
            return writes

        def over(error: EngineError | None) -> None:
            self._hop(done, dict(taken) if error is None else error)

        self._shared.change(decide, over)

    def _take(self, writes: Writes) -> None:
        """Entries have changed: change the list."""
        writes = self._readable(writes)
        for change in changes_of(writes, self._entries):
            self.topics.apply(change)
        for entry, value in writes.items():
            if value is None:
                self._entries.pop(entry, None)
            else:
                self._entries[entry] = value


def writes_for(change: Change, entries: Mapping[str, bytes]) -> tuple[dict[str, bytes | None], dict[str, str]]:
    """The change to write, and the topics that are not created, each with the topic that has its name.

    What is there already isn't written again.
    """
    writes: dict[str, bytes | None] = {}
    taken: dict[str, str] = {}
    for topic in change.created:
        entry = topic_entry(topic.name)
        there = entries.get(entry)
        if there is None and entry not in writes:
            writes[entry] = topic_value(topic)
        elif there is not None:
            other = topic_if_readable(entry, there)
            if other is None:
                taken[topic.name] = plain(topic.name)
            elif other.topic_id != topic.topic_id:
                taken[topic.name] = other.name
    named = _ids(entries) if any(each.topic_id not in ENTRIES for each in change.altered) or change.deleted else {}
    for altered in change.altered:
        if altered.topic_id in ENTRIES:
            writes |= _set_writes(altered, entries)
        elif (entry := named.get(altered.topic_id, "")) and (former := writes.get(entry) or entries[entry]):
            value = topic_value(altered.of(read_topic(entry, former)), former)
            if value != former:
                writes[entry] = value
    for topic_id in change.deleted:
        if topic_id in named:
            writes[named[topic_id]] = None
    return writes, taken


def _set_writes(altered: Altered, entries: Mapping[str, bytes]) -> Writes:
    set_name = ENTRIES[altered.topic_id].name
    values = {
        set_entry(set_name, name): None if value is None else value.encode() for name, value in altered.configs.items()
    }
    return {entry: value for entry, value in values.items() if entries.get(entry) != value}


def _ids(entries: Mapping[str, bytes]) -> dict[UUID, str]:
    """The entry of each topic that can be read, by the topic's id."""
    topics = {entry: topic_if_readable(entry, value) for entry, value in entries.items() if entry.startswith(TOPIC)}
    return {topic.topic_id: entry for entry, topic in topics.items() if topic is not None}


def changes_of(writes: Writes, entries: Mapping[str, bytes]) -> list[Change]:
    """The changes of the list that these writes are; all can be read. entries: before them."""
    created: list[Topic] = []
    altered: list[Altered] = []
    deleted: list[UUID] = []
    sets: dict[str, dict[str, str | None]] = {}
    for entry, value in writes.items():
        former = entries.get(entry)
        if entry.startswith(TOPIC):
            before, after = (None if each is None else read_topic(entry, each) for each in (former, value))
            if before is not None and after is not None and before.topic_id == after.topic_id:
                altered.append(_difference(before, after))
                continue
            if before is not None:
                deleted.append(before.topic_id)
            if after is not None:
                created.append(after)
        elif entry.startswith(SET):
            set_name, name = parse_set_entry(entry)
            if set_name in SETS:
                sets.setdefault(set_name, {})[name] = None if value is None else value.decode()
    altered += [Altered(SETS[name].topic_id, configs=configs) for name, configs in sets.items()]
    # A name that was given up and taken again: first the one, then the other.
    changes = [Change(deleted=deleted), Change(created=created, altered=altered)]
    return [change for change in changes if any(change)]


def _difference(before: Topic, after: Topic) -> Altered:
    configs: dict[str, str | None] = dict.fromkeys(before.configs.keys() - after.configs.keys())
    return Altered(after.topic_id, after.partition_count, configs | after.configs)
