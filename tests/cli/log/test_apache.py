"""Groups move between Tenure and Apache Kafka: both servers give the same answers about them.

Kafka 3.9 tests the special cases of a log; the way there and back runs with Kafka 4 too.

Real clients make the groups: static and dynamic members, compressed batches, transactions. The commands move a log from
a stopped server to one that hasn't started yet. Both servers then get the same raw requests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import aiokafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from coordinator.cli.log.command import app
from coordinator.cli.log.transfer import GUARD
from protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from schemas.errors import ErrorCode
from tests.audit.scenes import group_on
from tests.cli.conftest import run_app
from tests.cli.log.conftest import PARTITION_COUNT
from tests.support.apache import VERSION, VERSION_44, ApacheKafka, ApacheKafkaError
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.tenure import Tenure, wait_until
from tests.support.topics import make_topics

pytestmark = pytest.mark.oracle

TOPIC = "orders"
ABSENT = "nowhere"
"""A topic that Tenure has and the broker doesn't."""
COUNT = f"offsets.topic.num.partitions={PARTITION_COUNT}"
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": str(PARTITION_COUNT)}
LZ4, ZSTD = "3", "4"
CODEC = "offsets.topic.compression.codec"

STATIC, SIMPLE, AIO, TRANSACTED = (
    group_on(partition, name) for partition, name in enumerate(("static", "simple", "aio", "transacted"))
)
"""A group on each partition: static members, only offsets, aiokafka, and transactional commits."""
LATER = group_on(1, "later")
"""A group that is written with the second codec."""


class Answer(NamedTuple):
    """A server's answers about a group: DescribeGroups and OffsetFetch."""

    error_code: int
    state: str
    protocol_type: str
    protocol_name: str
    members: dict[str, tuple[str | None, str, str, bytes, bytes]]
    offsets_error_code: int
    offsets: dict[tuple[str, int], tuple[int, int, str | None]]


def ask(port: int, group_ids: Sequence[str]) -> dict[str, Answer]:
    """The answers of a server, after it has loaded these groups or failed to."""

    def loaded() -> dict[str, Answer] | None:
        answers = _ask(port, group_ids)
        errors = {answer.error_code for answer in answers.values()}
        return None if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in errors else answers

    return wait_until(loaded, "the groups are loaded", WITHIN_S)


def _ask(port: int, group_ids: Sequence[str]) -> dict[str, Answer]:
    with Connection(port) as connection:
        described = cast(
            "DescribeGroupsResponse", connection.ask(DescribeGroupsRequest(groups=list(group_ids)), 5)
        ).groups
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=each, topics=None) for each in group_ids]
        fetched = connection.ask(OffsetFetchRequest(groups=groups), 8).groups
    offsets_of = {each.group_id: each for each in fetched}  # Kafka 4 answers in an order of its own
    return {
        group.group_id: Answer(
            group.error_code,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            {
                member.member_id: (
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.member_metadata,
                    member.member_assignment,
                )
                for member in group.members
            },
            offsets_of[group.group_id].error_code,
            {
                (topic.name, each.partition_index): (each.committed_offset, each.committed_leader_epoch, each.metadata)
                for topic in offsets_of[group.group_id].topics
                for each in topic.partitions
            },
        )
        for group in described
    }


def consumer_of(bootstrap: str, group_id: str, instance_id: str | None = None) -> Consumer:
    """A consumer of confluent-kafka."""
    static = {} if instance_id is None else {"group.instance.id": instance_id}
    settings = {"session.timeout.ms": 300_000, "heartbeat.interval.ms": 200, "enable.auto.commit": False}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, **settings, **static})


def share(bootstrap: str, group_id: str, instance_ids: Sequence[str]) -> None:
    """Let static members share the topic and commit; they close and keep their seats."""
    with ExitStack() as stack:
        consumers = [consumer_of(bootstrap, group_id, instance_id) for instance_id in instance_ids]
        for consumer in consumers:
            stack.callback(consumer.close)
            consumer.subscribe([TOPIC])

        def shared() -> bool:
            for consumer in consumers:
                consumer.poll(0.02)
            owned = [consumer.assignment() for consumer in consumers]
            return all(owned) and sum(map(len, owned)) == PARTITION_COUNT

        wait_until(shared, f"{group_id} shares the topic", WITHIN_S)
        consumers[0].commit(offsets=[TopicPartition(TOPIC, 0, 0, "from a member")], asynchronous=False)


def commit(bootstrap: str, group_id: str, *offsets: TopicPartition) -> None:
    """Commit offsets without a member."""
    consumer = consumer_of(bootstrap, group_id)
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()


