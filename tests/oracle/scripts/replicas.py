"""Replicas of one node: leaders that are elected, folders of logs, and partitions that are moved to other replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ProduceRequest,
)
from tests.oracle.stage import Client, Stage, script, script_for
from tests.support.batches import batch

ONE = batch([(b"k", b"one", 1_700_000_000_000)])
OFFSETS = "__consumer_offsets"
OWN, OTHER = 1, 7
"""The node, and one that isn't there."""


@script_for(0, 1, 2)
def elect_leaders(stage: Stage, version: int) -> None:
    """Of what is there and what isn't, twice, of nothing, of everything; of both types, and of no type."""
    a = stage.client("a")
    topic = stage.topic(f"elected.v{version}", 2)
    for election_type in (0, 1, 2) if version else (0,):
        asked: list[list[tuple[str, list[int]]]] = [
            [(topic, [0, 1, 2, -1])],
            [(topic, [0, 0])],
            [(topic, [0]), (topic, [1])],
            [("not.there", [0]), ("", [0]), (OFFSETS, [0]), (topic, [])],
            [],
        ]
        for topics in asked:
            a.ask(_elect(topics, election_type), version)
        a.send(_elect(None, election_type), version)
        answer = cast("ElectLeadersResponse", a.connection.receive())
        results = answer.replica_election_results
        answer.replica_election_results = [each for each in results if each.topic in {topic, OFFSETS}]
        stage.transcript.add("a", "< ElectLeaders", answer)


@script_for(0, 1, 2, 3, 4)
def describe_log_dirs(stage: Stage, version: int) -> None:
    """Sizes: of nothing, of one batch, of three; of what isn't there, twice, and of everything."""
    a = stage.client("a")
    topic, other = stage.topic(f"sized.v{version}", 3), stage.topic(f"sized-empty.v{version}", 1)
    for partition, batches in ((0, 1), (2, 3)):
        for _ in range(batches):
            _produce(a, topic, partition)
    requests: list[dict[str, list[int]] | None] = [
        {topic: [0, 1, 2]},
        {topic: [0, 0, 2]},
        {topic: [0, 3, -1], "not.there": [0], other: [0]},
        {topic: []},
        {},
        None,
    ]
    for topics in requests:
        _log_dirs(a, topics, version, shown={topic, other})


@script_for(0, 1, 2)
def alter_replica_log_dirs(stage: Stage, version: int) -> None:
    """To the folder where the logs are, and to none; twice; of what isn't there; of a name that is too long."""
    a = stage.client("a")
    topic = stage.topic(f"moved.v{version}", 2)
    long_name = stage.topic("m" * 220, 1)
    folder = _log_dirs(a, {topic: [0]}, version, shown={topic})
    requests: list[list[tuple[str, str, list[int]]]] = [
        [(folder, topic, [0, 1])],
        [(folder, topic, [0, 0])],
        [(folder, topic, [0, 2, -1]), (folder, "not.there", [0]), (folder, "", [0])],
        [("/nowhere", topic, [0]), ("/nowhere", "not.there", [0]), (f"{folder}/", topic, [1])],
        [(folder, topic, [0]), ("/nowhere", topic, [0])],
        [("/nowhere", topic, [0]), (folder, topic, [0, 1])],
        [("", topic, [0]), ("nowhere", topic, [1])],
        [(folder, long_name, [0]), ("/nowhere", "n" * 300, [0])],
        [(folder, "n" * 209, [0]), (folder, "n" * 208, [10])],
        [(folder, "n" * 208, [0]), (folder, "n" * 207, [10])],
        [(folder, topic, [])],
        [(folder, OFFSETS, [0])],
        [],
    ]
    for dirs in requests:
        asked = [
            AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                path=path, topics=[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=partitions)]
            )
            for path, name, partitions in dirs
        ]
        a.ask(AlterReplicaLogDirsRequest(dirs=asked), version)


@script()
def alter_partition_reassignments(stage: Stage) -> None:
    """To where it is, elsewhere, twice there, nowhere, back; of what isn't there; each in one answer, and listed."""
    a = stage.client("a")
    topic = stage.topic("reassigned", 2)
    requests: list[list[tuple[str, int, list[int] | None]]] = [
        [(topic, 0, [OWN])],
        [(topic, 0, [OTHER])],
        [(topic, 0, [OWN, OTHER])],
        [(topic, 0, [OWN, OWN])],
        [(topic, 0, [])],
        [(topic, 0, [-1])],
        [(topic, 0, None)],
        [(topic, 2, [OWN]), (topic, -1, None), ("not.there", 0, [OWN]), ("", 0, None)],
        [(topic, 1, [OWN]), (topic, 1, None), (topic, 1, [OTHER])],
        [(OFFSETS, 0, [OWN]), (OFFSETS, 0, None)],
        [],
    ]
    for moves in requests:
        topics = [
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=name,
                partitions=[
                    AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
                ],
            )
            for name, index, replicas in moves
        ]
        a.ask(AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=topics), 0)
    a.ask(
        AlterPartitionReassignmentsRequest(
            timeout_ms=10_000, topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name="not.there")]
        ),
        0,
    )
    listed = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    for asked in (
        None,
        [],
        [listed(name=topic, partition_indexes=[0, 1, 2])],
        [listed(name=topic), listed(name="not.there", partition_indexes=[0])],
    ):
        a.ask(ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=asked), 0)


def _elect(topics: Sequence[tuple[str, list[int]]] | None, election_type: int) -> ElectLeadersRequest:
    asked = (
        None
        if topics is None
        else [ElectLeadersRequest.TopicPartitions(topic=name, partitions=partitions) for name, partitions in topics]
    )
    return ElectLeadersRequest(election_type=election_type, topic_partitions=asked, timeout_ms=10_000)


def _log_dirs(client: Client, topics: Mapping[str, list[int]] | None, version: int, *, shown: set[str]) -> str:
    """DescribeLogDirs and its answer, from which the topics of other scripts are left out; the server's folder."""
    asked = (
        None
        if topics is None
        else [
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )
    client.send(DescribeLogDirsRequest(topics=asked), version)
    answer = cast("DescribeLogDirsResponse", client.connection.receive())
    (result,) = answer.results
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes
    result.topics = [each for each in result.topics if each.name in shown]
    client.stage.transcript.add(client.name, "< DescribeLogDirs", answer)
    return result.log_dir


def _produce(client: Client, topic: str, partition: int) -> None:
    data = [ProduceRequest.PartitionProduceData(index=partition, records=ONE)]
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
