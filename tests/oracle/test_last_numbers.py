"""What follows the last generation and the last epoch: Kafka and Tenure are asked on the same log.

Kafka gets the records by Produce, as its own admin client may, and reads them at its next start; Tenure finds them in
its folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator.config import INT32_MAX, INT64_MAX
from coordinator.group.bounds import INT32_MIN
from coordinator.group.consumer.records import epoch_record, target_epoch_record
from coordinator.group.records import group_key, offset_key
from protocol.messages import (
    FindCoordinatorRequest,
    GroupMetadataValue,
    OffsetCommitValue,
    encode,
)
from protocol.records.batch import Record, encode_batch
from tests.support.apache import AT_ONCE, VERSION, VERSION_44, ApacheKafka
from tests.support.raw import Connection
from tests.support.requests import (
    commit_request,
    first_heartbeat,
    group_offsets_request,
    heartbeat_request,
    join_request,
    produce_request,
    sync_request,
    topics_request,
)
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

NOW_MS = 1_795_000_000_000
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
WITHIN_S = 60.0


def group(group_id: str, generation: int) -> Record:
    """An empty classic group."""
    value = GroupMetadataValue(
        protocol_type="consumer", generation=generation, protocol=None, leader=None, current_state_timestamp=NOW_MS
    )
    return Record(group_key(group_id), b"\0\3" + encode(value, 3), NOW_MS)


LAST_COMMIT = OffsetCommitValue(
    offset=INT64_MAX, leader_epoch=INT32_MAX, metadata="", commit_timestamp=INT64_MAX, expire_timestamp=-1
)
RECORDS = [
    group("last", INT32_MAX),
    group("first", INT32_MIN),
    Record(offset_key("offsets", "orders", 0), b"\0\3" + encode(LAST_COMMIT, 3), NOW_MS),
]
OF_CONSUMERS = [epoch_record("consumers", INT32_MAX, 0, NOW_MS), target_epoch_record("consumers", INT32_MAX, 1, NOW_MS)]


def classic(connection: Connection, group_id: str) -> list[object]:
    """Join, sync, beat, commit and fetch as the only member; what the answers say."""

    def ask(request: Any, version: int) -> Any:
        return connection.ask(request, version)

    def join(member_id: str) -> Any:
        return ask(join_request(group_id, member_id, session_ms=10_000, rebalance_ms=3_000), 5)

    joined = join(join("").member_id)
    generation, member_id = joined.generation_id, joined.member_id
    synced = ask(sync_request(group_id, generation, member_id, given={member_id: b"x"}), 4)
    beat = ask(heartbeat_request(group_id, generation, member_id), 4)
    commits = []
    for who in ((generation, member_id), ()):
        body = commit_request(group_id, {("orders", 0): 7}, *who)
        commits.append(ask(body, 8).topics[0].partitions[0].error_code)
    return [joined.error_code, generation, synced.error_code, synced.assignment, beat.error_code, commits]


def fetched(connection: Connection, group_id: str) -> list[tuple[int, int, int]]:
    """What a group has committed."""
    answer: Any = connection.ask(group_offsets_request(group_id), 8)
    rows = [row for topic in answer.groups[0].topics for row in topic.partitions]
    return [(row.partition_index, row.committed_offset, row.committed_leader_epoch) for row in rows]


def consumers(connection: Connection) -> list[object]:
    """Two members of the consumer protocol join at the last epoch, go on, and one leaves; what the answers say."""
    said: list[object] = []
    for member_id, epoch in (("A", 0), ("A", INT32_MAX), ("B", 0), ("A", INT32_MAX), ("B", INT32_MAX), ("A", -1)):
        body = first_heartbeat("consumers", member_id, member_epoch=epoch, rebalance_timeout_ms=10_000)
        answer: Any = connection.ask(body, 1)
        partitions = None if answer.assignment is None else answer.assignment.topic_partitions
        said.append((answer.error_code, answer.member_epoch, partitions))
    return said


def answers(port: int, *, has_consumers: bool) -> list[object]:
    """Everything that a server with the log is asked here."""
    connection = Connection(port, "raw")
    said: list[object] = [classic(connection, "last"), classic(connection, "first"), fetched(connection, "offsets")]
    if has_consumers:
        said.append(consumers(connection))
    connection.close()
    return said


def hand_over(kafka: ApacheKafka, batch: bytes) -> None:
    """Put a batch into Kafka's log of groups, and let it read that."""
    connection = Connection(kafka.port, "__admin_client")
    connection.ask(topics_request({"orders": 2}), 5)
    data = produce_request({("__consumer_offsets", 0): batch})

    def is_there() -> bool:
        connection.ask(FindCoordinatorRequest(key="last", key_type=0), 3)
        answer: Any = connection.ask(data, 9)
        return not answer.responses[0].partition_responses[0].error_code

    wait_until(is_there, "the records are written", WITHIN_S)
    connection.close()
    kafka.stop()
    kafka.start()


@pytest.mark.parametrize("version", [VERSION, VERSION_44])
def test_what_follows_the_last_number(kafka_is_here: None, tmp_path: Path, version: str) -> None:
    """Both answer alike, and go on from what they wrote after a restart."""
    has_consumers = version == VERSION_44
    batch = encode_batch(RECORDS + (OF_CONSUMERS if has_consumers else []), 0, 0)
    with ApacheKafka({**SETTINGS, **(AT_ONCE if has_consumers else {})}, version=version) as kafka:
        hand_over(kafka, batch)
        wanted = answers(kafka.port, has_consumers=has_consumers)
    segment = tmp_path / "data" / "__consumer_offsets-0" / f"{0:020}.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(batch)
    at_once = {"group.consumer.assignment.interval.ms": "0"} if has_consumers else {}
    with Tenure({**SETTINGS, **at_once, "tenure.topics": "orders:2"}, directory=tmp_path) as tenure:
        assert answers(tenure.port, has_consumers=has_consumers) == wanted
    assert wanted[0] == [0, INT32_MIN, 0, b"x", 0, [0, 25]]
    assert wanted[2] == [(0, INT64_MAX, INT32_MAX)]
