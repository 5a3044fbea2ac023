"""The idempotent producers of a topic partition: whether a batch is the next one, a repetition, or out of order.

A producer numbers its records within a partition. The log remembers the last batches of each producer. If a producer
sends one of them again because it got no response, it gets the response again, and the batch isn't written twice. Load
and append build this memory from the batches in the log, so a restart doesn't change it.

House rule: no I/O. Source: KIP-98; Kafka's ProducerStateManager and ProducerAppendInfo, release 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coordinator.log.segments.transactions import NO_EPOCH
from protocol.records.batch import Header
from schemas.errors import ErrorCode

BATCHES_KEPT = 5
"""Batches that a producer may send before a response, and so the batches that it may send again."""

PRODUCERS_MAX = 10_000
"""Producers remembered in one partition. The producer whose last batch is oldest is forgotten first. Kafka forgets it
after producer.id.expiration.ms, which this log doesn't use.
"""

NO_TIME = NO_SEQUENCE = -1

_SEQUENCES = 2**31


class _Sent(NamedTuple):
    """A batch that is in the log."""

    first: int
    last: int
    base_offset: int
    timestamp_ms: int


class _Producer:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_ms")

    def __init__(self, epoch: int, coordinator_epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_ms = NO_TIME
        self.batches: list[_Sent] = []


class Described(NamedTuple):
    """A producer. last_ms: the time of its last batch or marker. coordinator_epoch: of its last marker, -1 before."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_ms: int
    coordinator_epoch: int


class DuplicateBatch(NamedTuple):
    """The batch is in the log already, at `base_offset`; timestamp_ms: its largest."""

    base_offset: int
    timestamp_ms: int


class Producers:
    """The producers of one topic partition."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def check(self, header: Header, *, is_v2: bool = False) -> ErrorCode | DuplicateBatch:
        """Whether a batch may be appended (NONE), is there already, or why it may not.

        is_v2: the producer counts from 0 in each transaction (KIP-890). Of another one that is unknown any number is
        taken: the log may have been deleted under it.
        """
        producer = self._by_id.get(header.producer_id)
        first = header.base_sequence
        if header.producer_id < 0:
            return ErrorCode.NONE
        if producer is None:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_v2 and first else ErrorCode.NONE
        if header.producer_epoch == producer.epoch:
            last = last_sequence(header)
            for sent in producer.batches:
                if (sent.first, sent.last) == (first, last):
                    return DuplicateBatch(sent.base_offset, sent.timestamp_ms)
            expected = (producer.batches[-1].last + 1) % _SEQUENCES if producer.batches else 0
        elif header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        else:
            expected = 0
        return ErrorCode.NONE if first == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, *, is_higher: bool) -> ErrorCode:
        """As `marker_error`."""
        return marker_error(self._by_id.get(producer_id), epoch, coordinator_epoch, is_higher=is_higher)

    def describe(self) -> Iterator[Described]:
        """All of them."""
        for producer_id, each in self._by_id.items():
            last = each.batches[-1].last if each.batches else NO_SEQUENCE
            yield Described(producer_id, each.epoch, last, each.last_ms, each.coordinator_epoch)

    def last_offsets(self, end_offset: int) -> list[int]:
        """The last offsets of the producers' last batches, of producers without a batch from `end_offset` on."""
        last = (producer.batches[-1] for producer in self._by_id.values() if producer.batches)
        ends = (sent.base_offset + (sent.last - sent.first) % _SEQUENCES for sent in last)
        return [end for end in ends if end < end_offset]

    def take(self, header: Header, base_offset: int, coordinator_epoch: int = NO_EPOCH) -> None:
        """A batch is in the log, at `base_offset`. coordinator_epoch: of a marker."""
        if header.producer_id < 0:
            return
        producer = self._by_id.pop(header.producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = _Producer(header.producer_epoch, NO_EPOCH if producer is None else producer.coordinator_epoch)
        self._by_id[header.producer_id] = producer
        producer.last_ms = header.max_timestamp_ms
        if header.is_control:  # a marker with a higher epoch fences its producer
            producer.coordinator_epoch = coordinator_epoch
            return
        producer.batches.append(
            _Sent(header.base_sequence, last_sequence(header), base_offset, header.max_timestamp_ms)
        )
        del producer.batches[:-BATCHES_KEPT]
        if len(self._by_id) > PRODUCERS_MAX:
            del self._by_id[next(iter(self._by_id))]


def marker_error(
    producer: _Producer | Described | None, epoch: int, coordinator_epoch: int, *, is_higher: bool
) -> ErrorCode:
    """Whether a marker may end a producer's transaction. is_higher: only if its epoch is above the producer's."""
    if producer is None:
        return ErrorCode.NONE
    if epoch < producer.epoch + is_higher:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if coordinator_epoch < producer.coordinator_epoch:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return ErrorCode.NONE


def last_sequence(header: Header) -> int:
    """The number of a batch's last record; behind the largest int32 comes 0."""
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
