"""The client creates topics and finds the ends of their logs."""

from __future__ import annotations

import pytest

from coordinator.client.errors import Refused
from coordinator.client.topics import create_topic, log_end_offsets, owners_json, partition_owners, user_topics
from coordinator.story.events import fields_of
from schemas.errors import ErrorCode
from tests.client.scripted import served

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_is_created() -> None:
    """The request has the name, the number of partitions, and one replica."""
    with served({"CreateTopics": [{"topics": [{"name": "t"}]}]}) as (server, client):
        create_topic(client, "t", 12)
    (request,) = server.asked("CreateTopics")
    assert [(topic.name, topic.num_partitions, topic.replication_factor) for topic in request.topics] == [("t", 12, 1)]


def test_topic_that_is_there_already_is_refused() -> None:
    """The error of the server reaches the caller."""
    result = {"name": "t", "error_code": ErrorCode.TOPIC_ALREADY_EXISTS}
    with (
        served({"CreateTopics": [{"topics": [result]}]}) as (_, client),
        pytest.raises(Refused, match="topic 't': TOPIC_ALREADY_EXISTS"),
    ):
        create_topic(client, "t", 12)


def test_topics_of_users_are_listed_without_internal_ones() -> None:
    """Each has its number of partitions."""
    topics = [{"name": "t", "partitions": [{}, {}]}, {"name": "__consumer_offsets", "is_internal": True}]
    with served({"Metadata": [{"topics": topics}]}) as (_, client):
        assert user_topics(client) == {"t": 2}


def test_ends_of_what_has_a_leader_and_answers() -> None:
    """The client asks the leader; a topic partition has no end if it has no leader, has an error or is unknown."""
    partitions = [{"partition_index": index, "leader_id": leader} for index, leader in enumerate((7, 7, 7, -1))]
    topics = [{"name": "t", "partitions": partitions}, {"name": "u", "error_code": UNKNOWN}]
    ends = [{"partition_index": 0, "offset": 42}, {"partition_index": 1, "error_code": 6}]
    with served({"ListOffsets": [{"topics": [{"name": "t", "partitions": ends}]}]}) as (server, client):
        brokers = [{"node_id": 7, "host": "127.0.0.1", "port": server.port}]
        server.answer_first("Metadata", {"brokers": brokers, "topics": topics})
        wanted = [("t", 0), ("t", 1), ("t", 3), ("u", 0)]
        assert log_end_offsets(client, wanted) == {("t", 0): 42}
    (request,) = server.asked("ListOffsets")
    assert [(one.name, [part.partition_index for part in one.partitions]) for one in request.topics] == [("t", [0, 1])]
    assert not any(message.allow_auto_topic_creation for message in server.asked("Metadata"))


def test_nothing_wanted_is_nothing_asked() -> None:
    """A group without offsets and members costs no request."""
    with served() as (server, client):
        assert log_end_offsets(client, []) == {}
    assert server.requests == []


def test_partitions_that_no_node_has() -> None:
    """Those without a leader, and those whose leader is none of the nodes; none if the topic can't be described."""
    partitions = [{"partition_index": index, "leader_id": leader} for index, leader in enumerate((1, -1, 7))]
    brokers = [{"node_id": 1, "host": "127.0.0.1", "port": 9}]
    described = {"brokers": brokers, "topics": [{"name": "__consumer_offsets", "partitions": partitions}]}
    unknown = {"brokers": brokers, "topics": [{"name": "__consumer_offsets", "error_code": UNKNOWN}]}
    with served({"Metadata": [described, unknown]}) as (_, client):
        owners = partition_owners(client)
        assert owners.nobody == [1, 2]
        assert fields_of(owners_json(owners)) == {
            "nodes": [{"node_id": 1, "host": "127.0.0.1", "port": 9, "partitions": [0]}],
            "partitions_without_node": [1, 2],
        }
        assert partition_owners(client).nobody == []
