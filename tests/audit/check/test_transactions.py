"""Transactions: an open one is a fault only where the coordinator should have ended it; an end has a transaction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator.group.partition import partition_for
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC, partition_folder
from coordinator.transaction.records import record_of, tombstone_of
from coordinator.transaction.state import Status, TransactionalId
from protocol.records.batch import encode_batch
from tests.audit.audited import audited
from tests.audit.scenes import GROUP, HOUR_MS, PARTITION_COUNT, SECOND_MS, START_MS, Scene, static_members

NAME, PRODUCER = "worker-1", 7
MINUTE_MS = 60 * SECOND_MS
EXPIRATION_MS = 7 * 24 * HOUR_MS


def known(
    status: Status, start_ms: int = START_MS, update_ms: int = START_MS, *, epoch: int = 0, producer_id: int = PRODUCER
) -> TransactionalId:
    """The state of the id."""
    return TransactionalId(NAME, producer_id, epoch, MINUTE_MS, status, set(), start_ms, update_ms)


def write_ids(folder: Path, *states: TransactionalId | None, end_ms: int = START_MS) -> None:
    """Write the id's records; None: it expired. The last one is of `end_ms`."""
    for each in range(PARTITION_COUNT):
        partition_folder(folder, each, TRANSACTIONS_TOPIC).mkdir(parents=True, exist_ok=True)
    records = [
        tombstone_of(NAME, end_ms) if state is None else record_of(state, min(state.update_ms, end_ms))
        for state in states
    ]
    batches = [encode_batch([record], offset, 1) for offset, record in enumerate(records)]
    batches.append(encode_batch([tombstone_of("another", end_ms)], len(batches), 1))
    path = partition_folder(folder, partition_for(NAME, PARTITION_COUNT), TRANSACTIONS_TOPIC) / f"{0:020}.log"
    path.write_bytes(b"".join(batches))


def open_one(passed_ms: int = 0) -> Scene:
    """A pending offset, and a commit that much later."""
    return Scene().group(static_members(a=1), 1).transacted(5, PRODUCER).tick(passed_ms).commit(6, partition=1)


AT_MS = START_MS + SECOND_MS
"""The time of the pending offset of `open_one`."""
AFTER_MS = AT_MS + SECOND_MS

PENDING = {
    "no ids, young": (None, 15 * MINUTE_MS, ""),
    "no ids, old": (None, 17 * MINUTE_MS, "it is older than the longest timeout of a transaction"),
    "open": (known(Status.ONGOING), 0, ""),
    "open for too long": (known(Status.ONGOING), 3 * MINUTE_MS, "its timeout is over"),
    "ending": (known(Status.PREPARE_COMMIT, update_ms=AFTER_MS), 0, ""),
    "ending for too long": (
        known(Status.PREPARE_ABORT, update_ms=AFTER_MS),
        3 * MINUTE_MS,
        "the transaction is in PrepareAbort, and its marker is missing",
    ),
    "complete": (
        known(Status.COMPLETE_COMMIT, update_ms=AFTER_MS),
        0,
        "the transaction is over, and its marker is missing",
    ),
    "the next one is open": (
        known(Status.ONGOING, AFTER_MS, AFTER_MS),
        0,
        "the transaction is over, and its marker is missing",
    ),
    "begun after the ids were read": (known(Status.COMPLETE_COMMIT), 0, ""),
    "another producer's": (known(Status.EMPTY, producer_id=8), 0, "no transactional id has this producer"),
}
"""Case -> the id's state, the time that passed, and the reason of the finding."""


@pytest.mark.parametrize("case", PENDING)
def test_pending_offset_is_found_when_its_end_is_late(tmp_path: Path, case: str) -> None:
    """An open transaction is legal for its timeout, and one that is over has its marker."""
    state, passed_ms, why = PENDING[case]
    if state is not None:
        write_ids(tmp_path, state, end_ms=AFTER_MS)
    found = audited(open_one(passed_ms).write(tmp_path)).findings
    assert [(each.check, each.group, each.offset) for each in found] == [("pending_without_end", GROUP, 1)] * bool(why)
    if why:
        is_named = state is not None and state.producer_id == PRODUCER
        assert json.loads(found[0].detail) == {
            "why": why,
            "producer_id": PRODUCER,
            "transactional_id": NAME if is_named else None,
            "since_ms": AT_MS,
            "topic_partitions": ["orders-0"],
        }


