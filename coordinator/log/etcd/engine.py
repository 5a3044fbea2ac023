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
from time import monotonic, sleep
from typing import Any

from coordinator.log.cluster import NodeAddresses, NodeShare, StoreNumbers
from coordinator.log.cluster.claims import SETTLE_MS, wait_for
from coordinator.log.cluster.core import Core, Log
from coordinator.log.cluster.keys import Keys
from coordinator.log.cluster.loop import Loop
from coordinator.log.cluster.port import Compare, Get, Lost, Put, Rejected, Target, Txn
from coordinator.log.cluster.shared import OnChange, Shared
from coordinator.log.engine import EngineError, Unavailable
from coordinator.log.etcd.client import TLS_PROBLEM, Access, Client
from coordinator.log.etcd.housekeeping import QUOTA, Housekeeping

FORMAT = 1
"""The format of keys and values. A newer server may raise it."""
OPEN_WITHIN_S = 10.0
CLOSE_WITHIN_S = 2.0
"""How long a close waits for etcd, and then for the thread. A server gives its log 5 s before it calls it hung."""
AGAIN_S = 0.1

LOSES_BELOW = (3, 4, 21)
LOSES = ((3, 5, 0), (3, 5, 5))
WARNED_BELOW = (3, 5, 24)


class Opening:
    """The first questions of a node to etcd, one after the other, for OPEN_WITHIN_S. They raise EngineError."""

    def __init__(self, loop: Loop, client: Client) -> None:
        self._loop = loop
        self._client = client
        self._until_s = monotonic() + OPEN_WITHIN_S

    def version(self) -> str:
        """Log in, if the client has a user; return the version of etcd."""
        self._ask(self._client.log_in)
        version: str = self._ask(self._client.status).version
        return version

    def cluster_id(self, keys: Keys, partition_count: int, fresh_id: Callable[[], str]) -> str:
        """The cluster's id in the meta key, which its first node writes."""
        key = keys.meta
        value = {"format": FORMAT, "partitions": partition_count, "cluster_id": fresh_id()}
        written = Put(key, json.dumps(value).encode())
        txn = Txn([Compare(key, Target.CREATE_REVISION, 0)], [written, Get(key)], [Get(key)])
        (found,) = self._ask(partial(self._client.txn, txn)).gets
        meta = read_meta(found.value)
        made_with = meta.get("partitions")
        if "moving" in meta:
            raise EngineError("a move into this cluster is under way, or was interrupted: then make it again")
        if made_with != partition_count:
            text = f"offsets.topic.num.partitions: {partition_count}, but the cluster was made with {made_with}"
            raise EngineError(text)
        return str(meta["cluster_id"])

    def _ask(self, call: Callable[[Callable[[Any], None]], None]) -> Any:
        """Make a call until etcd answers. A refusal ends it, or a problem with certificates at all members in a row."""
        why, tls_problems = "etcd doesn't answer", 0
        answer: SimpleQueue[Any] = SimpleQueue()
        while (left_s := self._until_s - monotonic()) > 0:
            self._loop.call(call, answer.put)
            try:
                outcome = answer.get(timeout=left_s)
            except Empty:
                break
            if not isinstance(outcome, Lost | Rejected):
                return outcome
            why = f"etcd at {self._client.endpoint}: {outcome.reason}"
            tls_problems = tls_problems + 1 if outcome.reason.startswith(TLS_PROBLEM) else 0
            if isinstance(outcome, Rejected) or tls_problems == self._client.size:
                break
            sleep(AGAIN_S)
        raise EngineError(why)


def read_meta(value: bytes) -> dict[str, Any]:
    """The fields of the meta key. Raises EngineError if they have a format that this version doesn't know."""
    try:
        fields = dict(json.loads(value))
    except (TypeError, ValueError):
        fields = {}
    version = fields.get("format", "unknown")
    if not isinstance(version, int) or version > FORMAT:
        raise EngineError(f"the cluster's keys have format {version}, and this version knows {FORMAT}")
    return fields


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
        registered = self.core.claims.picture.nodes
        if self._nodes[0] is not registered:
            self._nodes = registered, [parse_node(node_id, info) for node_id, info in sorted(registered.items())]
        return self._nodes[1]

    def owner(self, partition: int) -> int | None:
        """See Cluster."""
        return self.core.claims.picture.owners[partition]

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
    core = Core(client, keys, node_id, partition_count, ttl_ms, log, settle_ms)
    shared = Shared(client, keys, node_id, fresh_id)
    loop.start()
    try:
        opening = Opening(loop, client)
        try:
            version = opening.version()
        except EngineError as error:
            raise Unavailable(f"{error} ({', '.join(access.endpoints)})") from error
        if problem := version_problem(version):
            raise EngineError(problem)
        cluster_id = opening.cluster_id(keys, partition_count, fresh_id)
        known = Event()
        loop.call(core.begin)
        loop.call(shared.start)
        loop.call(wait_for, client, lambda: core.known and bool(shared.revision), known.set)
        if not known.wait(OPEN_WITHIN_S):
            raise EngineError("etcd doesn't answer")
    except BaseException:
        loop.call(shared.end)
        loop.call(core.end, lambda: None)
        loop.end(CLOSE_WITHIN_S)
        client.close()
        raise
    housekeeping = Housekeeping(client, keys.meta, partial(core.owns, 0), log, quota)
    loop.call(housekeeping.start)
    return EtcdEngine(loop, client, core, shared, housekeeping, cluster_id, version)
