"""The records of `__transaction_state` have Kafka's bytes (part D of the measured facts)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.transaction.records import Replay, decode_id, key_of, partitions_of, record_of
from coordinator.transaction.state import EPOCH_MAX, Status, TopicPartition, TransactionalId
from protocol.errors import ProtocolError
from protocol.messages import TransactionLogValue, encode
from protocol.records.batch import Record


def an_id(partitions: set[TopicPartition] | None, client_version: int = 0) -> TransactionalId:
    """An id whose record has the sizes that were measured."""
    known = TransactionalId("t", 680, 3, 60_000, Status.ONGOING, partitions, 5, 6)
    known.previous_producer_id, known.client_version = 680, client_version
    return known


int64 = st.integers(-1, 2**63 - 1)


def ids() -> st.SearchStrategy[TransactionalId]:
    """Ids with few different partitions, so that some come again."""
    partitions = st.sets(st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5)), max_size=8)
    return st.builds(
        TransactionalId,
        st.text(max_size=5),
        int64,
        st.integers(0, EPOCH_MAX),
        st.integers(1, 900_000),
        st.sampled_from(Status),
        st.none() | partitions,
        int64,
        int64,
        st.sampled_from([-1, 680]),
        st.sampled_from([-1, 681]),
        st.sampled_from([0, 2]),
    )


@pytest.mark.parametrize(
    ("partitions", "version", "size"), [(None, 0, 45), (None, 2, 49), ("one", 0, 65), ("one", 2, 69)]
)
def test_sizes_are_those_of_kafka(partitions: str | None, version: int, size: int) -> None:
    """One partition of a topic of 13 letters: 65 bytes, 69 with the version of the client."""
    known = an_id(None if partitions is None else {TopicPartition("t" * 13, 1)}, version)
    record = record_of(known, 7)
    assert record.value is not None
    assert len(record.value) == size
    assert decode_id("t", record.value) == known
    assert record.key == b"\0\0\0\1t" == key_of("t")


def test_version_0_is_written() -> None:
    """With transaction.version 0 the log is Kafka 3.9's: 60 bytes with a partition, and no tags."""
    known = an_id({TopicPartition("t" * 13, 1)}, 0)
    record = record_of(known, 7, 0)
    assert record.value is not None
    assert (len(record.value), record.value[:2]) == (60, b"\0\0")
    known.previous_producer_id = -1
    assert decode_id("t", record.value) == known


@pytest.mark.parametrize("version", [0, 1])
@given(ids())
def test_a_value_is_that_of_the_schema(version: int, known: TransactionalId) -> None:
    """However often the same partitions and tags come again, each field is the one that the schema puts there."""
    value = TransactionLogValue(
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        transaction_timeout_ms=known.timeout_ms,
        transaction_status=known.status,
        transaction_partitions=None if known.partitions is None else partitions_of(known.partitions),
        transaction_last_update_timestamp_ms=known.update_ms,
        transaction_start_timestamp_ms=known.start_ms,
        previous_producer_id=known.previous_producer_id,
        next_producer_id=known.next_producer_id,
        client_transaction_version=known.client_version,
    )
    assert record_of(known, 7, version).value == version.to_bytes(2) + encode(value, version)


def test_version_0_is_read() -> None:
    """Kafka 3.9 writes version 0, without tags: 37 bytes without partitions."""
    value = b"\0\0" + encode(
        TransactionLogValue(
            producer_id=5,
            producer_epoch=1,
            transaction_timeout_ms=9,
            transaction_status=4,
            transaction_partitions=[],
            transaction_last_update_timestamp_ms=3,
            transaction_start_timestamp_ms=2,
        ),
        0,
    )
    assert len(value) == 37
    assert decode_id("t", value) == TransactionalId("t", 5, 1, 9, Status.COMPLETE_COMMIT, set(), 2, 3)


def test_the_last_record_of_an_id_counts() -> None:
    """A tombstone removes an id; keys of other versions are counted."""
    replay = Replay()
    replay.add([record_of(an_id(None), 1), Record(key_of("u"), None, 1), Record(b"\0\7x", b"", 1)])
    replay.add([record_of(an_id({TopicPartition("a", 1)}), 2)])
    assert list(replay.groups_in_steps()) == [an_id({TopicPartition("a", 1)})]
    assert replay.skipped == {7: 1}


@pytest.mark.parametrize("value", [b"", b"\0\7", b"\0\1\0"])
def test_bytes_that_cannot_be_read(value: bytes) -> None:
    """An unknown version and a cut value are ProtocolErrors."""
    with pytest.raises(ProtocolError):
        decode_id("t", value)
