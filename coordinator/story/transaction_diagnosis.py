"""Findings about transactions that hold back a group's offsets. `diagnosis` says what a finding is.

A producer commits offsets last, and ends its transaction at once. Offsets that stay pending belong to a producer that
went away, that waits for something, or whose transaction nobody will end. No server tells which of the transactions
that are open in a partition of `__consumer_offsets` has offsets of a group, so several of them are only named.

House rule: as in `diagnosis`: one function per kind, and no function asks a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator.story.diagnosis import AWAITED_MS, Finding, Severity
from coordinator.story.offsets import HoldingTransaction
from coordinator.text import names_text, time_text

LATE_MS = 30_000
"""A coordinator looks for transactions to abort every 10 s by default, and the markers take a moment."""

HANGS_MS = 15 * 60_000
"""The longest timeout of a transaction by default (transaction.max.timeout.ms): nobody ends an older one."""


def transaction_findings(group_id: str, transactions: Sequence[HoldingTransaction], now_ms: int) -> Iterator[Finding]:
    """One finding for each transaction that has held back offsets of the group for AWAITED_MS or longer."""
    perhaps = "perhaps " if len(transactions) > 1 else ""
    for each in transactions:
        if now_ms - each.since_ms < AWAITED_MS:
            continue
        end_ms = each.since_ms + HANGS_MS if each.until_ms is None else each.until_ms + LATE_MS
        names = names_text([f"{topic}-{index}" for topic, index in each.offsets])
        producer = f"producer id {each.producer_id}"
        whose = f"{producer}, which no coordinator shows as open"
        if each.transactional_id is not None:
            whose = f"transactional id {each.transactional_id} ({producer})"
        advice = abort_advice("__consumer_offsets", each.partition, each.start_offset, "these offsets")
        if each.until_ms is not None:
            advice = restart_advice(each.transactional_id, each.until_ms)
        yield Finding(
            Severity.WARNING if now_ms < end_ms else Severity.ERROR,
            "hanging_transaction",
            group_id,
            f"since {time_text(each.since_ms)} offsets of {names} are pending, {perhaps}in a transaction of {whose}: "
            "consumers that start there wait for its end",
            advice,
            since_ms=each.since_ms,
        )


def restart_advice(transactional_id: str | None, until_ms: int) -> str:
    """The way to end a transaction that a coordinator has open."""
    return (
        f"start the program with the transactional id {transactional_id} again: its new producer aborts the "
        f"transaction. Else the coordinator does so after its timeout, at {time_text(until_ms)}; if it is "
        "later than that, see the log of the coordinator's server"
    )


def abort_advice(topic: str, partition: int, start_offset: int, dropped: str) -> str:
    """The way to end a transaction that no coordinator shows as open."""
    return (
        f"`tenure transactions abort --topic {topic} --partition {partition} --start-offset "
        f"{start_offset}` drops {dropped}. Only a user that may describe all transactional ids knows that "
        "nobody ends the transaction"
    )
