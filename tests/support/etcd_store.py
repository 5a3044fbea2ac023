"""The state of etcd's members as one value: keys with their history, and leases. Part of `etcd_model`.

All members apply the same requests in the same order, so one store stands for all of them. A request is applied at
once, whole or not at all. The model knows which changes a member hasn't heard of yet.

House rule: no time, no chance, no callback. Real etcd answers the same (tests/support/test_etcd_store.py).
"""

from __future__ import annotations

from bisect import bisect_right, insort

from coordinator.log.cluster.port import (
    Compacted,
    Compare,
    Delete,
    Event,
    Get,
    KeyValue,
    Page,
    Put,
    Rejected,
    Target,
    Txn,
    TxnResult,
)

COMPARES_MAX = 128
"""etcd's default of --max-txn-ops."""

OPERATIONS_MAX = 4_096
"""Operations of a branch. The client nests them, so that etcd's default is enough for more than --max-txn-ops."""

REQUEST_MAX = 1_572_864
"""etcd's default of --max-request-bytes."""

INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, OUT_OF_RANGE = 3, 5, 9, 11
RESOURCE_EXHAUSTED = 8
"""Codes of gRPC that etcd refuses with."""

BYTES_PER_VERSION = 100
"""About what one version takes in etcd's file beside its key and value."""


