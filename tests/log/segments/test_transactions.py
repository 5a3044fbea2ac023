"""Tests which record of a key counts among transactional commits, against a model that sees the whole log."""

from __future__ import annotations

from random import Random

import pytest

from coordinator.log.segments.transactions import COMMIT, Transactions, marker_type
from protocol.records.batch import Record
from tests.support.cases import each

ABORT = 0

Step = tuple[str, int, bytes, Record]
"""A step at an offset: (plain, add, commit or abort; producer; key; record)."""


def record(key: bytes, number: int) -> Record:
    """Return a record with a timestamp of its own; every fifth is a tombstone."""
    return Record(key, None if number % 5 == 0 else b"%d" % number, number)


def random_log(chance: Random) -> list[Step]:
    """Return plain and transactional records and markers, of few producers and keys so that they interfere."""
    steps = []
    for offset in range(chance.choice([5, 20, 60])):
        kind = chance.choice(["plain", "add", "add", "add", "commit", "abort"])
        key = b"%d" % chance.randrange(3)
        steps.append((kind, chance.randrange(3), key, record(key, offset)))
    return steps


def model(log: list[Step]) -> tuple[dict[bytes, Record], dict[tuple[int, bytes], bytes | None]]:
    """Return each key's counting record with the highest offset, and what is pending, by producer and key.

    A transaction ends at its next marker.
    """
    last: dict[bytes, Record] = {}
    pending: dict[tuple[int, bytes], bytes | None] = {}
    for offset, (kind, producer, key, found) in enumerate(log):
        ends = [what for what, other, _, _ in log[offset:] if what in {"commit", "abort"} and other == producer]
        if kind == "plain" or (kind == "add" and ends[:1] == ["commit"]):
            last[key] = found
        if kind == "add" and not ends:
            deleted = any(what == "plain" and it.key == key and it.value is None for what, _, _, it in log[offset:])
            if not deleted:
                pending[producer, key] = found.value
            elif (producer, key) in pending:
                del pending[producer, key]
    counting = {
        (producer, key): value if key not in last or last[key].timestamp_ms < int(value or 0) else None
        for (producer, key), value in pending.items()
    }
    return last, counting


@each("seed", range(300))
def test_random_logs(seed: int) -> None:
    """The same record counts as in the model, in any order, and only records of open transactions wait."""
    log = random_log(Random(seed))
    transactions = Transactions()
    last: dict[bytes, Record] = {}
    for offset, (kind, producer, key, found) in enumerate(log):
        if kind == "plain":
            transactions.supersede({key: (found.value, found.timestamp_ms)})
            last[key] = found
        elif kind == "add":
            transactions.add(producer, [offset], [found])
        else:
            last |= {ended.key: ended for ended in transactions.end(producer, COMMIT if kind == "commit" else ABORT)}
        assert transactions.waiting_count <= 3 * transactions.open_count <= 9
    pending = {(batch.producer_id, key): value for batch in transactions.open() for key, value, _ in batch}
    assert (last, pending) == model(log)
    for producer in range(3):
        transactions.end(producer, ABORT)
    assert (transactions.open_count, transactions.waiting_count) == (0, 0)


def test_marker_without_a_transaction() -> None:
    """A marker without a transaction is fine: markers outlive their records."""
    assert Transactions().end(7, COMMIT) == []


def test_marker_type() -> None:
    """A commit and an abort have a type, other control records have none; a too short key raises ValueError."""
    assert [marker_type(bytes([0, 0, 0, number])) for number in range(4)] == [0, COMMIT, None, None]
    with pytest.raises(ValueError, match="3 bytes"):
        marker_type(bytes(3))
