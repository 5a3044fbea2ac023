"""Large requests about topics, settings and records are handled in steps, with the same answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordinator.group.client import Now
from coordinator.group.coordinator import Coordinator
from coordinator.group.effects import Effects
from coordinator.group.events import Event, RemoveOffsets
from coordinator.group.offsets import REMOVED_AT_ONCE
from coordinator.loop.pace import Pace
from coordinator.server.requests.records import PLAIN_MAX
from coordinator.server.wire.call import Call
from protocol.messages import (
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    Message,
    MetadataRequest,
    OffsetFetchRequest,
)
from tests.server.harness import Peer, Serving, connected, serving
from tests.server.requests.test_records import ONE
from tests.support.requests import (
    commit_request,
    configs_request,
    describe_configs_request,
    fetch_request,
    list_offsets_request,
    produce_request,
    request,
)

MANY = PLAIN_MAX + 100

NAMES = [*["orders"] * 20, *[""] * 20, *(f"t{index}" for index in range(MANY - 40))]
"""Equal, empty and distinct names; only the first exists."""
MANY_OF_ONE_AND_OTHERS = [{"topic": "orders", "partitions": list(range(MANY))}, *({"topic": name} for name in NAMES)]


def metadata() -> Message:
    """By name."""
    return request("Metadata", topics=[{"name": name} for name in NAMES], allow_auto_topic_creation=False)


def create_topics() -> Message:
    """Some are created, some refused."""
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in NAMES]
    return request("CreateTopics", topics=topics, timeout_ms=1_000)


def create_topic_of_many_settings() -> Message:
    """One topic, whose settings are many."""
    configs = [{"name": "retention.ms", "value": "7"}] * MANY
    topic = {"name": "one", "num_partitions": 1, "replication_factor": 1, "configs": configs}
    return request("CreateTopics", topics=[topic], timeout_ms=1_000)


def create_topic_with_an_assignment() -> Message:
    """One topic, each of whose partitions is assigned by hand."""
    assignments = [{"partition_index": index, "broker_ids": [1]} for index in range(MANY)]
    topic = {"name": "one", "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    return request("CreateTopics", topics=[topic], timeout_ms=1_000)


def create_partitions() -> Message:
    """Of one topic that exists, and of many that don't."""
    topics = [{"name": name, "count": 5, "assignments": None} for name in ["orders", *NAMES[20:]]]
    return request("CreatePartitions", topics=topics, timeout_ms=1_000, validate_only=False)


def describe_configs() -> Message:
    """Of topics, most of which don't exist."""
    return describe_configs_request(2, *NAMES, keys=["retention.ms"])


def alter_configs() -> Message:
    """One topic's settings are valid, the others are not there."""
    configs = [{"name": "retention.ms", "value": "7"}]
    names = ["orders", *NAMES[20:]]
    resources = [{"resource_type": 2, "resource_name": name, "configs": configs} for name in names]
    return request("AlterConfigs", resources=resources, validate_only=False)


def incremental_alter_configs() -> Message:
    """The same, one by one; and many names of settings in one resource."""
    return configs_request(2, ["orders"], {"retention.ms": "7", **dict.fromkeys(NAMES[40:])})


def list_offsets() -> Message:
    """Many partitions of one topic."""
    return list_offsets_request({("orders", index): -1 for index in range(MANY)})


def delete_records() -> Message:
    """Many partitions of one topic."""
    partitions = [{"partition_index": index, "offset": 0} for index in range(MANY)]
    return request("DeleteRecords", topics=[{"name": "orders", "partitions": partitions}], timeout_ms=1_000)


def offset_for_leader_epoch() -> Message:
    """Many partitions of one topic."""
    partitions = [{"partition": index, "leader_epoch": 0} for index in range(MANY)]
    return request("OffsetForLeaderEpoch", topics=[{"topic": "orders", "partitions": partitions}])


def commit_in_transaction() -> Message:
    """Many partitions of one topic."""
    partitions = [{"partition_index": index, "committed_offset": 1, "committed_metadata": ""} for index in range(MANY)]
    producer = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
    return request("TxnOffsetCommit", group_id="g", topics=[{"name": "orders", "partitions": partitions}], **producer)