def test_group_that_only_has_pending_offsets_is_found(tmp_path: Path) -> None:
    """A group without a record that counts has a finding and no story."""
    scene = Scene().transacted(5, PRODUCER).transacted(6, PRODUCER).tick(HOUR_MS)
    scene.end_transaction(8, committed=True)
    result = audited(scene.write(tmp_path))
    assert ([each.check for each in result.findings], result.stories) == (["pending_without_end"], [])


@pytest.mark.parametrize(
    ("producer_id", "ids_end_ms", "is_found"),
    [
        (PRODUCER, AT_MS, False),
        (8, AT_MS, True),
        (8, START_MS - 1, False),
        (8, START_MS + EXPIRATION_MS, False),
    ],
    ids=["its id is there", "no id", "the ids were read before", "the id may have expired"],
)
def test_marker_needs_a_transactional_id(tmp_path: Path, producer_id: int, ids_end_ms: int, is_found: bool) -> None:
    """A marker of a producer that no id names is found, if the id of an honest one would be there."""
    write_ids(tmp_path, known(Status.COMPLETE_COMMIT, update_ms=START_MS - SECOND_MS), end_ms=ids_end_ms)
    scene = Scene().end_transaction(producer_id, committed=True)
    found = audited(scene.write(tmp_path)).findings
    assert [(each.check, each.offset) for each in found] == [("marker_without_transaction", 0)] * is_found


@pytest.mark.parametrize("lacks", ["a partition", "its place", "a record"])
def test_ids_that_may_be_elsewhere_prove_nothing(tmp_path: Path, lacks: str) -> None:
    """Where not all partitions of the ids are there or readable, a marker may belong to an id of another one."""
    write_ids(tmp_path, known(Status.COMPLETE_COMMIT), end_ms=AT_MS)
    place = partition_for(NAME, PARTITION_COUNT)
    held = partition_folder(tmp_path, place, TRANSACTIONS_TOPIC)
    if lacks == "a partition":
        partition_folder(tmp_path, (place + 1) % PARTITION_COUNT, TRANSACTIONS_TOPIC).rmdir()
    elif lacks == "its place":
        held.rename(tmp_path / "away")
        partition_folder(tmp_path, (place + 1) % PARTITION_COUNT, TRANSACTIONS_TOPIC).rmdir()
        (tmp_path / "away").rename(partition_folder(tmp_path, (place + 1) % PARTITION_COUNT, TRANSACTIONS_TOPIC))
        held.mkdir()
    else:
        path = held / f"{0:020}.log"
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
    result = audited(Scene().end_transaction(8, committed=True).write(tmp_path))
    assert result.findings == []
    assert result.notes == ["1 record of __transaction_state could not be read"] * (lacks == "a record")


def test_epoch_of_an_id_only_grows(tmp_path: Path) -> None:
    """A record with a lower epoch is found, unless the producer is new or the id expired in between."""
    states = [known(Status.EMPTY, epoch=epoch) for epoch in (3, 4, 2, 5)]
    write_ids(tmp_path, *states, None, known(Status.EMPTY, epoch=0), known(Status.EMPTY, epoch=0, producer_id=9))
    (found,) = audited(Scene().commit(5).write(tmp_path)).findings
    assert (found.check, found.partition, found.offset) == (
        "producer_epoch_falls", partition_for(NAME, PARTITION_COUNT), 2
    )  # fmt: skip
    assert json.loads(found.detail) == {
        "topic": TRANSACTIONS_TOPIC, "transactional_id": NAME, "producer_id": PRODUCER, "epoch": 2, "before": 4
    }  # fmt: skip
