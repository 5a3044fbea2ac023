"""Reads the transactional ids in `__transaction_state`, for the checks on transactions.

The audit reads this topic before the log of groups, so the markers of a transaction that is complete here are there.

House rule: a record that can't be read is counted and skipped; without the topic the audit judges by time alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from coordinator.audit.read.batches import read_records
from coordinator.audit.read.logs import known_partitions
from coordinator.group.partition import partition_for
from coordinator.log.meta import ID_PARTITIONS, noted_partition_count
from coordinator.log.segments.outside import Log, find_logs_of_ids
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC
from coordinator.story.counts import number_text
from coordinator.transaction.records import decode_id, transactional_id_of
from coordinator.transaction.state import TransactionalId
from protocol.errors import ProtocolError


class Fall(NamedTuple):
    """A record, at `offset` of a partition of the topic, has a lower producer epoch than the id's record before it."""

    partition: int
    offset: int
    transactional_id: str
    producer_id: int
    epoch: int
    before: int


@dataclass
class Ids:
    """The transactional ids.

    by_producer: the last record of each id, without its partitions, by its producer id. named: all producer ids in the
    topic. end_ms: the time of the newest record; -1 without one. is_whole: whether all partitions of the topic were
    read. passed_over: records that can't be read.
    """

    by_producer: dict[int, TransactionalId] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    end_ms: int = -1
    is_whole: bool = False
    falls: list[Fall] = field(default_factory=list)
    passed_over: int = 0

    def notes(self) -> list[str]:
        """Notes for the report."""
        if not self.passed_over:
            return []
        return [f"{number_text(self.passed_over, 'record')} of {TRANSACTIONS_TOPIC} could not be read"]


def read_ids(path: Path) -> Ids:
    """The transactional ids in the folder `path`; none if it has no such topic. Raises OSError."""
    logs = find_logs_of_ids(path)
    count = id_partition_count(path, logs)
    read = Ids()
    are_in_place = True
    for log in logs:
        for known in _read_partition(log, read):
            are_in_place &= partition_for(known.group_id, count) == log.partition
            known.partitions = None  # nobody asks for them, and they may be many
            read.by_producer[known.producer_id] = known
    is_whole = len(known_partitions(path, logs, TRANSACTIONS_TOPIC)) == count and are_in_place and not read.passed_over
    read.is_whole = is_whole and bool(read.by_producer)
    return read


def id_partition_count(path: Path, logs: list[Log]) -> int:
    """The number of partitions of `__transaction_state`, by its logs in a folder and the folder's notes; 0 without one.

    Raises OSError.
    """
    found = known_partitions(path, logs, TRANSACTIONS_TOPIC) if logs else ()
    return (noted_partition_count(path, ID_PARTITIONS) or 1 + max(found)) if found else 0


def _read_partition(log: Log, read: Ids) -> Iterable[TransactionalId]:
    """Read a partition; returns its ids."""
    assert log.partition is not None
    last: dict[str, TransactionalId] = {}
    for each in read_records(log):
        if each is None:
            read.passed_over += 1
            continue
        offset, record = each
        read.end_ms = max(read.end_ms, record.timestamp_ms)
        try:
            name = transactional_id_of(record.key)
            known = None if record.value is None else decode_id(name, record.value)
        except ProtocolError:
            read.passed_over += 1
            continue
        before = last.pop(name, None)
        if known is None:
            continue
        last[name] = known
        read.named |= {known.producer_id, known.previous_producer_id, known.next_producer_id}
        if before is not None and before.producer_id == known.producer_id and known.epoch < before.epoch:
            read.falls.append(Fall(log.partition, offset, name, known.producer_id, known.epoch, before.epoch))
    return last.values()
