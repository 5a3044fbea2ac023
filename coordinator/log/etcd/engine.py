"""The engine on etcd for a server: `core.Core` on a thread of its own, with a real client.

`open_engine` waits until etcd has answered: the version is one that keeps what it acknowledged, the cluster's keys are
of this format and of this number of partitions, and this node has a lease.

House rule: only `open_engine`, `follow` and `close` wait, each for a limited time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic
from typing import NamedTuple

from coordinator.log.cluster import NodeAddresses, NodeShare, StoreNumbers
from coordinator.log.cluster.claims import SETTLE_MS, wait_for
from coordinator.log.cluster.core import Core, Log
from coordinator.log.cluster.keys import Keys
from coordinator.log.cluster.loop import Loop
from coordinator.log.cluster.port import Compare, Get, Lost, Put, Rejected, Status, Target, Txn, TxnResult
from coordinator.log.cluster.shared import OnChange, Shared
from coordinator.log.engine import EngineError, Unavailable
from coordinator.log.etcd.client import TLS_PROBLEM, Access, Client
from coordinator.log.etcd.housekeeping import QUOTA, Housekeeping

FORMAT = 1
"""The format of keys and values. A newer server may raise it."""
OPEN_WITHIN_S = 10.0
CLOSE_WITHIN_S = 2.0
"""How long a close waits for etcd, and then for the thread. A server gives its log 5 s before it calls it hung."""
AGAIN_MS = 100

LOSES_BELOW = (3, 4, 21)
LOSES = ((3, 5, 0), (3, 5, 5))
WARNED_BELOW = (3, 5, 24)


class Meta(NamedTuple):
    """The meta key, which the cluster's first node writes."""

    cluster_id: str
    partition_count: int


class Opening:
    """The steps of `open_engine` on the engine's thread. done: set when they are over. error: why they failed."""

    def __init__(self, client: Client, keys: Keys, partition_count: int, fresh_id: Callable[[], str]) -> None:
        self.done = Event()
        self.error = "etcd doesn't answer"
        self.version = ""
        self.meta: Meta | None = None
        self._client = client
        self._keys = keys
        self._count = partition_count
        self._fresh_id = fresh_id
        self._tls_problems = 0

    def begin(self) -> None:
        """Log in, if the client has a user; then go on."""
        self._client.log_in(self._logged_in)

    def _again(self, outcome: Lost | Rejected, step: Callable[[], None]) -> None:
        """Try a step again, or give up if etcd has refused it, or all members have a problem with certificates."""
        self.error = f"etcd at {self._client.endpoint}: {outcome.reason}"
        self._tls_problems = self._tls_problems + 1 if outcome.reason.startswith(TLS_PROBLEM) else 0
        if isinstance(outcome, Rejected) or self._tls_problems == self._client.size:
            self.done.set()
        else:
            self._client.later(AGAIN_MS, step)

    def _logged_in(self, outcome: Lost | Rejected | None) -> None:
        if outcome is None:
            self._client.status(self._known)
        else:
            self._again(outcome, self.begin)

    def _known(self, outcome: Status | Lost | Rejected) -> None:
        if not isinstance(outcome, Status):
            self._again(outcome, self.begin)
            return
        self.version = outcome.version
        if problem := version_problem(outcome.version):
            self.error = problem
            self.done.set()
        else:
            self._write_meta()

    def _write_meta(self) -> None:
        """Write the meta key, unless it is there."""
        key = self._keys.meta
        value = {"format": FORMAT, "partitions": self._count, "cluster_id": self._fresh_id()}
        written = Put(key, json.dumps(value).encode())
        txn = Txn([Compare(key, Target.CREATE_REVISION, 0)], [written, Get(key)], [Get(key)])
        self._client.txn(txn, self._meta_known)

    def _meta_known(self, outcome: TxnResult | Lost | Rejected) -> None:
        if not isinstance(outcome, TxnResult):
            self._again(outcome, self._write_meta)
            return
        found = outcome.gets[0]
        assert found is not None
        try:
            meta = dict(json.loads(found.value))
        except (TypeError, ValueError):
            meta = {}
        version = meta.get("format", "unknown")
        if not isinstance(version, int) or version > FORMAT:
            self.error = f"the cluster's keys have format {version}, and this version knows {FORMAT}"
        elif "moving" in meta:
            self.error = "a move into this cluster is under way, or was interrupted: then make it again"
        elif meta["partitions"] != self._count:
            self.error = (
                f"offsets.topic.num.partitions: {self._count}, but the cluster was made with {meta['partitions']}"
            )
        else:
            self.meta = Meta(meta["cluster_id"], meta["partitions"])
        self.done.set()


def version_problem(text: str) -> str:
    """Why a version of etcd can't be used; "" if it can."""
    version = _version(text)
    if version < LOSES_BELOW or LOSES[0] <= version <= LOSES[1]:
        return f"etcd {text} may lose what it has acknowledged: use 3.6 or later, or at least 3.5.24"
    return ""


def version_warning(text: str) -> str:
    """A warning about a version of etcd that can be used; "" if there is none."""
    if _version(text) < WARNED_BELOW:
        return f"etcd {text} is old: 3.5.24 and later can be upgraded to 3.6, and get corrections"
    return ""


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else (0,)


