"""Events: what goes into the transaction core; see `coordinator.group.events`, whose Load, Unload and timers it shares.

`transactional_id` is never empty or null here: the handler has refused that.

House rule: nobody changes an event after the core has it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from coordinator.group.client import NOBODY, Client
from coordinator.group.events import ClientEvent, Flags
from coordinator.transaction.state import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from protocol.messages import DescribeTransactionsResponse
from schemas.errors import ErrorCode


class Granted(NamedTuple):
    """The answer to InitProducerId and EndTxn."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


@dataclass(slots=True)
class InitProducerId(ClientEvent):
    """InitProducerId with a transactional id. The answer is a `Granted`.

    producer_id, epoch: those that the producer says it has (KIP-360). fresh_producer_id: one that nobody ever had.
    """

    flags = Flags(writes=True, makes_group=True, follows_commits=False)
    request: Hashable
    client: Client
    transactional_id: str
    timeout_ms: int
    fresh_producer_id: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH

    def _refused(self, error: ErrorCode) -> Any:
        return Granted(error)


@dataclass(slots=True)
class AddPartitions(ClientEvent):
    """Partitions come into a transaction, or are looked for in it. The answer is an error by partition.

    only_verify: nothing is added; a partition that isn't in the transaction is TRANSACTION_ABORTABLE.
    waits: while markers of the former transaction are on their way, the answer waits. version: V2, or 0.
    """

    flags = Flags(writes=True, makes_group=False, follows_commits=False)
    request: Hashable
    client: Client
    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Collection[TopicPartition]
    only_verify: bool = False
    waits: bool = False
    version: int = 0

    def _refused(self, error: ErrorCode) -> Any:
        return dict.fromkeys(self.partitions, error)


@dataclass(slots=True)
class EndTxn(ClientEvent):
    """EndTxn. The answer is a `Granted`. version: V2 for EndTxn v5, or 0. fresh_producer_id: if the epochs run out."""

    flags = Flags(writes=True, makes_group=False, follows_commits=False)
    request: Hashable
    client: Client
    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    version: int = 0
    fresh_producer_id: int = NO_PRODUCER_ID

    def _refused(self, error: ErrorCode) -> Any:
        return Granted(error)


@dataclass(slots=True)
class DescribeTransaction(ClientEvent):
    """One id of a DescribeTransactions. The answer is a `DescribeTransactionsResponse.TransactionState`."""

    flags = Flags(writes=False, makes_group=False, follows_commits=False)
    request: Hashable
    client: Client
    transactional_id: str

    def _refused(self, error: ErrorCode) -> Any:
        return DescribeTransactionsResponse.TransactionState(error_code=error, transactional_id=self.transactional_id)


@dataclass(slots=True)
class ListTransactions(ClientEvent):
    """ListTransactions for this partition. The answer is a list of `Listed`; None if refused."""

    flags = Flags(writes=False, makes_group=False, follows_commits=False)
    request: Hashable
    client: Client = NOBODY

    def _refused(self, _: ErrorCode) -> Any:
        return None


class Listed(NamedTuple):
    """A transactional id in a list. status: its label. start_ms: -1 before the first transaction."""

    transactional_id: str
    producer_id: int
    status: str
    start_ms: int


@dataclass(slots=True)
class MarkersWritten:
    """Each partition of a transaction has its marker."""

    asked: Markers


@dataclass(slots=True)
class Expire:
    """Some ids may have expired. group_ids: as the runtime calls them."""

    group_ids: Sequence[str]


class Outcome(Enum):
    """How a transaction ends: by its producer, or because its time is over, or another producer takes its id over."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    TIMED_OUT = "timed_out"
    FENCED = "fenced"


class Markers(NamedTuple):
    """Markers to write, then a `MarkersWritten` is due. It goes out as an answer to `Coordinator.markers`."""

    transactional_id: str
    producer_id: int
    epoch: int
    outcome: Outcome
    partitions: Collection[TopicPartition]

    @property
    def is_commit(self) -> bool:
        """Whether they are markers of a commit."""
        return self.outcome is Outcome.COMMITTED
