"""Groups of the consumer protocol (KIP-848) move between Tenure and Apache Kafka 4.4.0 under members that live on.

The members of confluent-kafka stay: a static one, a dynamic one, one with a regular expression. Both servers listen on
one port, one after the other, so to the members a move is a coordinator that was away for a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from coordinator.cli.log.command import app
from protocol.messages import ConsumerGroupDescribeRequest
from tests.cli.conftest import run_app
from tests.cli.log.conftest import PARTITION_COUNT
from tests.support.apache import AT_ONCE, VERSION_44, ApacheKafka, dump_log_segments
from tests.support.patience import WITHIN_S
from tests.support.raw import ask
from tests.support.tenure import Tenure, wait_until
from tests.support.topics import make_topics

pytestmark = pytest.mark.oracle

GROUP = "g"
COUNT = f"offsets.topic.num.partitions={PARTITION_COUNT}"
TOPICS = {"orders": 6, "other": 2}
SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITION_COUNT),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}
HEARTBEATS = 3
"""A move has moved nothing if nobody was told anything in so many heartbeats of each member."""

Described = tuple[str, int, int, dict[str, tuple[str | None, int, list[tuple[str, list[int]]]]]]
"""State, epoch and target epoch of a group; of each member its instance id, epoch and partitions."""


class Member:
    """A consumer, and the partitions that came to it or went."""

    def __init__(self, bootstrap: str, topic: str, instance_id: str | None = None) -> None:
        self.moved: list[TopicPartition] = []
        static = {} if instance_id is None else {"group.instance.id": instance_id}
        settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "group.protocol": "consumer"}
        self.consumer = Consumer({**settings, "enable.auto.commit": False, **static})
        self.consumer.subscribe([topic], on_assign=self._moved, on_revoke=self._moved)

    def _moved(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.moved += partitions

    def held(self) -> list[tuple[str, int]]:
        """The partitions that it has."""
        return sorted((each.topic, each.partition) for each in self.consumer.assignment())


def polled(members: Sequence[Member], holds: Callable[[], bool], what: str) -> None:
    """Poll all members until something holds."""

    def found() -> bool:
        for member in members:
            member.consumer.poll(0.02)
        return holds()

    wait_until(found, what, WITHIN_S)


def committed(members: Sequence[Member]) -> None:
    """Let each member commit, which takes a coordinator that knows its epoch."""
    for member in members:
        topic, partition = member.held()[0]

        def commits(member: Member = member, topic: str = topic, partition: int = partition) -> bool:
            try:
                member.consumer.commit(offsets=[TopicPartition(topic, partition, 5)], asynchronous=False)
            except KafkaException:
                return False  # it has not found its coordinator again
            return True

        polled(members, commits, "a commit")


def describe(port: int) -> Described:
    """The group as a server describes it, once it has loaded it."""

    def answered() -> Described | None:
        answer = ask(port, ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1)
        (group,) = answer.groups
        if group.error_code:
            return None
        members = {
            member.member_id: (
                member.instance_id,
                member.member_epoch,
                sorted((each.topic_name, sorted(each.partitions)) for each in member.assignment.topic_partitions),
            )
            for member in group.members
        }
        return (group.group_state, group.group_epoch, group.assignment_epoch, members)

    return wait_until(answered, "the group is described", WITHIN_S)


def went_on(members: Sequence[Member], port: int, before: Described, held: list[list[tuple[str, int]]]) -> None:
    """The members go on at another server: no epoch grew, no partition moved, and each of them commits."""
    committed(members)
    for _ in range(HEARTBEATS * 10 * len(members)):  # a round of polls takes 20 ms for each member
        for member in members:
            member.consumer.poll(0.02)
    assert describe(port) == before
    assert [member.held() for member in members] == held
    assert [member.moved for member in members] == [[]] * len(members)


def restarted(members: list[Member], bootstrap: str, port: int, before: Described) -> None:
    """The static member leaves and comes back: no epoch grows, and only its member id changes."""
    held = members[0].held()
    members[0].consumer.close()
    members[0] = Member(bootstrap, "orders", "a")
    polled(members, lambda: members[0].held() == held, "the static member has its partitions")
    polled(members, lambda: describe(port)[0] == "Stable", "the group is stable")
    after = describe(port)
    assert after[:3] == before[:3]
    assert sorted(map(str, after[3].values())) == sorted(map(str, before[3].values()))
    assert [member.moved for member in members[1:]] == [[]] * (len(members) - 1)
    members[0].moved.clear()


def create_topics(bootstrap: str) -> None:
    """Create the topics that the group consumes."""
    make_topics(bootstrap, TOPICS)


@pytest.mark.parametrize("ids", ["imported", "own"])
def test_living_members_go_on_at_kafka_and_back(ids: str) -> None:
    """A group made on Tenure goes on at Kafka 4.4.0 in the same epoch, and comes back: nobody's partitions move.

    The hash of the topics that Tenure writes is the one that Kafka computes, else Kafka would bump the epoch at the
    first heartbeat. The ids of topics are Kafka's, imported before there was a group, or Tenure's own: then the export
    writes Kafka's. Kafka's tool reads every record.
    """
    with ExitStack() as stack:
        kafka = ApacheKafka({**SETTINGS, **AT_ONCE}, version=VERSION_44)
        stack.callback(kafka.close)
        kafka.start()
        create_topics(kafka.bootstrap)
        kafka.stop()
        tenure = Tenure(SETTINGS)
        stack.callback(tenure.close)
        tenure.port = kafka.port
        if ids == "imported":
            moved("import", kafka.log_dir, tenure.data_dir, "--set", COUNT)
        tenure.start()
        if ids == "own":
            create_topics(tenure.bootstrap)
        members = [Member(tenure.bootstrap, "orders", "a"), Member(tenure.bootstrap, "orders")]
        members.append(Member(tenure.bootstrap, "^o.*"))
        polled(members, lambda: sum(len(each.held()) for each in members) == sum(TOPICS.values()), "all is held")
        polled(members, lambda: all(each.held() for each in members), "each has some: the last one has joined too")
        polled(members, lambda: describe(tenure.port)[0] == "Stable", "the group is stable")
        before, held = describe(tenure.port), [member.held() for member in members]
        assert all(held)
        for member in members:
            member.moved.clear()
        assert tenure.stop() == 0
        moved("export", kafka.log_dir, tenure.data_dir)
        kafka.start()
        went_on(members, kafka.port, before, held)
        restarted(members, kafka.bootstrap, kafka.port, before)
        before = describe(kafka.port)
        kafka.stop()
        segments = sorted(kafka.log_dir.glob("__consumer_offsets-*/*.log"))
        dumped = dump_log_segments(*segments, version=VERSION_44)
        assert (dumped.returncode, dumped.stderr) == (0, "")
        assert '"classicMemberMetadata":null' in dumped.stdout
        assert '"classicMemberMetadata":{' not in dumped.stdout
        back = Tenure(SETTINGS)
        stack.callback(back.close)
        back.port = kafka.port
        moved("import", kafka.log_dir, back.data_dir, "--set", COUNT)
        back.start()
        went_on(members, back.port, before, held)
        restarted(members, back.bootstrap, back.port, before)
        for member in members:
            member.consumer.close()


def moved(command: str, kafka_dir: Path, data_dir: Path, *options: str) -> None:
    """Run `tenure log import` or `export`, which finds nothing wrong."""
    ran = run_app(app, command, str(kafka_dir), "--data-dir", str(data_dir), *options)
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert "note:" not in ran.out