class EtcdEngine:
    """The engine of one node, its cluster, and what all nodes share (`engine.Engine`, `cluster.Cluster`, `shared`).

    cluster_id: from the meta key. version: of the etcd member that answered. housekeeping: how full etcd is.
    Made by `open_engine`.
    """

    def __init__(
        self,
        loop: Loop,
        client: Client,
        core: Core,
        shared: Shared,
        housekeeping: Housekeeping,
        cluster_id: str,
        version: str,
    ) -> None:
        self.cluster_id = cluster_id
        self.version = version
        self.core = core
        self.shared = shared
        self.client = client
        self.housekeeping = housekeeping
        self._loop = loop
        self._nodes: tuple[object, Sequence[NodeAddresses]] = (None, ())
        # Engine, but for `close`; and of Cluster what asks etcd.
        self.start = loop.calling(core.start)
        self.acquire = loop.calling(core.acquire)
        self.load = loop.calling(core.load)
        self.append = loop.calling(core.append)
        self.release = loop.calling(core.release)
        self.ask_whether_newest = loop.calling(core.ask_whether_newest)
        self.leave = loop.calling(core.claims.leave)
        self.change = loop.calling(shared.change)
        self.valid = core.session.valid

    def close(self) -> None:
        """See Engine. If etcd doesn't answer, its lease ends by itself."""
        ended = Event()
        self._loop.call(self.housekeeping.end)
        self._loop.call(self.shared.end)
        self._loop.call(self.core.end, ended.set)
        ended.wait(CLOSE_WITHIN_S)
        self._loop.end(CLOSE_WITHIN_S)
        self.client.close()

    # Cluster.

    def nodes(self) -> Sequence[NodeAddresses]:
        """See Cluster."""
        registered = self.core.members.now.nodes
        if self._nodes[0] is not registered:
            self._nodes = registered, [parse_node(node_id, info) for node_id, info in sorted(registered.items())]
        return self._nodes[1]

    def owner(self, partition: int) -> int | None:
        """See Cluster."""
        return self.core.members.now.owners[partition]

    def share(self) -> NodeShare:
        """See Cluster."""
        return self.core.claims.share

    def numbers(self) -> StoreNumbers:
        """See Cluster."""
        session, calls, store = self.core.session, self.client.calls, self.housekeeping
        lapses = max(session.lapses - 1, 0)  # the first deadline counts too
        return StoreNumbers(
            session.age_ms,
            lapses,
            calls.made,
            calls.lost,
            calls.seconds,
            store.used,
            store.size,
            store.quota,
            store.alarms,
            calls.recent.read(monotonic()),
        )

    def has_room(self) -> bool:
        """See Cluster."""
        return not self.housekeeping.is_full

    def register(self, node: NodeAddresses) -> None:
        """See Cluster."""
        self._loop.call(self.core.claims.register, node_info(node))

    # The entries that all nodes share.

    def follow(self, on_change: OnChange) -> Mapping[str, bytes]:
        """The entries now; `on_change` gets all later changes on the engine's thread, oldest first.

        Raises Unavailable if that thread doesn't answer in time.
        """
        answer: SimpleQueue[Mapping[str, bytes]] = SimpleQueue()
        self._loop.call(lambda: answer.put(self.shared.follow(on_change)))
        try:
            return answer.get(timeout=OPEN_WITHIN_S)
        except Empty:
            raise Unavailable("etcd doesn't answer") from None


def node_info(node: NodeAddresses) -> bytes:
    """The registration of a node: JSON, with its address for each listener."""
    return json.dumps({"listeners": {name: list(address) for name, address in node.addresses.items()}}).encode()


def parse_node(node_id: int, info: bytes) -> NodeAddresses:
    """Read what a node has registered. A node whose version writes that in another way has no address here."""
    try:
        listeners = json.loads(info)["listeners"]
        addresses = {str(name): (str(host), int(port)) for name, (host, port) in listeners.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        addresses = {}
    return NodeAddresses(node_id, addresses)


def open_engine(
    access: Access,
    cluster: str,
    node_id: int,
    partition_count: int,
    ttl_ms: int,
    fresh_id: Callable[[], str],
    log: Log = lambda _name, _fields: None,
    settle_ms: int = SETTLE_MS,
    quota: int = QUOTA,
) -> EtcdEngine:
    """Connect to etcd as one node of a cluster. Raises EngineError, whose text gives the reason in one line.

    ttl_ms: of the node's lease. fresh_id: makes a cluster's id. log: takes facts for the operator.
    quota: etcd's --quota-backend-bytes.
    """
    loop = Loop("etcd", lambda trace: log("engine_broke", {"trace": trace}))
    client = Client(access, loop)
    keys = Keys(cluster)
    opening = Opening(client, keys, partition_count, fresh_id)
    core = Core(client, keys, node_id, partition_count, ttl_ms, log, settle_ms)
    shared = Shared(client, keys, node_id, fresh_id)
    loop.start()
    loop.call(opening.begin)
    opening.done.wait(OPEN_WITHIN_S)
    problem = "" if opening.meta is not None else opening.error
    if opening.meta is not None:
        known = Event()
        loop.call(core.begin)
        loop.call(shared.start)
        loop.call(wait_for, client, lambda: core.known and bool(shared.revision), known.set)
        if not known.wait(OPEN_WITHIN_S):
            problem = "etcd doesn't answer"
    if problem or opening.meta is None:
        loop.call(shared.end)
        loop.call(core.end, lambda: None)
        loop.end(CLOSE_WITHIN_S)
        client.close()
        if opening.version:
            raise EngineError(problem)
        raise Unavailable(f"{problem} ({', '.join(access.endpoints)})")
    housekeeping = Housekeeping(client, keys.meta, partial(core.owns, 0), log, quota)
    loop.call(housekeeping.start)
    return EtcdEngine(loop, client, core, shared, housekeeping, opening.meta.cluster_id, opening.version)
