"""A transactional id, and the states of its transaction.

    Empty           no transaction since the id was made, or since its last InitProducerId
    Ongoing         it has begun
    PrepareCommit   its end is in the log; markers are on their way to its partitions
    PrepareAbort    likewise
    CompleteCommit  each partition has its marker
    CompleteAbort   likewise

House rule: plain data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

NO_PRODUCER_ID = NO_EPOCH = NO_TIME = -1

EPOCH_MAX = 32_767
"""The last epoch of a producer id: only a marker has it. A producer that has the one before gets a new producer id."""

V2 = 2
"""The transaction version in which each transaction has its own epoch (KIP-890)."""


class Status(IntEnum):
    """See the module. The numbers are those of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """As Kafka's tools write it."""
        return "".join(word.title() for word in self.name.split("_"))

    @property
    def is_ending(self) -> bool:
        """Whether markers are on their way."""
        return self in {Status.PREPARE_COMMIT, Status.PREPARE_ABORT}


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(slots=True)
class TransactionalId:
    """A transactional id (Kafka: TransactionMetadata).

    group_id: the id, as the runtime calls the key of any log. last_epoch: the epoch before, which its producer may
    still name after a lost answer (KIP-360); not in the log.
    partitions: of the transaction; None before the first one since InitProducerId.
    start_ms, update_ms: Unix time in ms.
    next_producer_id: of a transaction that uses the last epoch up. client_version: V2, or 0.
    asked: the newest markers that its end asked for, until they are written.
    waiting: events for the next transaction. principal: whose id it is, None as long as nobody knows; not in the log.
    """

    group_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    status: Status = Status.EMPTY
    partitions: set[TopicPartition] | None = None
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_epoch: int = field(default=NO_EPOCH, compare=False)
    asked: object = field(default=None, compare=False)
    waiting: list[Any] = field(default_factory=list, compare=False)
    principal: str | None = field(default=None, compare=False)

    @property
    def is_exhausted(self) -> bool:
        """Whether its producer id has no further epoch for a producer."""
        return self.epoch >= EPOCH_MAX - 1