class Store:
    """See the module.

    revision: grows by one with each request that changes a key. compacted: history up to here is gone.
    leases: the keys of each lease. limit: how many bytes fit; None for no limit. is_full: an alarm, until disarmed.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.revision = 1
        self.compacted = 0
        self.leases: dict[int, set[bytes]] = {}
        self.limit = limit
        self.is_full = False
        self.size = 0
        # Versions of each key, oldest first: its state, or a KeyValue without revision of creation for a deletion.
        self._versions: dict[bytes, list[KeyValue]] = {}
        self._keys: list[bytes] = []
        # Keys changed by each revision, in the order of the request.
        self._changed: dict[int, list[bytes]] = {}

    # Requests.

    def txn(self, txn: Txn) -> TxnResult | Rejected:
        """Apply a transaction."""
        refusal = self._malformed(txn)
        if refusal is not None:
            return refusal
        succeeded = all(self._holds(compare) for compare in txn.compares)
        branch: tuple[Put | Delete | Get, ...] = tuple(txn.success if succeeded else txn.failure)
        puts = [each for each in branch if isinstance(each, Put)]
        if any(put.lease and put.lease not in self.leases for put in puts):
            return Rejected("etcdserver: requested lease not found", NOT_FOUND)
        if self._has_no_space(txn):
            return Rejected("etcdserver: mvcc: database space exceeded", RESOURCE_EXHAUSTED)
        gets: list[KeyValue | None] = []
        changed: list[bytes] = []
        for operation in branch:
            if isinstance(operation, Put):
                self._put(operation, self.revision + 1)
                changed.append(operation.key)
            elif isinstance(operation, Delete):
                if self._delete(operation.key, self.revision + 1):
                    changed.append(operation.key)
            else:
                gets.append(self.get(operation.key))
        self._close_revision(changed)
        return TxnResult(succeeded, self.revision, gets)

    def range(
        self, start: bytes, end: bytes, limit: int, revision: int, *, keys_only: bool
    ) -> Page | Compacted | Rejected:
        """The keys from `start` up to `end`, which is left out; at most `limit`, 0 for all. revision: 0 for now."""
        refusal = self._beyond(revision)
        if refusal is not None:
            return refusal
        at = revision or self.revision
        found: list[KeyValue] = []
        for key in self._keys[self._place(start) : self._place(end)]:
            kv = self._at(key, at)
            if kv is not None:
                found.append(kv._replace(value=b"") if keys_only else kv)
        taken = found[:limit] if limit else found
        return Page(self.revision, taken, more=len(taken) < len(found))

    def compact(self, revision: int) -> Rejected | None:
        """Forget versions that were replaced by then."""
        if 0 < revision <= self.compacted or revision < 0:
            return Rejected("etcdserver: mvcc: required revision has been compacted", OUT_OF_RANGE)
        if revision > self.revision:
            return Rejected("etcdserver: mvcc: required revision is a future revision", OUT_OF_RANGE)
        self.compacted = revision
        for key in list(self._versions):
            versions = self._versions[key]
            keep = max(bisect_right(versions, revision, key=_revision_of) - 1, 0)
            if versions[keep].mod_revision <= revision and not versions[keep].create_revision:
                keep += 1
            self.size -= sum(map(_size, versions[:keep]))
            del versions[:keep]
            if not versions:
                del self._versions[key]
                self._keys.remove(key)
        for each in [each for each in self._changed if each < revision]:
            del self._changed[each]
        return None

    def grant(self, lease: int) -> Rejected | None:
        """A new lease."""
        if lease in self.leases:
            return Rejected("etcdserver: lease already exists", FAILED_PRECONDITION)
        if self.is_full:
            return Rejected("etcdserver: mvcc: database space exceeded", RESOURCE_EXHAUSTED)
        self.leases[lease] = set()
        return None

    def revoke(self, lease: int) -> bool:
        """End a lease: its keys go, all at one revision. False if there is none."""
        keys = self.leases.get(lease)
        if keys is None:
            return False
        changed = [key for key in sorted(keys) if self._delete(key, self.revision + 1)]
        self._close_revision(changed)
        del self.leases[lease]
        return True

    # For watches and tests.

    def get(self, key: bytes) -> KeyValue | None:
        """The present state of a key."""
        versions = self._versions.get(key)
        return versions[-1] if versions and versions[-1].create_revision else None

    def events(self, prefix: bytes, start: int) -> list[list[Event]]:
        """The changes of keys with a prefix from revision `start` on: a list for each revision that has some."""
        found = []
        for revision in range(max(start, self.compacted), self.revision + 1):
            keys = [key for key in self._changed.get(revision, ()) if key.startswith(prefix)]
            events = [event for event in (self._event(key, revision) for key in keys) if event is not None]
            if events:
                found.append(events)
        return found

    def compacted_for(self, start: int) -> Compacted | None:
        """Why a watch from `start` can't be served; None if it can."""
        return Compacted() if start < self.compacted else None

    # The parts.

    def _malformed(self, txn: Txn) -> Rejected | None:
        if len(txn.compares) > COMPARES_MAX or max(len(txn.success), len(txn.failure)) > OPERATIONS_MAX:
            return Rejected("etcdserver: too many operations in txn request", INVALID_ARGUMENT)
        puts = [each.key for each in txn.success if isinstance(each, Put)]
        deletes = {each.key for each in txn.success if isinstance(each, Delete)}
        if len(set(puts)) < len(puts) or deletes & set(puts):
            return Rejected("etcdserver: duplicate key given in txn request", INVALID_ARGUMENT)
        if sum(len(each.key) + len(each.value) for each in txn.success if isinstance(each, Put)) > REQUEST_MAX:
            return Rejected("etcdserver: request is too large", INVALID_ARGUMENT)
        return None

    def _has_no_space(self, txn: Txn) -> bool:
        """etcd looks at both branches, and raises the alarm with the first request that is too much."""
        has_puts = any(isinstance(each, Put) for each in txn.success)
        if has_puts and self.limit is not None and self.size > self.limit:
            self.is_full = True
        return has_puts and self.is_full

    def _holds(self, compare: Compare) -> bool:
        kv = self.get(compare.key)
        if compare.target is Target.VALUE:
            return kv is not None and kv.value == compare.value
        if compare.target is Target.CREATE_REVISION:
            return (kv.create_revision if kv else 0) == compare.value
        return (kv.mod_revision if kv else 0) == compare.value

    def _put(self, put: Put, revision: int) -> None:
        former = self.get(put.key)
        if former is not None and former.lease:
            self.leases[former.lease].discard(put.key)
        if put.lease:
            self.leases[put.lease].add(put.key)
        created = former.create_revision if former is not None else revision
        self._add(KeyValue(put.key, put.value, created, revision, put.lease))

    def _delete(self, key: bytes, revision: int) -> bool:
        former = self.get(key)
        if former is None:
            return False
        if former.lease:
            self.leases[former.lease].discard(key)
        self._add(KeyValue(key, b"", 0, revision, 0))
        return True

    def _add(self, version: KeyValue) -> None:
        if version.key not in self._versions:
            self._versions[version.key] = []
            insort(self._keys, version.key)
        self._versions[version.key].append(version)
        self.size += _size(version)

    def _close_revision(self, changed: list[bytes]) -> None:
        if changed:
            self.revision += 1
            self._changed[self.revision] = changed

    def _at(self, key: bytes, revision: int) -> KeyValue | None:
        versions = self._versions[key]
        place = bisect_right(versions, revision, key=_revision_of)
        return versions[place - 1] if place and versions[place - 1].create_revision else None

    def _event(self, key: bytes, revision: int) -> Event | None:
        """The change of a key at a revision; None if a compaction has removed it."""
        versions = self._versions.get(key, [])
        place = bisect_right(versions, revision, key=_revision_of) - 1
        if place < 0 or versions[place].mod_revision != revision:
            return None
        return Event(versions[place], is_delete=not versions[place].create_revision)

    def _place(self, key: bytes) -> int:
        return bisect_right(self._keys, key) - (key in self._versions)

    def _beyond(self, revision: int) -> Compacted | Rejected | None:
        if revision > self.revision:
            return Rejected("etcdserver: mvcc: required revision is a future revision", OUT_OF_RANGE)
        if revision and revision < self.compacted:
            return Compacted()
        return None


def _revision_of(version: KeyValue) -> int:
    return version.mod_revision


def _size(version: KeyValue) -> int:
    return BYTES_PER_VERSION + len(version.key) + len(version.value)
