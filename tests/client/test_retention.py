"""How long logs keep records: which questions tell it, and how often they are asked.

tests/oracle/test_stuck.py asks real servers.
"""

from __future__ import annotations

from typing import Any

from coordinator.client.client import Client
from coordinator.client.retention import KNOWN_S, Retention
from coordinator.client.topics import Leaders
from coordinator.story.offsets import Expiry
from protocol.messages import DescribeConfigsResponse, ListOffsetsResponse
from schemas.errors import ErrorCode
from tests.client.scripted import Scripted
from tests.support.patience import WITHIN_S

RETENTION_MS = {"kept": "1000", "compacted": "1000", "for-ever": "-1"}
NOW_MS = 10_000


def configs(request: Any) -> DescribeConfigsResponse:
    """Return the settings of each topic; `denied` has none."""
    results = []
    for each in request.resources:
        name = each.resource_name
        values = {
            "retention.ms": RETENTION_MS.get(name),
            "cleanup.policy": "compact" if name == "compacted" else "delete",
        }
        results.append(
            DescribeConfigsResponse.DescribeConfigsResult(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED if name == "denied" else ErrorCode.NONE,
                error_message=None,
                resource_type=2,
                resource_name=name,
                configs=[]
                if name == "denied"
                else [
                    DescribeConfigsResponse.DescribeConfigsResourceResult(name=key, value=value)
                    for key, value in values.items()
                ],
            )
        )
    return DescribeConfigsResponse(results=results)


def first_since(request: Any) -> ListOffsetsResponse:
    """Return the first record of a time or later: the record at offset n is of time 9,000 + n; there are 300."""
    told = ListOffsetsResponse.ListOffsetsPartitionResponse
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    told(
                        partition_index=each.partition_index,
                        offset=offset if (offset := each.timestamp - 9_000) < 300 else -1,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_two_questions_tell_how_soon_records_go() -> None:
    """Only about topics that delete by age and whose settings the user may see; answers count for a minute."""
    with Scripted({"DescribeConfigs": [configs], "ListOffsets": [first_since]}) as server:
        server.answers("Metadata", server.leads)
        now = [100.0]
        retention = Retention(lambda: now[0], lambda: NOW_MS)
        behind = dict.fromkeys([(name, 0) for name in (*RETENTION_MS, "denied")], 300)
        with Client(server.bootstrap, WITHIN_S) as client:
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
