"""Tests the lease of a node, on a model of etcd in virtual time."""

from __future__ import annotations

import pytest

from coordinator.log.cluster.port import Rejected
from coordinator.log.cluster.session import Session
from tests.support.etcd_model import EtcdModel
from tests.support.virtual_time import Timeline


class World:
    """A cluster of etcd and a session. leases: all that it got. lost: how many were gone."""

    def __init__(self) -> None:
        self.time = Timeline(1)
        self.etcd = EtcdModel(self.time)
        self.process = self.time.process("node")
        self.leases: list[int] = []
        self.lost = 0
        self.session = Session(self.etcd.port(self.process), 3_000, self._leased, self._lost)
        self.session.start()
        self.time.run(2_500)

    def _leased(self) -> None:
        self.leases.append(self.session.lease)

    def _lost(self) -> None:
        self.lost += 1

    def silence(self, *, ends: bool) -> None:
        """Let a majority of members stand still, or run again."""
        for member in (0, 1):
            if ends:
                self.etcd.heal(member)
            else:
                self.etcd.freeze(member)


def test_a_lease_is_kept_alive() -> None:
    """It stays the same, and is valid all the time."""
    world = World()
    for _ in range(100):
        world.time.run(300)
        assert world.session.valid()
    assert len(world.leases) == 1
    assert world.lost == 0


def test_a_node_without_answers_stops_before_its_lease_can_end() -> None:
    """When etcd answers again, the same lease goes on if it still lives, and the lapse is counted."""
    world = World()
    assert world.session.lapses == 1  # the first deadline counts too
    world.silence(ends=False)
    world.time.run(2_800)
    assert not world.session.valid()
    assert world.etcd.store.leases.keys() >= set(world.leases)
    world.silence(ends=True)
    world.time.run(6_000)
    assert world.session.valid()
    assert world.session.lapses == 2
    assert len(world.leases) == 1


def test_a_frozen_node_wakes_up_without_its_lease() -> None:
    """It isn't valid at the first moment, hears that its lease is gone, and gets another one."""
    world = World()
    world.process.freeze()
    world.time.run(10_000)
    assert not world.session.valid()
    world.process.thaw()
    assert not world.session.valid()
    world.time.run(3_000)
    assert world.lost == 1
    assert len(set(world.leases)) == 2
    assert world.session.valid()


@pytest.mark.parametrize(("ttl_ms", "granted_s"), [(2_001, 3), (2_500, 3), (3_000, 3), (3_400, 4)])
def test_the_lease_of_etcd_is_no_shorter_than_what_the_node_relies_on(
    ttl_ms: int, granted_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd counts in seconds."""
    port, asked = EtcdModel(Timeline(1)).port(Timeline(1).process("node")), list[int]()
    monkeypatch.setattr(port, "grant", lambda ttl_s, _done: asked.append(ttl_s))
    Session(port, ttl_ms, lambda: None, lambda: None).start()
    assert asked == [granted_s]


def test_the_age_of_a_lease_goes_on_while_etcd_grants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An etcd without space doesn't: the age says for how long this node has had no lease in time."""
    world = World()
    monkeypatch.setattr(world.session._port, "grant", lambda _ttl_s, done: done(Rejected("no space", 8)))
    world.process.freeze()
    world.time.run(10_000)
    world.process.thaw()
    world.time.run(1_000)
    assert not world.session.lease
    assert 10_000 < world.session.age_ms < 13_000


def test_an_ended_session_gives_its_lease_back() -> None:
    """Its keys go at once, and it isn't valid any more."""
    world = World()
    ended: list[bool] = []
    world.session.end(lambda: ended.append(True))
    assert not world.session.valid()
    world.time.run(1_000)
    assert ended == [True]
    assert not world.etcd.store.leases
    world.time.run(10_000)
    assert len(world.leases) == 1
