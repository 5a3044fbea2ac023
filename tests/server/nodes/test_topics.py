"""The list of topics: it shows a change when the change is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from coordinator.log.engine import EngineError, Unavailable
from coordinator.log.topics.list import BROKERS, Topic
from coordinator.server.nodes.topics import Altered, Change, ChangeDone, ChangeResult, Topics, changed


def after(topics: Topics, change: Change) -> list[Topic]:
    """Return all that lasts of a list, after a change."""
    return list(changed(topics.kept(), change))


def topic(name: str, number: int = 1) -> Topic:
    """A topic."""
    return Topic(name, UUID(int=number), 1)


class Disk:
    """Takes changes to write, and says that one is written when the test says so."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []
        self.changes: list[Change] = []
        self._done: list[ChangeDone] = []

    def write(self, change: Change, done: ChangeDone) -> None:
        """See WriteChange."""
        self.written.append([each.name for each in change.created])
        self.changes.append(change)
        self._done.append(done)

    def go(self, outcome: ChangeResult | None = None) -> None:
        """The oldest write ends."""
        self._done.pop(0)(outcome or {})


@pytest.fixture
def disk() -> Disk:
    """Return a disk that has no work."""
    return Disk()


def test_a_topic_is_there_when_it_is_durable(disk: Disk) -> None:
    """Before that its name is taken and the list doesn't show it."""
    topics = Topics({"a": topic("a", 1)}, disk.write)
    done: list[object] = []
    topics.create([topic("b", 2)], done.append)
    assert topics.is_taken("b")
    assert topics.get("b") is None
    assert topics.get_by_id(UUID(int=2)) is None
    disk.go()
    assert done == [{}]
    assert [each.name for each in topics] == ["a", "b"]
    assert topics.get_by_id(UUID(int=2)) == topics.get("b")
    assert disk.written == [["b"]]


def test_what_is_created_meanwhile_is_written_together(disk: Disk) -> None:
    """One write at a time, with all changes that came before it."""
    topics = Topics({}, disk.write)
    done: list[str] = []
    for name in "abc":
        topics.create([topic(name)], lambda _, name=name: done.append(name))  # type: ignore[misc]
    assert disk.written == [["a"]]
    disk.go()
    assert disk.written == [["a"], ["b", "c"]]
    assert done == ["a"]
    disk.go()
    assert done == ["a", "b", "c"]


def test_a_topic_that_can_not_be_written_does_not_exist(disk: Disk) -> None:
    """Its name is free again, and the next write is without it."""
    topics = Topics({}, disk.write)
    outcomes: list[object] = []
    topics.create([topic("a")], outcomes.append)
    full = Unavailable("No space left on device")
    disk.go(full)
    assert outcomes == [full]
    assert topics.get("a") is None
    assert not topics.is_taken("a")
    topics.create([topic("b")], outcomes.append)
    disk.go()
    assert disk.written[-1] == ["b"]


def test_a_name_is_taken_once(disk: Disk) -> None:
    """Only free names are written, and the result names the others; the same holds for two names in one change."""
    topics = Topics({"a": topic("a", 1)}, disk.write)
    outcomes: list[object] = []
    topics.create([topic("a", 2)], outcomes.append)
    assert (outcomes, disk.written) == ([{"a": "a"}], [])
    topics.create([topic("a", 3), topic("b.c", 4), topic("b_c", 5)], outcomes.append)
    disk.go()
    assert outcomes[1:] == [{"a": "a", "b_c": "b.c"}]
    assert disk.written == [["b.c"]]
    assert [each.topic_id.int for each in topics] == [1, 4]


def test_a_name_collides_while_it_is_being_created(disk: Disk) -> None:
    """With names that differ in '.' and '_' only; and not after the creation has failed."""
    topics = Topics({"a.b": topic("a.b")}, disk.write)
    assert (topics.collision("a_b"), topics.collision("a.b"), topics.collision("c")) == ("a.b", None, None)
    topics.create([topic("x_y")], lambda _: None)
    assert topics.collision("x.y") == "x_y"
    disk.go(Unavailable("No space left on device"))
    assert topics.collision("x.y") is None


