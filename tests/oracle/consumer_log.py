"""A play of a group of the consumer protocol, for the log that it leaves: join, static roll, regex, growth, leave.

`play` sends the same requests to any server whose `__consumer_offsets` has one partition. Behind each step it commits
the step's number as an offset of a group of its own (MARK), so that the log says which records belong to which step. It
describes the group then, too.

    python -m tests.oracle.consumer_log

plays on Apache Kafka 4.4.0 and writes its log and its descriptions to GOLDEN, for the tests that replay them.

House rule: no result depends on time; where a server works by itself (metadata, regular expressions), the play waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    MetadataRequest,
)
from tests.support.apache import AT_ONCE, VERSION_44, ApacheKafka
from tests.support.raw import Connection
from tests.support.requests import commit_request, grow_request, topics_request
from tests.support.tenure import wait_until

GOLDEN = Path(__file__).parents[1] / "group" / "consumer" / "golden" / "kafka-4.4.0.json"
GROUP, MARK = "g", "mark"
TOPICS = {"t": 4, "u": 2}
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.session.timeout.ms": "1",
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.assignment.interval.ms": "0",
}
KAFKA_SETTINGS = {**SETTINGS, **AT_ONCE}
SETTLED_S = 30.0

Description = dict[str, Any]


class Step(NamedTuple):
    """A step of the play, and the group behind it; None if it isn't there. topics: numbers of partitions."""

    name: str
    topics: dict[str, int]
    described: Description | None


class Play:
    """The requests of all members, one after the other."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(port, "client")
        self._members: dict[str, tuple[int, dict[UUID, list[int]]]] = {}
        self._instances: dict[str, str] = {}
        self._topics = dict(TOPICS)
        self.steps: list[Step] = []

    def ask(self, request: Any, version: int) -> Any:
        """Send a request; its answer."""
        return self._connection.ask(request, version)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def beat(self, member_id: str, epoch: int, owned: Mapping[UUID, list[int]] | None = None, **fields: Any) -> Any:
        """Send a heartbeat; its answer, which has no error."""
        topics = None
        if owned is not None:
            topics = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in owned.items()
            ]
        body = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._instances.get(member_id),
            topic_partitions=topics,
            **fields,
        )
        answer = self.ask(body, 1)
        assert not answer.error_code, (answer.error_code, answer.error_message)
        return answer

    def join(self, member_id: str, instance_id: str | None = None, **fields: Any) -> None:
        """Let a member join; `settle` brings it where it shall be."""
        if instance_id is not None:
            self._instances[member_id] = instance_id
        self._take(
            member_id, self.beat(member_id, 0, {}, rebalance_timeout_ms=60_000, server_assignor="range", **fields)
        )

    def leave(self, member_id: str, epoch: int = -1) -> None:
        """Let a member leave, for good or for a while."""
        self.beat(member_id, epoch)
        del self._members[member_id]

    def settle(self) -> None:
        """Send heartbeats of all members, which do what they are told, until the group is Stable or Empty."""

        def settled() -> bool:
            for member_id, (epoch, owned) in list(self._members.items()):
                self._take(member_id, self.beat(member_id, epoch, owned))
            return (self.describe() or {}).get("state") in {"Stable", "Empty", None}

        wait_until(settled, "the group is settled", SETTLED_S)

    def _take(self, member_id: str, answer: Any) -> None:
        owned = self._members.get(member_id, (0, {}))[1]
        if answer.assignment is not None:
            owned = {each.topic_id: sorted(each.partitions) for each in answer.assignment.topic_partitions}
        self._members[member_id] = answer.member_epoch, owned

    def describe(self) -> Description | None:
        """The group as ConsumerGroupDescribe shows it, without what a server may order as it likes."""
        (group,) = self.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1).groups
        return None if group.error_code else description(group)

    def until_epoch_grows(self, act: Callable[[], object], again: Callable[[], object] = lambda: None) -> None:
        """Do something, and wait until the server bumps the epoch for it, by itself or by what is done `again`."""
        before = (self.describe() or {})["epoch"]
        act()

        def grew() -> bool:
            again()
            return bool((self.describe() or {})["epoch"] > before)

        wait_until(grew, "the epoch grew", SETTLED_S)

    def mark(self, name: str) -> None:
        """End a step."""
        self.steps.append(Step(name, dict(self._topics), self.describe()))
        self.commit(MARK, "", -1, len(self.steps))

    def commit(self, group_id: str, member_id: str, epoch: int, offset: int) -> None:
        """Commit an offset of t-0."""
        body = commit_request(group_id, {("t", 0): offset}, epoch, member_id)
        error_code = self.ask(body, 9).topics[0].partitions[0].error_code
        assert not error_code, error_code

    def grow(self, topic: str, count: int) -> None:
        """Give a topic more partitions, and wait until clients see them."""
        (result,) = self.ask(grow_request({topic: count}), 1).results
        assert not result.error_code, result.error_message
        self._topics[topic] = count

    def epoch_of(self, member_id: str) -> int:
        """A member's epoch."""
        return self._members[member_id][0]

    def heartbeat(self, member_id: str) -> None:
        """Send one heartbeat that says nothing."""
        self._take(member_id, self.beat(member_id, self.epoch_of(member_id)))


