"""The list of topics as entries that the nodes of a cluster share: a name and a value each, which change one by one.

    topic/PLAIN    a topic, as JSON: name, topic_id, partition_count, configs. PLAIN is its name as metrics show it, so
                   no two topics can have names that differ only in '.' and '_'.
    set/SET:NAME   one value of a list that is no topic (topics/list.py, ENTRIES): an ACL, a setting, a credential.
                   The list's name is /SET.

House rule: an entry of another kind, one that can't be read, and a field that isn't known may be a newer version's:
they are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from coordinator.log.engine import EngineError
from coordinator.log.topics.list import ENTRIES, Topic, to_fields

TOPIC, SET = "topic/", "set/"

Writes = Mapping[str, bytes | None]
"""New values of entries by their names; None removes one."""
Decide = Callable[[Mapping[str, bytes]], Writes]
"""Says what to write, for these entries. It may be asked again."""


class SharedEntries(Protocol):
    """Entries that all nodes share (log/cluster/shared.py). Any thread may call; the callbacks come on another one."""

    def follow(self, on_change: Callable[[Writes], object]) -> Mapping[str, bytes]:
        """The entries now; `on_change` gets all later changes, oldest first."""

    def change(self, decide: Decide, done: Callable[[EngineError | None], None]) -> None:
        """Make a change; `done` comes after `on_change`, or with an error: then it may be made all the same."""


def plain(name: str) -> str:
    """The name as metrics show it."""
    return name.replace(".", "_")


def topic_entry(name: str) -> str:
    """The name of the entry of a topic."""
    return TOPIC + plain(name)


def topic_value(topic: Topic, former: bytes | None = None) -> bytes:
    """The value of the entry of a topic. former: the value before, whose other fields stay."""
    fields = {} if former is None else json.loads(former)
    return json.dumps(fields | to_fields(topic)).encode()


def read_topic(entry: str, value: bytes) -> Topic:
    """The topic in the value of an entry. Raises ValueError for another form, that of a newer version for example."""
    try:
        fields = json.loads(value)
        topic = Topic(fields["name"], UUID(fields["topic_id"]), fields["partition_count"], dict(fields["configs"]))
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{entry}: {error!r}") from error
    texts = (topic.name, *topic.configs.keys(), *topic.configs.values())
    if not all(isinstance(text, str) for text in texts) or type(topic.partition_count) is not int:
        raise ValueError(f"{entry}: a field has another type")
    if topic_entry(topic.name) != entry or topic.partition_count < 1 or topic.topic_id in ENTRIES:
        raise ValueError(f"{entry}: a field has another meaning")
    return topic


def topic_if_readable(entry: str, value: bytes) -> Topic | None:
    """The topic in the value of an entry; None for another form."""
    try:
        return read_topic(entry, value)
    except ValueError:
        return None


def set_entry(set_name: str, name: str) -> str:
    """The name of the entry for one value of a list that is no topic; the entry has that value as UTF-8."""
    return f"{SET}{set_name.removeprefix('/')}:{name}"


def parse_set_entry(entry: str) -> tuple[str, str]:
    """The list's name, and the name of the value in it."""
    set_name, _, name = entry.removeprefix(SET).partition(":")
    return f"/{set_name}", name


def entries_of(topic: Topic) -> dict[str, bytes]:
    """The entries of a topic, or of a list that is none."""
    if topic.name.startswith("/"):
        return {set_entry(topic.name, name): value.encode() for name, value in topic.configs.items()}
    return {topic_entry(topic.name): topic_value(topic)}


def topics_of(entries: Mapping[str, bytes], sets: Mapping[str, Topic]) -> dict[str, Topic]:
    """The topics in entries, by name, and those of `sets` (lists that are no topics, by name) that have values.

    Raises ValueError if one of them can't be read.
    """
    topics: dict[str, Topic] = {}
    configs: dict[str, dict[str, str]] = {}
    for entry, value in entries.items():
        if entry.startswith(TOPIC):
            topic = read_topic(entry, value)
            topics[topic.name] = topic
        elif entry.startswith(SET):
            set_name, name = parse_set_entry(entry)
            if set_name in sets:
                configs.setdefault(set_name, {})[name] = value.decode()
    for set_name, values in configs.items():
        topics[set_name] = replace(sets[set_name], configs=values)
    return topics


def declare_in(
    entries: Mapping[str, bytes], counts: Mapping[str, int], fresh_id: Callable[[], UUID]
) -> dict[str, bytes]:
    """The change after which the topics of the configuration exist, with at least as many partitions.

    An entry that can't be read stays.
    """
    writes: dict[str, bytes] = {}
    for name, count in counts.items():
        entry = topic_entry(name)
        former = entries.get(entry)
        if former is None:
            writes[entry] = topic_value(Topic(name, fresh_id(), count))
            continue
        topic = topic_if_readable(entry, former)
        if topic is not None and topic.name == name and topic.partition_count < count:
            writes[entry] = topic_value(replace(topic, partition_count=count), former)
    return writes