def test_what_another_worker_creates_is_there_at_once() -> None:
    """Its name is taken and collides, as if this node had created it."""
    topics = Topics({}, Disk().write)
    topics.apply(Change([topic("a.b", 7)]))
    assert topics.get("a.b") == topics.get_by_id(UUID(int=7)) == topic("a.b", 7)
    assert topics.is_taken("a.b")
    assert topics.collision("a_b") == "a.b"


@pytest.mark.parametrize("outcome", [{"a": "a", "x.y": "x_y"}, Unavailable("No space left on device")])
def test_who_comes_second_with_a_name_does_not_get_it(disk: Disk, outcome: ChangeResult) -> None:
    """Another worker's topic has the name; the other topics of the change are created, unless it fails as a whole."""
    topics = Topics({}, disk.write)
    outcomes: list[object] = []
    topics.create([topic("a", 1), topic("x.y", 2), topic("b", 3)], outcomes.append)
    topics.apply(Change([topic("a", 11), topic("x_y", 12)]))
    disk.go(outcome)
    assert outcomes == [outcome]
    failed = isinstance(outcome, EngineError)
    assert [each.topic_id.int for each in topics] == [11, 12] + ([] if failed else [3])
    assert [topics.is_taken(name) for name in ("a", "x_y", "x.y", "b")] == [True, True, False, not failed]
    assert topics.collision("x.y") == "x_y"


def test_idle_is_when_nothing_is_being_written(disk: Disk) -> None:
    """A stop waits for that."""
    topics = Topics({}, disk.write)
    told: list[str] = []
    for name in "ab":
        topics.create([topic(name)], lambda _: None)
    topics.when_idle(lambda: told.append("idle"))
    disk.go()
    assert told == []
    disk.go()
    assert told == ["idle"]


def test_a_topic_changes_when_that_is_durable(disk: Disk) -> None:
    """Before that, `get` has the topic unchanged and `newest` has it changed."""
    topics = Topics({"a": topic("a")}, disk.write)
    grown = Topic("a", UUID(int=1), 3)
    topics.change(Change(altered=[Altered(UUID(int=1), 3)]), lambda _: None)
    assert topics.get("a") == topic("a")
    assert topics.newest("a") == grown
    topics.change(Change(altered=[Altered(UUID(int=1), configs={"retention.ms": "1"})]), lambda _: None)
    assert topics.newest("a") == Topic("a", UUID(int=1), 3, {"retention.ms": "1"})
    assert after(topics, disk.changes[0]) == [grown]
    disk.go()
    assert topics.get("a") == topics.get_by_id(UUID(int=1)) == grown
    disk.go(Unavailable("No space left on device"))
    assert topics.get("a") == topics.newest("a") == grown


def test_of_two_changes_neither_undoes_the_other() -> None:
    """In either order, the topic has the larger number of partitions, and the settings of both."""
    had = Topic("a", UUID(int=1), 2, {"segment.ms": "5", "retention.ms": "1"})
    grown = Altered(UUID(int=1), 4)
    less = Altered(UUID(int=1), 3, {"segment.ms": None, "retention.bytes": "7"})
    meant = Topic("a", UUID(int=1), 4, {"retention.ms": "1", "retention.bytes": "7"})
    for order in ([grown, less], [less, grown]):
        topics = Topics({"a": had}, Disk().write)
        for altered in order:
            topics.apply(Change(altered=[altered]))
        assert topics.get("a") == meant


def test_what_is_made_known_is_taken_in_once(disk: Disk) -> None:
    """The answer to a worker's own change doesn't undo the changes of others that came in between."""
    topics = Topics({"a": topic("a", 1), "b": topic("b", 2)}, disk.write, is_shared=True)
    first = Change([topic("c", 3)], [Altered(UUID(int=1), configs={"x": "mine"})], [UUID(int=2)])
    topics.change(first, lambda _: None)
    topics.apply(first)
    topics.apply(Change([topic("b", 5)], [Altered(UUID(int=1), configs={"x": "theirs"})], [UUID(int=3)]))
    disk.go()
    assert [(each.name, each.topic_id.int, each.configs) for each in topics] == [
        ("a", 1, {"x": "theirs"}),
        ("b", 5, {}),
    ]
    assert not topics.is_taken("c")


