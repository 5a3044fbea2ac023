"""Records: produced, refused, repeated, read by offset and by time, deleted; and topics that grow, change and go."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    FetchRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from tests.oracle.stage import Client, Stage, script, script_for
from tests.support.batches import batch, numbered

ONE = batch([(b"k", b"one", 1_700_000_000_000)])
TWO = batch([(b"k", b"two", 1_700_000_001_000), (None, b"three", 1_700_000_000_500)])
LARGE = batch([(None, b"x" * 300, 1_700_000_002_000)])
NOWHERE = UUID(int=7)


@script_for(3, 5, 7, 8, 9, 10, 11)
def produce_and_fetch(stage: Stage, version: int) -> None:
    """A fetch returns the produced bytes, from the batch that has the offset."""
    a = stage.client("a")
    topic = stage.topic(f"kept.v{version}", 2)
    for acks in (1, -1):
        _produce(a, version, {topic: [(0, ONE), (1, TWO)]}, acks=acks)
    for fetch_version in (4, 11, 12):
        for offset in range(4):
            _fetch(a, fetch_version, {topic: [(0, min(offset, 2)), (1, offset)]})


@script_for(3, 9)
def batches_that_are_refused(stage: Stage, version: int) -> None:
    """Each refused batch has its error code and no offset."""
    a = stage.client("a")
    topic = stage.topic(f"refused.v{version}", 1)
    for data in (
        b"",
        b"short",
        ONE[:-1],
        ONE + TWO,
        ONE[:-1] + b"x",
        batch([(b"k", b"v", 1)], magic=1),
        batch([(b"k", b"v", 1)], base_offset=5),
        batch([(b"k", b"v", 1)], attributes=0x20),
        batch([(b"k", b"v", 1)], attributes=0x08),
        batch([(b"k", b"v", 1)], attributes=5),
        batch([(b"k", b"v", 1)], producer_id=3, producer_epoch=0, sequence=0, attributes=0x10),
        batch([(b"k", b"v", 1)], producer_id=3, producer_epoch=0, sequence=-1),
        batch(numbered(0, 2), record_count=1),
        batch([]),
        batch([(b"k", b"x" * 1_100_000, 1)]),
    ):
        _produce(a, version, {topic: [(0, data)]})
    _produce(a, version, {topic: [(1, ONE), (0, ONE)], "not.there": [(0, ONE)]})
    in_one = batch([(b"k", b"v", 1)], producer_id=3, producer_epoch=0, sequence=0, attributes=0x10)
    _produce(a, version, {topic: [(0, ONE), (1, in_one)], "not.there": [(0, ONE)]})
    _produce(a, version, {topic: [(0, ONE)]}, acks=2)
    _produce(a, version, {topic: [(0, ONE)], "not.there": [(0, ONE)]}, acks=2)
    _fetch(a, 11, {topic: [(0, 0)]})


@script_for(3, 7, 8, 9, 10, 11)
def records_without_keys(stage: Stage, version: int) -> None:
    """In a compacted topic each is named, and the batch fails; other batches of the request don't."""
    a = stage.client("a")
    for policy, time in (("compact", "CreateTime"), ("compact,delete", "LogAppendTime")):
        topic = f"keyless-{time}.v{version}"
        configs = {"cleanup.policy": policy, "message.timestamp.type": time}
        created = CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=2,
            replication_factor=1,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
            ],
        )
        a.ask(CreateTopicsRequest(topics=[created], timeout_ms=10_000), 5)
        stage.until_topic(topic)
        beside = [(1, ONE)] if time == "CreateTime" else []
        for zipped in (False, True):
            mixed = batch(
                [(b"k", b"1", 1), (None, b"2", 2), (b"k", b"3", 3), (None, None, 4), (b"", b"5", 5)], zipped=zipped
            )
            keyless = batch([(None, b"v", each) for each in range(6)], zipped=zipped)
            for data in (mixed, keyless):
                _produce(a, version, {topic: [(0, data), *beside]}, acks=-1 if zipped else 1)
            idempotent = batch([(None, b"1", 1)], producer_id=90_002, producer_epoch=0, sequence=0, zipped=zipped)
            _produce(a, version, {topic: [(1, idempotent)]})
            for sent in (
                [(b"k", b"1", 1), (None, b"2", 2)],
                [(b"k", b"1", -1), (None, b"2", -1)],
                [(b"k", b"1", -1)],
                [(b"k", b"1", 1)],
            ):
                if time == "LogAppendTime" or sent[0][2] < 0:
                    _produce(a, version, {topic: [(0, batch(sent, attributes=0x08, zipped=zipped))]})


