"""ElectLeaders and log dirs: what tests/oracle/scripts/replicas.txt, which Apache Kafka plays too, doesn't show."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator.security.acls import Kind
from coordinator.server.requests.replicas import MEASURED_AT_ONCE, PREFERRED
from protocol.messages import Message
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected
from tests.server.requests.test_records import ONE, TWO, produce
from tests.server.requests.test_rights import Recording
from tests.support.requests import request


def elect_request(topics: Mapping[str, list[int]]) -> Message:
    """ElectLeaders by topic."""
    asked = [{"topic": name, "partitions": each} for name, each in topics.items()]
    return request("ElectLeaders", election_type=PREFERRED, topic_partitions=asked)


def log_dirs_request(topics: Mapping[str, list[int]] | None) -> Message:
    """DescribeLogDirs by topic."""
    if topics is None:
        return request("DescribeLogDirs", topics=None)
    return request("DescribeLogDirs", topics=[{"topic": name, "partitions": each} for name, each in topics.items()])


def sizes(answer: Any) -> dict[str, dict[int, int]]:
    """The sizes in an answer to DescribeLogDirs."""
    (result,) = answer.results
    return {
        topic.name: {each.partition_index: each.partition_size for each in topic.partitions} for topic in result.topics
    }


def folder_of(server: Serving) -> Path:
    """The folder of the topics' logs."""
    assert server.server.data is not None
    folder = server.server.data.folder
    assert folder is not None
    return folder


# ElectLeaders.


async def test_an_election_says_what_is_not_there(peer: Peer) -> None:
    """In few words: a request may name a topic of 32 KB with 100,000 partitions."""
    answer = await peer.ask(elect_request({"orders": [3], "absent": [0], "x" * 30_000: [0]}), 2)
    texts = [each.partition_result[0].error_message for each in answer.replica_election_results]
    assert texts[:2] == ["No such partition as orders-3", "No such topic as absent"]
    assert len(texts[2]) < 300


@pytest.mark.parametrize("version", range(3))
async def test_an_election_without_the_right(server: Serving, version: int) -> None:
    """Each topic partition says so, and from version 1 on the whole answer too: version 0 has no field for it."""
    server.server._api._services.access = Recording(denied=frozenset(Kind))
    peer = await server.peer()
    answer = await peer.ask(elect_request({"orders": [0]}), version)
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [each.error_code for each in answer.replica_election_results[0].partition_result] == [error]
    assert answer.error_code == (error if version else ErrorCode.NONE)


# Folders.


@pytest.mark.parametrize("version", range(5))
async def test_the_folder_and_the_sizes_of_its_logs(peer: Peer, server: Serving, version: int) -> None:
    """The bytes of the batches; 0 without any; what isn't there is left out, and a partition is shown once."""
    await produce(peer, ("orders", 0, ONE), ("orders", 2, ONE), ("orders", 2, TWO))
    answer = await peer.ask(log_dirs_request({"orders": [2, 0, 3, -1, 0], "absent": [0]}), version)
    assert answer.error_code == ErrorCode.NONE
    assert sizes(answer) == {"orders": {2: len(ONE) + len(TWO), 0: len(ONE)}}
    (result,) = answer.results
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, str(folder_of(server)))
    assert {(each.offset_lag, each.is_future_key) for each in result.topics[0].partitions} == {(0, False)}
    total = shutil.disk_usage(folder_of(server)).total
    assert result.total_bytes == (total if version >= 4 else -1)
    assert 0 < result.usable_bytes <= total if version >= 4 else result.usable_bytes == -1
    everything = sizes(await peer.ask(log_dirs_request(None), version))
    assert everything["orders"] == {0: len(ONE), 1: 0, 2: len(ONE) + len(TWO)}
    assert list(everything["__consumer_offsets"]) == [0, 1, 2, 3]
    for nothing in (log_dirs_request({"orders": []}), log_dirs_request({})):
        assert sizes(await peer.ask(nothing, version)) == {}


async def test_the_sizes_of_many_logs_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that other calls of the logs' thread come in between."""
    count = 2 * MEASURED_AT_ONCE + 1
    async with connected(f"tenure.topics=wide:{count}") as (server, peer):
        data = server.server.data
        assert data is not None
        asked: list[int] = []
        measure = data.measure

        def counted(partitions: Sequence[Any], done: Any) -> None:
            asked.append(len(partitions))
            measure(partitions, done)

        monkeypatch.setattr(data, "measure", counted)
        answer = await peer.ask(log_dirs_request({"wide": list(range(count))}), 4)
        assert sizes(answer) == {"wide": dict.fromkeys(range(count), 0)}
        assert asked == [MEASURED_AT_ONCE, MEASURED_AT_ONCE, 1]


async def test_a_folder_that_can_not_be_read(peer: Peer, server: Serving) -> None:
    """KAFKA_STORAGE_ERROR for the folder, as on Kafka; the connection goes on."""
    await produce(peer, ("orders", 0, ONE))
    folder = folder_of(server)
    away = folder.rename(folder.with_name(f"{folder.name}-away"))
    try:
        answer = await peer.ask(log_dirs_request(None), 4)
    finally:
        away.rename(folder)
    (result,) = answer.results
    assert (result.error_code, result.log_dir) == (ErrorCode.KAFKA_STORAGE_ERROR, str(folder))
    assert (result.topics, result.total_bytes, result.usable_bytes) == ([], -1, -1)
    assert sizes(await peer.ask(log_dirs_request({"orders": [0]}), 4)) == {"orders": {0: len(ONE)}}


# Reassignments.


async def test_the_folder_of_a_move_has_a_name_that_disks_take(peer: Peer) -> None:
    """The name of topic and partition, and what Kafka adds to it, have 255 characters at most."""
    asked = [{"name": "n" * size, "partitions": [index]} for size, index in ((213, 0), (214, 0), (212, 10), (213, 10))]
    answer = await peer.ask(request("AlterReplicaLogDirs", dirs=[{"path": "/nowhere", "topics": asked}]), 2)
    codes = {
        (len(topic.topic_name), each.partition_index): each.error_code
        for topic in answer.results
        for each in topic.partitions
    }
    fits, too_long = ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == {(213, 0): fits, (214, 0): too_long, (212, 10): fits, (213, 10): too_long}
