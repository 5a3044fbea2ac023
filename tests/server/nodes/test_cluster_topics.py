"""The lists of topics of nodes in a cluster: a change of one is a change of all, and a name is given once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from uuid import UUID

from coordinator.log.cluster.keys import Keys
from coordinator.log.cluster.shared import Shared
from coordinator.log.topics.entries import topic_entry, topic_value
from coordinator.log.topics.list import ACLS, GROUPS, Topic
from coordinator.loop.clock import Arguments
from coordinator.server.nodes.cluster_topics import ClusterTopics, changes_of
from coordinator.server.nodes.topics import Altered, Change, ChangeResult, Topics
from tests.support.etcd_model import EtcdModel
from tests.support.virtual_time import Timeline

ONE, TWO = (Topic(name, UUID(int=number), 3) for number, name in enumerate(("or.ders", "or_ders"), 1))


def at_once(function: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
    """Hop on the same thread."""
    function(*arguments)


class World:
    """Nodes on one etcd."""

    def __init__(self) -> None:
        self.time = Timeline(1)
        self._etcd = EtcdModel(self.time)
        self._numbers = count()
        self.unreadable: list[str] = []

    def node(self) -> Topics:
        """A new node's list."""
        return ClusterTopics(self.shared(), at_once, self.unreadable.append).topics

    def shared(self) -> Shared:
        """The entries of a new node."""
        number = next(self._numbers)
        process = self.time.process(f"node {number}")
        shared = Shared(self._etcd.port(process), Keys("test"), number, lambda: f"{number}/{self.time.ms}")
        shared.start()
        self.time.run(100)
        return shared

    def put(self, **values: bytes | None) -> None:
        """Write entries as a newer version, or a person, might."""
        shared = self.shared()
        shared.change(lambda present: {n: v for n, v in values.items() if present.get(n) != v}, lambda _: None)
        self.time.run(1_000)
        shared.end()

    def change(self, topics: Topics, change: Change) -> ChangeResult:
        """Make a change, and give the other nodes time."""
        results: list[ChangeResult] = []
        topics.change(change, results.append)
        self.time.run(1_000)
        (result,) = results
        return result


def test_every_node_has_what_any_node_changed() -> None:
    """Topics, settings and lists that are no topics; a node that starts later has them too."""
    world = World()
    one, two = world.node(), world.node()
    assert world.change(one, Change([ONE])) == {}
    assert two.get("or.ders") == ONE
    altered = [
        Altered(ONE.topic_id, 6, {"retention.ms": "1"}),
        Altered(GROUPS.topic_id, configs={"a:b": "x", "c": "y"}),
    ]
    assert world.change(two, Change(altered=altered)) == {}
    assert world.change(one, Change(altered=[Altered(GROUPS.topic_id, configs={"c": None})])) == {}
    changed = Topic("or.ders", ONE.topic_id, 6, {"retention.ms": "1"})
    for topics in (one, two, world.node()):
        assert topics.get("or.ders") == changed
        assert topics.entry(GROUPS).configs == {"a:b": "x"}
    assert world.change(two, Change(deleted=[ONE.topic_id])) == {}
    assert list(one) == list(two) == []
    assert world.change(one, Change([TWO])) == {}
    assert two.get("or_ders") == TWO


def test_a_name_is_given_once() -> None:
    """Two nodes create a topic at once, by names that metrics can't tell apart: one gets it."""
    world = World()
    one, two = world.node(), world.node()
    results: list[tuple[str, ChangeResult]] = []
    one.change(Change([ONE]), lambda result: results.append(("one", result)))
    two.change(Change([TWO]), lambda result: results.append(("two", result)))
    world.time.run(2_000)
    outcomes = dict(results)
    winner, loser = ("one", "two") if outcomes["one"] == {} else ("two", "one")
    names = {"one": "or.ders", "two": "or_ders"}
    assert outcomes == {winner: {}, loser: {names[loser]: names[winner]}}
    assert [topic.name for topic in one] == [topic.name for topic in two] == [names[winner]]
    assert world.change(one, Change(deleted=[next(iter(one)).topic_id])) == {}
    assert world.change(two, Change([ONE])) == {}


def test_two_alterations_of_one_topic_both_count() -> None:
    """Whoever makes them, and at the same time."""
    world = World()
    one, two = world.node(), world.node()
    assert world.change(one, Change([ONE])) == {}
    results: list[ChangeResult] = []
    one.change(Change(altered=[Altered(ONE.topic_id, configs={"a": "1"})]), results.append)
    two.change(Change(altered=[Altered(ONE.topic_id, 9, {"b": "2"})]), results.append)
    world.time.run(2_000)
    assert results == [{}, {}]
    for topics in (one, two):
        found = topics.get("or.ders")
        assert found is not None
        assert (found.partition_count, found.configs) == (9, {"a": "1", "b": "2"})


def test_a_name_that_was_given_up_and_taken_again_is_another_topic() -> None:
    """A node that was away sees both at once: it deletes the one and creates the other."""
    again = Topic("or.ders", UUID(int=9), 1)
    entry = topic_entry("or.ders")
    changes = changes_of({entry: topic_value(again)}, {entry: topic_value(ONE)})
    assert changes == [Change(deleted=[ONE.topic_id]), Change(created=[again], altered=[])]


def test_an_entry_in_another_form_is_left_out() -> None:
    """Others of the same write count; a node that starts later leaves it out too; its name can't be given away."""
    world = World()
    running = world.node()
    assert world.change(running, Change([TWO])) == {}
    good = Topic("good", UUID(int=7), 1)
    acl = "set/acls:nonsense"
    bad: dict[str, bytes | None] = {"topic/bad": b"nonsense", acl: b"", topic_entry(TWO.name): b"{}"}
    world.put(**bad, **{topic_entry("good"): topic_value(good)})
    assert sorted(world.unreadable) == sorted(bad)
    later = world.node()
    assert sorted(world.unreadable) == sorted([*bad, *bad])
    assert list(later) == [good]
    assert {topic.name: topic for topic in running} == {"good": good, TWO.name: TWO}, (
        "it goes on with the value that it had"
    )
    assert later.entry(ACLS).configs == running.entry(ACLS).configs == {}
    assert world.change(later, Change([Topic("bad", UUID(int=8), 1)])) == {"bad": "bad"}
    assert world.change(later, Change(altered=[Altered(good.topic_id, 3)])) == {}
    world.put(**{**dict.fromkeys(bad), "topic/bad": topic_value(Topic("bad", UUID(int=9), 1))})
    for topics in (running, later):
        assert {topic.name: topic.partition_count for topic in topics} == {"good": 3, "bad": 1}
    assert len(world.unreadable) == 6