@script()
def idempotent_producers(stage: Stage) -> None:
    """In order, again, out of order, of a newer epoch and of an older one."""
    a = stage.client("a")
    topic = stage.topic("idempotent", 1)
    for epoch, sequence, count in (
        (0, 0, 2),
        (0, 2, 1),
        (0, 0, 2),
        (0, 0, 1),
        (0, 4, 1),
        (0, 3, 1),
        (1, 4, 1),
        (1, 0, 1),
        (0, 4, 1),
        (0, 2, 1),
    ):
        several = numbered(0, count, timestamp_ms=1_700_000_000_000)
        _produce(a, 9, {topic: [(0, batch(several, producer_id=90_000, producer_epoch=epoch, sequence=sequence))]})
    _fetch(a, 11, {topic: [(0, 0)]})
    sent = numbered(0, 1, timestamp_ms=1_700_000_000_000)
    for number in range(6):
        _produce(a, 9, {topic: [(0, batch(sent, producer_id=90_001, producer_epoch=0, sequence=number))]})
    for number in (1, 0):
        _produce(a, 9, {topic: [(0, batch(sent, producer_id=90_001, producer_epoch=0, sequence=number))]})
    a.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1_000), 4)
    a.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000, producer_epoch=3), 4)


@script_for(13, 14, 15, 16, 17)
def fetch_by_topic_id(stage: Stage, version: int) -> None:
    """From its start, from its end, from a partition and from a topic that isn't there."""
    a = stage.client("a")
    topic = stage.topic(f"by-id.v{version}", 1)
    _produce(a, 9, {topic: [(0, TWO)]})
    asked_for = MetadataRequest.MetadataRequestTopic(name=topic)
    metadata = cast("MetadataResponse", a.ask(MetadataRequest(topics=[asked_for]), 12))
    for topic_id in (metadata.topics[0].topic_id, NOWHERE):
        for index, offset in ((0, 0), (0, 2), (1, 0)):
            partition = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000)
            asked = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])
            a.ask(FetchRequest(max_wait_ms=10, min_bytes=1, topics=[asked]), version)


@script()
def how_much_a_fetch_brings(stage: Stage) -> None:
    """Limits of a partition and of all; the first batch whole; what is behind the end."""
    a = stage.client("a")
    topic = stage.topic("large", 3)
    for partition in range(3):
        _produce(a, 9, {topic: [(partition, LARGE)]})
        _produce(a, 9, {topic: [(partition, ONE)]})
    everything = {topic: [(partition, 0) for partition in range(3)]}
    _fetch(a, 11, everything)
    _fetch(a, 11, everything, max_bytes=10)
    _fetch(a, 11, everything, max_bytes=600)
    _fetch(a, 11, everything, partition_max_bytes=100)
    _fetch(a, 11, everything, partition_max_bytes=0)
    _fetch(a, 11, {topic: [(0, 2), (1, 3), (2, 0)]})
    _fetch(a, 11, {topic: [(0, 3), (1, -1)]})
    _fetch(a, 11, {topic: [(0, 0), (7, 0)]}, min_bytes=1_000_000)


@script_for(1, 4, 7, 8, 9)
def offsets_by_time(stage: Stage, version: int) -> None:
    """Ends, times, and the latest of all."""
    a = stage.client("a")
    topic = stage.topic(f"timed.v{version}", 1)
    empty = stage.topic(f"timed-empty.v{version}", 1)
    _produce(a, 9, {topic: [(0, TWO)]})
    _produce(a, 9, {topic: [(0, LARGE)]})
    _produce(a, 9, {topic: [(0, ONE)]})
    times = [-2, -1, 0, 1_700_000_000_000, 1_700_000_000_600, 1_700_000_001_001, 1_700_000_002_000, 1_700_000_002_001]
    times += [-3] if version >= 7 else []
    times += [-4] if version >= 8 else []
    times += [-5] if version >= 9 else []
    for timestamp in times:
        for name in (topic, empty):
            partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            asked = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[partition])
            a.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), version)


@script_for(0, 1, 2, 3, 4)
def where_an_epoch_ends(stage: Stage, version: int) -> None:
    """Of the only epoch, of one to come, of none."""
    a = stage.client("a")
    topic = stage.topic(f"epochs.v{version}", 1)
    _produce(a, 9, {topic: [(0, TWO)]})
    for name, epoch in ((topic, 0), (topic, 1), (topic, -1), ("not.there", 0)):
        partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=[partition])
        a.ask(OffsetForLeaderEpochRequest(topics=[asked]), version)


