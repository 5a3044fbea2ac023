"""Every event of a client has a refusal."""

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
from coordinator.transaction.refuse import refuse
from coordinator.transaction.state import TopicPartition
from schemas.errors import ErrorCode

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_each_event_is_refused_in_its_own_form() -> None:
    """The error stands where the answer has one; a list is None."""
    where = TopicPartition("orders", 0)
    assert refuse(InitProducerId("r", NOBODY, "t", 1, 2), LOADING) == Granted(LOADING)
    assert refuse(EndTxn("r", NOBODY, "t", 1, 2, is_commit=True), LOADING) == Granted(LOADING)
    assert refuse(AddPartitions("r", NOBODY, "t", 1, 2, [where]), LOADING) == {where: LOADING}
    assert refuse(DescribeTransaction("r", NOBODY, "t"), LOADING).error_code == LOADING
    assert refuse(ListTransactions("r"), LOADING) is None
