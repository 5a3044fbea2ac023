"""Events of clients."""

from __future__ import annotations

from coordinator.group.client import NOBODY
from coordinator.transaction.events import (
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    Granted,
    InitProducerId,
    ListTransactions,
)
from coordinator.transaction.state import TopicPartition
from schemas.errors import ErrorCode

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_each_event_is_refused_in_its_own_form() -> None:
    """The error stands where the answer has one; a list is None."""
    where = TopicPartition("orders", 0)
    assert InitProducerId("r", NOBODY, "t", 1, 2).refused(LOADING) == Granted(LOADING)
    assert EndTxn("r", NOBODY, "t", 1, 2, is_commit=True).refused(LOADING) == Granted(LOADING)
    assert AddPartitions("r", NOBODY, "t", 1, 2, [where]).refused(LOADING) == {where: LOADING}
    assert DescribeTransaction("r", NOBODY, "t").refused(LOADING).error_code == LOADING
    assert ListTransactions("r").refused(LOADING) is None
