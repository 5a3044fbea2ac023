"""The error answer of any event, whatever the state of its transactional id: see `coordinator.group.refuse`."""

from __future__ import annotations

from typing import Any, assert_never

from coordinator.transaction.events import (
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    Granted,
    InitProducerId,
    ListTransactions,
)
from protocol.messages import DescribeTransactionsResponse
from schemas.errors import ErrorCode


def refuse(
    event: InitProducerId | AddPartitions | EndTxn | DescribeTransaction | ListTransactions, error: ErrorCode
) -> Any:
    """The answer to `event` with `error`: a body of the type that the event names."""
    match event:
        case InitProducerId() | EndTxn():
            return Granted(error)
        case AddPartitions():
            return dict.fromkeys(event.partitions, error)
        case DescribeTransaction():
            return DescribeTransactionsResponse.TransactionState(
                error_code=error, transactional_id=event.transactional_id
            )
        case ListTransactions():
            return None
        case _:
            assert_never(event)
