"""Offset commits inside transactions, while a log is read: they wait for the marker that ends their transaction.

A producer has at most one open transaction in a partition; its batches have the transactional flag. A control batch
with a marker ends the transaction: the records of a committed one are applied, those of an aborted one are dropped. A
marker without a transaction is ignored, as compaction keeps markers longer than records. The marker's epoch is not
compared with that of the records: a broker refuses a marker with an older epoch, and a fenced producer's marker has a
newer one.

The last record of a key is the one with the highest offset of its own; the marker's offset doesn't count (Kafka 4:
OffsetMetadataManager.replayEndTransactionMarker). So behind an applied record no earlier waiting record with its key
counts, and a commit hands on only records that are later than those handed on before it. A waiting record that doesn't
count still waits for its marker: meanwhile the key is unstable. A tombstone ends that too.

House rule: the memory holds the last record per key of each open transaction, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from protocol.records.batch import CONTROL, TRANSACTIONAL, Batch, CorruptBatch, Header, Record
from protocol.records.walk import decode_records

COMMIT = 1
"""The type in the key of a marker that commits its transaction (Kafka: ControlRecordType); the type of an abort is 0.
"""

NO_EPOCH = -1
"""In place of a producer's epoch: what waits is kept by its id alone."""

_ABORT = 0
_marker_key = struct.Struct(">hh")
_marker_value = struct.Struct(">hi")


class _Waiting(NamedTuple):
    offset: int
    record: Record
    counts: bool = True


def marker_type(key: bytes) -> int | None:
    """Return how a control record ends a transaction: COMMIT, 0 for an abort, None for any other kind of record.

    Raises ValueError if the key is too short.
    """
    if len(key) < _marker_key.size:
        raise ValueError(f"a marker's key of {len(key)} bytes")
    number: int = _marker_key.unpack_from(key)[1]
    return number if number in {_ABORT, COMMIT} else None


def coordinator_epoch_of(value: bytes | None) -> int:
    """The epoch of the coordinator in a marker's value; NO_EPOCH if it is too short to have one."""
    return NO_EPOCH if value is None or len(value) < _marker_value.size else int(_marker_value.unpack_from(value)[1])


def marker_of(data: bytes, at: int, header: Header) -> tuple[int | None, int]:
    """The way in which the control batch at `at` ends a transaction (`marker_type`), and its coordinator's epoch.

    Raises CorruptBatch.
    """
    try:
        found = decode_records(data, at, header).records
        return (marker_type(found[0].key), coordinator_epoch_of(found[0].value)) if found else (None, NO_EPOCH)
    except ValueError as error:
        raise CorruptBatch(at, str(error)) from error


class Transactions:
    """The transactions that are open at one position of a log; calls come in the order of the records."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, dict[int, _Waiting]] = {}
        self._keys: dict[int, dict[bytes, None]] = {}

    @property
    def open_count(self) -> int:
        """The number of open transactions."""
        return len(self._keys)

    @property
    def waiting_count(self) -> int:
        """The number of waiting records: the last record of each key and producer."""
        return sum(map(len, self._waiting.values()))

    def take(
        self, producer_id: int, attributes: int, offsets: Iterable[int], records: Sequence[Record]
    ) -> Iterable[Record]:
        """Take the next batch; return the records that count with it: its own, or those of the end of a transaction.

        attributes: of the batch. Raises ValueError for a marker that is too short.
        """
        if attributes & CONTROL:
            markers = [marker for record in records if (marker := marker_type(record.key)) is not None]
            return [record for marker in markers for record in self.end(producer_id, marker)]
        if attributes & TRANSACTIONAL:
            self.add(producer_id, offsets, records)
            return ()
        self.supersede({key: (value, timestamp_ms) for key, value, timestamp_ms in records})
        return records

    def add(self, producer_id: int, offsets: Iterable[int], records: Iterable[Record]) -> None:
        """Let the records of a transactional batch wait."""
        keys = self._keys.setdefault(producer_id, {})
        for offset, record in zip(offsets, records, strict=True):
            keys[record.key] = None
            self._waiting.setdefault(record.key, {})[producer_id] = _Waiting(offset, record)

    def supersede(self, last: Mapping[bytes, tuple[bytes | None, int]]) -> None:
        """Later records outside of transactions have these values, and times, by key."""
        for key in last.keys() & self._waiting.keys():
            if last[key][0] is None:
                del self._waiting[key]
            else:
                self._supersede(key, before=None)

    def _supersede(self, key: bytes, before: int | None) -> None:
        """A later record of a key counts; before: its offset, None: behind all that waits."""
        for producer_id, waits in self._waiting[key].items():
            if before is None or waits.offset < before:
                self._waiting[key][producer_id] = waits._replace(counts=False)

    def open(self) -> Iterator[Batch]:
        """The waiting records in the order of the log: a batch for each record, with its producer's id.

        A record that doesn't count has no value.
        """
        waiting = [(each, producer_id) for ids in self._waiting.values() for producer_id, each in ids.items()]
        for (_, record, counts), producer_id in sorted(waiting, key=lambda held: held[0].offset):
            yield Batch([record if counts else record._replace(value=None)], producer_id, NO_EPOCH)

    def end(self, producer_id: int, marker: int) -> list[Record]:
        """End the transaction of `producer_id` by the type of its marker; return the records to apply."""
        counting = []
        for key in self._keys.pop(producer_id, ()):
            ended = self._waiting.get(key, {}).pop(producer_id, None)
            if ended is None:
                continue
            if ended.counts and marker == COMMIT:
                counting.append(ended.record)
                self._supersede(key, ended.offset)
            if not self._waiting[key]:
                del self._waiting[key]
        return counting
