"""Several servers on one loop that are one cluster: coordinators move between them, and nodes die and come back.

The nodes share, as workers do (docs/run/cluster.md):

    the groups' log      in memory (log.memory.MemoryLog): each partition has one owner, and FindCoordinator on every
                         node answers with it; the log of transactional ids is another one
    the list of topics   each node has a copy; `SharedTopics` brings a change to all of them
    records of topics    in one temporary folder; each topic partition has one leader

For a transaction, one node asks another one through `Relay`, as workers do.

`move` gives a partition of groups to another node, as Kafka does when the partition gets another leader. The new node
acquires it in a higher epoch, which fences the former owner, and loads the groups. The former node answers all that
waits there with NOT_COORDINATOR. Members keep their ids, their generation and their assignments.

A node that dies takes its connections with it. Its partitions go to the other nodes in turn. When it comes back, at
the same port, it has none until one is moved to it; if no other node runs, it gets them all. Topic partitions do the
same, and the partitions of transactional ids.

House rule: everything here runs on the loop of the servers, and one change at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from coordinator.client.connection import Address
from coordinator.config import Config
from coordinator.group.partition import partition_for
from coordinator.log.cluster import NodeAddresses
from coordinator.log.memory import MemoryLog
from coordinator.log.scratch import Scratch
from coordinator.log.store import OpenStore, node_in_turn, share_memory
from coordinator.log.topics.list import Topic, TopicsFile, declare, kafka_id
from coordinator.loop.lines import Lines
from coordinator.server.app import Bound, WorkerPart, addresses_of, bind_all
from coordinator.server.channel import Kind
from coordinator.server.nodes.discovery import node_addresses
from coordinator.server.relay import Link, Relay
from coordinator.server.runtime.partition import Partition, Standing
from coordinator.server.shared_topics import SharedTopics
from coordinator.testing.control import Control
from coordinator.testing.values import NodeState

if TYPE_CHECKING:
    Make = Callable[[Config, OpenStore, WorkerPart], Control]
    End = Callable[[Control], Coroutine[Any, Any, None]]

UNSETTLED = {Standing.AWAY, Standing.LOADING}
"""The standings of a partition on its way to a node."""


class Node:
    """A node. control: of its run, None while it doesn't run. channel: one for each run (see shared_topics.Peer)."""

    def __init__(self, config: Config, make: Make) -> None:
        self.config = config
        self.make = make
        self.control: Control | None = None
        self.channel: NodeLink | None = None

    @property
    def addresses(self) -> NodeAddresses:
        """Its id and its listeners."""
        return node_addresses(self.config, {each.name: (each.host, each.port) for each in self.config.listeners})


class NodeLink(Link):
    """The way of a node's run to the other nodes. take: takes its messages."""

    def __init__(
        self, node: Node, topics: Iterable[Topic], take: Callable[[Node, str, Mapping[str, Any]], None]
    ) -> None:
        super().__init__(topics, "the node ends")
        self._node = node
        self._take = take

    @property
    def is_open(self) -> bool:
        """See Link."""
        return self._node.channel is self

    def send(self, kind: Kind, **fields: Any) -> None:
        """See Link."""
        self._take(self._node, kind, fields)


