"""The coordinator of one partition of `__transaction_state`: the transactional ids that lie there.

Theory of operation. As the groups' coordinator, it changes its state at once and hands back effects; the runtime holds
answers until the records are durable. The end of a transaction takes two records. With the first (Prepare...) the
outcome is decided, and EndTxn is answered. The effects then ask for markers, which settle the transaction in each of
its partitions. When all are written, the event `MarkersWritten` brings the second record (Complete...). After a crash
between the two, the load asks for the markers again: a second marker does no harm.

Two kinds of producers share an id. One of version 2 (KIP-890) gets a new epoch with each EndTxn. One of version 1 keeps
its epoch. A transaction that the coordinator itself aborts (it timed out, or another producer takes the id over) raises
the epoch, so that its producer is fenced from then on.

House rule: a refused event changes nothing, but for InitProducerId, which ends an open transaction first.
Source: Kafka's TransactionCoordinator and TransactionMetadata, release 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from coordinator.group.client import Now
from coordinator.group.effects import Effects, Response, Timer, TimerKey, TimerKind
from coordinator.group.events import Load, TimerFired, Unload
from coordinator.transaction import records
from coordinator.transaction.events import (
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    Expire,
    Granted,
    InitProducerId,
    Listed,
    ListTransactions,
    Markers,
    MarkersWritten,
    Outcome,
)
from coordinator.transaction.state import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    V2,
    Status,
    TransactionalId,
)
from protocol.messages import DescribeTransactionsResponse
from schemas.errors import ErrorCode

EXPIRED_AT_ONCE = 500
"""Ids that one event removes: about 1 ms of work."""

WAITING_MAX = 1_000
"""Requests of one id that wait for its markers; further ones are to try again."""

COMMIT, ABORT = True, False

PREPARED = {COMMIT: Status.PREPARE_COMMIT, ABORT: Status.PREPARE_ABORT}
COMPLETE = {Status.PREPARE_COMMIT: Status.COMPLETE_COMMIT, Status.PREPARE_ABORT: Status.COMPLETE_ABORT}

MAPPING, FENCED, CONCURRENT, INVALID_STATE = (
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
)
NONE = ErrorCode.NONE


class Settings(NamedTuple):
    """timeout_max_ms: the longest timeout of a transaction. expiration_ms: after so long an unused id is forgotten.

    version: of transactions. With 0 the log is Kafka 3.9's. ids_max: of one principal.
    """

    timeout_max_ms: int = 900_000
    expiration_ms: int = 604_800_000
    version: int = V2
    ids_max: int = 100_000


class Coordinator:
    """The state machine of one partition.

    groups: its transactional ids. markers: stands for the writer of markers, as `request` does for a client.
    ids_of: how many ids of each principal there are, in all partitions of the node. The log has no principals: after a
    load an id counts from the next InitProducerId on.
    """

    def __init__(self, partition: int, config: Settings, markers: Hashable, ids_of: Counter[str]) -> None:
        self.partition = partition
        self.config = config
        self.markers = markers
        self.ids_of = ids_of
        self.groups: dict[str, TransactionalId] = {}

    def handle(self, event: Any, now: Now) -> Effects:
        """Handle one event. The event's id must live on this partition."""
        effects = Effects()
        self._HANDLERS[type(event)](self, effects, event, now)
        return effects

    def offsets_in(self, topics: Collection[str] | None) -> Iterator[Expire | None]:
        """The events that remove expired ids, some at a time. topics: None; a deleted topic removes nothing here."""
        ids = iter(list(self.groups) if topics is None else ())
        while some := list(islice(ids, EXPIRED_AT_ONCE)):
            yield Expire(some)

    def awaits(self, asked: Markers) -> bool:
        """Whether these markers are still to be written: the transaction isn't complete, and no load has asked anew."""
        known = self.groups.get(asked.transactional_id)
        return known is not None and known.asked is asked

    def close(self) -> None:
        """Drop all ids."""
        for known in self.groups.values():
            self._discount(known)
        self.groups.clear()

    # InitProducerId.

    def _init(self, effects: Effects, event: InitProducerId, now: Now) -> None:
        if not 0 < event.timeout_ms <= self.config.timeout_max_ms:
            self._answer(effects, event, Granted(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        known = self.groups.get(event.transactional_id)
        if known is None:
            if self.ids_of[event.client.principal] >= self.config.ids_max:
                self._answer(effects, event, Granted(ErrorCode.POLICY_VIOLATION))
                return
            producer_id = event.fresh_producer_id
            known = TransactionalId(event.transactional_id, producer_id, 0, event.timeout_ms)
            known.previous_producer_id = producer_id
            self.groups[event.transactional_id] = known
            self._count(event, known)
            self._write(effects, known, now)
            self._grant(effects, event, known)
            return
        claim = None if event.producer_id == NO_PRODUCER_ID else event.epoch
        is_own = event.producer_id == known.producer_id
        was_last = event.producer_id == known.previous_producer_id and event.epoch >= EPOCH_MAX - 1
        if known.status.is_ending:  # first: the claim may name the producer id that the end has granted
            self._answer(effects, event, Granted(CONCURRENT))
        elif claim is not None and not is_own and not was_last:
            self._answer(effects, event, Granted(FENCED))
        elif known.status is Status.ONGOING:
            self._abort(effects, known, Outcome.FENCED, now)
            self._answer(effects, event, Granted(CONCURRENT))
        else:
            self._next_epoch(effects, event, known, claim, now)

    def _next_epoch(
        self, effects: Effects, event: InitProducerId, known: TransactionalId, claim: int | None, now: Now
    ) -> None:
        """Give the producer the next epoch, or once more the one that its repeated request got. claim: its epoch."""
        if known.is_exhausted and claim in {None, known.epoch}:
            known.previous_producer_id, known.producer_id = known.producer_id, event.fresh_producer_id
            known.last_epoch, known.epoch = (NO_EPOCH if claim is None else known.epoch), 0
        elif claim in {None, known.epoch}:
            known.last_epoch = NO_EPOCH if claim is None else known.epoch
            known.epoch += 1
            known.previous_producer_id = known.producer_id
        elif claim != known.last_epoch:
            self._answer(effects, event, Granted(FENCED))
            return
        known.status, known.partitions, known.start_ms = Status.EMPTY, None, NO_TIME
        known.timeout_ms = event.timeout_ms
        self._count(event, known)
        self._write(effects, known, now)
        self._grant(effects, event, known)

    def _grant(self, effects: Effects, event: InitProducerId | EndTxn, known: TransactionalId) -> None:
        if known.next_producer_id != NO_PRODUCER_ID:
            self._answer(effects, event, Granted(NONE, known.next_producer_id, 0))
        else:
            self._answer(effects, event, Granted(NONE, known.producer_id, known.epoch))

    def _count(self, event: InitProducerId, known: TransactionalId) -> None:
        """Count an id, unless it counts."""
        if known.principal is None:
            known.principal = event.client.principal
            self.ids_of[known.principal] += 1

    def _discount(self, known: TransactionalId) -> None:
        if known.principal is not None:
            self.ids_of[known.principal] -= 1
            if not self.ids_of[known.principal]:
                del self.ids_of[known.principal]

    # Partitions.

    def _add(self, effects: Effects, event: AddPartitions, now: Now) -> None:
        known = self.groups.get(event.transactional_id)
        error = NONE
        if known is None:
            error = MAPPING
        elif known.status.is_ending:  # before the producer, which may be the one that the end has granted
            if event.waits and len(known.waiting) < WAITING_MAX:
                known.waiting.append(event)
                return
            error = CONCURRENT
        elif known.producer_id != event.producer_id:
            error = MAPPING
        elif known.epoch != event.epoch:
            error = FENCED
        if error or known is None:
            self._answer(effects, event, dict.fromkeys(event.partitions, error))
            return
        is_open = known.status is Status.ONGOING
        present = (known.partitions or set()) if is_open else set()
        if event.only_verify:
            found = dict.fromkeys(event.partitions, ErrorCode.TRANSACTION_ABORTABLE)
            self._answer(effects, event, found | dict.fromkeys(present.intersection(found), NONE))
            return
        if not is_open or not present.issuperset(event.partitions):
            known.partitions = present.union(event.partitions)
            known.client_version = event.version
            if not is_open:
                known.status, known.start_ms = Status.ONGOING, now.wall_ms
                self._watch(effects, known, now)
            self._write(effects, known, now)
        self._answer(effects, event, dict.fromkeys(event.partitions, NONE))

    # The end.

    def _end(self, effects: Effects, event: EndTxn, now: Now) -> None:
        known = self.groups.get(event.transactional_id)
        error = MAPPING
        if known is not None:
            error = (
                self._end_by_v2(effects, event, known, now)
                if event.version >= V2
                else self._end_by_v1(effects, event, known, now)
            )
        if error or known is None:
            self._answer(effects, event, Granted(error))
        else:
            self._grant(effects, event, known)
            self._ask_for_markers(effects, known)

    def _end_by_v1(self, effects: Effects, event: EndTxn, known: TransactionalId, now: Now) -> ErrorCode:
        status = known.status
        if known.producer_id != event.producer_id:
            return MAPPING
        if known.epoch != event.epoch:
            return FENCED
        if status is Status.ONGOING:
            self._prepare(effects, known, PREPARED[event.is_commit], now)
            return NONE
        if status.is_ending:
            return CONCURRENT
        return NONE if status is COMPLETE[PREPARED[event.is_commit]] else INVALID_STATE

    def _end_by_v2(self, effects: Effects, event: EndTxn, known: TransactionalId, now: Now) -> ErrorCode:
        """EndTxn v5: a repetition has the epoch before, since the answer raised it."""
        status, wanted = known.status, PREPARED[event.is_commit]
        is_rotated = (
            known.previous_producer_id == event.producer_id and event.epoch == EPOCH_MAX - 1 and known.epoch == 0
        )
        is_again = is_rotated or known.epoch == event.epoch + 1
        if status.is_ending:
            return CONCURRENT
        if known.producer_id != event.producer_id and not is_rotated:
            return MAPPING
        is_complete = status in {Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT}
        if known.epoch != event.epoch:
            if not (is_complete and is_again):
                return FENCED
            return NONE if status is COMPLETE[wanted] else INVALID_STATE
        if status is not Status.ONGOING:
            if event.is_commit:
                return INVALID_STATE
            known.partitions, known.start_ms = set(), now.wall_ms
        known.client_version = V2
        if known.is_exhausted:
            known.next_producer_id = event.fresh_producer_id
        known.last_epoch, known.epoch = known.epoch, known.epoch + 1
        self._prepare(effects, known, wanted, now)
        return NONE

    def _abort(self, effects: Effects, known: TransactionalId, outcome: Outcome, now: Now) -> None:
        """Abort a transaction of itself, and fence its producer."""
        known.last_epoch, known.epoch = known.epoch, known.epoch + 1
        known.client_version = self.config.version
        self._prepare(effects, known, Status.PREPARE_ABORT, now)
        self._ask_for_markers(effects, known, outcome)

    def _prepare(self, effects: Effects, known: TransactionalId, status: Status, now: Now) -> None:
        known.status = status
        effects.timers.append(Timer(TimerKey(TimerKind.TRANSACTION, known.group_id), None))
        self._write(effects, known, now)

    def _ask_for_markers(self, effects: Effects, known: TransactionalId, aborted: Outcome = Outcome.ABORTED) -> None:
        """Have the markers written once the end is durable, if there is one to write. aborted: if it is an abort."""
        if known.status.is_ending:
            outcome = Outcome.COMMITTED if known.status is Status.PREPARE_COMMIT else aborted
            asked = Markers(known.group_id, known.producer_id, known.epoch, outcome, frozenset(known.partitions or ()))
            known.asked = asked
            effects.responses.append(Response(self.markers, asked))

    def _markers_written(self, effects: Effects, event: MarkersWritten, now: Now) -> None:
        if not self.awaits(event.asked):
            return
        known = self.groups[event.asked.transactional_id]
        known.asked, known.status, known.partitions = None, COMPLETE[known.status], set()
        if known.next_producer_id != NO_PRODUCER_ID:
            known.previous_producer_id, known.producer_id = known.producer_id, known.next_producer_id
            known.next_producer_id, known.last_epoch, known.epoch = NO_PRODUCER_ID, known.epoch - 1, 0
        self._write(effects, known, now)
        waiting, known.waiting = known.waiting, []
        for each in waiting:
            self._add(effects, each, now)

    # Time.

    def _watch(self, effects: Effects, known: TransactionalId, now: Now) -> None:
        """Abort the transaction when its time is over; the time began with its first partition."""
        left_ms = max(known.start_ms + known.timeout_ms - now.wall_ms, 0)
        effects.timers.append(Timer(TimerKey(TimerKind.TRANSACTION, known.group_id), now.ms + left_ms))

    def _timer_fired(self, effects: Effects, event: TimerFired, now: Now) -> None:
        known = self.groups.get(event.key.group_id)
        if known is not None and known.status is Status.ONGOING:
            self._abort(effects, known, Outcome.TIMED_OUT, now)

    def _expire(self, effects: Effects, event: Expire, now: Now) -> None:
        for transactional_id in event.group_ids:
            known = self.groups.get(transactional_id)
            if (
                known is not None
                and known.status is not Status.ONGOING
                and not known.status.is_ending
                and now.wall_ms - known.update_ms >= self.config.expiration_ms
            ):
                self._discount(self.groups.pop(transactional_id))
                effects.records.append(records.tombstone_of(transactional_id, now.wall_ms))

    # Administration.

    def _describe(self, effects: Effects, event: DescribeTransaction, _now: Now) -> None:
        known = self.groups.get(event.transactional_id)
        if known is None:
            self._answer(effects, event, event.refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
            return
        topics = [
            DescribeTransactionsResponse.TopicData(topic=each.topic, partitions=each.partition_ids)
            for each in records.partitions_of(known.partitions or ())
        ]
        state = DescribeTransactionsResponse.TransactionState(
            transactional_id=known.group_id,
            transaction_state=known.status.label,
            transaction_timeout_ms=known.timeout_ms,
            transaction_start_time_ms=known.start_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
            topics=topics,
        )
        self._answer(effects, event, state)

    def _list(self, effects: Effects, event: ListTransactions, _now: Now) -> None:
        listed = [
            Listed(known.group_id, known.producer_id, known.status.label, known.start_ms)
            for known in self.groups.values()
        ]
        self._answer(effects, event, listed)

    # The partition comes and goes.

    def _load(self, effects: Effects, event: Load, now: Now) -> None:
        loaded: Any = event.groups
        self.groups |= loaded
        if not event.is_last:
            return
        for known in self.groups.values():
            if known.status is Status.ONGOING:
                self._watch(effects, known, now)
            self._ask_for_markers(effects, known)

    def _unload(self, effects: Effects, _event: Unload, _now: Now) -> None:
        for known in self.groups.values():
            for event in known.waiting:
                self._answer(effects, event, event.refused(ErrorCode.NOT_COORDINATOR))
            known.waiting = []

    # Shared by several events.

    def _write(self, effects: Effects, known: TransactionalId, now: Now) -> None:
        known.update_ms = now.wall_ms
        effects.records.append(records.record_of(known, now.wall_ms, min(self.config.version, records.VALUE_VERSION)))

    def _answer(self, effects: Effects, event: Any, body: Any) -> None:
        effects.responses.append(Response(event.request, body))

    _HANDLERS: ClassVar[dict[type, Callable[[Coordinator, Effects, Any, Now], None]]] = {
        InitProducerId: _init,
        AddPartitions: _add,
        EndTxn: _end,
        MarkersWritten: _markers_written,
        DescribeTransaction: _describe,
        ListTransactions: _list,
        TimerFired: _timer_fired,
        Expire: _expire,
        Load: _load,
        Unload: _unload,
    }
