"""Checks transactions: has each an end, has each end a transaction, and does a producer's epoch only grow?

`Producers` takes the batches of a partition; `Pending` takes a group's records of transactions without an end. With the
ids of `__transaction_state` both know what the transaction's coordinator wrote. Without them a transaction is overdue
after the longest timeout that a producer may ask for.

House rule: memory grows with producers, not with their records.
"""

from __future__ import annotations

from coordinator.audit.check.checks import NAMES_MAX, Finding, finding
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.ids import Ids
from coordinator.audit.read.parse import Row
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from coordinator.story.records.values import read_key
from coordinator.transaction.state import Status
from protocol.records.batch import CONTROL

SLACK_MS = 60_000
"""A coordinator that runs aborts an overdue transaction, and writes the markers of an end, within this time."""


class Producers:
    """Takes the rows of `batches` of one partition, in the order of the log; ids: read before the batches."""

    def __init__(self, partition: int, limits: Limits, ids: Ids) -> None:
        self._partition = partition
        self._expiration_ms = limits.id_expiration_ms
        self._ids = ids
        self._epochs: dict[int, int] = {}
        self._unnamed: dict[int, tuple[int, int]] = {}
        """By producer that no transactional id has, the offset and the time of its newest marker."""
        self._falls: list[Finding] = []

    def add(self, row: Row) -> None:
        """Take the next batch."""
        (
            _partition, segment, position, _length, offset, _last_offset, attributes, _codec, producer_id, _epoch,
            ts, _crc, crc_ok, epoch, _record_count,
        ) = row  # fmt: skip
        if producer_id < 0 or not crc_ok:
            return
        before = self._epochs.get(producer_id, epoch)
        self._epochs[producer_id] = max(epoch, before)
        if epoch < before:
            self._falls.append(
                finding(
                    "producer_epoch_falls", self._partition, offset, topic=OFFSETS_TOPIC, producer_id=producer_id,
                    epoch=epoch, before=before, segment=segment, position=position,
                )
            )  # fmt: skip
        if attributes & CONTROL and self._ids.is_whole and producer_id not in self._ids.named:
            self._unnamed[producer_id] = offset, ts

    def finish(self) -> list[Finding]:
        """The findings so far. An id that was used before a marker is in the topic for its whole expiration time."""
        end_ms = self._ids.end_ms
        return self._falls + [
            finding("marker_without_transaction", self._partition, offset, producer_id=producer_id)
            for producer_id, (offset, ts) in self._unnamed.items()
            if end_ms - self._expiration_ms < ts <= end_ms
        ]


def id_findings(ids: Ids) -> list[Finding]:
    """The findings in the log of ids."""
    return [
        finding(
            "producer_epoch_falls", fall.partition, fall.offset, topic=TRANSACTIONS_TOPIC,
            transactional_id=fall.transactional_id, producer_id=fall.producer_id, epoch=fall.epoch, before=fall.before,
        )
        for fall in ids.falls
    ]  # fmt: skip


class _Held:
    """The pending offsets of one producer in a group, from its first record on."""

    def __init__(self, offset: int, ts: int) -> None:
        self.offset = offset
        self.ts = ts
        self.names: set[tuple[str, int]] = set()


class Pending:
    """Takes a group's records of transactions that have no end in the log."""

    def __init__(self, partition: int, group: str, limits: Limits, ids: Ids) -> None:
        self._partition = partition
        self._group = group
        self._timeout_ms = limits.transaction_ms_max
        self._ids = ids
        self._held: dict[int, _Held] = {}

    def add(self, row: Row) -> None:
        """Take a record."""
        _partition, offset, ts, _kind, _group, key, _value, producer_id = row[:8]
        name = read_key(key)
        held = self._held.setdefault(producer_id, _Held(offset, ts))
        if name.topic is not None and name.topic_partition is not None and len(held.names) < NAMES_MAX:
            held.names.add((name.topic, name.topic_partition))

    def findings(self, end_ms: int) -> list[Finding]:
        """The findings if the log of groups ends at `end_ms`."""
        found = []
        for producer_id, held in self._held.items():
            until_ms, why = self._ends(producer_id, held.ts)
            if until_ms < max(end_ms, self._ids.end_ms):
                known = self._ids.by_producer.get(producer_id)
                found.append(
                    finding(
                        "pending_without_end", self._partition, held.offset, self._group,
                        why=why, producer_id=producer_id, transactional_id=known and known.group_id,
                        since_ms=held.ts, topic_partitions=[f"{name}-{number}" for name, number in sorted(held.names)],
                    )
                )  # fmt: skip
        return found

    def _ends(self, producer_id: int, ts: int) -> tuple[int, str]:
        """When the marker of records from `ts` on must be in the log, and why it is late if it isn't."""
        known = self._ids.by_producer.get(producer_id)
        if known is None:
            if self._ids.is_whole and producer_id not in self._ids.named and ts < self._ids.end_ms:
                return ts, "no transactional id has this producer"
            return ts + self._timeout_ms + SLACK_MS, "it is older than the longest timeout of a transaction"
        is_open = known.status is Status.ONGOING or known.status.is_ending
        if ts < known.start_ms if is_open else ts <= known.update_ms:
            return ts, "the transaction is over, and its marker is missing"
        if known.status.is_ending:
            return known.update_ms + SLACK_MS, f"the transaction is in {known.status.label}, and its marker is missing"
        start_ms = known.start_ms if is_open else ts
        return start_ms + known.timeout_ms + SLACK_MS, "its timeout is over"
