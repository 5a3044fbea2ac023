"""Tests which partitions nodes want, on a model of etcd in virtual time; test_engine.py has moves on real servers."""

from __future__ import annotations

import pytest

from coordinator.log.cluster import NodeShare
from coordinator.log.cluster.claims import ORPHAN_KEPT_MAX_MS, ORPHAN_KEPT_MS, ORPHAN_MS, SETTLE_MS, TAKEN_MS
from coordinator.log.cluster.core import Core
from coordinator.log.cluster.keys import Keys, best_node
from coordinator.log.cluster.port import Delete, Put, Txn
from coordinator.log.engine import NOBODY, Fenced
from tests.log.calls import record
from tests.log.cluster.worlds import PARTITIONS, TTL_MS, Etcd, World

KEYS = Keys("c")


def wanted(world: World, node_id: int) -> set[int]:
    """Return the partitions that a node was last told to acquire."""
    last = {partition: owner for partition, owner, _ in world.told[node_id]}
    return {partition for partition, owner in last.items() if owner is None}


def test_each_free_partition_is_for_its_best_node_alone() -> None:
    """The others hear that nobody owns it."""
    world = World(1, 2, 3)
    for node_id in (1, 2, 3):
        best = {partition for partition in range(PARTITIONS) if best_node(partition, (1, 2, 3)) == node_id}
        last = {partition: owner for partition, owner, _ in world.told[node_id]}
        assert last == {partition: None if partition in best else NOBODY for partition in range(PARTITIONS)}


def test_the_first_node_waits_for_the_others() -> None:
    """A cluster that starts doesn't give everything to the node that is first."""
    world = World()
    world.processes[1] = world.time.process("node 1")
    world.start(1)
    world.time.run(SETTLE_MS - 500)
    assert wanted(world, 1) == set()
    world.time.run(1_500)
    assert wanted(world, 1) == set(range(PARTITIONS))


def test_a_partition_that_its_best_node_does_not_take_is_for_anyone() -> None:
    """A node can be there and yet not able to claim."""
    world = World(1, 2)
    world.time.run(ORPHAN_MS + 2_000)
    assert wanted(world, 1) == wanted(world, 2) == set(range(PARTITIONS))


def test_the_time_without_etcd_does_not_count_against_the_best_node() -> None:
    """Nobody could claim; when etcd is back, the best node has as long as ever."""
    world = World(1, 2)
    for member in range(3):
        world.etcd.kill(member)
    world.time.run(2 * ORPHAN_MS)
    for member in range(3):
        world.etcd.heal(member)
    world.told[1].clear()
    world.time.run(ORPHAN_MS)
    assert wanted(world, 1) == {each for each in range(PARTITIONS) if best_node(each, (1, 2)) == 1}
    world.time.run(ORPHAN_MS)
    assert wanted(world, 1) == set(range(PARTITIONS))


def test_a_partition_of_a_node_that_does_not_claim_stays_for_a_while_where_it_is() -> None:
    """It would be without an owner for seconds after each hand-over. The time doubles; a new registration ends it."""
    world = World(1, 2)
    partition = next(each for each in range(PARTITIONS) if best_node(each, (1, 2)) == 2)

    def is_handed_over() -> bool:
        return any(change[:2] == (partition, 2) for change in world.told[1])

    for kept_ms in (ORPHAN_KEPT_MS, 2 * ORPHAN_KEPT_MS):
        world.time.run(ORPHAN_MS + 2_000)
        assert partition in wanted(world, 1)
        world.told[1].clear()
        own = world.own(1, partition)
        world.time.run(kept_ms - ORPHAN_MS - 3_000)
        assert not is_handed_over()
        world.time.run(ORPHAN_MS + 6_000)
        assert is_handed_over()
        assert world.ask(world.cores[1].release, own) == "done"
    world.time.run(ORPHAN_MS + 2_000)
    world.told[1].clear()
    world.own(1, partition)
    world.processes[2].kill()
    world.processes[2] = world.time.process("node 2 again")
    world.start(2)
    world.time.run(2 * TTL_MS)
    assert is_handed_over()


