"""Cores of several nodes on a model of etcd, in virtual time: for tests that need no runtime.

House rule: a test moves time; nothing here goes on by itself.
"""

from __future__ import annotations

from typing import Any

from coordinator.log.cluster.core import Core
from coordinator.log.cluster.keys import Keys
from coordinator.log.cluster.port import Get, KeyValue, Put, Txn, TxnResult
from coordinator.log.engine import EngineError, Ownership
from protocol.records.batch import Record
from tests.support.etcd_model import EtcdModel
from tests.support.virtual_time import Timeline

PARTITIONS = 4
TTL_MS = 3_000
LONG_MS = 20_000


class World:
    """A cluster of etcd, and nodes by their ids.

    told: the calls of on_ownership. logged: facts for operators.
    """

    def __init__(self, *node_ids: int) -> None:
        self.time = Timeline(1)
        self.etcd = EtcdModel(self.time)
        self.cores: dict[int, Core] = {}
        self.processes = {node_id: self.time.process(f"node {node_id}") for node_id in node_ids}
        self.told: dict[int, list[tuple[int, int | None, int]]] = {}
        self.logged: list[str] = []
        for node_id in node_ids:
            self.cores[node_id] = self.start(node_id)
        self.time.run(3_000)

    def start(self, node_id: int) -> Core:
        """Start and register another process of a node."""
        port = self.etcd.port(self.processes[node_id])
        core = Core(port, Keys("c"), node_id, PARTITIONS, TTL_MS, lambda name, _fields: self.logged.append(name))
        told = self.told[node_id] = []
        core.begin()
        core.start(lambda *change, told=told: told.append(change))
        core.claims.register(b"{}")
        return core

    def ask(self, call: Any, *arguments: Any, within_ms: int = LONG_MS) -> Any:
        """Make a call, let time pass, and return what it told; None is told as "done"."""
        came: list[Any] = []
        call(*arguments, lambda *outcome: came.append(outcome[-1]))
        end_ms = self.time.ms + within_ms
        while not came and self.time.ms < end_ms:
            self.time.run(10)
        assert len(came) == 1
        return "done" if came[0] is None else came[0]

    def own(self, node_id: int, partition: int = 0) -> Ownership:
        """Acquire and load a partition."""
        own: Ownership | EngineError = self.ask(self.cores[node_id].acquire, partition)
        assert not isinstance(own, EngineError)
        assert self.ask(self.cores[node_id].load, own, lambda _page: None) == "done"
        return own

    def append(self, node_id: int, own: Ownership, *records: Record) -> Any:
        """Append one batch."""
        return self.ask(self.cores[node_id].append, own, [list(records)])


class Etcd:
    """Reads and writes keys of a world, as another program."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._port = world.etcd.port(world.time.process("another program"))

    def put(self, key: bytes, value: bytes, lease: int = 0) -> None:
        """Write a key; nodes have time to notice."""
        self._ask(Txn([], [Put(key, value, lease)]))
        self._world.time.run(3_000)

    def lease(self) -> int:
        """A lease that outlives a test."""
        lease: int = self._world.ask(lambda done: self._port.grant(3_600, done))
        return lease

    def get(self, key: bytes) -> KeyValue | None:
        """A key."""
        return self._ask(Txn([], [Get(key)])).gets[0]

    def _ask(self, txn: Txn) -> TxnResult:
        found: TxnResult = self._world.ask(lambda done: self._port.txn(txn, done))
        return found