def produce() -> Message:
    """Valid batches and unknown partitions."""
    return produce_request({("orders", index): ONE for index in range(MANY)})


def elect_leaders() -> Message:
    """Of many topics, and of many partitions of one."""
    return request("ElectLeaders", topic_partitions=MANY_OF_ONE_AND_OTHERS)


def alter_replica_log_dirs() -> Message:
    """Many partitions of one topic, to a folder that isn't there."""
    topic = {"name": "orders", "partitions": list(range(MANY))}
    return request("AlterReplicaLogDirs", dirs=[{"path": "/", "topics": [topic]}])


def alter_partition_reassignments() -> Message:
    """One partition, to many brokers; and many partitions."""
    moves = [{"partition_index": 0, "replicas": [1] * MANY}]
    moves += [{"partition_index": index, "replicas": [0]} for index in range(MANY)]
    return request("AlterPartitionReassignments", topics=[{"name": "orders", "partitions": moves}])


def fetch() -> Message:
    """Partitions that exist and partitions that don't; it doesn't wait."""
    partitions = [
        {"partition": index % 6, "fetch_offset": 0, "partition_max_bytes": 1_000} for index in range(2 * MANY)
    ]
    return request("Fetch", max_wait_ms=0, min_bytes=0, topics=[{"topic": "orders", "partitions": partitions}])


CASES: dict[str, tuple[Callable[[], Message], int]] = {
    "Metadata": (metadata, 9),
    "FindCoordinator": (lambda: FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES), 4),
    "CreateTopics": (create_topics, 7),
    "CreateTopics, settings": (create_topic_of_many_settings, 7),
    "CreateTopics, assignment": (create_topic_with_an_assignment, 7),
    "CreatePartitions": (create_partitions, 3),
    "DeleteTopics": (lambda: DeleteTopicsRequest(topic_names=NAMES[19:], timeout_ms=1_000), 5),
    "DescribeConfigs": (describe_configs, 4),
    "AlterConfigs": (alter_configs, 2),
    "IncrementalAlterConfigs": (incremental_alter_configs, 1),
    "ListOffsets": (list_offsets, 6),
    "DeleteRecords": (delete_records, 2),
    "OffsetForLeaderEpoch": (offset_for_leader_epoch, 4),
    "TxnOffsetCommit": (commit_in_transaction, 3),
    "Produce": (produce, 9),
    "Fetch": (fetch, 12),
    "ElectLeaders": (elect_leaders, 2),
    "DescribeLogDirs": (lambda: request("DescribeLogDirs", topics=MANY_OF_ONE_AND_OTHERS), 4),
    "AlterReplicaLogDirs": (alter_replica_log_dirs, 2),
    "AlterPartitionReassignments": (alter_partition_reassignments, 0),
}


@contextmanager
def pausing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Every turn ends with its second step. Yields the number of steps before the first answer, and so on."""
    pauses, in_turn = [0], [0]
    has_time, next_turn, answer = Pace.has_time, Pace._next_turn, Call.answer
    with monkeypatch.context() as patch:

        def seldom(pace: Pace) -> bool:
            has_time(pace)
            pauses[-1] += 1
            in_turn[0] += 1
            return in_turn[0] < 2

        def begin(pace: Pace) -> None:
            in_turn[0] = 0
            next_turn(pace)

        def answered(call: Call, body: Message, **version: Any) -> None:
            pauses.append(pauses[-1])
            answer(call, body, **version)

        patch.setattr(Pace, "has_time", seldom)
        patch.setattr(Pace, "_next_turn", begin)
        patch.setattr(Call, "answer", answered)
        yield pauses


def without_the_servers_own(answer: Message) -> str:
    """An answer as text, without what differs between two servers: port, folder, and what its volume has left."""
    return re.sub(r"port=\d+|log_dir='[^']*'|usable_bytes=\d+", "", repr(answer))


@pytest.mark.parametrize("name", CASES)
async def test_a_large_request_pauses_and_its_answer_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It pauses once for each element or more, and that before the answer is encoded."""
    make, version = CASES[name]
    async with connected() as (_, peer):
        answer = await peer.ask(make(), version)
        in_one_turn = without_the_servers_own(answer)
    # Decoding in steps would count too, so no request is large for it.
    for bytes_of_a_request in ("DECODED_IN_STEPS_ABOVE", "STEPS_ABOVE"):
        monkeypatch.setattr(f"coordinator.server.wire.api.{bytes_of_a_request}", 1_000_000)
    async with connected() as (_, peer):
        with pausing(monkeypatch) as pauses:
            answer = await peer.ask(make(), version)
        assert without_the_servers_own(answer) == in_one_turn
        assert pauses[0] >= MANY - 40
        # An answer in steps: its encoding paused too.
        assert pauses[-1] > pauses[0]


