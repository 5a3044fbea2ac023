"""Schedules: what fails in a simulated cluster, and when. A seed makes one.

A schedule has a few faults in FAULTS_MS of virtual time, which may overlap: nodes that freeze, die or step their wall
clocks, or whose loops are busy; members of etcd that freeze, die or lose the others; nodes that can't reach some
members, or any; clients that can't reach a node. In every other schedule the nodes' clocks run too fast or too slow.
Steps may be slow. At its end all is whole again.

House rule: a schedule breaks nothing that a machine or a network can't break.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.simulation.cluster.nodes import WALL_MS, Node
from tests.simulation.cluster.world import HOSTS, NODES, World
from tests.support.etcd_model import EtcdModel, ModelPort, State
from tests.support.virtual_time import Process

FAULTS_MS = 20_000
FAULTS_MAX = 8
LONGEST_MS = 12_000
"""Of most faults. As long as a session timeout here, and much longer than a lease."""
FULL_MS = 5_000
CLIENTS_CUT_MS = 3_000
CLIENTS_PAUSE_MS = 9_000
"""Nothing keeps the session of a member that can't reach its coordinator. So these cuts are short, and each machine
has a pause between two of them.
"""
BUSY_MS = 300
"""How long the loop of a node makes no turn, at most. A node that wakes up has much to do."""
LEAVE_MS = 5_000
"""A node that leaves ends after that time at the latest, as the server does."""
HOUR_MS = 3_600_000


class Schedule:
    """The faults of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._time = world.time
        self._random = world.time.random
        self._end_ms = world.time.ms + FAULTS_MS
        self._leaving: list[Node] = []
        self._clients_cut_ms: dict[int, int] = {}

    def play(self) -> None:
        """Let it all happen, then mend everything."""
        random = self._random
        if random.random() < 0.5:
            self._world.etcd.slow = random.choice((0.01, 0.05, 0.2))
            self._world.etcd.slow_ms = random.choice((50, 300, 1_500))
        kinds: list[Callable[[], None]] = [
            self._freeze_node,
            self._freeze_node,
            self._kill_node,
            self._stop_node,
            self._step_clock,
            self._busy_loop,
            self._member,
            self._member,
            self._all_members,
            self._cut,
            self._cut_off,
            self._cut_clients,
            self._compact,
            self._fill_store,
        ]
        self._world.etcd.old_leader_revokes = random.random() < 0.3
        self._world.restarts = random.choice((0.0, 0.02))
        for _ in range(random.randint(1, FAULTS_MAX)):
            self._time.later(random.randint(0, FAULTS_MS), random.choice(kinds))
        self._time.run_until(self._end_ms)
        self._mend()

    def _for_a_while(self, undo: Callable[[], None], longest_ms: int = LONGEST_MS) -> None:
        """Undo a fault after a while; short ones are as likely as long ones."""
        self._time.later(int(longest_ms ** self._random.uniform(0.5, 1.0)), undo)

    # Nodes.

    def _freeze_node(self) -> None:
        node_id = self._random.choice(NODES)
        process = self._world.nodes[node_id].process
        if not process.is_dead and not process.is_frozen:
            self._time.note(f"node {node_id} freezes")
            process.freeze()
            self._for_a_while(partial(self._thaw, node_id))

    def _thaw(self, node_id: int) -> None:
        process = self._world.nodes[node_id].process
        if process.is_frozen and not process.is_dead:
            self._time.note(f"node {node_id} wakes")
            if self._random.random() < 0.5:
                self._world.nodes[node_id].be_busy(self._random.randint(1, BUSY_MS))
            process.thaw()

    def _kill_node(self) -> None:
        node_id = self._random.choice(NODES)
        if not self._world.nodes[node_id].process.is_dead:
            self._world.kill(node_id)
            self._for_a_while(partial(self._start, node_id))

    def _stop_node(self) -> None:
        """SIGTERM: the node hands its partitions over, and ends when it has none, or after a limit."""
        node = self._world.nodes[self._random.choice(NODES)]
        if not node.process.is_dead and node.runtime is not None:
            self._time.note(f"node {node.node_id} leaves")
            self._leaving.append(node)
            node.process.later(0, partial(self._leave, node))
            self._time.later(LEAVE_MS, partial(self._end, node))

    def _leave(self, node: Node) -> None:
        assert node.runtime is not None
        node.runtime.when_left(partial(self._end, node))
        node.engine.call(node.engine.core.claims.leave)

    def _end(self, node: Node) -> None:
        if not node.process.is_dead:
            self._world.kill(node.node_id)
            self._for_a_while(partial(self._start, node.node_id))

    def _start(self, node_id: int) -> None:
        if self._world.nodes[node_id].process.is_dead:
            self._world.start(node_id)

    def _busy_loop(self) -> None:
        node_id = self._random.choice(NODES)
        self._time.note(f"the loop of node {node_id} is busy")
        self._world.nodes[node_id].be_busy(self._random.randint(1, BUSY_MS))

    def _step_clock(self) -> None:
        node_id = self._random.choice(NODES)
        self._time.note(f"the wall clock of node {node_id} jumps")
        self._world.nodes[node_id].clock.wall_offset_ms = self._random.choice((-WALL_MS // 2, -HOUR_MS, HOUR_MS))

    # Members of etcd.

    def _member(self) -> None:
        self._break(self._random.randrange(3))

    def _all_members(self) -> None:
        """Most of etcd, perhaps for longer than a session timeout."""
        for_ms = self._random.randint(0, FAULTS_MS)
        for index in range(3):
            if self._random.random() < 0.8:
                self._break(index, for_ms)

    def _break(self, index: int, for_ms: int | None = None) -> None:
        etcd = self._world.etcd
        if etcd.members[index].state is not State.RUNS:
            return
        name, call = self._random.choice((("dies", etcd.kill), ("freezes", etcd.freeze), ("is isolated", etcd.isolate)))
        self._time.note(f"etcd: member {index} {name}")
        call(index)
        if for_ms is None:
            self._for_a_while(partial(self._heal, index))
        else:
            self._time.later(for_ms, partial(self._heal, index))

    def _heal(self, index: int) -> None:
        if self._world.etcd.members[index].state is not State.RUNS:
            self._time.note(f"etcd: member {index} is back")
            self._world.etcd.heal(index)

    def _compact(self) -> None:
        """All history goes: watches that are late have to read anew."""
        store = self._world.etcd.store
        self._time.note("etcd: all history is compacted")
        store.compact(store.revision)

    def _fill_store(self) -> None:
        """etcd takes no writes, for less time than a member that restarts has."""
        self._time.note("etcd: the store is full")
        self._world.etcd.store.limit = 0
        self._for_a_while(self._empty_store, FULL_MS)

    def _empty_store(self) -> None:
        store = self._world.etcd.store
        store.limit, store.is_full = None, False

    # The network between them.

    def _cut(self) -> None:
        self._cut_from(self._random.choice(NODES), [self._random.randrange(3)])

    def _cut_off(self) -> None:
        self._cut_from(self._random.choice(NODES), [0, 1, 2])

    def _cut_from(self, node_id: int, members: list[int]) -> None:
        process = self._world.nodes[node_id].process
        self._time.note(f"node {node_id} doesn't reach members {members}")
        for index in members:
            self._world.etcd.cut(process, index)
        self._for_a_while(partial(self._mend_network, process, members))

    def _mend_network(self, process: Process, members: list[int]) -> None:
        for index in members:
            self._world.etcd.mend(process, index)

    def _cut_clients(self) -> None:
        """A machine of clients and a node lose requests, answers or both."""
        host, node_id = self._random.randrange(HOSTS), self._random.choice(NODES)
        there, back = self._random.choice(((True, True), (True, False), (False, True)))
        if self._time.ms - self._clients_cut_ms.get(host, 0) >= CLIENTS_PAUSE_MS:
            self._clients_cut_ms[host] = self._time.ms
            self._time.note(f"clients on machine {host} lose node {node_id}: there {there}, back {back}")
            self._world.cut_clients(host, node_id, there=there, back=back)
            self._for_a_while(partial(self._world.mend_clients, host, node_id), CLIENTS_CUT_MS)

    def _mend(self) -> None:
        self._time.note("all is mended")
        world = self._world
        world.etcd.slow = world.restarts = 0.0
        self._empty_store()
        world.mend_all_clients()
        for process, member in sorted(world.etcd.cuts, key=lambda cut: (cut[0].name, cut[1].index)):
            world.etcd.mend(process, member.index)
        for index in range(3):
            self._heal(index)
        for node in self._leaving:
            self._end(node)
        for node_id in NODES:
            self._thaw(node_id)
            self._start(node_id)


def run(
    seed: int,
    *,
    keep_trace: bool = False,
    port: Callable[[EtcdModel, Process], ModelPort] = ModelPort,
) -> World:
    """One schedule, from the start of the cluster to the checks."""
    world = World(seed, port=port, keep_trace=keep_trace)
    world.settle()
    before = world.seats()
    Schedule(world).play()
    world.recover()
    world.check(before)
    return world
