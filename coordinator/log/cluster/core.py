"""The engine on a store that nodes share, as it runs on its thread: claims, loads, appends, releases.

It has the methods of `engine.Engine`, all for the engine's thread: `engine.py` adds the thread, and the simulation
drives this module without one. Keys: keys.py. Appends: writer.py. Which partitions: claims.py. The lease: session.py.

**A claim** has two steps. own/ppp, with the node's lease, makes the node the only one that may try. Then the head gets
a higher epoch, under the condition that own/ppp is still the same and the head hasn't changed since it was read. From
there on no append of the former owner can succeed. The partition is read only after that, so nothing is appended behind
the reader.

**A call without an answer** is sent again, unchanged, until the store answers: each of these transactions has a
condition that its own success ends. The other branch then shows whether the store carried an earlier try out.

House rule: nothing here waits, and no key is written without a condition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from coordinator.log.cluster.claims import SETTLE_MS, Claims
from coordinator.log.cluster.keys import NO_HEAD, UNREADABLE, Head, Keys, any_head, prefix_end
from coordinator.log.cluster.port import (
    Compacted,
    Compare,
    Delete,
    Get,
    KeyValue,
    Lost,
    Page,
    Port,
    Put,
    Rejected,
    Target,
    Txn,
    TxnResult,
)
from coordinator.log.cluster.session import Session
from coordinator.log.cluster.writer import Owned, Writer
from coordinator.log.engine import Acquired, Appended, Done, EngineError, Fenced, OnOwnership, Ownership, Unavailable
from coordinator.log.engine import Page as OnPage
from protocol.errors import ProtocolError
from protocol.records.batch import Record
from protocol.records.packing import unpacked

GIVE_UP_MS = 5_000
"""How long an append is sent again. Then its clients get an error; Kafka gives up a commit after the same time
(offsets.commit.timeout.ms).
"""
AGAIN_MS = 20
"""Pause before a transaction without an answer is sent again."""
ASKED_MAX = 120
"""Heads in one read; etcd allows 128 operations."""
PAGE_KEYS_MIN, PAGE_KEYS_MAX = 64, 5_000
PAGE_BYTES = 1_000_000
"""A load reads pages of about so many bytes: it adapts the number of keys that it asks for."""

Log = Callable[[str, dict[str, object]], None]
"""Takes a fact for the operator: a name, and fields."""


class _Claiming(NamedTuple):
    """A claim under way. lease: that it writes own/ppp with. dones: of all who wait for it."""

    lease: int
    dones: list[Acquired]


class Core:
    """See the module.

    keys: of the cluster. ttl_ms: of the lease. log: takes facts for the operator. settle_ms: see claims.
    session: whether this node's lease holds. claims: who is there, and the partitions that it should have. Any thread
    may ask for `claims.picture`, `session.valid()` and `claims.share`.
    """

    def __init__(
        self,
        port: Port,
        keys: Keys,
        node_id: int,
        partition_count: int,
        ttl_ms: int,
        log: Log = lambda _name, _fields: None,
        settle_ms: int = SETTLE_MS,
    ) -> None:
        self.session = Session(port, ttl_ms, self._leased, self._lease_lost)
        self.writer = Writer(keys)
        self._port = port
        self._keys = keys
        self.node_id = node_id
        self._log = log
        self._held: dict[int, Owned] = {}
        self._acquiring: dict[int, _Claiming] = {}
        gone = partial(self._over, reason="somebody has deleted or changed its key")
        self.claims = Claims(
            port, keys, node_id, partition_count, self.session, self._held, self._acquiring, gone, settle_ms, log
        )
        # The number of the transaction of appends that is under way, and when it was first sent.
        self._sent = 0
        self._sent_ms = 0
        self._was_lost = False
        # Callers of ask_whether_newest. The next read answers those in _asking, the read under way those in _asked.
        self._asking: dict[Owned, list[Done]] = {}
        self._asked: dict[Owned, list[Done]] = {}
        # Calls that wait until no append of an ownership is under way.
        self._waiting: list[tuple[Owned, Callable[[], None]]] = []

    @property
    def known(self) -> bool:
        """Whether nodes and owners are known, and the lease is there."""
        return self.claims.known and bool(self.session.lease)

    def owns(self, partition: int) -> bool:
        """Whether this node owns a partition."""
        return partition in self._held

    # The node.

    def begin(self) -> None:
        """Get a lease, and follow the cluster."""
        self.session.start()
        self.claims.follow()

    def end(self, done: Callable[[], None]) -> None:
        """Release everything, once appends are written, and give the lease back."""
        self.claims.end()
        left = list(self._held.values())

        def released(own: Owned, _outcome: EngineError | None) -> None:
            left.remove(own)
            if not left:
                self.session.end(done)

        for own in list(left):
            self.release(own, partial(released, own))
        if not left and not self._held:
            self.session.end(done)

    def _leased(self) -> None:
        self.claims.announce()

    def _lease_lost(self) -> None:
        """Another node may own everything that this one held."""
        self._log("lease_lost", {"partitions": len(self._held)})
        for own in list(self._held.values()):
            self._over(own, "the lease of this node is gone")
        self.claims.announce()

    def _over(self, own: Owned, reason: str) -> None:
        """An ownership has ended without this node's wish."""
        if not own.is_over:
            self.writer.fence(own, reason)
        if self._held.get(own.partition) is own:
            del self._held[own.partition]
            self.claims.is_over(own)
        self._look_at_waiting()

    # Engine.

    def start(self, on_ownership: OnOwnership) -> None:
        """See Engine."""
        self.claims.start(on_ownership)

    def acquire(self, partition: int, done: Acquired) -> None:
        """See Engine. Fenced: another node was first."""
        if partition in self._acquiring:
            self._acquiring[partition].dones.append(done)
            return
        former = self._held.pop(partition, None)
        if former is not None:
            self.writer.fence(former, f"partition {partition} is acquired anew")
        key, lease = self._keys.own(partition), self.session.lease
        self._acquiring[partition] = _Claiming(lease, [done])
        if not lease:
            self._acquired(partition, Fenced("this node has no lease"))
            return
        txn = Txn(
            [Compare(key, Target.CREATE_REVISION, 0)],
            [Put(key, str(self.node_id).encode(), lease)],
            [Get(key)],
        )
        self._sure(txn, partial(self._reserved, partition, lease))

    def _reserved(self, partition: int, lease: int, outcome: TxnResult | Rejected) -> None:
        """The first step of a claim has its outcome."""
        if isinstance(outcome, Rejected):
            self._acquired(partition, Unavailable(outcome.reason))
        elif outcome.succeeded:
            self._read_head(partition, outcome.revision)
        else:
            (found,) = outcome.gets
            if found is not None and found.lease == lease:
                self._read_head(partition, found.create_revision)
            else:
                owner = "nobody" if found is None else f"node {found.value.decode(errors='replace')}"
                self._acquired(partition, Fenced(f"{owner} owns partition {partition}"))

    def _read_head(self, partition: int, claim: int) -> None:
        key = self._keys.head(partition)
        self._sure(Txn([], [Get(key)]), partial(self._raise_epoch, partition, claim))

    def _raise_epoch(self, partition: int, claim: int, outcome: TxnResult | Rejected) -> None:
        """The head is read: set a higher epoch, if nothing has changed."""
        if isinstance(outcome, Rejected):
            self._acquired(partition, Unavailable(outcome.reason))
            return
        (found,) = outcome.gets
        before, modified = (NO_HEAD, 0) if found is None else (any_head(found.value), found.mod_revision)
        own_key, head_key = self._keys.own(partition), self._keys.head(partition)
        if before.epoch == UNREADABLE:
            text = f"{head_key.decode()} has a value that this version can't read: {before.owner!r}"
            self._acquired(partition, EngineError(text))
            return
        head = Head(before.epoch + 1, 0, f"{self.node_id}/{claim}")
        conditions = [
            Compare(own_key, Target.CREATE_REVISION, claim),
            Compare(head_key, Target.MOD_REVISION, modified),
        ]
        txn = Txn(conditions, [Put(head_key, head.text())], [Get(own_key), Get(head_key)])
        self._sure(txn, partial(self._claimed, partition, claim, head))

    def _claimed(self, partition: int, claim: int, head: Head, outcome: TxnResult | Rejected) -> None:
        """The second step of a claim has its outcome."""
        if isinstance(outcome, Rejected):
            self._acquired(partition, Unavailable(outcome.reason))
            return
        if not outcome.succeeded:
            own, found = outcome.gets
            if found is None or any_head(found.value) != head:
                if own is not None and own.create_revision == claim:
                    self._read_head(partition, claim)  # the former owner has appended meanwhile
                else:
                    self._acquired(partition, Fenced(f"the claim of partition {partition} is over"))
                return
        self._acquired(partition, Owned(partition, head, claim, self.session))

    def _acquired(self, partition: int, outcome: Owned | EngineError) -> None:
        lease, dones = self._acquiring.pop(partition)
        if isinstance(outcome, Owned):
            # own/ppp goes with the lease that it was written with, not with one that the node has got since.
            if lease == self.session.lease:
                self._held[partition] = outcome
            else:
                outcome = Fenced("the lease of this node is gone")
        if isinstance(outcome, Fenced):
            self.claims.not_acquired(partition)
        for done in dones:
            done(outcome)
        # Last: a wish to hand the partition over must find its owner.
        if isinstance(outcome, Owned) and self._held.get(partition) is outcome:
            self.claims.acquired(outcome)

    def load(self, own: Ownership, page: OnPage, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, Owned)
        own.closed = own.closed or "loading"
        self._when_quiet(own, partial(self._load, own, page, done))

    def _load(self, own: Owned, page: OnPage, done: Done) -> None:
        if own.is_over:
            done(Fenced.of(own))
        elif own.unknown:
            self._sure(self.writer.barrier(own), partial(self._barred, own, page, done))
        else:
            self._load_page(own, page, done, self._keys.log(own.partition), 0, PAGE_KEYS_MIN)

    def _barred(self, own: Owned, page: OnPage, done: Done, outcome: TxnResult | Rejected) -> None:
        """The barrier behind a transaction without an answer has its outcome."""
        if isinstance(outcome, Rejected):
            done(Unavailable(outcome.reason))
            return
        if not outcome.succeeded:
            (found,) = outcome.gets
            if found is None or any_head(found.value) != own.head.next():
                self._over(own, f"partition {own.partition} was claimed")
                self._load(own, page, done)
                return
        own.head = own.head.next()
        own.unknown = False
        self._load(own, page, done)

    def _load_page(self, own: Owned, page: OnPage, done: Done, start: bytes, revision: int, limit: int) -> None:
        prefix = self._keys.log(own.partition)

        def told(outcome: Page | Compacted | Lost | Rejected) -> None:
            if own.is_over:
                self._load(own, page, done)
            elif isinstance(outcome, Lost):  # perhaps because so large a page takes longer than a try
                less = max(limit // 2, 1)
                self._port.later(AGAIN_MS, partial(self._load_page, own, page, done, start, revision, less))
            elif isinstance(outcome, Rejected) and limit > 1:  # a page that is too large for gRPC
                self._load_page(own, page, done, start, revision, max(limit // 8, 1))
            elif isinstance(outcome, Rejected):
                done(Unavailable(f"{self._port.store} refuses to read: {outcome.reason}"))
            elif isinstance(outcome, Compacted):
                done(Unavailable("the history that the load needs was compacted"))
            else:
                try:
                    records = [Record(kv.key[len(prefix) :], unpacked(kv.value), 0) for kv in outcome.kvs]
                except ProtocolError as error:
                    done(EngineError(f"it holds a record that can't be read: {error}"))
                    return
                if records:
                    page(records)
                if outcome.more:
                    size = sum(len(kv.value) for kv in outcome.kvs)
                    wanted = len(records) * PAGE_BYTES // max(size, 1)
                    more = min(max(wanted, PAGE_KEYS_MIN), PAGE_KEYS_MAX, limit * 8)
                    after = outcome.kvs[-1].key + b"\0"
                    self._load_page(own, page, done, after, revision or outcome.revision, more)
                else:
                    own.closed = ""
                    done(None)

        self._port.range(start, prefix_end(prefix), told, limit=limit, revision=revision)

    def ask_whether_newest(self, own: Ownership, done: Done) -> None:
        """Ask whether an ownership is the newest of its partition, so that what the node remembers may be told.

        done: None; Fenced; or Unavailable if no answer comes to this one try. A read answers all who asked before it.
        """
        assert isinstance(own, Owned)
        self._asking.setdefault(own, []).append(done)
        if not self._asked:
            self._ask()

    def _ask(self) -> None:
        chosen = list(self._asking)[:ASKED_MAX]
        self._asked = {own: self._asking.pop(own) for own in chosen}
        if chosen:
            gets = [Get(self._keys.head(own.partition)) for own in chosen]
            self._port.txn(Txn([], gets), self._newest_known)

    def _newest_known(self, outcome: TxnResult | Lost | Rejected) -> None:
        asked, self._asked = self._asked, {}
        found: list[KeyValue | None] = outcome.gets if isinstance(outcome, TxnResult) else [None] * len(asked)
        for (own, dones), kv in zip(asked.items(), found, strict=True):
            head = NO_HEAD if kv is None else any_head(kv.value)
            error: EngineError | None = None
            if isinstance(outcome, TxnResult) and (head.epoch, head.owner) != (own.epoch, own.head.owner):
                self._over(own, "another node has claimed it")
            if own.is_over:
                error = Fenced.of(own)
            elif not isinstance(outcome, TxnResult):
                error = Unavailable(f"{self._port.store} doesn't answer: {outcome.reason}")
            for done in dones:
                done(error)
        if not self._asked:
            self._ask()

    def append(self, own: Ownership, batches: list[list[Record]], done: Appended) -> None:
        """See Engine."""
        assert isinstance(own, Owned)
        assert batches
        assert all(batches)
        self.writer.append(own, batches, done)
        self._pump()

    def _pump(self) -> None:
        txn = self.writer.next()
        if txn is not None:
            self._sent_ms = self._port.now_ms()
            self._was_lost = False
            self._send(txn)

    def _send(self, txn: Txn) -> None:
        self._sent += 1
        self._port.txn(txn, partial(self._told, self._sent, txn))

    def _told(self, number: int, txn: Txn, outcome: TxnResult | Lost | Rejected) -> None:
        if number != self._sent or not self.writer.under_way:
            return
        if isinstance(outcome, TxnResult):
            again = self.writer.told(outcome)
            self._end_fenced()
            if again is not None:
                self._send(again)
                return
            self._was_lost = False
        elif isinstance(outcome, Rejected):
            error = Unavailable(f"{self._port.store} refuses to write: {outcome.reason}")
            self._port.txn(self.writer.heads(), partial(self._refused, number, error))
            return
        elif self._port.now_ms() < self._sent_ms + GIVE_UP_MS:
            self._was_lost = True
            self._port.later(AGAIN_MS, partial(self._resend, number, txn))
            return
        else:
            self.writer.give_up(Unavailable(f"{self._port.store} doesn't answer: {outcome.reason}"))
        self._look_at_waiting()
        self._pump()

    def _refused(self, number: int, error: Unavailable, outcome: TxnResult | Lost | Rejected) -> None:
        """The heads are read after a transaction was refused."""
        if number != self._sent or not self.writer.under_way:
            return
        if isinstance(outcome, TxnResult):
            self.writer.was_refused(outcome, error, was_lost=self._was_lost)
            self._end_fenced()
        elif self._port.now_ms() < self._sent_ms + GIVE_UP_MS:
            self._port.later(
                AGAIN_MS, lambda: self._port.txn(self.writer.heads(), partial(self._refused, number, error))
            )
            return
        else:
            self.writer.give_up(error)
        self._look_at_waiting()
        self._pump()

    def _end_fenced(self) -> None:
        for own in [each for each in self._held.values() if each.is_over]:
            self._over(own, "another node has claimed it")

    def _resend(self, number: int, txn: Txn) -> None:
        if number == self._sent and self.writer.under_way:
            self._send(txn)

    def release(self, own: Ownership, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, Owned)
        self._when_quiet(own, partial(self._release, own, done))

    def _release(self, own: Owned, done: Done) -> None:
        if self._held.get(own.partition) is not own:
            done(None)
            return
        self.writer.fence(own, "it was released")
        del self._held[own.partition]
        self.claims.releases(own)
        key, lease = self._keys.own(own.partition), self.session.lease

        def told(outcome: TxnResult | Rejected) -> None:
            if isinstance(outcome, Rejected):
                self.claims.not_released(own)
            elif outcome.succeeded:
                self.claims.released(own)
            done(None)

        # If the lease ends first, the store deletes the key by itself.
        txn = Txn([Compare(key, Target.CREATE_REVISION, own.claim)], [Delete(key)])
        self._sure(txn, told, lambda: self.session.lease == lease)

    def _when_quiet(self, own: Owned, call: Callable[[], None]) -> None:
        """Call when no append of an ownership is under way or waits."""
        self._waiting.append((own, call))
        self._look_at_waiting()

    def _look_at_waiting(self) -> None:
        ready = [each for each in self._waiting if not self.writer.busy_with(each[0])]
        self._waiting = [each for each in self._waiting if each not in ready]
        for _, call in ready:
            call()

    def _sure(
        self, txn: Txn, done: Callable[[TxnResult | Rejected], None], wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Send a transaction until the store answers, or nobody wants the answer any more."""

        def told(outcome: TxnResult | Lost | Rejected) -> None:
            if not isinstance(outcome, Lost):
                done(outcome)
            elif wanted():
                self._port.later(AGAIN_MS, partial(self._sure, txn, done, wanted))
            else:
                done(Rejected(outcome.reason, 0))

        self._port.txn(txn, told)