class Nodes:
    """See the module.

    configs: of all nodes; port 0 stands for a free one. makes: make the runs, each of one node. ids: of all nodes.
    """

    def __init__(self, configs: Sequence[Config], makes: Sequence[Make], lines: Lines) -> None:
        self._nodes = {each.node_id: Node(each, make) for each, make in zip(configs, makes, strict=True)}
        self.ids = list(self._nodes)
        self._lines = lines
        # The servers read both lists at each request.
        self._present: list[int] = []
        self._leading = list(self.ids)
        counts = configs[0].offsets_topic_num_partitions, configs[0].transaction_state_log_num_partitions
        self._log, self._ids_log = (
            MemoryLog([node_in_turn(partition, self.ids) for partition in range(count)]) for count in counts
        )
        self._topics: SharedTopics[Node]
        self._relay: Relay[Node] = Relay(self._send)
        self._cluster_id = kafka_id(uuid4())
        self._folder: Scratch | None = None
        self._change = asyncio.Lock()

    @property
    def configs(self) -> list[Config]:
        """The configuration of each node, with the port that it keeps."""
        return [node.config for node in self._nodes.values()]

    @property
    def states(self) -> list[NodeState]:
        """All nodes, in the order of their ids."""
        return [
            NodeState(node_id, str(Address(*next(iter(node.addresses.addresses.values())))), node.control is not None)
            for node_id, node in self._nodes.items()
        ]

    @property
    def controls(self) -> list[Control]:
        """The controls of the running nodes."""
        return [node.control for node in self._nodes.values() if node.control is not None]

    def owner(self, group_id: str) -> int:
        """The id of the node that coordinates a group."""
        return self._log.owners[partition_for(group_id, len(self._log.owners))]

    def control(self, node_id: int) -> Control:
        """The control of a node. Raises ValueError if there is no such node, or it doesn't run."""
        control = self._node(node_id).control
        if control is None:
            raise ValueError(f"node {node_id} doesn't run")
        return control

    async def start(self) -> None:
        """Start all nodes. Raises StartFailed; then none runs."""
        async with self._change:
            self._folder = Scratch()
            folder = self._folder.path
            declared, _ = declare({}, self.configs[0].topic_list(), uuid4)
            topics = {topic.name: topic for topic in declared}
            self._topics = SharedTopics(topics, TopicsFile(folder), folder, self._lines, self._send)
            self._present += self.ids
            bound: dict[int, Bound] = {}
            try:
                for node_id, node in self._nodes.items():
                    bound[node_id] = self._bind(node)
                for node_id, node in self._nodes.items():
                    await self._start(node, bound.pop(node_id))
            except BaseException:
                for _, listening in chain(*bound.values()):
                    listening.close()
                await self._end_all(Control.stop)
                raise

    async def end(self, how: End) -> None:
        """End all nodes, each as `how` does, and remove the folder."""
        async with self._change:
            await self._end_all(how)

    async def move(self, group_id: str, node_id: int) -> None:
        """Move the partition of a group to a node; returns when the node has loaded it. Raises ValueError."""
        async with self._change:
            self.control(node_id)
            partition = partition_for(group_id, len(self._log.owners))
            if self._log.owners[partition] != node_id:
                self.control(node_id).flush()  # the former owner handled everything up to here
                self._log.move(partition, node_id)
                await self._settled(self._log, [partition])

    async def end_node(self, node_id: int, how: End) -> None:
        """End a node as `how` does, then give its partitions to the others. Raises ValueError."""
        async with self._change:
            self.control(node_id)
            await self._end(self._nodes[node_id], how)
            self._present.remove(node_id)
            if not self._present:
                return
            others = cycle(self._present)
            self._leading[:] = [next(others) if each == node_id else each for each in self._leading]
            for control in self.controls:
                assert control.server.transactions is not None
                control.server.transactions.open_if_known()
            for log in (self._log, self._ids_log):
                moving = [index for index, owner in enumerate(log.owners) if owner == node_id]
                for partition in moving:
                    log.move(partition, next(others))
                await self._settled(log, moving)

    async def start_node(self, node_id: int) -> None:
        """Start a node that ended, at its port. Raises ValueError if it runs or there is none, StartFailed."""
        async with self._change:
            node = self._node(node_id)
            if node.control is not None:
                raise ValueError(f"node {node_id} runs")
            bound = self._bind(node)
            if not self._present:
                for log in (self._log, self._ids_log):
                    log.owners[:] = [node_id] * len(log.owners)
                self._leading[:] = [node_id] * len(self._leading)
            self._present[:] = [each for each in self.ids if each in {node_id, *self._present}]
            await self._start(node, bound)

    def _node(self, node_id: int) -> Node:
        if node_id not in self._nodes:
            raise ValueError(f"there is no node {node_id!r}; there are {', '.join(map(str, self.ids))}")
        return self._nodes[node_id]

    def _bind(self, node: Node) -> Bound:
        """Take the node's port."""
        bound = bind_all(node.config)
        (listener,) = node.config.listeners
        _, port = addresses_of(bound)[listener.name]
        node.config = replace(node.config, listeners=(listener._replace(port=port),))
        return bound

    async def _start(self, node: Node, bound: Bound) -> None:
        # From here on the list gets each change.
        node.channel = link = NodeLink(node, self._topics.list.kept(), self._take_message)
        addresses = [each.addresses for each in self._nodes.values()]
        share = WorkerPart(bound, addresses, link.topics, (), self._present, self._leading, link)
        assert self._folder is not None
        opened = partial(share_memory, self._log, self._ids_log, self._cluster_id, self._folder.path)
        control = node.make(node.config, opened, share)
        try:
            await control.start()
        except BaseException:
            node.channel = None
            raise
        node.control = control

    async def _end(self, node: Node, how: End) -> None:
        """End a node that runs. No change of the list of topics waits for it, and it waits for none."""
        assert node.control is not None
        assert node.channel is not None
        link, node.channel = node.channel, None
        self._topics.forget(node)
        # Later: a node that is killed has closed its connections by then.
        asyncio.get_running_loop().call_soon(link.give_up)
        await how(node.control)
        self._relay.forget(node)
        node.control.flush()  # while its groups are still its own
        node.control = None

    async def _end_all(self, how: End) -> None:
        for node in self._nodes.values():
            if node.control is not None:
                await self._end(node, how)
        if self._folder is not None:
            self._folder.remove()
        self._folder = None
        self._present.clear()

    async def _settled(self, log: MemoryLog, indexes: Iterable[int]) -> None:
        """Wait until the owners serve these partitions of a log, and no other node does."""
        for index in indexes:
            others = [_partition(each, index, of_ids=log is self._ids_log) for each in self.controls]
            moved = _partition(self.control(log.owners[index]), index, of_ids=log is self._ids_log)
            if moved is None:  # the log was never used
                return
            others.remove(moved)
            # No event reports this; each turn of the loop loads some groups.
            while moved.standing in UNSETTLED or any(other is not None and other.ownership for other in others):  # noqa: ASYNC110
                await asyncio.sleep(0)

    # Messages.

    def _take_message(self, node: Node, kind: str, fields: Mapping[str, Any]) -> None:
        """Take a message of a node that runs, as a supervisor does."""
        number = fields["number"]
        if kind == Kind.CHANGE_REQUEST:
            peers = [each for each in self._nodes.values() if each.channel is not None]
            self._topics.change(node, number, fields["change"], peers)
        elif kind == Kind.ASK:
            self._relay.ask(node, number, self._nodes[fields["node"]], fields["question"])
        elif kind == Kind.ANSWER:
            self._relay.answered(number, fields["answer"])
        else:
            assert kind == Kind.APPLIED
            self._topics.applied(node, number)

    def _send(self, node: Node, kind: str, fields: Mapping[str, Any]) -> None:
        """Send a message to a node that runs: in a later turn, as over a channel."""
        asyncio.get_running_loop().call_soon(self._receive, node.channel, kind, fields)

    def _receive(self, link: NodeLink | None, kind: str, fields: Mapping[str, Any]) -> None:
        if link is not None and link.is_open:
            link.receive(kind, fields)


def _partition(control: Control, index: int, *, of_ids: bool) -> Partition | None:
    """A partition of the groups' log, or of the log of transactional ids, as a node has it; None if it has no log."""
    server = control.server
    assert server.transactions is not None
    runtime = server.transactions.runtime if of_ids else server.runtime
    return None if runtime is None else runtime.partitions[index]
