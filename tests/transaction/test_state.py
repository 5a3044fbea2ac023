"""The states of a transaction have Kafka's numbers and labels."""

from __future__ import annotations

from coordinator.transaction.state import EPOCH_MAX, Status, TransactionalId


def test_labels() -> None:
    """As Kafka's tools write them, in the order of their numbers."""
    labels = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
    assert [status.label for status in Status] == labels
    assert [status.value for status in Status if status.is_ending] == [2, 3]


def test_the_last_epochs() -> None:
    """A producer's last epoch is 32766; the one behind is for markers."""
    assert [TransactionalId("t", 1, EPOCH_MAX - back, 1).is_exhausted for back in (2, 1, 0)] == [False, True, True]
