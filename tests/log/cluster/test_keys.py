"""Tests the names of keys and the choice of nodes."""

from __future__ import annotations

import pytest

from coordinator.log.cluster.keys import Head, Keys, best_node, parse_head, prefix_end

KEYS = Keys("c")


def test_keys_have_the_names_that_the_module_says() -> None:
    """An operator who looks into etcd finds these names."""
    assert (KEYS.meta, KEYS.node(7), KEYS.own(3)) == (b"/c/meta", b"/c/nodes/7", b"/c/own/003")
    assert (KEYS.head(49), KEYS.log(0)) == (b"/c/head/049", b"/c/log/000/")
    assert (KEYS.number(KEYS.own(3)), KEYS.number(KEYS.node(12))) == (3, 12)


def test_a_prefix_ends_behind_all_its_keys() -> None:
    """A record key may have any bytes. The keys of a cluster whose name goes on are behind it."""
    start, end = KEYS.log(1), prefix_end(KEYS.log(1))
    assert start <= start + b"\xff" * 50 < end <= KEYS.log(2)
    assert prefix_end(Keys("c").prefix) <= Keys("c0").prefix


@pytest.mark.parametrize("head", [Head(0, 0, "1/7"), Head(2**31 - 1, 2**40, "100/123456")])
def test_a_head_is_read_as_it_was_written(head: Head) -> None:
    """The text has all three parts."""
    assert parse_head(head.text()) == head
    assert head.next() == Head(head.epoch, head.sequence + 1, head.owner)


def test_a_node_that_comes_or_goes_moves_its_own_share_only() -> None:
    """Each node gets a share; all other partitions stay where they are."""
    three = [best_node(partition, [1, 2, 3]) for partition in range(50)]
    two = [best_node(partition, [2, 1]) for partition in range(50)]
    assert {three.count(node) for node in (1, 2, 3)} <= set(range(8, 30))
    assert [node for node in three if node != 3] == [two[p] for p in range(50) if three[p] != 3]
    assert best_node(0, []) is None