def description(group: Any) -> Description:
    """A described group as plain values: members and partitions in order."""

    def partitions(assignment: Any) -> dict[str, list[int]]:
        return {each.topic_name: sorted(each.partitions) for each in assignment.topic_partitions if each.partitions}

    return {
        "state": group.group_state,
        "epoch": group.group_epoch,
        "target_epoch": group.assignment_epoch,
        "assignor": group.assignor_name,
        "members": {
            member.member_id: {
                "instance_id": member.instance_id,
                "epoch": member.member_epoch,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "topics": sorted(member.subscribed_topic_names),
                "regex": member.subscribed_topic_regex or None,
                "assignment": partitions(member.assignment),
                "target": partitions(member.target_assignment),
                "type": member.member_type,
            }
            for member in sorted(group.members, key=lambda member: str(member.member_id))
        },
    }


def create_topics(port: int) -> dict[str, UUID]:
    """Create the topics; their ids."""
    with Connection(port) as connection:
        connection.ask(topics_request(TOPICS), 5)
        return {name: wait_until(partial(_id_of, connection, name), name, SETTLED_S) for name in TOPICS}


def _id_of(connection: Connection, name: str) -> UUID | None:
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = connection.ask(asked, 12).topics
    found: UUID = topic.topic_id
    return None if topic.error_code else found


def play(port: int) -> list[Step]:
    """Play all steps on a server that has TOPICS."""
    played = Play(port)
    try:
        _steps(played)
    finally:
        played.close()
    return played.steps


def _steps(played: Play) -> None:
    played.join("m1", subscribed_topic_names=["t"])
    played.settle()
    played.mark("one member")
    played.join("s1", "seat", subscribed_topic_names=["t"])
    played.mark("a static member joins")
    played.heartbeat("m1")
    played.mark("the first member is told to give up partitions")
    played.settle()
    played.mark("both have their share")
    played.commit(GROUP, "m1", played.epoch_of("m1"), 5)
    played.mark("a commit")
    played.leave("s1", -2)
    played.mark("the static member is away")
    played.join("s2", "seat", subscribed_topic_names=["t"])
    played.settle()
    played.mark("the static member is back")
    played.until_epoch_grows(lambda: played.join("r1", subscribed_topic_regex="u.*"))
    played.settle()
    played.mark("a regular expression")
    played.until_epoch_grows(lambda: played.grow("t", 6), lambda: played.heartbeat("m1"))
    played.settle()
    played.mark("a topic grows")
    played.leave("r1")
    played.settle()
    played.mark("the regular expression is gone")
    played.join("m2", subscribed_topic_names=["t"])
    played.heartbeat("s2")
    played.mark("the static member is told to give up a partition")
    played.leave("s2", -2)
    played.mark("it is away before it has given it up")
    played.join("s3", "seat", subscribed_topic_names=["t"])
    played.settle()
    played.mark("it is back")
    played.leave("m2")
    played.leave("m1")
    played.settle()
    played.mark("all others are gone")
    played.leave("s3")
    played.mark("empty")
    (deleted,) = played.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results
    assert not deleted.error_code
    played.mark("deleted")


def main() -> None:
    """Write GOLDEN anew."""
    with ApacheKafka(KAFKA_SETTINGS, version=VERSION_44) as kafka:
        ids = create_topics(kafka.port)
        kafka.stop()
        kafka.start()  # its coordinator knows the topics from the start
        steps = play(kafka.port)
        kafka.stop()
        log = (kafka.log_dir / "__consumer_offsets-0" / f"{0:020}.log").read_bytes()
    golden = {
        "kafka": VERSION_44,
        "topic_ids": {name: str(each) for name, each in ids.items()},
        "steps": [step._asdict() for step in steps],
        "log_hex": log.hex(),
    }
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