@script_for(0, 1, 2)
def delete_records(stage: Stage, version: int) -> None:
    """To the middle of a batch, to the end, and where there is nothing."""
    a = stage.client("a")
    topic = stage.topic(f"shortened.v{version}", 1)
    _produce(a, 9, {topic: [(0, TWO)]})
    _produce(a, 9, {topic: [(0, ONE)]})
    for name, partition, offset in (
        (topic, 0, 1),
        (topic, 0, 0),
        (topic, 0, 4),
        (topic, 0, -2),
        (topic, 7, 0),
        ("not.there", 0, 0),
        (topic, 0, -1),
    ):
        one = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
        asked = DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[one])
        a.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), version)
        for fetched in (0, 1, 3):
            _fetch(a, 11, {topic: [(0, fetched)]})


@script_for(0, 1, 2, 3)
def create_partitions(stage: Stage, version: int) -> None:
    """More, as many, fewer, of none, twice, only tried."""
    a = stage.client("a")
    topic = stage.topic(f"grown.v{version}", 2)
    for name, count, check in (
        (topic, 4, True),
        (topic, 4, False),
        (topic, 4, False),
        (topic, 1, False),
        ("not.there", 4, False),
    ):
        asked = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
        a.ask(CreatePartitionsRequest(topics=[asked], timeout_ms=10_000, validate_only=check), version)


@script_for(1, 3, 5)
def delete_topics(stage: Stage, version: int) -> None:
    """One that is there, then not any more; twice in one request."""
    a = stage.client("a")
    topic = stage.topic(f"deleted.v{version}", 1)
    for names in ([topic, topic], [topic], [topic], []):
        a.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=10_000), version)


@script()
def delete_topics_by_id(stage: Stage) -> None:
    """One that nobody has, neither name nor id, both."""
    a = stage.client("a")
    topic = stage.topic("deleted-by-id", 1)
    state = DeleteTopicsRequest.DeleteTopicState
    for asked in (state(topic_id=NOWHERE), state(), state(name=topic, topic_id=NOWHERE), state(name=topic)):
        a.ask(DeleteTopicsRequest(topics=[asked], timeout_ms=10_000), 6)


@script_for(0, 1)
def alter_configs(stage: Stage, version: int) -> None:
    """Set, deleted, wrong in several ways."""
    a = stage.client("a")
    topic = stage.topic(f"altered.v{version}", 1)
    for kind, name, setting, operation, value in (
        (2, topic, "retention.ms", 0, "1000000000"),
        (2, topic, "retention.ms", 1, None),
        (2, topic, "cleanup.policy", 2, "compact"),
        (2, topic, "cleanup.policy", 3, "delete"),
        (2, topic, "retention.ms", 2, "1"),
        (2, topic, "retention.ms", 0, "long"),
        (2, topic, "retention.ms", 0, "-2"),
        (2, topic, "no.such", 0, "1"),
        (2, topic, "retention.ms", 0, None),
        (2, "not.there", "retention.ms", 0, "1"),
        (99, topic, "retention.ms", 0, "1"),
    ):
        config = IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=operation, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[config]
        )
        a.ask(IncrementalAlterConfigsRequest(resources=[resource]), version)


@script()
def describe_cluster(stage: Stage) -> None:
    """The node, and what isn't there."""
    a = stage.client("a")
    a.ask(DescribeClusterRequest(), 0)
    for endpoint_type in (1, 2, 3):
        a.ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)


def _produce(client: Client, version: int, topics: dict[str, list[tuple[int, bytes]]], *, acks: int = -1) -> None:
    data = [
        ProduceRequest.TopicProduceData(
            name=name,
            partition_data=[
                ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in partitions
            ],
        )
        for name, partitions in topics.items()
    ]
    client.ask(ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=data), version)


def _fetch(
    client: Client,
    version: int,
    topics: dict[str, list[tuple[int, int]]],
    *,
    max_bytes: int = 1_000_000,
    partition_max_bytes: int = 100_000,
    min_bytes: int = 1,
) -> None:
    asked = [
        FetchRequest.FetchTopic(
            topic=name,
            partitions=[
                FetchRequest.FetchPartition(
                    partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
                )
                for index, offset in partitions
            ],
        )
        for name, partitions in topics.items()
    ]
    request = FetchRequest(replica_id=-1, max_wait_ms=10, min_bytes=min_bytes, max_bytes=max_bytes, topics=asked)
    client.ask(request, version)
