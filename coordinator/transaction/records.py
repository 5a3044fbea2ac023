"""A transactional id becomes a record of `__transaction_state`, and a record becomes an id; nowhere else.

`Replay` turns the records of a partition into its ids. The formats are Kafka's: value version 1, as Kafka 4 writes it;
version 0, as Kafka 3.9 does, is read too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from coordinator.transaction.state import NO_PRODUCER_ID, Status, TopicPartition, TransactionalId
from protocol.errors import ProtocolError
from protocol.messages import TransactionLogKey, TransactionLogValue, decode, encode, writer
from protocol.records.batch import Record
from protocol.speed import new

KEY_VERSION, VALUE_VERSION = 0, 1
VALUE_VERSIONS = range(2)
_int16 = struct.Struct(">h")
_KEY_START = _int16.pack(KEY_VERSION)

_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
"""The fields of a value before its partitions, with the version, and those between partitions and tags. All of them
have a fixed size. A producer's transactions repeat the rest, so it is encoded once and remembered."""
_STATUS_END = _HEAD.size - _int16.size
_NO_PARTITIONS_SIZE = (4, 1)
"""Of null, in each version."""
NO_TAGS = NO_PRODUCER_ID, NO_PRODUCER_ID, 0

VALUES_CACHED_MAX = 4_096
PARTITIONS_CACHED_MAX = 4
"""Partitions of a transaction whose bytes are remembered: names of topics may be long."""


def key_of(transactional_id: str) -> bytes:
    """The key of an id's record."""
    return _KEY_START + writer(TransactionLogKey, KEY_VERSION)(transactional_id)


def transactional_id_of(key: bytes) -> str:
    """The id in the key of a record. Raises ProtocolError."""
    version = _version(key)
    if version != KEY_VERSION:
        raise ProtocolError(f"unknown key version {version}")
    return decode(TransactionLogKey, key, version, _int16.size).transactional_id


def record_of(known: TransactionalId, wall_ms: int, version: int = VALUE_VERSION) -> Record:
    """The record of an id, written at `wall_ms`. version: of the value; version 0 leaves out what Kafka 3.9 lacks."""
    partitions = None if known.partitions is None else tuple(sorted(known.partitions))
    is_small = partitions is None or len(partitions) <= PARTITIONS_CACHED_MAX
    value = b"".join(
        (
            _HEAD.pack(version, known.producer_id, known.epoch, known.timeout_ms, known.status),
            (_partitions if is_small else _partitions.__wrapped__)(partitions, version),
            _TIMES.pack(known.update_ms, known.start_ms),
            _tags(known.previous_producer_id, known.next_producer_id, known.client_version, version),
        )
    )
    return new(Record, (key_of(known.group_id), value, wall_ms))


@lru_cache(VALUES_CACHED_MAX)
def _partitions(partitions: tuple[TopicPartition, ...] | None, version: int) -> bytes:
    """The bytes of a value between its status and its times."""
    value = TransactionLogValue(transaction_partitions=None if partitions is None else partitions_of(partitions))
    return encode(value, version)[_STATUS_END : -_TIMES.size - len(_tags(*NO_TAGS, version))]


@lru_cache(VALUES_CACHED_MAX)
def _tags(previous_producer_id: int, next_producer_id: int, client_version: int, version: int) -> bytes:
    """The bytes of a value behind its times."""
    value = TransactionLogValue(
        transaction_partitions=None,
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        client_transaction_version=client_version,
    )
    return encode(value, version)[_STATUS_END + _NO_PARTITIONS_SIZE[version] + _TIMES.size :]


def tombstone_of(transactional_id: str, wall_ms: int) -> Record:
    """The record of an id that has expired."""
    return Record(key_of(transactional_id), None, wall_ms)


def partitions_of(partitions: Iterable[TopicPartition]) -> list[TransactionLogValue.PartitionsSchema]:
    """The partitions by topic."""
    return [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=list(map(itemgetter(1), group)))
        for topic, group in groupby(sorted(partitions), itemgetter(0))
    ]


def decode_id(transactional_id: str, value: bytes) -> TransactionalId:
    """The id in a value. Raises ProtocolError."""
    version = _version(value)
    if version not in VALUE_VERSIONS:
        raise ProtocolError(f"transactional id {transactional_id!r}: unknown value version {version}")
    read = decode(TransactionLogValue, value, version, _int16.size)
    if read.transaction_status not in list(Status):
        raise ProtocolError(f"transactional id {transactional_id!r}: unknown status {read.transaction_status}")
    partitions = None
    if read.transaction_partitions is not None:
        partitions = {
            TopicPartition(each.topic, index) for each in read.transaction_partitions for index in each.partition_ids
        }
    return TransactionalId(
        transactional_id,
        read.producer_id,
        read.producer_epoch,
        read.transaction_timeout_ms,
        Status(read.transaction_status),
        partitions,
        read.transaction_start_timestamp_ms,
        read.transaction_last_update_timestamp_ms,
        NO_PRODUCER_ID if version == 0 else read.previous_producer_id,
        NO_PRODUCER_ID if version == 0 else read.next_producer_id,
        0 if version == 0 else read.client_transaction_version,
    )


def _version(data: bytes) -> int:
    if len(data) < _int16.size:
        raise ProtocolError(f"a key or value of {len(data)} bytes")
    version: int = _int16.unpack_from(data)[0]
    return version


class Replay:
    """Turns the records of a partition, in their order, into its transactional ids.

    skipped: how many records have a key version that this coordinator doesn't know, by version.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, bytes] = {}
        self.skipped: dict[int, int] = {}

    def add(self, page: Iterable[Record]) -> None:
        """Take the next records. Raises ProtocolError for a key too short for a version."""
        for key, value, _ in page:
            version = _version(key)
            if version != KEY_VERSION:
                self.skipped[version] = self.skipped.get(version, 0) + 1
            elif value is None:
                self._last.pop(key, None)
            else:
                self._last[key] = value

    def groups_in_steps(self) -> Iterator[TransactionalId]:
        """Yield each id once. Raises ProtocolError for bytes it can't decode."""
        while self._last:
            key, value = self._last.popitem()
            yield decode_id(transactional_id_of(key), value)

    def size_of(self, _known: TransactionalId) -> int:
        """How many parts of an id were decoded since the last pause."""
        return 1
