"""Tests the copy of keys that follows etcd, on a model of etcd in virtual time."""

from __future__ import annotations

from coordinator.log.cluster.follower import POLL_MS, Follower
from coordinator.log.cluster.port import Delete, Event, KeyValue, Lost, Put, Rejected, Txn, TxnResult
from tests.support.etcd_model import EtcdModel, ModelPort, Watch
from tests.support.virtual_time import Timeline


class World:
    """A cluster of etcd, a follower of keys below a/, and another client. changes: how often the copy changed."""

    def __init__(self) -> None:
        self.time = Timeline(1)
        self.etcd = EtcdModel(self.time)
        self.port: ModelPort = self.etcd.port(self.time.process("node"))
        self.other: ModelPort = self.etcd.port(self.time.process("other"))
        self.changes = 0
        self.follower = Follower(self.port, b"a/", self._changed)
        self.time.run(2_000)
        self.follower.start()
        self.time.run(1_000)

    def _changed(self) -> None:
        self.changes += 1

    @property
    def watches(self) -> list[Watch]:
        """The watches that hang on members of etcd."""
        return [watch for member in self.etcd.members for watch in member.watches]

    def write(self, *success: Put | Delete) -> None:
        """Let the other client write, until etcd says that it has."""
        came: list[TxnResult | Lost | Rejected] = []
        while not any(isinstance(outcome, TxnResult) for outcome in came):
            self.other.txn(Txn([], success), came.append)
            self.time.run(1_500)

    @property
    def values(self) -> dict[bytes, bytes]:
        """The copy."""
        return {key: kv.value for key, kv in self.follower.keys.items()}


def test_changes_arrive_and_other_keys_do_not() -> None:
    """The first call says that the keys are known, even if there are none."""
    world = World()
    assert (world.changes, world.follower.revision > 0) == (1, True)
    world.write(Put(b"a/1", b"one"), Put(b"a/2", b"two"), Put(b"b/1", b"else"))
    assert world.values == {b"a/1": b"one", b"a/2": b"two"}
    world.write(Delete(b"a/1"), Put(b"a/2", b"more"))
    assert world.values == {b"a/2": b"more"}
    changes = world.changes
    world.time.run(5 * POLL_MS)
    assert world.changes == changes


def test_what_a_silent_member_does_not_tell_is_read_again() -> None:
    """The watch hangs on a member that is cut off; keys that are gone meanwhile go from the copy."""
    world = World()
    world.write(Put(b"a/1", b"one"))
    world.etcd.isolate(world.port.member.index)
    world.write(Delete(b"a/1"))
    world.write(Put(b"a/2", b"two"))
    world.time.run(10_000)
    assert world.values == {b"a/2": b"two"}


def test_an_answer_whose_revision_is_beyond_its_events_hides_no_later_event() -> None:
    """etcd sends what a late watch has missed in several answers, each with the newest revision."""
    world = World()
    at = world.follower.revision
    for revision, value in ((at + 1, b"one"), (at + 2, b"two")):
        event = Event(KeyValue(b"a/1", value, at + 1, revision, 0), is_delete=False)
        world.follower._take([event], at + 2)
    assert world.values == {b"a/1": b"two"}


def test_a_watch_that_ended_begins_anew_at_once() -> None:
    """etcd has cut it: the next change doesn't wait for a poll."""
    world = World()
    world.time.run(POLL_MS // 2)  # in the middle between two polls
    for watch in world.watches:
        watch.break_off(0)
    assert not world.watches
    world.time.run(POLL_MS // 4)
    assert world.watches


def test_an_ended_follower_changes_no_more() -> None:
    """It ends its watch and its polls."""
    world = World()
    assert world.watches
    world.follower.end()
    assert not world.watches
    world.write(Put(b"a/1", b"one"))
    world.time.run(5 * POLL_MS)
    assert (world.changes, world.values) == (1, {})