def restart_member(bootstrap: str, group_id: str, instance_id: str) -> list[int]:
    """Let a static member come back; returns its partitions."""
    consumer = consumer_of(bootstrap, group_id, instance_id)
    try:
        consumer.subscribe([TOPIC])

        def owned() -> list[int] | None:
            consumer.poll(0.02)
            return sorted(each.partition for each in consumer.assignment()) or None

        return wait_until(owned, f"{instance_id} has its assignment", WITHIN_S)
    finally:
        consumer.close()


def assert_restarted_without_rebalance(port: int, bootstrap: str, before: Answer, instance_id: str) -> None:
    """A static member comes back on the new server: only its member id changes, not its assignment."""
    restart_member(bootstrap, STATIC, instance_id)
    after = ask(port, [STATIC])[STATIC]
    assert after.state == "Stable"
    assert _by_instance(after) == _by_instance(before)
    changed = {ids[0] for member_id, ids in before.members.items() if member_id not in after.members}
    assert changed == {instance_id}


def _by_instance(answer: Answer) -> dict[str | None, bytes]:
    return {member[0]: member[-1] for member in answer.members.values()}


def create_orders(bootstrap: str) -> None:
    """Create the topic that all groups consume."""
    make_topics(bootstrap, {TOPIC: PARTITION_COUNT})


class ToKafka(NamedTuple):
    """A broker that runs on Tenure's exported log, Tenure's answers before, and the broker's first answers."""

    kafka: ApacheKafka
    said: dict[str, Answer]
    answered: dict[str, Answer]
    output: str


@pytest.fixture(scope="module")
def exported() -> Iterator[ToKafka]:
    """Tenure's groups, written by two owners of each partition, on a broker."""
    groups = (STATIC, SIMPLE, AIO)
    with ExitStack() as stack:
        tenure = stack.enter_context(Tenure({**SETTINGS, "tenure.topics": f"{TOPIC}:{PARTITION_COUNT},{ABSENT}:1"}))
        kafka = stack.enter_context(ApacheKafka(SETTINGS))
        create_orders(kafka.bootstrap)
        kafka.stop()
        share(tenure.bootstrap, STATIC, ["a", "b"])
        commit(tenure.bootstrap, SIMPLE, TopicPartition(TOPIC, 1, 7), TopicPartition(TOPIC, 2, 7))
        tenure.restart()
        commit(tenure.bootstrap, SIMPLE, TopicPartition(TOPIC, 1, 8), TopicPartition(TOPIC, 2, 8))
        commit(tenure.bootstrap, SIMPLE, TopicPartition(ABSENT, 0, 4))
        asyncio.run(consume_with_aiokafka(tenure.bootstrap))
        said = ask(tenure.port, groups)
        assert tenure.stop() == 0
        ran = run_app(app, "export", "--data-dir", str(tenure.data_dir), str(kafka.log_dir))
        assert (ran.code, ran.err) == (0, "")
        (kafka.log_dir / GUARD).mkdir()
        with pytest.raises(ApacheKafkaError):
            kafka.start()
        kafka.stop()
        (kafka.log_dir / GUARD).rmdir()
        kafka.start()
        yield ToKafka(kafka, said, ask(kafka.port, groups), ran.out)


async def consume_with_aiokafka(bootstrap: str) -> None:
    """A static member of aiokafka takes the topic, commits and closes; it keeps its seat."""
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=AIO,
        group_instance_id="aio-1",
        enable_auto_commit=False,
        session_timeout_ms=300_000,
    )
    await consumer.start()
    try:
        while len(consumer.assignment()) < PARTITION_COUNT:
            await consumer.getmany(timeout_ms=20)
        await consumer.commit({aiokafka.TopicPartition(TOPIC, 3): aiokafka.OffsetAndMetadata(5, "from aiokafka")})
    finally:
        await consumer.stop()


def test_kafka_answers_of_exported_groups_as_tenure_did(exported: ToKafka) -> None:
    """DescribeGroups and OffsetFetch give the same answers to the byte, even for topics that are not there."""
    said = exported.said
    assert {said[STATIC].state, said[AIO].state} == {"Stable"}
    assert {member[0] for member in said[STATIC].members.values()} == {"a", "b"}
    assert said[SIMPLE].offsets == {(TOPIC, 1): (8, -1, ""), (TOPIC, 2): (8, -1, ""), (ABSENT, 0): (4, -1, "")}
    assert exported.answered == said


def test_static_member_goes_on_at_kafka(exported: ToKafka) -> None:
    """A static member gets its assignment, and nobody rebalances."""
    kafka = exported.kafka
    assert_restarted_without_rebalance(kafka.port, kafka.bootstrap, exported.said[STATIC], "a")
    assert "Preparing to rebalance group" not in kafka.log_file.read_text()


