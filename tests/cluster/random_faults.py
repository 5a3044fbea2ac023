"""Faults of a cluster, which chance chooses: a node or a member of etcd dies, stands still, stops or is cut off.

`play` has one after the other, and some on top of each other; each is undone after a while. A seed repeats the order
of faults, not what the processes did meanwhile.

House rule: a fault returns what undoes it, and breaks nothing that a machine or a network can't break.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tests.cluster.stage import Stage
from tests.support.tenure_cluster import ClusterNode

Undo = Callable[[], object]


def play(
    stage: Stage, chance: random.Random, until: float, on_fault: Callable[[str], object] = lambda _name: None
) -> None:
    """Have faults until a moment of the probe's clock. on_fault: takes the name of each."""
    while stage.probe.now() < until:
        undo = [_one(stage, chance, on_fault)]
        if chance.random() < 0.3:
            undo.append(_one(stage, chance, on_fault))
        stage.probe.wait(chance.uniform(0.2, 6.0))
        for each in undo:
            each()
        stage.probe.wait(chance.uniform(0.0, 2.0))


def _one(stage: Stage, chance: random.Random, on_fault: Callable[[str], object]) -> Undo:
    fault = chance.choice(FAULTS)
    on_fault(fault.__name__)
    return fault(stage, chance)


def kill_node(stage: Stage, chance: random.Random) -> Undo:
    """SIGKILL of a node that runs."""
    node = chance.choice(stage.cluster.nodes)
    if not node.running:
        return lambda: None
    node.kill()
    return partial(start_again, node)


def freeze_node(stage: Stage, chance: random.Random) -> Undo:
    """SIGSTOP of a node that runs."""
    node = chance.choice(stage.cluster.nodes)
    if not node.running:
        return lambda: None
    node.freeze()
    return lambda: node.thaw() if node.running else None


def stop_node(stage: Stage, chance: random.Random) -> Undo:
    """SIGTERM of a node that runs."""
    node = chance.choice([each for each in stage.cluster.nodes if each.running])
    node.thaw()  # another fault may have frozen it
    node.stop()
    return partial(start_again, node)


def start_again(node: ClusterNode) -> None:
    """Start a node. Another fault may have cut it off from etcd, and then it would end at once."""
    node.heal()
    node.start()


def cut_node(stage: Stage, chance: random.Random) -> Undo:
    """No way between a node and etcd."""
    node = chance.choice(stage.cluster.nodes)
    node.cut()
    return node.heal


def kill_member(stage: Stage, chance: random.Random) -> Undo:
    """SIGKILL of a member of etcd."""
    number = chance.randrange(3)
    if not stage.etcd.members[number].is_running:
        return lambda: None
    stage.etcd.members[number].kill()
    return lambda: stage.etcd.restart(number)


def freeze_member(stage: Stage, chance: random.Random) -> Undo:
    """SIGSTOP of a member of etcd."""
    member = stage.etcd.members[chance.randrange(3)]
    if not member.is_running:
        return lambda: None
    member.freeze()
    return lambda: member.thaw() if member.is_running else None


FAULTS = (kill_node, freeze_node, stop_node, cut_node, kill_member, freeze_member)