def test_a_hesitation_long_after_the_last_one_is_as_a_first_one() -> None:
    """A best node that was slow to claim once or twice isn't kept from its partitions for longer, weeks later."""
    world = World(1, 2)
    partition = next(each for each in range(PARTITIONS) if best_node(each, (1, 2)) == 2)
    for away_ms in (0, 2 * ORPHAN_KEPT_MAX_MS):
        world.time.run(ORPHAN_MS + 2_000)
        own = world.own(1, partition)
        world.time.run(ORPHAN_KEPT_MS + 2_000)
        world.told[1].clear()
        assert world.ask(world.cores[1].release, own) == "done"
        best = world.own(2, partition)
        world.time.run(away_ms)
        assert world.ask(world.cores[2].release, best) == "done"
    world.time.run(ORPHAN_MS + 2_000)
    world.own(1, partition)
    world.told[1].clear()
    world.time.run(ORPHAN_KEPT_MS + 2_000)
    assert any(change[:2] == (partition, 2) for change in world.told[1])


def test_a_second_process_with_the_same_node_id_claims_nothing_and_says_so() -> None:
    """It would take the first one's place at every keepalive."""
    world = World(1)
    world.start(1)
    world.time.run(TAKEN_MS + 2_000)
    assert wanted(world, 1) == set()
    assert world.logged == ["node_id_taken"]


def test_a_node_whose_registration_another_process_took_says_so_after_a_while() -> None:
    """The other one may be the same node, started again."""
    world = World(1)
    world.time.run(2 * TAKEN_MS)
    lease = Etcd(world).lease()
    port = world.etcd.port(world.time.process("another process"))
    for change in (Delete(KEYS.node(1)), Put(KEYS.node(1), b"{}", lease)):
        port.txn(Txn([], [change]), lambda _outcome: None)
    world.time.run(TAKEN_MS - 1_000)
    assert world.logged == []
    world.time.run(3_000)
    assert world.logged == ["node_id_taken"]


def test_a_process_started_again_waits_for_the_lease_of_the_killed_one() -> None:
    """Then it registers, and claims."""
    world = World(1)
    world.processes[1].freeze()
    world.processes[1] = world.time.process("node 1 again")
    world.start(1)
    world.time.run(1_000)
    assert wanted(world, 1) == set()
    world.time.run(2 * TTL_MS)
    assert wanted(world, 1) == set(range(PARTITIONS))
    assert world.logged == []


def test_a_registration_that_somebody_deleted_comes_back() -> None:
    """Without it the other nodes would take everything, and the node would never own a partition again."""
    world = World(1, 2)
    port = world.etcd.port(world.processes[2])
    port.txn(Txn([], [Delete(KEYS.node(1))]), lambda _outcome: None)
    world.time.run(3_000)
    assert set(world.cores[2].claims.picture.nodes) == {1, 2}


def test_a_node_that_leaves_wants_nothing_and_is_gone_for_the_others() -> None:
    """They are better for each partition from then on."""
    world = World(1, 2)
    world.cores[1].claims.leave()
    world.time.run(1_000)
    assert wanted(world, 1) == set()
    assert wanted(world, 2) == set(range(PARTITIONS))
    assert set(world.cores[2].claims.picture.nodes) == {2}


def test_a_node_that_leaves_hands_its_partitions_over_at_once() -> None:
    """It waits for no answer of etcd: its registration is as good as gone."""
    world = World(1, 2)
    partition = next(each for each in range(PARTITIONS) if best_node(each, (1, 2)) == 1)
    own = world.own(1, partition)
    assert world.told[1][-1] == (partition, 1, own.epoch)
    world.cores[1].claims.leave()
    assert (partition, 2, own.epoch) in world.told[1]


