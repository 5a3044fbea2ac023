"""A simulated cluster: etcd's model, three nodes with real runtimes, and clients, under one seed.

What must hold, whatever fails, while the members of a group never leave it:

1. No acknowledged write is lost, a read is never older than what was acknowledged before it, and no write takes effect
   after its node was deposed: each group's commits and reads are linearizable (`linearizable`).
2. No node says yes once another has claimed the partition: at each yes that leaves, the head in etcd names its sender,
   and the sender's lease has not lapsed by its own clock.
3. Heads only grow: a claim raises the epoch, an append the number by one.
4. No rebalance: members keep the generation and their assignments, and get no error but those after which
   a client looks for its coordinator.
5. Every wait ends: once the faults are over, each member commits again in time, and each request has an answer.
6. etcd has the same as the owner: loading a partition again gives the live groups.
7. Each partition comes to the node that should have it; late, if that node was away when it had to claim (`claims`).
8. No node breaks a rule of its own: no log line says that something broke.

House rule: the checks know keys and values in etcd, answers and records, and nothing of engines.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import filterfalse
from typing import Any

from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.partition import partition_for
from coordinator.group.replay import Replay
from coordinator.group.topics import TopicTable
from coordinator.log.cluster.claims import ORPHAN_KEPT_MS
from coordinator.log.cluster.keys import Keys, best_node, parse_head
from protocol.records.batch import Record
from tests.cluster.linearizable import violations
from tests.server.harness import config_of
from tests.simulation.cluster.clients import TOPIC, Anchor, ConsumerMember, Member
from tests.simulation.cluster.nodes import Node, error_of
from tests.support.etcd_model import EtcdModel, ModelPort
from tests.support.virtual_time import Process, Timeline

CLUSTER = "simulated"
PARTITIONS = 4
GROUPS = 4
CONSUMER_GROUPS = 1
MEMBERS = 2
NODES = (1, 2, 3)
SETTLED_AFTER_MS = 5_000
SETTLED_WITHIN_MS = 60_000
RECOVERED_WITHIN_MS = 30_000
"""After the last fault: a lease, an election, a claim, and the longest pause of a client, several times over."""


QUIET_MS = 6_000
"""After the last commit that a group waited for: leases of nodes that were killed end, and partitions go home."""
HOME_WITHIN_MS = 2 * ORPHAN_KEPT_MS
"""How long a partition may stay with a node that took it in place of its best node."""
ANSWERED_WITHIN_MS = 2_500
"""At the end all is quiet, so no request is older than that."""
RATES = 0.9, 1.1
"""Of the clocks of nodes in a schedule with drifting clocks: the margin of a lease is as wide."""
HOSTS = 3
"""Clients have machines: one for each number of a member, one for all anchors."""


class World:
    """See the module.

    session_ms: session timeout of members. restarts: how often a member restarts, as a share of its rounds.
    drifts: whether the clocks of nodes run too fast or too slow. history: the requests of clients.
    wrongs: what the checks found.
    """

    def __init__(
        self,
        seed: int,
        *,
        session_ms: int = 12_000,
        port: Callable[[EtcdModel, Process], ModelPort] = ModelPort,
        keep_trace: bool = False,
    ) -> None:
        self.time = Timeline(seed, keep_trace=keep_trace)
        self.session_ms = session_ms
        self.restarts = 0.0
        self.drifts = self.time.random.random() < 0.5
        # Which machine of clients can't send to which node, and which node's answers don't reach which machine; each
        # with the requests and answers on their way.
        self._no_way_to: dict[tuple[int, int], list[Callable[[], None]]] = {}
        self._no_way_back: dict[tuple[int, int], list[Callable[[], None]]] = {}
        self.history: list[Any] = []
        self.wrongs: list[str] = []
        # Yeses of nodes that have lost their partition without knowing it: group, node and moment.
        self._late: list[tuple[str, int, int]] = []
        self.etcd = EtcdModel(self.time)
        self.etcd.on_applied = self._look_at_heads
        self.keys = Keys(CLUSTER)
        self._port = port
        self._heads: dict[int, tuple[int, int, str]] = {}
        self.nodes: dict[int, Node] = {}
        for node_id in NODES:
            self.time.later(self.time.random.randint(0, 1_000), partial(self.start, node_id))
        self.members = [
            (ConsumerMember if group < CONSUMER_GROUPS else Member)(self, f"g{group}", number)
            for group in range(GROUPS)
            for number in range(MEMBERS)
        ]
        for member in self.members:
            self.time.later(self.time.random.randint(0, 3_000), member.begin)
        for node_id in NODES:
            self.time.later(SETTLED_AFTER_MS, Anchor(self, node_id).begin)

    # Nodes.

    def start(self, node_id: int) -> None:
        """Start a node that does not run."""
        self.time.note(f"node {node_id} starts")
        process = self.time.process(f"node {node_id}", self.time.random.uniform(*RATES) if self.drifts else 1.0)
        port = self._port(self.etcd, process)
        port.offset_ms = self.time.random.randint(0, 10**9)
        config = config_of(
            f"node.id={node_id}",
            f"offsets.topic.num.partitions={PARTITIONS}",
            f"group.consumer.session.timeout.ms={self.session_ms}",
            f"group.consumer.min.session.timeout.ms={self.session_ms}",
        )
        topics = TopicTable([TOPIC], 1, 1)
        self.nodes[node_id] = Node(config, port, self.keys, topics, self._answered)

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        self.time.note(f"node {node_id} is killed")
        node = self.nodes[node_id]
        node.process.kill()
        # Its connections close; each client whose request is under way notices.
        for lost in list(node.under_way):
            self.time.later(self.etcd.delay(), lost)

    # Clients.

    def cut_clients(self, host: int, node_id: int, *, there: bool, back: bool) -> None:
        """Let nothing pass from a machine of clients to a node, back, or neither."""
        if there:
            self._no_way_to.setdefault((host, node_id), [])
        if back:
            self._no_way_back.setdefault((host, node_id), [])

    def mend_clients(self, host: int, node_id: int) -> None:
        """Undo it. Requests on their way may arrive now, also if their clients have given them up."""
        for ways in (self._no_way_to, self._no_way_back):
            for pass_on in ways.pop((host, node_id), []):
                if self.time.random.random() < self.etcd.late_share:
                    self.time.later(self.etcd.delay(), pass_on)

    def mend_all_clients(self) -> None:
        """Undo all cuts between clients and nodes."""
        for host, node_id in sorted({*self._no_way_to, *self._no_way_back}):
            self.mend_clients(host, node_id)

    def find(self, group: str, host: int) -> int | None:
        """FindCoordinator at a random node; None if that node can't answer, or knows no owner."""
        node_id = self.time.random.choice(NODES)
        node = self.nodes.get(node_id)
        if node is None or node.process.is_dead or node.process.is_frozen:
            return None
        if (host, node_id) in self._no_way_to or (host, node_id) in self._no_way_back:
            return None
        owner = node.engine.core.claims.picture.owners[partition_for(group, PARTITIONS)]
        return owner if owner in self.nodes else None

    def ask(self, host: int, node_id: int, group: str, event: Any, within_ms: int, done: Callable[[Any], None]) -> None:
        """Send a request to a node; None if the connection closes, or time is up."""
        node = self.nodes[node_id]
        waits = [True]

        def finish(body: Any) -> None:
            if waits:
                waits.clear()
                node.under_way.pop(lost, None)
                done(body)

        lost = partial(finish, None)
        node.under_way[lost] = None

        def take(body: Any) -> None:
            way = self._no_way_back.get((host, node_id))
            if way is None:
                self.time.later(self.etcd.delay(), partial(finish, body))
            else:
                way.append(partial(finish, body))

        def send() -> None:
            node.process.later(self.etcd.delay(), partial(node.ask, group, event, take), ("connection", host, group))

        self.time.later(within_ms, lost)
        way = self._no_way_to.get((host, node_id))
        if way is not None:
            way.append(send)
        elif node.process.is_dead:
            self.time.later(1, lost)
        else:
            send()

    # The rules that hold at each moment.

    def _answered(self, node: Node, event: Any, body: Any) -> None:
        """A node says something: is it still the owner?"""
        if error_of(body) != 0:
            return
        group = event.group_id if hasattr(event, "group_id") else event.body.group_id
        partition = partition_for(group, PARTITIONS)
        kv = self.etcd.store.get(self.keys.head(partition))
        owner = None if kv is None else parse_head(kv.value).owner.partition("/")[0]
        if owner != str(node.node_id):
            # An etcd that ends leases early (etcd's issue 15247) lets another node in while this one may still answer.
            if self.etcd.old_leader_revokes:
                self._late.append((group, node.node_id, self.time.ms))
            else:
                self.wrong(f"node {node.node_id} says yes to {type(event).__name__} of {group}; node {owner} has it")
        if not node.engine.core.session.valid():
            self.wrong(f"node {node.node_id} says yes to {type(event).__name__} of {group} after its lease")

    def _look_at_heads(self) -> None:
        for partition in range(PARTITIONS):
            kv = self.etcd.store.get(self.keys.head(partition))
            if kv is None:
                if partition in self._heads:
                    self.wrong(f"the head of partition {partition} is gone")
                continue
            head = parse_head(kv.value)
            now = head.epoch, head.sequence, head.owner
            before = self._heads.get(partition)
            if before == now:
                continue
            self._heads[partition] = now
            claim = before is None or now[0] > before[0]
            if claim:
                self.time.note(f"partition {partition}: node {head.owner} claims epoch {head.epoch}")
            elif before is None or (now[0], now[2]) != (before[0], before[2]) or now[1] != before[1] + 1:
                self.wrong(f"the head of partition {partition} goes from {before} to {now}")

    def wrong(self, text: str) -> None:
        """Something must not be."""
        self.time.note(f"WRONG {text}")
        self.wrongs.append(f"{self.time.ms}: {text}")

    # The course of a run.

    def settle(self) -> None:
        """Run until every group is Stable with all its members, and go on for a while."""
        end_ms = self.time.ms + SETTLED_WITHIN_MS
        while not self.is_settled() and self.time.ms < end_ms:
            self.time.run(500)
        if not self.is_settled():
            self.wrong(f"the cluster never settles: {[(each.instance_id, each.generation) for each in self.members]}")
        self.time.run(2_000)
        for member in self.members:
            member.complaints.clear()

    def is_settled(self) -> bool:
        """Whether all members of each group are in one generation, each with its assignment."""
        generations = {each.group: set[int]() for each in self.members}
        for member in self.members:
            generations[member.group].add(member.generation)
        are_one = all(len(each) == 1 and min(each) > 0 for each in generations.values())
        return are_one and all(member.assignment for member in self.members)

    def seats(self) -> dict[str, tuple[object, ...]]:
        """The seat of each member."""
        return {each.instance_id: (each.generation, each.assignment) for each in self.members}

    def recover(self) -> None:
        """The faults are over: run until every first member has committed again."""
        began_ms = self.time.ms
        writers = [member for member in self.members if not member.number]
        while min(each.acknowledged_ms for each in writers) <= began_ms or not self.is_settled():
            if self.time.ms - began_ms > RECOVERED_WITHIN_MS:
                late = [each.group for each in writers if each.acknowledged_ms <= began_ms]
                where = [(each.instance_id, each.generation) for each in self.members]
                self.wrong(f"no commit of {late} for {RECOVERED_WITHIN_MS} ms after the last fault: {where}")
                break
            self.time.run(500)
        self.time.run(QUIET_MS)
        end_ms = self.time.ms + HOME_WITHIN_MS
        while self._away() and self.time.ms < end_ms:
            self.time.run(1_000)

    def check(self, before: dict[str, tuple[object, ...]]) -> None:
        """The rules that hold at the end. before: the seats of a quiet cluster."""
        for name, seat in self.seats().items():
            if seat != before[name]:
                self.wrong(f"{name} had {before[name]} and has {seat}")
        for member in self.members:
            for complaint in member.complaints:
                self.wrong(complaint)
        # Requests under way at the end may have been carried out, and others may have read what they wrote.
        asked = [member.asking for member in self.members if member.asking is not None]
        for violation in violations([*filterfalse(self._is_late, self.history), *asked]):
            self.wrong(str(violation))
        for partition in range(PARTITIONS):
            self._compare(partition)
        for partition, owner in self._away().items():
            self.wrong(f"partition {partition} belongs to {owner} at the end")
        for node in self.nodes.values():
            forgotten = [ms for ms in node.open.values() if ms < self.time.ms - ANSWERED_WITHIN_MS]
            if forgotten:
                self.wrong(f"node {node.node_id} has {len(forgotten)} requests that it never answers: {forgotten}")
            broken = [line for line in map(json.loads, node.log.getvalue().splitlines()) if "broke" in line["event"]]
            for line in broken[:1]:
                self.wrong(f"node {node.node_id}: {line}")

    def _is_late(self, asked: Any) -> bool:
        """Whether a read was answered late, as an etcd that ends leases early has it. It may be older than commits."""
        return asked.kind == "fetch" and any(
            (group, node_id) == (asked.group, asked.node) and asked.sent <= ms <= (asked.got or ms)
            for group, node_id, ms in self._late
        )

    def _away(self) -> dict[int, str | None]:
        """The owners of partitions that should belong to another node."""
        keys = [self.etcd.store.get(self.keys.own(partition)) for partition in range(PARTITIONS)]
        owners = {partition: kv and kv.value.decode() for partition, kv in enumerate(keys)}
        return {each: owner for each, owner in owners.items() if owner != str(best_node(each, NODES))}

    def _compare(self, partition: int) -> None:
        """The owner's groups are those that another node would load."""
        owner = self._heads[partition][2].partition("/")[0] if partition in self._heads else ""
        node = self.nodes.get(int(owner or 0))
        if node is None:
            self.wrong(f"nobody has partition {partition}")
            return
        assert node.runtime is not None
        part = node.runtime.partitions[partition]
        if part.gate.busy:
            return
        prefix = self.keys.log(partition)
        page = self.etcd.store.range(prefix, prefix[:-1] + b"0", 0, 0, keys_only=False)
        replay = Replay()
        replay.add([Record(kv.key.removeprefix(prefix), kv.value, 0) for kv in page.kvs])  # type: ignore[union-attr]
        loaded = {group.group_id: _told(group) for group in replay.groups()}
        live = {group_id: _told(group) for group_id, group in part.coordinator.groups.items()}
        if loaded != live:
            self.wrong(f"partition {partition}: node {owner} has {live}, etcd has {loaded}")


def _told(group: Any) -> tuple[object, ...]:
    """The parts of a group that its records have too."""
    if isinstance(group, ConsumerGroup):
        epochs = group.generation, group.target_epoch
        held = {each.member_id: (each.instance_id, each.epoch, each.assigned) for each in group.members.values()}
        return epochs, held, _offsets(group)
    members = sorted((each.member_id, each.group_instance_id, each.assignment) for each in group.members.values())
    return group.generation, group.leader, members, _offsets(group)


def _offsets(group: Any) -> dict[str, dict[int, int]]:
    return {topic: {index: each.offset for index, each in kept.items()} for topic, kept in group.offsets.items()}
