"""How far a group is behind; tests/cli/test_groups.py runs the questions against real servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from confluent_kafka import Producer

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.lag import TimeJson, group_lag_json, known_lines, lag_json
from coordinator.story.described import CoordinatorNode, Group, Member
from coordinator.story.lag_time import GroupLag, LagTime, Moment, Past, Rates
from coordinator.story.offsets import OffsetLine
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure

TIME_FIELDS = tuple(TimeJson.__annotations__)

MEMBER = Member("m-1", "seat", "client", "/127.0.0.1", {"t": [0, 1]})


def sums(**fields: Any) -> dict[str, Any]:
    """Return sums that are 0, but for these."""
    counts = dict.fromkeys(("partitions", "assigned_partitions", "without_end", "beyond_end"), 0)
    return counts | dict.fromkeys(("lag", "stable_lag", *TIME_FIELDS)) | fields


def test_a_sum_has_what_is_known_and_counts_the_rest() -> None:
    """A topic partition without an end, or whose offset is beyond it, is no lag; it counts only with an offset."""
    lines = [
        OffsetLine("t", 0, 5, 12, MEMBER),
        OffsetLine("t", 1, 5, 5, MEMBER),
        OffsetLine("u", 0, 5, None, None),
        OffsetLine("u", 1, 5, 2, None),
        OffsetLine("u", 2, None, 9, None),
        OffsetLine("u", 3, None, None, None),
        OffsetLine(None, None, None, None, MEMBER),
    ]
    assert lag_json(lines) == sums(
        partitions=6, assigned_partitions=2, lag=7, stable_lag=7, without_end=1, beyond_end=1
    )
    assert [line.lag for line in lines] == [7, 0, None, -3, None, None, None]


def test_the_highest_offset_is_beyond_the_end() -> None:
    """A committed offset of 2^63-1 adds nothing to a sum."""
    lines = [OffsetLine("t", 0, 5, 12, MEMBER), OffsetLine("t", 1, 2**63 - 1, 100, MEMBER)]
    assert lag_json(lines) == sums(partitions=2, assigned_partitions=2, lag=7, stable_lag=7, beyond_end=1)


def test_a_lag_that_nobody_knows_is_none() -> None:
    """Nothing known is no lag of 0."""
    assert lag_json([]) == sums()
    assert lag_json([OffsetLine("t", 0, 5, None, None)]) == sums(partitions=1, without_end=1)


def test_topics_come_by_name_with_their_partitions_in_order() -> None:
    """Each topic has its own sums, and each topic partition its member."""
    lines = [
        OffsetLine("u", 10, 1, 1, None),
        OffsetLine("t", 2, 4, 7, MEMBER),
        OffsetLine("u", 9, 1, 3, None),
        OffsetLine(None, None, None, None, MEMBER),
    ]
    t, u = group_lag_json("g", lines)["topics"]
    assert (t["topic"], t["lag"], t["assigned_partitions"]) == ("t", 3, 1)
    assert t["offsets"] == [
        {
            "partition": 2,
            "current_offset": 4,
            "log_end_offset": 7,
            "last_stable_offset": None,
            "lag": 3,
            "stable_lag": 3,
            **dict.fromkeys(TIME_FIELDS),
            "member_id": "m-1",
            "group_instance_id": "seat",
            "client_id": "client",
            "client_host": "/127.0.0.1",
        }
    ]
    assert (u["topic"], u["lag"], [each["partition"] for each in u["offsets"]]) == ("u", 2, [9, 10])
    assert u["offsets"][0]["member_id"] is None


def test_both_lags_are_there_while_a_transaction_is_open() -> None:
    """Records of an open transaction wait for readers of all records alone; nobody knows which readers a group has."""
    lines = [OffsetLine("t", 0, 5, 12, MEMBER, stable_offset=8), OffsetLine("t", 1, 5, 9, MEMBER, stable_offset=3)]
    told = group_lag_json("g", lines)
    assert (told["lag"], told["stable_lag"]) == (11, 3)
    assert [each["last_stable_offset"] for each in told["topics"][0]["offsets"]] == [8, 3]


def test_lag_in_time_is_that_of_looks() -> None:
    """Of a topic partition with records to read, of its topic and of the group; one without is not behind."""
    slow = LagTime(7, 7, 2_500, is_least=False, rates=Rates(1.0, 0.5), catch_up_s=None)
    past = Past()
    past.add(Moment(1_000, 2, 20, 13))
    known = GroupLag({("t", 0): slow}, {"t": slow, None: slow}, {"t": past, None: past})
    told = group_lag_json("g", [OffsetLine("t", 0, 5, 12, MEMBER), OffsetLine("t", 1, 5, 5, MEMBER)], known)
    never = dict(zip(TIME_FIELDS, (2_500, False, 1.0, 0.5, None, False), strict=True))
    behind, at_end = told["topics"][0]["offsets"]
    for each in (told, told["topics"][0], behind):
        assert never.items() <= each.items()
    assert (at_end["behind_ms"], at_end["catches_up"], at_end["in_per_s"]) == (0, True, None)
    assert told["past"] == told["topics"][0]["past"] == [{"at_ms": 1_000, "lag": 7}]


def test_topic_partitions_that_no_member_has_are_lines() -> None:
    """Of topics of which members have others, once the group is Stable: else such a group would look healthy."""
    with Tenure({"tenure.topics": "orders:3,bills:1"}) as tenure, Client(tenure.bootstrap, WITHIN_S) as client:
        producer = Producer({"bootstrap.servers": tenure.bootstrap})
        producer.produce("orders", b"one", partition=1)
        assert producer.flush(WITHIN_S) == 0
        (node,) = client.nodes()
        one = Member("m-1", "i-1", "c", "/h", {"orders": [0]}, frozenset({"orders", "bills"}))
        group = Group("g", "Stable", "consumer", "range", CoordinatorNode(node.node_id, *node.address), [one])
        told = known_lines(client, [group], starts=True)["g"]
        moving = known_lines(client, [replace(group, state="CompletingRebalance")])["g"]
    assert not isinstance(told, Refused)
    assert not isinstance(moving, Refused)
    assert [(each.pair, each.member, each.log_end_offset, each.log_start_offset) for each in told] == [
        (("orders", 0), one, 0, None),
        (("orders", 1), None, 1, 0),
        (("orders", 2), None, 0, None),
    ]
    assert [each.pair for each in moving] == [("orders", 0)]
