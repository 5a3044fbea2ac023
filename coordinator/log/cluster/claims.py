"""The partitions that this node should own, by what it follows of nodes/ and own/.

Every node finds the same best node for a partition (keys.best_node). A node claims the partitions whose best node it is
and that nobody owns. The first node of a cluster waits SETTLE_MS after its registration, so that a cluster that starts
doesn't give everything to it. A partition that nobody has owned for ORPHAN_MS, by the count of a node that could
claim all that time, goes to that node.

The owner of a partition whose best node is another one hands it over: when a node joins, and when this node leaves,
because a node that leaves takes its registration back first. An owner that took it after ORPHAN_MS keeps it for a
while, longer each time: its best node is there, but didn't claim it. It hands it over at once if that node registers
anew.

A node writes own/ppp with its lease. One without a lease would stay for ever: a person wrote it, or a program that
copies keys without their leases. If the node that it names isn't there, the partition counts as free, and the node that
is to claim it removes the key first. If the node is there, that node removes it, and claims the partition anew.

It reports each decision once, through `on_ownership` (see engine).

House rule: no key of a partition is written here; the engine does that when the runtime asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from coordinator.log.cluster import NodeShare
from coordinator.log.cluster.follower import Follower
from coordinator.log.cluster.keys import Keys, best_node
from coordinator.log.cluster.port import (
    Compare,
    Delete,
    Get,
    KeyValue,
    Lost,
    Port,
    Put,
    Rejected,
    Target,
    Txn,
    TxnResult,
)
from coordinator.log.cluster.session import Session
from coordinator.log.cluster.writer import Owned
from coordinator.log.engine import NOBODY, OnOwnership

SETTLE_MS = 1_500
"""The nodes of a cluster start within so long, if one command starts them."""
ORPHAN_MS = 5_000
"""If its best node hasn't claimed it by then, it can't."""
ORPHAN_KEPT_MS, ORPHAN_KEPT_MAX_MS = 30_000, 600_000
"""A hand-over to a node that can't claim leaves the partition without an owner for ORPHAN_MS. So the time doubles, up
to the maximum; once the maximum has passed without need, it is short again.
"""
TAKEN_MS = 10_000
"""The lease of a process that was killed has ended by then: another process with the same node id runs."""
AGAIN_MS = 200
"""Pause before a registration, or a look at what to claim, is tried again."""


class Picture(NamedTuple):
    """The cluster as this node has last seen it; nobody changes it, the next one takes its place.

    nodes: what each node registered, by its id. owners: the owner of each partition, None for nobody. A picture that is
    a little old does no harm: the node that a client is sent to says NOT_COORDINATOR, and the client asks again.
    """

    nodes: Mapping[int, bytes]
    owners: Sequence[int | None]


NO_SHARE = NodeShare(0, frozenset())
"""Of a node that isn't registered."""


class _Orphan(NamedTuple):
    """A partition that this node takes in place of its best node.

    best, registered: that node, and the create revision of its registration. kept_ms, until_ms: how long it is kept.
    """

    best: int | None
    registered: int
    kept_ms: int
    until_ms: int