def test_a_node_that_leaves_while_etcd_does_not_answer_is_gone_once_it_does() -> None:
    """Its lease goes on: it still has partitions to hand over."""
    world = World(1, 2)
    for member in range(3):
        world.etcd.kill(member)
    world.cores[1].claims.leave()
    world.time.run(TTL_MS // 2)
    for member in range(3):
        world.etcd.heal(member)
    world.time.run(2 * TTL_MS)
    assert set(world.cores[2].claims.picture.nodes) == {2}


def test_a_node_that_is_not_registered_has_no_share() -> None:
    """It may be asked before it has a lease."""
    world = World()
    core = Core(world.etcd.port(world.time.process("node 1")), KEYS, 1, PARTITIONS, TTL_MS)
    assert core.claims.share == NodeShare(0, frozenset())


def test_a_share_says_since_when_it_counts() -> None:
    """Partitions of a dead node are missing under the same registration; after a lost lease another one begins."""
    world = World(1, 2, 3)
    shares = {node_id: world.cores[node_id].claims.share for node_id in (1, 2, 3)}
    assert len({share.registration for share in shares.values()} - {0}) == 3
    assert set().union(*(share.missing for share in shares.values())) == set(range(PARTITIONS))
    for node_id, share in shares.items():
        for partition in share.missing:
            world.own(node_id, partition)
        assert world.cores[node_id].claims.share == NodeShare(share.registration, frozenset())
    dead = max(shares, key=lambda node_id: len(shares[node_id].missing))
    world.processes[dead].kill()
    world.time.run(2 * TTL_MS)
    living = [node_id for node_id in shares if node_id != dead]
    assert set().union(*(world.cores[node_id].claims.share.missing for node_id in living)) == shares[dead].missing
    assert all(world.cores[node_id].claims.share.registration == shares[node_id].registration for node_id in living)
    port = world.etcd.port(world.processes[living[0]])
    port.revoke(world.cores[living[0]].session.lease, lambda _outcome: None)
    world.time.run(TTL_MS)
    assert world.cores[living[0]].claims.share.registration > shares[living[0]].registration
    world.cores[living[0]].claims.leave()
    assert world.cores[living[0]].claims.share == NodeShare(0, frozenset())


@pytest.mark.parametrize("named", [77, 1, 2])
def test_an_owners_key_without_a_lease_is_removed(named: int) -> None:
    """It would stay for ever, whether it names a node that is away or one that has nothing: the partition is free."""
    world = World(1, 2)
    etcd = Etcd(world)
    etcd.put(KEYS.own(0), b"%d" % named)
    assert etcd.get(KEYS.own(0)) is None
    assert world.logged == ["owner_key_removed"]
    best = best_node(0, (1, 2))
    assert best is not None
    assert 0 in wanted(world, best)
    assert world.append(best, world.own(best), record(1)) == "done"


@pytest.mark.parametrize("named", [77, 1])
def test_an_owner_whose_key_loses_its_lease_owns_nothing_any_more(named: int) -> None:
    """Without a lease the key would outlive the owner. So its partition is claimed anew, in a higher epoch."""
    world = World(1)
    etcd, before = Etcd(world), world.own(1)
    etcd.put(KEYS.own(0), b"%d" % named)
    assert isinstance(world.append(1, before, record(1)), Fenced)
    assert 0 in wanted(world, 1)
    after = world.own(1)
    assert after.epoch > before.epoch
    assert world.append(1, after, record(2)) == "done"
    assert world.logged == ["owner_key_removed"]


def test_the_fence_of_a_move_stays() -> None:
    """It names nobody, and has no lease: no node takes a partition of a cluster that is being written."""
    world = World(1)
    etcd = Etcd(world)
    etcd.put(KEYS.own(0), b"%d" % NOBODY)
    world.time.run(2 * ORPHAN_MS)
    assert etcd.get(KEYS.own(0)) is not None
    assert world.logged == []
