"""ElectLeaders, log dirs and reassignments: the answers of a node whose replicas are the only ones and stay."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator.security.acls import Kind
from coordinator.server.requests.replicas import MEASURED_AT_ONCE, PREFERRED, UNCLEAN
from protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected
from tests.server.requests.test_records import ONE, TWO, produce
from tests.server.requests.test_rights import Recording

NOT_NEEDED, UNKNOWN = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def elect_request(election_type: int, topics: Mapping[str, list[int]] | None) -> ElectLeadersRequest:
    """ElectLeaders by topic."""
    asked = None
    if topics is not None:
        asked = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=each) for name, each in topics.items()]
    return ElectLeadersRequest(election_type=election_type, topic_partitions=asked)


def log_dirs_request(topics: Mapping[str, list[int]] | None) -> DescribeLogDirsRequest:
    """DescribeLogDirs by topic."""
    if topics is None:
        return DescribeLogDirsRequest(topics=None)
    asked = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(topics=[asked(topic=name, partitions=each) for name, each in topics.items()])


def move_request(path: str, topic: str, *partitions: int) -> AlterReplicaLogDirsRequest:
    """AlterReplicaLogDirs of one topic."""
    moved = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[moved])])


def reassign_request(*moves: tuple[str, int, list[int] | None]) -> AlterPartitionReassignmentsRequest:
    """AlterPartitionReassignments by topic, partition and replicas."""
    return AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=name,
                partitions=[
                    AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
                ],
            )
            for name, index, replicas in moves
        ]
    )


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


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("election_type", [PREFERRED, UNCLEAN])
async def test_no_election_is_needed(peer: Peer, version: int, election_type: int) -> None:
    """The only replica of each topic partition leads it."""
    asked = {"orders": [0, 2, 3, -1, 0], "__consumer_offsets": [1], "absent": [0], "": []}
    answer = await peer.ask(elect_request(election_type if version else PREFERRED, asked), version)
    assert answer.error_code == ErrorCode.NONE
    results = [
        (topic.topic, [(each.partition_id, each.error_code) for each in topic.partition_result])
        for topic in answer.replica_election_results
    ]
    assert results == [
        ("orders", [(0, NOT_NEEDED), (2, NOT_NEEDED), (3, UNKNOWN), (-1, UNKNOWN), (0, NOT_NEEDED)]),
        ("__consumer_offsets", [(1, NOT_NEEDED)]),
        ("absent", [(0, UNKNOWN)]),
        ("", []),
    ]


async def test_an_election_says_what_is_not_there(peer: Peer) -> None:
    """In few words: a request may name a topic of 32 KB with 100,000 partitions."""
    answer = await peer.ask(elect_request(PREFERRED, {"orders": [3], "absent": [0], "x" * 30_000: [0]}), 2)
    texts = [each.partition_result[0].error_message for each in answer.replica_election_results]
    assert texts[:2] == ["No such partition as orders-3", "No such topic as absent"]
    assert len(texts[2]) < 300


async def test_an_election_of_all_names_the_topics_only(peer: Peer) -> None:
    """As on Kafka, a topic partition that needs no election is left out."""
    answer = await peer.ask(elect_request(PREFERRED, None), 2)
    assert [(each.topic, each.partition_result) for each in answer.replica_election_results] == [
        ("__consumer_offsets", []),
        ("orders", []),
    ]


async def test_an_election_of_a_type_that_there_is_not(peer: Peer) -> None:
    """INVALID_REQUEST, for everything that was asked for; NONE if nothing was."""
    answer = await peer.ask(elect_request(2, {"orders": [0], "absent": [0]}), 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    codes = [each.partition_result[0].error_code for each in answer.replica_election_results]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2
    answer = await peer.ask(elect_request(2, None), 2)
    assert (answer.error_code, answer.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])
    answer = await peer.ask(elect_request(2, {}), 2)
    assert (answer.error_code, answer.replica_election_results) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("version", range(3))
async def test_an_election_without_the_right(server: Serving, version: int) -> None:
    """Each topic partition says so, and from version 1 on the whole answer too: version 0 has no field for it."""
    server.server._api._services.access = Recording(denied=frozenset(Kind))
    peer = await server.peer()
    answer = await peer.ask(elect_request(PREFERRED, {"orders": [0]}), version)
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


@pytest.mark.parametrize("version", range(3))
async def test_a_log_moves_to_its_own_folder_only(version: int) -> None:
    """NONE for its folder; LOG_DIR_NOT_FOUND for any other; the last folder that is named for a partition counts."""

    async def move(*requests: AlterReplicaLogDirsRequest) -> dict[tuple[str, int], int]:
        request = AlterReplicaLogDirsRequest(dirs=[each for one in requests for each in one.dirs])
        answer = await peer.ask(request, version)
        return {
            (topic.topic_name, each.partition_index): each.error_code
            for topic in answer.results
            for each in topic.partitions
        }

    async with connected() as (server, peer):
        assert await move(move_request("", "orders", 0)) == {("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND}
        await produce(peer, ("orders", 0, ONE))
        here, elsewhere = str(folder_of(server)), "/nowhere"
        assert await move(move_request(here, "orders", 0, 1, 3), move_request(here, "absent", 0)) == {
            ("orders", 0): ErrorCode.NONE,
            ("orders", 1): ErrorCode.NONE,
            ("orders", 3): UNKNOWN,
            ("absent", 0): UNKNOWN,
        }
        assert await move(move_request(here, "__consumer_offsets", 0)) == {("__consumer_offsets", 0): ErrorCode.NONE}
        for wrong in (elsewhere, "", "nowhere", f"{here}/"):
            assert await move(move_request(wrong, "orders", 0)) == {("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND}
        twice = move_request(here, "orders", 0), move_request(elsewhere, "orders", 0)
        assert await move(*twice) == {("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND}
        assert await move(*reversed(twice)) == {("orders", 0): ErrorCode.NONE}
        assert await move(move_request(here, "n" * 213, 0), move_request(elsewhere, "n" * 212, 10)) == {
            ("n" * 213, 0): UNKNOWN,
            ("n" * 212, 10): ErrorCode.LOG_DIR_NOT_FOUND,
        }
        assert await move(move_request(elsewhere, "n" * 214, 0), move_request(here, "n" * 213, 10)) == {
            ("n" * 214, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
            ("n" * 213, 10): ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert await move(move_request(here, "orders")) == {}


# Reassignments.


@pytest.mark.parametrize(
    ("move", "error"),
    [
        (("orders", 0, [1]), ErrorCode.NONE),
        (("__consumer_offsets", 0, [1]), ErrorCode.NONE),
        (("orders", 0, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (("orders", 0, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0, [2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0, [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0, [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0, [-1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 3, [1]), UNKNOWN),
        (("orders", -1, None), UNKNOWN),
        (("absent", 0, [1]), UNKNOWN),
    ],
)
async def test_a_topic_partition_moves_to_where_it_is_only(
    move: tuple[str, int, list[int] | None], error: ErrorCode
) -> None:
    """Each move of a request has an answer of its own."""
    async with connected("node.id=1") as (_, peer):
        answer = await peer.ask(reassign_request(("orders", 1, [1]), move), 0)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        found = [(each.name, each.partitions[0].partition_index, each.partitions[0]) for each in answer.responses]
        assert [each[:2] for each in found] == [("orders", 1), move[:2]]
        assert [each[2].error_code for each in found] == [ErrorCode.NONE, error]
        has_text = error not in {ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
        assert (found[1][2].error_message is not None) is has_text


async def test_no_move_is_under_way() -> None:
    """For all, for none and for named topic partitions, also after a request to move."""
    async with connected("node.id=1") as (_, peer):
        await peer.ask(reassign_request(("orders", 0, [1])), 0)
        asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        for topics in (None, [], [asked(name="orders", partition_indexes=[0]), asked(name="absent")]):
            answer = await peer.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
            assert (answer.error_code, answer.error_message, answer.topics) == (ErrorCode.NONE, None, [])
