"""1,000 static members over three nodes: a node dies, then everything rolls; how long does each member wait?

    python -m tests.cluster.thousand

Each member sends a heartbeat every 500 ms. It prints the longest time without a yes, of all members and at their 50th
and 99th percentile, for a node that is killed, for a rolling restart of the nodes, and for one of etcd. It ends with an
error if a member lost its seat.

House rule: what must hold is in `stage`.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster.stage import Stage
from tests.support.cluster_history import gaps, percentile

GROUPS, MEMBERS = 50, 20
PAUSE_S = 0.5


def killed(stage: Stage) -> None:
    """A node dies; the others take over."""
    stage.cluster.nodes[0].kill()
    stage.recover()
    stage.probe.wait(2)


def rolled(stage: Stage) -> None:
    """SIGTERM and start of each node."""
    for node in stage.cluster.nodes:
        if node.running:
            node.stop()
        node.start()
        stage.recover()


def etcd_rolled(stage: Stage) -> None:
    """SIGTERM and start of each member of etcd."""
    for number, member in enumerate(stage.etcd.members):
        member.stop()
        stage.recover()
        stage.etcd.restart(number)


FAULTS: dict[str, Callable[[Stage], None]] = {
    "a node is killed": killed,
    "rolling restart of the nodes": rolled,
    "rolling restart of etcd": etcd_rolled,
}


def main() -> None:
    """See the module."""
    with Stage(groups=GROUPS, members=MEMBERS, pause_s=PAUSE_S, real=()) as stage:
        for name, fault in FAULTS.items():
            stage.probe.wait(2)
            began = stage.probe.now()
            fault(stage)
            waits = gaps(stage.probe.history, began, stage.probe.now(), each_member=True).values()
            shares = ", ".join(f"{title} {percentile(waits, share):.2f} s" for title, share in SHARES.items())
            print(f"{name}: {len(waits)} members, longest time without a yes: {shares}", flush=True)
            stage.check()
    print("0 rebalances, no seat moved, no commit lost")


SHARES = {"50th percentile": 0.5, "99th percentile": 0.99, "longest": 1.0}

if __name__ == "__main__":
    main()