def test_a_name_that_was_taken_is_free_when_it_is_gone(disk: Disk) -> None:
    """It was another worker's topic, which is deleted when the answer comes; or the supervisor refused the name."""
    topics = Topics({}, disk.write, is_shared=True)
    for outcome in ({"a": "a"}, Unavailable("No space left on device")):
        topics.create([topic("a", 1)], lambda _: None)
        topics.apply(Change([topic("a", 2)]))
        topics.apply(Change(deleted=[UUID(int=2)]))
        disk.go(outcome)
        topics.create([topic("a", 3)], lambda _: None)
        disk.go({"a": "a"})
        assert not topics.is_taken("a")


def test_a_topic_is_given_up_when_all_who_use_it_have() -> None:
    """`apply` calls back after the last use of the deleted topics; at once if none of them exists."""
    topics = Topics({"a": topic("a", 1), "b": topic("b", 2)}, Disk().write)
    given_up: list[Callable[[], None]] = []
    topics.on_deleted = lambda gone, done: map(given_up.append, [done for _ in gone])
    told: list[int] = []
    topics.apply(Change(deleted=[UUID(int=1), UUID(int=2), UUID(int=3)]), lambda: told.append(1))
    given_up.pop()()
    assert told == []
    given_up.pop()()
    assert told == [1]
    topics.apply(Change(deleted=[UUID(int=1)]), lambda: told.append(2))
    assert told == [1, 2]


def test_a_topic_that_is_deleted_is_gone_when_that_is_durable(disk: Disk) -> None:
    """Then `on_deleted` hears of it, its name is free, and a later alteration has no effect."""
    topics = Topics({"a": topic("a"), "b": topic("b", 2)}, disk.write)
    deleted: list[str] = []
    topics.on_deleted = lambda gone, _: map(deleted.append, [each.name for each in gone])
    topics.change(Change(deleted=[UUID(int=1)]), lambda _: None)
    topics.change(Change(altered=[Altered(UUID(int=1), 9)]), lambda _: None)
    assert topics.get("a") == topic("a")
    assert topics.newest("a") is None
    assert topics.is_taken("a")
    assert after(topics, disk.changes[0]) == [topic("b", 2)]
    disk.go()
    assert deleted == ["a"]
    assert topics.get("a") is topics.get_by_id(UUID(int=1)) is None
    assert not topics.is_taken("a")
    assert after(topics, disk.changes[1]) == [topic("b", 2)]
    disk.go()
    assert [each.name for each in topics] == ["b"]
    topics.create([topic("a", 5)], lambda _: None)
    disk.go()
    assert topics.get("a") == topic("a", 5)


def test_a_deletion_that_can_not_be_written_changes_nothing(disk: Disk) -> None:
    """The topic still exists."""
    topics = Topics({"a": topic("a")}, disk.write)
    topics.change(Change(deleted=[UUID(int=1)]), lambda _: None)
    disk.go(Unavailable("No space left on device"))
    assert topics.get("a") == topics.newest("a") == topic("a")


def test_changed_settings_of_brokers_are_kept_beside_the_topics() -> None:
    """They are no topic, last as long as one of them is set, and tell of each change once it is durable."""
    disk, told = Disk(), list[dict[str, str]]()
    topics = Topics({"a": topic("a")}, disk.write)

    def on_entry(entry: Topic) -> Iterator[None]:
        told.append(entry.configs)
        yield

    topics.on_entry = on_entry
    topics.change(Change(altered=[Altered(BROKERS.topic_id, configs={"1/x": "5"})]), lambda _: None)
    assert (topics.entry(BROKERS), topics.newest_entry(BROKERS).configs, told) == (BROKERS, {"1/x": "5"}, [])
    (_, kept) = after(topics, disk.changes[0])
    disk.go()
    assert told == [{"1/x": "5"}]
    again = Topics({each.name: each for each in topics.kept()}, disk.write)
    assert (list(again), again.entry(BROKERS), again.kept()) == ([topic("a")], kept, topics.kept())
    assert again.get(BROKERS.name) is again.get_by_id(BROKERS.topic_id) is again.newest(BROKERS.name) is None
    again.change(Change(altered=[Altered(BROKERS.topic_id, configs={"1/x": None})]), lambda _: None)
    assert after(again, disk.changes[1]) == [topic("a")]