def test_broker_does_not_start_with_half_an_export(exported: ToKafka) -> None:
    """The guard keeps the broker from starting, and the broker names it (the fixture tried)."""
    assert GUARD in exported.kafka.log_file.read_text()


@pytest.mark.parametrize("version", [VERSION, VERSION_44])
def test_brokers_show_the_groups_that_tenure_showed(version: str) -> None:
    """Both releases list the same groups, in the same state. A group that was deleted is nowhere.

    Kafka 4 makes a group of committed offsets as it loads them. Their tombstones alone don't end it.
    """
    gone = [group_on(partition, name) for partition, name in enumerate(("gone", "many", "unused", "erased"))]
    with ExitStack() as stack:
        tenure = stack.enter_context(Tenure({**SETTINGS, "tenure.topics": f"{TOPIC}:{PARTITION_COUNT}"}))
        kafka = stack.enter_context(ApacheKafka(SETTINGS, version=version))
        create_orders(kafka.bootstrap)
        kafka.stop()
        share(tenure.bootstrap, STATIC, ["a", "b"])
        commit(tenure.bootstrap, SIMPLE, TopicPartition(TOPIC, 1, 7))
        for group_id in gone:
            commit(tenure.bootstrap, group_id, *(TopicPartition(TOPIC, each, 7) for each in range(PARTITION_COUNT)))
        share(tenure.bootstrap, gone[3], ["c"])
        with Connection(tenure.port) as connection:
            leaving = LeaveGroupRequest.MemberIdentity(group_instance_id="c")
            connection.ask(LeaveGroupRequest(group_id=gone[3], members=[leaving]), 3)
            partitions = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=each) for each in range(4)]
            topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=TOPIC, partitions=partitions)
            connection.ask(OffsetDeleteRequest(group_id=gone[2], topics=[topic]), 0)
            connection.ask(DeleteGroupsRequest(groups_names=gone), 2)
        said = listed(tenure.port, [STATIC, SIMPLE, *gone])
        assert said == {STATIC: "Stable", SIMPLE: "Empty"}
        assert tenure.stop() == 0
        ran = run_app(app, "export", "--data-dir", str(tenure.data_dir), str(kafka.log_dir))
        assert (ran.code, ran.err) == (0, "")
        kafka.start()
        assert listed(kafka.port, [STATIC, SIMPLE, *gone]) == said


def listed(port: int, group_ids: Sequence[str]) -> dict[str, str]:
    """The states of all groups of a server, after it has loaded these."""
    ask(port, group_ids)
    with Connection(port) as connection:
        groups = connection.ask(ListGroupsRequest(), 4).groups
    return {group.group_id: group.group_state for group in groups}


class ToTenure(NamedTuple):
    """A Tenure that runs on a broker's imported log, and the broker's answers before."""

    tenure: Tenure
    said: dict[str, Answer]
    broker_dir: Path


@pytest.fixture(scope="module")
def imported() -> Iterator[ToTenure]:
    """A broker's groups on Tenure; the broker's log has two codecs and transactions."""
    transactions = {"transaction.state.log.num.partitions": "1"}
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka({**SETTINGS, **transactions, CODEC: LZ4}))
        create_orders(kafka.bootstrap)
        share(kafka.bootstrap, STATIC, ["a", "b"])
        commit(kafka.bootstrap, SIMPLE, TopicPartition(TOPIC, 1, 7), TopicPartition(TOPIC, 2, 7))
        commit_in_transactions(kafka.bootstrap)
        kafka.stop()
        kafka.settings[CODEC] = ZSTD
        kafka.start()
        commit(kafka.bootstrap, SIMPLE, TopicPartition(TOPIC, 1, 8), TopicPartition(TOPIC, 2, 8))
        commit(kafka.bootstrap, LATER, TopicPartition(TOPIC, 1, 9), TopicPartition(TOPIC, 2, 9))
        asyncio.run(consume_with_aiokafka(kafka.bootstrap))
        said = ask(kafka.port, (STATIC, SIMPLE, AIO, LATER, TRANSACTED))
        kafka.stop()
        tenure = Tenure({**SETTINGS, **transactions, "tenure.topics": f"{TOPIC}:{PARTITION_COUNT}"})
        stack.callback(tenure.close)
        sets = ("--set", COUNT, "--set", "transaction.state.log.num.partitions=1")
        ran = run_app(app, "import", str(kafka.log_dir), "--data-dir", str(tenure.data_dir), *sets)
        assert (ran.code, ran.err) == (0, "")
        tenure.start()
        yield ToTenure(tenure, said, kafka.log_dir)


