"""The findings about transactions that hold back a group's offsets."""

from __future__ import annotations

from coordinator.story.diagnosis import AWAITED_MS, Finding
from coordinator.story.offsets import HoldingTransaction
from coordinator.story.transaction_diagnosis import HANGS_MS, LATE_MS, transaction_findings

SINCE_MS = 1_000_000
UNKNOWN = HoldingTransaction(None, 7, 3, 17, SINCE_MS, None, [("orders", 0), ("orders", 2)])
KNOWN = UNKNOWN._replace(transactional_id="billing-1", until_ms=SINCE_MS + 60_000)


def found(each: HoldingTransaction, after_ms: int) -> list[Finding]:
    """The findings, so long after the offsets were committed."""
    return list(transaction_findings("g", [each], SINCE_MS + after_ms))


def test_a_producer_has_time_to_end_its_transaction() -> None:
    """Before AWAITED_MS there is no finding; then it is a warning, about now."""
    for each in (KNOWN, UNKNOWN):
        assert found(each, AWAITED_MS - 1) == []
        (finding,) = found(each, AWAITED_MS)
        assert (finding.severity, finding.group_id, finding.last_at_ms) == ("warning", "g", None)
        assert finding.since_ms == SINCE_MS
        assert "offsets of orders-0, orders-2 are pending, in a transaction" in finding.found


def test_one_of_several_transactions() -> None:
    """Any of them may have the offsets, also one that has just begun: the finding doesn't guess."""
    (finding,) = transaction_findings("g", [KNOWN, UNKNOWN._replace(since_ms=SINCE_MS + 1)], SINCE_MS + AWAITED_MS)
    assert "are pending, perhaps in a transaction of transactional id billing-1" in finding.found


def test_nobody_ends_it() -> None:
    """An error: its coordinator should have aborted it, or none has it and no transaction may take so long."""
    for each, end_ms in ((KNOWN, 60_000 + LATE_MS), (UNKNOWN, HANGS_MS)):
        assert [finding.severity for after in (end_ms - 1, end_ms) for finding in found(each, after)] == [
            "warning",
            "error",
        ]


def test_the_advice_names_what_ends_it() -> None:
    """The program with the transactional id and the time of the abort; or the command."""
    (known,), (unknown,) = found(KNOWN, AWAITED_MS), found(UNKNOWN, AWAITED_MS)
    assert "transactional id billing-1 again" in known.advice
    assert "1970-01-01 00:17:40.000Z" in known.advice
    assert "--partition 3 --start-offset 17`" in unknown.advice
