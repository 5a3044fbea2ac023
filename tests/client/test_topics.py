"""The client creates topics and finds the ends of their logs."""

from __future__ import annotations

import pytest

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.topics import create_topic, log_end_offsets, owners_json, partition_owners, user_topics
from protocol.messages import CreateTopicsResponse, ListOffsetsResponse, MetadataResponse
from schemas.errors import ErrorCode
from tests.client.scripted import Scripted
from tests.support.patience import WITHIN_S


def test_topic_is_created() -> None:
    """The request has the name, the number of partitions, and one replica."""
    response = CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name="t")])
    with Scripted({"CreateTopics": [response]}) as server, Client(server.bootstrap, WITHIN_S) as client:
        create_topic(client, "t", 12)
    (request,) = server.asked("CreateTopics")
    assert [(topic.name, topic.num_partitions, topic.replication_factor) for topic in request.topics] == [("t", 12, 1)]


def test_topic_that_is_there_already_is_refused() -> None:
    """The error of the server reaches the caller."""
    result = CreateTopicsResponse.CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
    with (
        Scripted({"CreateTopics": [CreateTopicsResponse(topics=[result])]}) as server,
        Client(server.bootstrap, WITHIN_S) as client,
        pytest.raises(Refused, match="topic 't': TOPIC_ALREADY_EXISTS"),
    ):
        create_topic(client, "t", 12)


def test_topics_of_users_are_listed_without_internal_ones() -> None:
    """Each has its number of partitions."""
    topic, partition = MetadataResponse.MetadataResponseTopic, MetadataResponse.MetadataResponsePartition
    topics = [
        topic(name="t", partitions=[partition(), partition()]),
        topic(name="__consumer_offsets", is_internal=True),
    ]
    response = MetadataResponse(topics=topics)
    with Scripted({"Metadata": [response]}) as server, Client(server.bootstrap, WITHIN_S) as client:
        assert user_topics(client) == {"t": 2}


def test_ends_of_what_has_a_leader_and_answers() -> None:
    """The client asks the leader; a topic partition has no end if it has no leader, has an error or is unknown."""
    metadata = MetadataResponse.MetadataResponsePartition
    partitions = [metadata(partition_index=index, leader_id=7) for index in range(3)]
    partitions.append(metadata(partition_index=3, leader_id=-1))
    partition = ListOffsetsResponse.ListOffsetsPartitionResponse
    ends = [partition(partition_index=0, offset=42), partition(partition_index=1, error_code=6)]
    with Scripted() as server, Client(server.bootstrap, WITHIN_S) as client:
        server.answer_first(
            "Metadata",
            MetadataResponse(
                brokers=[MetadataResponse.MetadataResponseBroker(node_id=7, host="127.0.0.1", port=server.port)],
                topics=[
                    MetadataResponse.MetadataResponseTopic(name="t", partitions=partitions),
                    MetadataResponse.MetadataResponseTopic(name="u", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ],
            ),
        )
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=ends)
        server.answers("ListOffsets", ListOffsetsResponse(topics=[topic]))
        wanted = [("t", 0), ("t", 1), ("t", 3), ("u", 0)]
        assert log_end_offsets(client, wanted) == {("t", 0): 42}
    (request,) = server.asked("ListOffsets")
    assert [(one.name, [part.partition_index for part in one.partitions]) for one in request.topics] == [("t", [0, 1])]
    assert not any(message.allow_auto_topic_creation for message in server.asked("Metadata"))


def test_nothing_wanted_is_nothing_asked() -> None:
    """A group without offsets and members costs no request."""
    with Scripted() as server, Client(server.bootstrap, WITHIN_S) as client:
        assert log_end_offsets(client, []) == {}
    assert server.requests == []


def test_partitions_that_no_node_has() -> None:
    """Those without a leader, and those whose leader is none of the nodes; none if the topic can't be described."""
    topic, partition = MetadataResponse.MetadataResponseTopic, MetadataResponse.MetadataResponsePartition
    partitions = [partition(partition_index=index, leader_id=leader) for index, leader in enumerate((1, -1, 7))]
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9)]
    described = MetadataResponse(brokers=brokers, topics=[topic(name="__consumer_offsets", partitions=partitions)])
    unknown = MetadataResponse(
        brokers=brokers, topics=[topic(name="__consumer_offsets", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    )
    with Scripted({"Metadata": [described, unknown]}) as server, Client(server.bootstrap, WITHIN_S) as client:
        owners = partition_owners(client)
        assert owners.nobody == [1, 2]
        assert owners_json(owners) == {
            "nodes": [{"node_id": 1, "host": "127.0.0.1", "port": 9, "partitions": [0]}],
            "partitions_without_node": [1, 2],
        }
        assert partition_owners(client).nobody == []
