"""OffsetCommit and OffsetFetch by topic ids (v10) on Apache Kafka 4.4.0 and on Tenure: the same answers.

A topic has another id on each server. Before answers are compared, each id that a server gave is replaced by its
topic's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from protocol.messages import DeleteTopicsRequest, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest
from tests.support.apache import VERSION_44, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.raw import ask
from tests.support.requests import first_heartbeat, topics_request
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

NO_ID, UNKNOWN_ID = UUID(int=0), UUID(int=7)

Commits = list[tuple[str, list[int]]]
"""Topics with partitions, in order; `unknown` and `zero` are ids."""


class Server:
    """One of the two. ids: by topic."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ids = {"unknown": UNKNOWN_ID, "zero": NO_ID}

    def ask(self, request: Any, version: int) -> Any:
        """The answer."""
        return ask(self.port, request, version)

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic and wait until it can be used."""
        self.ask(topics_request({topic: partitions}), 5)
        self.ids[topic] = wait_until(partial(self._id_of, topic), f"topic {topic}", WITHIN_S)

    def _id_of(self, topic: str) -> UUID | None:
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        (found,) = self.ask(asked, 12).topics
        is_led = found.partitions and not any(each.error_code for each in found.partitions)
        return found.topic_id if is_led else None

    def name(self, topic_id: UUID) -> str:
        """The name that stands for an id."""
        return {each: topic for topic, each in self.ids.items()}[topic_id]

    def committed(self, topics: Commits, group: str = "g", **identity: Any) -> list[tuple[str, list[tuple[int, int]]]]:
        """The codes of a commit, by topic and partition. The order of topics is each server's own."""
        position = OffsetCommitRequest.OffsetCommitRequestPartition
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    topic_id=self.ids[topic],
                    partitions=[
                        position(partition_index=each, committed_offset=10 + each, committed_metadata=f"m{each}")
                        for each in partitions
                    ],
                )
                for topic, partitions in topics
            ],
            **{"generation_id_or_member_epoch": -1, **identity},
        )
        answer = self.ask(request, 10)
        return sorted(
            (self.name(topic.topic_id), sorted((each.partition_index, each.error_code) for each in topic.partitions))
            for topic in answer.topics
        )

    def fetched(self, groups: list[tuple[str, Commits | None]], **member: Any) -> list[Any]:
        """The offsets of groups, by topic and partition."""
        asked = [
            OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if topics is None
                else [
                    OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=self.ids[topic], partition_indexes=partitions)
                    for topic, partitions in topics
                ],
                **member,
            )
            for group, topics in groups
        ]
        answer = self.ask(OffsetFetchRequest(groups=asked), 10)
        return [
            (
                group.group_id,
                group.error_code,
                sorted(
                    (
                        self.name(topic.topic_id),
                        sorted(
                            (each.partition_index, each.committed_offset, each.metadata or "", each.error_code)
                            for each in topic.partitions
                        ),
                    )
                    for topic in group.topics
                ),
            )
            for group in answer.groups
        ]


@pytest.fixture(scope="module")
def servers(kafka_is_here: None) -> Iterator[tuple[Server, Server]]:
    """Kafka and Tenure, each with two topics."""
    settings = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(settings, version=VERSION_44))
        found = Server(kafka.port), Server(stack.enter_context(Tenure(settings)).port)
        for server in found:
            server.create("orders", 3)
            server.create("prices", 1)
        yield found


COMMITS: list[Commits] = [
    [("orders", [0, 1])],
    [("orders", [0, 5, -1])],
    [("unknown", [0, 1])],
    [("zero", [0])],
    [("unknown", [0]), ("orders", [2]), ("prices", [0, 1])],
    [("orders", [0]), ("orders", [1])],
    [("orders", [])],
    [],
]


@pytest.mark.parametrize("topics", COMMITS, ids=str)
def test_commits(servers: tuple[Server, Server], topics: Commits) -> None:
    """From outside the group, with a generation that the group doesn't have, and to a group that isn't there."""
    kafka, tenure = servers
    outside: dict[str, Any] = {}
    inside = {"generation_id_or_member_epoch": 5, "member_id": "nobody"}
    for group, identity in (("g", outside), ("g", inside), ("nowhere", inside)):
        assert tenure.committed(topics, group, **identity) == kafka.committed(topics, group, **identity)


FETCHES: list[list[tuple[str, Commits | None]]] = [
    [("g", None)],
    [("g", [("orders", [0, 1, 2, 3]), ("prices", [0])])],
    [("g", [("unknown", [0, 1])])],
    [("g", [("zero", [0])])],
    [("g", [("unknown", [0]), ("orders", [0]), ("orders", [1])])],
    [("g", [])],
    [("g", None), ("nowhere", None), ("nowhere", [("orders", [0])]), ("g", [("unknown", [0])])],
    [("", None)],
]


@pytest.mark.parametrize("groups", FETCHES, ids=str)
def test_fetches(servers: tuple[Server, Server], groups: list[tuple[str, Commits | None]]) -> None:
    """From outside the group, and as a member that it doesn't know."""
    kafka, tenure = servers
    for server in servers:
        server.committed([("orders", [0, 1, 2]), ("prices", [0])])
    for member in ({}, {"member_id": "nobody", "member_epoch": 3}):
        assert tenure.fetched(groups, **member) == kafka.fetched(groups, **member)


def test_a_member_of_the_consumer_protocol(servers: tuple[Server, Server]) -> None:
    """It commits and fetches by its epoch."""
    heard = []
    for server in servers:
        epoch = server.ask(first_heartbeat("members", "m"), 1).member_epoch
        answers: list[Any] = [epoch]
        for told, member_id in ((epoch, "m"), (epoch + 1, "m"), (epoch, "other"), (-1, "")):
            who = {"member_id": member_id, "generation_id_or_member_epoch": told}
            answers.append(server.committed([("orders", [1]), ("unknown", [0])], "members", **who))
            who = {"member_id": member_id, "member_epoch": told}
            answers.append(server.fetched([("members", [("orders", [1]), ("unknown", [0])])], **who))
        heard.append(answers)
    assert heard[1] == heard[0]


def test_a_topic_that_was_deleted(servers: tuple[Server, Server]) -> None:
    """Its id is unknown, also when another topic has its name; that one has no offsets."""
    heard: list[list[Any]] = []
    for server in servers:
        server.create("gone", 1)
        server.committed([("gone", [0])], "gone")
        server.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=60_000), 5)
        old = server.ids.pop("gone")

        def is_unknown(server: Server = server, old: UUID = old) -> bool:
            server.ids["old"] = old
            return server.committed([("old", [0])], "gone") == [("old", [(0, 100)])]

        wait_until(is_unknown, "the deletion", WITHIN_S)
        answers: list[Any] = [server.fetched([("gone", [("old", [0])])])]
        server.create("gone", 1)
        answers += [server.committed([("old", [0]), ("gone", [0])], "gone")]
        answers += [server.fetched([("gone", [("old", [0]), ("gone", [0])]), ("gone", None)])]
        heard.append(answers)
    assert heard[1] == heard[0]