def commit_in_transactions(bootstrap: str) -> None:
    """Commit offset 11 of partition 0 in a transaction, then offset 12 in another that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover"})
    consumer = consumer_of(bootstrap, TRANSACTED)
    producer.init_transactions(20.0)
    for offset, end in ((11, producer.commit_transaction), (12, producer.abort_transaction)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition(TOPIC, 0, offset)], consumer.consumer_group_metadata(), 20.0
        )
        end(20.0)
    consumer.close()


def test_log_of_the_broker_has_what_is_to_be_moved(imported: ToTenure) -> None:
    """The broker's log has batches in lz4 and zstd, and transactions with their markers; verify finds nothing."""
    ran = run_app(app, "dump", str(imported.broker_dir), "--output", "json")
    records: list[dict[str, Any]] = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 0
    assert {record["codec"] for record in records} >= {"lz4", "zstd"}
    transacted = [record for record in records if record["is_transactional"] and not record["is_control"]]
    assert [record["value"]["offset"] for record in transacted] == [11, 12]
    committed, *others = [record["key"]["marker"] for record in records if record["is_control"]]
    assert committed == "commit"
    assert set(others) == {"abort"}  # a client that retries makes the broker write a second marker
    assert run_app(app, "verify", str(imported.broker_dir)).code == 0


@pytest.mark.parametrize("group_id", [STATIC, SIMPLE, AIO, LATER])
def test_tenure_answers_of_imported_groups_as_kafka_did(imported: ToTenure, group_id: str) -> None:
    """DescribeGroups and OffsetFetch give the same answers."""
    assert ask(imported.tenure.port, [group_id]) == {group_id: imported.said[group_id]}


def test_transactional_commits_are_never_passed_over(imported: ToTenure) -> None:
    """A committed transaction counts and an aborted one doesn't, as at Kafka."""
    said = imported.said[TRANSACTED]
    assert said.offsets == {(TOPIC, 0): (11, -1, "")}
    assert ask(imported.tenure.port, [TRANSACTED])[TRANSACTED] == said


def test_static_member_goes_on_at_tenure(imported: ToTenure) -> None:
    """A static member gets its assignment, and nobody rebalances; the new epoch is above the broker's."""
    tenure = imported.tenure
    assert_restarted_without_rebalance(tenure.port, tenure.bootstrap, imported.said[STATIC], "a")
    assert tenure.count("rebalance_started", STATIC) == 0
    ran = run_app(app, "verify", str(tenure.data_dir))
    assert (ran.code, ran.err) == (0, "")


def test_there_and_back_again_with_kafka_4() -> None:
    """A static member restarts without a rebalance on Kafka 4 after the export, and on Tenure after the import."""
    topics = {"tenure.topics": f"{TOPIC}:{PARTITION_COUNT}"}
    with ExitStack() as stack:
        tenure = stack.enter_context(Tenure({**SETTINGS, **topics}))
        kafka = stack.enter_context(ApacheKafka(SETTINGS, version=VERSION_44))
        create_orders(kafka.bootstrap)
        kafka.stop()
        share(tenure.bootstrap, STATIC, ["a", "b"])
        commit(tenure.bootstrap, SIMPLE, TopicPartition(TOPIC, 1, 8, "note"), TopicPartition(TOPIC, 2, 8))
        said = ask(tenure.port, (STATIC, SIMPLE))
        assert said[STATIC].state == "Stable"
        assert tenure.stop() == 0
        ran = run_app(app, "export", "--data-dir", str(tenure.data_dir), str(kafka.log_dir))
        assert (ran.code, ran.err) == (0, "")
        kafka.start()
        assert ask(kafka.port, list(said)) == said
        assert_restarted_without_rebalance(kafka.port, kafka.bootstrap, said[STATIC], "a")
        commit(kafka.bootstrap, SIMPLE, TopicPartition(TOPIC, 1, 9))
        said = ask(kafka.port, (STATIC, SIMPLE))
        assert {offset for offset, *_ in said[SIMPLE].offsets.values()} == {8, 9}
        kafka.stop()
        back = Tenure({**SETTINGS, **topics})
        stack.callback(back.close)
        ran = run_app(app, "import", str(kafka.log_dir), "--data-dir", str(back.data_dir), "--set", COUNT)
        assert (ran.code, ran.err) == (0, "")
        back.start()
        assert ask(back.port, list(said)) == said
        assert_restarted_without_rebalance(back.port, back.bootstrap, said[STATIC], "b")
        assert back.count("rebalance_started") == 0