class Claims:
    """See the module.

    held: the ownerships of this node. acquiring: partitions that are being claimed. on_gone: takes an ownership whose
    own/ppp is gone, although its lease is there. settle_ms: see SETTLE_MS. log: takes facts for the operator.
    picture: the newest. share: the partitions that this node should have. Both are for any thread.
    """

    def __init__(
        self,
        port: Port,
        keys: Keys,
        node_id: int,
        partition_count: int,
        session: Session,
        held: Mapping[int, Owned],
        acquiring: Mapping[int, object],
        on_gone: Callable[[Owned], None],
        settle_ms: int,
        log: Callable[[str, dict[str, object]], None],
    ) -> None:
        self.picture = Picture({}, [None] * partition_count)
        self.share = NO_SHARE
        self._log = log
        self._settle_ms = settle_ms
        self._port = port
        self._keys = keys
        self._node_id = node_id
        self._session = session
        self._held = held
        self._acquiring = acquiring
        self._on_gone = on_gone
        self._count = partition_count
        self._nodes = Follower(port, keys.nodes, self._changed)
        self._owners = Follower(port, keys.owners, self._changed)
        self._on_ownership: OnOwnership | None = None
        self._told: list[tuple[int | None, int] | None] = [None] * self._count
        # Of each partition: of this node's last ownership, or one above if it ended without its wish.
        self._epochs = [-1] * self._count
        self._free_since: dict[int, int] = {}
        # The create revision of own/ppp of partitions that this node gives up.
        self._releasing: dict[int, int] = {}
        self._orphans: dict[int, _Orphan] = {}
        # Keys that the log has a line about.
        self._unreadable: set[bytes] = set()
        self._info: bytes | None = None
        self._claims_from_ms: int | None = None
        # The create revision of this node's registration. Then, if another lease has it: since when, and whether the
        # log has a line about that.
        self._registered = 0
        self._taken_since_ms = 0
        self._is_taken_told = False
        self._is_leaving = False
        self._ended = False

    @property
    def known(self) -> bool:
        """Whether the nodes and the owners are known."""
        return bool(self._nodes.revision and self._owners.revision)

    def follow(self) -> None:
        """Begin to follow the cluster."""
        self._nodes.start()
        self._owners.start()
        self._look()

    def start(self, on_ownership: OnOwnership) -> None:
        """Tell the owner of each partition, and all changes from here on."""
        self._on_ownership = on_ownership
        if not self.known:
            for partition in range(self._count):
                self._tell(partition, NOBODY, -1)
        self._decide()

    def end(self) -> None:
        """Follow no more."""
        self._ended = True
        self._nodes.end()
        self._owners.end()

    def register(self, info: bytes) -> None:
        """Let the other nodes know this one: it is ready to own partitions."""
        self._info = info
        self.announce()

    def announce(self) -> None:
        """Write this node's registration with the present lease, as soon as no other lease has it."""
        lease, info = self._session.lease, self._info
        self._claims_from_ms = None
        self._registered = 0
        self.share = NO_SHARE
        if info is None or not lease or self._is_leaving or self._ended:
            return
        key = self._keys.node(self._node_id)
        absent = Compare(key, Target.CREATE_REVISION, 0)
        self._port.txn(Txn([absent], [Put(key, info, lease)], [Get(key)]), partial(self._announced, lease))

    def _announced(self, lease: int, outcome: TxnResult | Lost | Rejected) -> None:
        if self._session.lease != lease or self._ended:
            return
        created, found = 0, None
        if isinstance(outcome, TxnResult):
            found = None if outcome.succeeded else outcome.gets[0]
            created = outcome.revision if found is None else found.create_revision * (found.lease == lease)
        if created:
            self._is_registered(created)
        elif not self._is_leaving:
            self._port.later(AGAIN_MS, self.announce)
            if found is not None:
                self._taken_since_ms = self._taken_since_ms or self._port.now_ms()
                if not self._is_taken_told and self._port.now_ms() - self._taken_since_ms > TAKEN_MS:
                    self._is_taken_told = True
                    self._log("node_id_taken", {"node": self._node_id})

    def _is_registered(self, created: int) -> None:
        self._registered = created
        self._taken_since_ms = 0
        self._is_taken_told = False
        if self._is_leaving:
            self._take_back()
            return
        is_first = not (self.picture.nodes.keys() - {self._node_id})
        wait_ms = self._settle_ms if is_first else 0
        self._claims_from_ms = self._port.now_ms() + wait_ms
        self._port.later(wait_ms, self._decide)

    def leave(self) -> None:
        """Take the registration back: the other nodes are then better for every partition."""
        self._is_leaving = True
        self._claims_from_ms = None
        self.share = NO_SHARE
        self._take_back()
        self._decide()

    def _take_back(self) -> None:
        # The condition: this may come late, when a new process of this node has registered.
        lease, key = self._session.lease, self._keys.node(self._node_id)

        def told(outcome: TxnResult | Lost | Rejected) -> None:
            if not isinstance(outcome, TxnResult) and self._session.lease == lease and not self._ended:
                self._port.later(AGAIN_MS, self._take_back)

        if self._registered:
            self._port.txn(Txn([Compare(key, Target.CREATE_REVISION, self._registered)], [Delete(key)]), told)

    def acquired(self, own: Owned) -> None:
        """This node owns a partition."""
        self._epochs[own.partition] = own.epoch
        self._tell(own.partition, self._node_id, own.epoch)
        self._decide(own.partition)

    def is_over(self, own: Owned) -> None:
        """An ownership of this node has ended without its wish."""
        self._epochs[own.partition] = own.epoch + 1
        self._tell(own.partition, NOBODY, own.epoch + 1)

    def releases(self, own: Owned) -> None:
        """This node gives a partition up. Nothing is decided about it until its key is seen to be gone."""
        self._releasing[own.partition] = own.claim
        self._told[own.partition] = None

    def released(self, own: Owned) -> None:
        """This node has given a partition up."""
        self._owners.forget(self._keys.own(own.partition))

    def not_released(self, own: Owned) -> None:
        """The store has refused to delete own/ppp: from now on, `_clear` tries it."""
        self._releasing.pop(own.partition, None)

    def not_acquired(self, partition: int) -> None:
        """A claim came to nothing: another node was first, or no lease is there."""
        self._told[partition] = None
        self._port.later(AGAIN_MS, self._decide)

    def _look(self) -> None:
        """Decide again now and then, also if nothing changes."""
        if not self._ended:
            self._port.later(AGAIN_MS * 5, self._look)
            self._decide()

    def _changed(self) -> None:
        if not self.known:
            return
        nodes = {self._read_node(kv): kv.value for kv in self._nodes.keys.values()}
        nodes.pop(NOBODY, None)
        owners: list[int | None] = [None] * self._count
        for key, kv in self._owners.keys.items():
            if 0 <= (partition := self._read(key, key.rpartition(b"/")[2])) < self._count:
                owners[partition] = self._read_owner(kv, nodes)
        self.picture = Picture(nodes, owners)
        if self._registered and self._node_id not in nodes and self._nodes.revision > self._registered:
            self.announce()  # somebody has deleted it
        self._decide()

    def _read(self, key: bytes, number: bytes) -> int:
        """A number in a key or its value; NOBODY if another version wrote it in another way."""
        try:
            return int(number)
        except ValueError:
            return self._unread(key)

    def _read_node(self, kv: KeyValue) -> int:
        """The id of a registered node. A key without a lease is none's: a node of any version registers with one."""
        return self._read(kv.key, kv.key.rpartition(b"/")[2]) if kv.lease else self._unread(kv.key)

    def _read_owner(self, kv: KeyValue, nodes: Collection[int]) -> int | None:
        """The node that own/ppp names; None if that isn't there, and no lease will remove the key."""
        owner = self._read(kv.key, kv.value)
        return owner if kv.lease or owner == NOBODY or owner in nodes else None

    def _unread(self, key: bytes) -> int:
        if key not in self._unreadable:
            self._unreadable.add(key)
            self._log("key_unreadable", {"key": key.decode(errors="replace")})
        return NOBODY

    def _decide(self, *partitions: int) -> None:
        """Decide about these partitions; without any, about all."""
        if self._on_ownership is None or not self.known or self._ended:
            return
        now_ms = self._port.now_ms()
        nodes, owners = self.picture
        others = [node_id for node_id in nodes if node_id != self._node_id or not self._is_leaving]
        missing = set(self.share.missing)
        for partition in partitions or range(self._count):
            best = best_node(partition, others)
            self._decide_about(partition, owners[partition], best, now_ms)
            if best == self._node_id and partition not in self._held:
                missing.add(partition)
            else:
                missing.discard(partition)
        is_whole = not partitions or self.share.registration
        if is_whole and not self._is_leaving and self._registered == self._registration(self._node_id) != 0:
            self.share = NodeShare(self._registered, frozenset(missing))

    def _decide_about(self, partition: int, owner: int | None, best: int | None, now_ms: int) -> None:
        own, epoch = self._held.get(partition), self._epochs[partition]
        # The time in which this node couldn't claim doesn't count: perhaps no node reached the store.
        if owner is not None or own is not None or not self.may_claim:
            self._free_since.pop(partition, None)
        if own is not None:
            if self._is_gone(own):
                self._on_gone(own)
            elif best is not None and best != self._node_id and not self._keeps(partition, best, now_ms):
                self._tell(partition, best, own.epoch)
        elif partition in self._acquiring or self._is_releasing(partition):
            return
        elif owner is None:
            free_ms = now_ms - self._free_since.setdefault(partition, now_ms)
            if not self.may_claim or (best != self._node_id and free_ms < ORPHAN_MS):
                self._tell(partition, NOBODY, epoch)
            elif not self._clear(partition):
                self._take_for(partition, best, now_ms)
                self._tell(partition, None, epoch)
        elif owner == self._node_id:
            self._tell(partition, NOBODY, epoch)
            self._clear(partition)
        else:
            self._tell(partition, owner, epoch)

    def _take_for(self, partition: int, best: int | None, now_ms: int) -> None:
        """This node claims a partition: keep it for a while, if its best node is another one."""
        if best == self._node_id:
            return
        before, registered = self._orphans.get(partition), self._registration(best)
        kept_ms = ORPHAN_KEPT_MS
        if before is not None and (before.best, before.registered) == (best, registered):
            if now_ms < before.until_ms:
                return
            if now_ms < before.until_ms + ORPHAN_KEPT_MAX_MS:
                kept_ms = min(2 * before.kept_ms, ORPHAN_KEPT_MAX_MS)
        self._orphans[partition] = _Orphan(best, registered, kept_ms, now_ms + kept_ms)

    def _keeps(self, partition: int, best: int, now_ms: int) -> bool:
        """Whether this node keeps a partition that it took in place of its best node."""
        orphan = self._orphans.get(partition)
        if orphan is None or self._is_leaving:
            return False
        is_same = orphan.best == best and orphan.registered == self._registration(best)
        return is_same and now_ms < orphan.until_ms

    def _registration(self, node_id: int | None) -> int:
        """The create revision of a node's registration; 0 without one."""
        kv = None if node_id is None else self._nodes.keys.get(self._keys.node(node_id))
        return 0 if kv is None else kv.create_revision

    def _is_gone(self, own: Owned) -> bool:
        kv = self._owners.keys.get(self._keys.own(own.partition))
        is_own = kv is not None and kv.create_revision == own.claim and kv.lease
        return self._owners.revision > own.claim and not is_own

    def _is_releasing(self, partition: int) -> bool:
        kv = self._owners.keys.get(self._keys.own(partition))
        if kv is None or kv.create_revision != self._releasing.get(partition):
            self._releasing.pop(partition, None)
            return False
        return True

    @property
    def may_claim(self) -> bool:
        """Whether this node is registered, and other nodes have had time for that too."""
        from_ms = self._claims_from_ms
        return from_ms is not None and self._port.now_ms() >= from_ms and self._session.valid()

    def _clear(self, partition: int) -> bool:
        """Remove own/ppp, which no owner has, if it has no lease or this node's; False if there is no such key.

        A claim of this node came late, or the store has refused to delete the key; or see the module.
        """
        kv: KeyValue | None = self._owners.keys.get(self._keys.own(partition))
        if kv is not None and kv.lease in {0, self._session.lease}:
            unchanged = Compare(kv.key, Target.MOD_REVISION, kv.mod_revision)
            self._port.txn(Txn([unchanged], [Delete(kv.key)]), partial(self._cleared, kv))
        return kv is not None

    def _cleared(self, kv: KeyValue, outcome: TxnResult | Lost | Rejected) -> None:
        if isinstance(outcome, TxnResult) and outcome.succeeded and not kv.lease:
            self._log("owner_key_removed", {"key": kv.key.decode(), "owner": kv.value.decode()})

    def _tell(self, partition: int, owner: int | None, epoch: int) -> None:
        if self._told[partition] != (owner, epoch) and self._on_ownership is not None:
            self._told[partition] = (owner, epoch)
            self._on_ownership(partition, owner, epoch)


def wait_for(port: Port, condition: Callable[[], bool], then: Callable[[], None]) -> None:
    """Call back as soon as a condition holds; it is looked at every few milliseconds."""
    if condition():
        then()
    else:
        port.later(10, partial(wait_for, port, condition, then))