async def test_a_small_produce_and_a_small_fetch_have_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the most frequent requests about records, so they cost no more than their work."""
    worked: list[int] = []
    monkeypatch.setattr(Call, "work", lambda call, _: worked.append(call.api_key))
    async with connected() as (_, peer):
        produced = await peer.ask(produce_request({("orders", 0): ONE}), 9)
        assert produced.responses[0].partition_responses[0].base_offset == 0
        fetched = await peer.ask(fetch_request({("orders", 0): 0}), 12)
        assert fetched.responses[0].partitions[0].records
    assert worked == []


async def test_metadata_of_all_topics_pauses_within_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of 20 bytes may name 10,000 partitions in one topic."""
    async with connected("tenure.topics=wide:3000") as (_, peer):
        with pausing(monkeypatch) as pauses:
            answer = await peer.ask(MetadataRequest(topics=None), 9)
        assert pauses[0] >= 3_000
        wide = answer.topics[1]
        assert [each.partition_index for each in wide.partitions] == list(range(3_000))


async def test_a_topic_that_is_named_several_times_is_shown_once(peer: Peer) -> None:
    """By name or by id, as on Kafka; else a small request could ask for any amount."""
    (_, orders) = (await peer.ask(MetadataRequest(topics=None), 12)).topics
    by_id = MetadataRequest.MetadataRequestTopic(name=None, topic_id=orders.topic_id)
    answer = await peer.ask(MetadataRequest(topics=[by_id] * 3, allow_auto_topic_creation=False), 12)
    assert [topic.name for topic in answer.topics] == ["orders"]


async def test_metadata_creates_no_more_than_create_topics_can() -> None:
    """With 4,000 partitions each, two topics; the client's next request creates the others."""
    async with connected("num.partitions=4000") as (_, peer):
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in "abc"]
        for known in (0, 2, 3):
            answer = await peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 9)
            assert sum(not topic.error_code for topic in answer.topics) == known


async def test_a_name_that_is_taken_while_a_request_pauses_is_refused(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two large CreateTopics at once with the same names: each topic is created by one of them."""
    first, second = await server.peer(), await server.peer()
    with pausing(monkeypatch):
        await first.send(create_topics(), 7)
        await second.send(create_topics(), 7)
        answers = [
            {topic.name: topic.error_code for topic in (await each.receive()).topics} for each in (first, second)
        ]
    fresh = NAMES[40:]
    assert sorted({(answers[0][name], answers[1][name]) for name in fresh}) in ([(0, 36)], [(36, 0)])


async def test_the_offsets_of_a_deleted_topic_go_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to DeleteTopics comes when they are gone; meanwhile the loop pauses."""
    count = 3_000
    async with serving("tenure.topics=wide:3000") as server:
        await server.loaded()
        peer = await server.peer()
        answer = await peer.ask(commit_request("g", {("wide", index): 1 for index in range(count)}), 6)
        assert not any(each.error_code for each in answer.topics[0].partitions)
        removed: list[int] = []
        handle = Coordinator.handle

        def counting(coordinator: Coordinator, event: Event, now: Now) -> Effects:
            if isinstance(event, RemoveOffsets):
                removed.append(sum(map(len, event.topic_partitions.values())))
            return handle(coordinator, event, now)

        monkeypatch.setattr(Coordinator, "handle", counting)
        with pausing(monkeypatch) as pauses:
            answer = await peer.ask(DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1_000), 5)
        assert [each.error_code for each in answer.responses] == [0]
        assert removed == [REMOVED_AT_ONCE] * (count // REMOVED_AT_ONCE)
        assert pauses[0] > count  # its partitions, and the events
        fetched = await peer.ask(OffsetFetchRequest(group_id="g", topics=None), 5)
        assert fetched.topics == []
