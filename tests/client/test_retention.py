"""How long logs keep records: which questions tell it, and how often they are asked.

tests/oracle/test_stuck.py asks real servers.
"""

from __future__ import annotations

from typing import Any

from coordinator.client.retention import KNOWN_S, Retention
from coordinator.client.topics import Leaders
from coordinator.story.offsets import Expiry
from schemas.errors import ErrorCode
from tests.client.scripted import served

RETENTION_MS = {"kept": "1000", "compacted": "1000", "for-ever": "-1"}
NOW_MS = 10_000


def configs(request: Any) -> Any:
    """Return the settings of each topic; `denied` has none."""
    results = []
    for each in request.resources:
        name = each.resource_name
        error, values = ErrorCode.TOPIC_AUTHORIZATION_FAILED, dict[str, str | None]()
        if name != "denied":
            policy = "compact" if name == "compacted" else "delete"
            error, values = ErrorCode.NONE, {"retention.ms": RETENTION_MS.get(name), "cleanup.policy": policy}
        own = [{"name": key, "value": value} for key, value in values.items()]
        results.append({"error_code": error, "resource_type": 2, "resource_name": name, "configs": own})
    return {"results": results}


def first_since(request: Any) -> Any:
    """Return the first record of a time or later: the record at offset n is of time 9,000 + n; there are 300."""

    def told(each: Any) -> Any:
        offset = each.timestamp - 9_000
        return {"partition_index": each.partition_index, "offset": offset if offset < 300 else -1}

    return {"topics": [{"name": topic.name, "partitions": [*map(told, topic.partitions)]} for topic in request.topics]}


def test_two_questions_tell_how_soon_records_go() -> None:
    """Only about topics that delete by age and whose settings the user may see; answers count for a minute."""
    with served({"DescribeConfigs": [configs], "ListOffsets": [first_since]}) as (server, client):
        now = [100.0]
        retention = Retention(lambda: now[0], lambda: NOW_MS)
        behind = dict.fromkeys([(name, 0) for name in (*RETENTION_MS, "denied")], 300)
        found = retention.expiries(client, behind, Leaders())
        # Records before offset 100 go within 100 ms, those before offset 10 within 10 ms.
        assert found == {("kept", 0): (Expiry(100, 100), Expiry(10, 10))}
        assert retention.expiries(client, {("kept", 0): 300}, Leaders()) == found
        assert len(server.asked("ListOffsets")) == 2
        assert len(server.asked("DescribeConfigs")) == 1
        now[0] += KNOWN_S
        assert retention.expiries(client, {("kept", 0): 300}, Leaders()) == found
        assert len(server.asked("DescribeConfigs")) == 2
        late = Retention(lambda: now[0], lambda: NOW_MS + 9_000)
        assert late.expiries(client, {("kept", 0): 300}, Leaders())["kept", 0] == (
            Expiry(100, 300),
            Expiry(10, 300),
        )
