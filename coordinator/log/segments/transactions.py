"""Commits of offsets inside transactions, while a log is read: they wait for the marker that ends their transaction.

A producer has at most one transaction open in a partition; its batches say that they are transactional. A control
batch with a marker ends it: committed, its records count, and aborted, they never did. A marker without a transaction
means nothing, as compaction leaves markers longer than the records. It ends its producer's transaction whatever its
epoch is: a broker takes none of an older epoch than the records, and that of a fenced producer has a newer one.

Which record of a key is the last is decided by the records' offsets and not by the marker's (Kafka 4:
OffsetMetadataManager.replayEndTransactionMarker). A record that is applied therefore ends the waiting of all earlier
ones with its key, a tombstone too, and what a commit hands on is later than all that was handed on before.

House rule: memory is that of the open transactions, the last record per key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, KeysView
from typing import NamedTuple

from protocol.records.batch import Record

COMMIT = 1
"""The type in the key of a marker that commits its transaction (Kafka: ControlRecordType); an abort is 0."""

_ABORT = 0
_marker_key = struct.Struct(">hh")


class _Waiting(NamedTuple):
    offset: int
    record: Record


def marker_type(key: bytes) -> int | None:
    """Return whether a control record ends a transaction: COMMIT, 0 for an abort, None for any other kind of record.

    Raises ValueError for a key too short to say.
    """
    if len(key) < _marker_key.size:
        raise ValueError(f"a marker's key of {len(key)} bytes")
    number: int = _marker_key.unpack_from(key)[1]
    return number if number in {_ABORT, COMMIT} else None


class Transactions:
    """The transactions that are open at one position of a log; its methods are called in the order of the records."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, dict[int, _Waiting]] = {}
        self._keys: dict[int, dict[bytes, None]] = {}

    @property
    def open_count(self) -> int:
        """How many have no end yet."""
        return len(self._keys)

    @property
    def waiting_count(self) -> int:
        """How many records would count if all of them were committed, the last of each key and producer."""
        return sum(map(len, self._waiting.values()))

    def add(self, producer_id: int, offsets: Iterable[int], records: Iterable[Record]) -> None:
        """Take the records of a transactional batch."""
        keys = self._keys.setdefault(producer_id, {})
        for offset, record in zip(offsets, records, strict=True):
            keys[record.key] = None
            self._waiting.setdefault(record.key, {})[producer_id] = _Waiting(offset, record)

    def supersede(self, keys: KeysView[bytes]) -> None:
        """Drop waiting records with these keys: later records outside of transactions have the same keys."""
        for key in keys & self._waiting.keys():
            del self._waiting[key]

    def end(self, producer_id: int, marker: int) -> list[Record]:
        """End the transaction of `producer_id` as `marker` says; return the records that count from now on."""
        counting = []
        for key in self._keys.pop(producer_id, ()):
            others = self._waiting.get(key)
            ended = others.pop(producer_id, None) if others else None
            if others and ended is not None and marker == COMMIT:
                others = {other: waits for other, waits in others.items() if waits.offset > ended.offset}
                self._waiting[key] = others
            if not others:
                self._waiting.pop(key, None)
            if ended is not None and marker == COMMIT:
                counting.append(ended.record)
        return counting
