"""How far a group is behind; tests/cli/test_groups.py runs the questions against real servers."""

from __future__ import annotations

from typing import Any

from coordinator.client.lag import lag_json, topics_json
from coordinator.story.described import Member, OffsetLine

MEMBER = Member("m-1", "seat", "client", "/127.0.0.1", {"t": [0, 1]})


def sums(**fields: Any) -> dict[str, Any]:
    """Return sums that are 0, but for these."""
    return dict.fromkeys(("partitions", "assigned_partitions", "without_end", "beyond_end"), 0) | {"lag": None} | fields


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
    assert lag_json(lines) == {
        "partitions": 6,
        "assigned_partitions": 2,
        "lag": 7,
        "without_end": 1,
        "beyond_end": 1,
    }
    assert [line.lag for line in lines] == [7, 0, None, -3, None, None, None]


def test_the_highest_offset_is_beyond_the_end() -> None:
    """A committed offset of 2^63-1 adds nothing to a sum."""
    lines = [OffsetLine("t", 0, 5, 12, MEMBER), OffsetLine("t", 1, 2**63 - 1, 100, MEMBER)]
    assert lag_json(lines) == sums(partitions=2, assigned_partitions=2, lag=7, beyond_end=1)


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
    t, u = topics_json(lines)
    assert (t["topic"], t["lag"], t["assigned_partitions"]) == ("t", 3, 1)
    assert t["offsets"] == [
        {
            "partition": 2,
            "current_offset": 4,
            "log_end_offset": 7,
            "lag": 3,
            "member_id": "m-1",
            "group_instance_id": "seat",
            "client_id": "client",
            "client_host": "/127.0.0.1",
        }
    ]
    assert (u["topic"], u["lag"], [each["partition"] for each in u["offsets"]]) == ("u", 2, [9, 10])
    assert u["offsets"][0]["member_id"] is None
