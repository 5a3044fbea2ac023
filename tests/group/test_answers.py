"""Answers with an error have the form that a client of each version reads."""

from __future__ import annotations

from coordinator.group.answers import commit_answer, join_error
from protocol.messages import OffsetCommitRequest
from schemas.errors import ErrorCode


def test_the_name_of_no_protocol_is_null_where_a_version_has_null() -> None:
    """Up to version 6 of JoinGroup it is an empty text."""
    names = {version: join_error(version, ErrorCode.UNKNOWN_MEMBER_ID, "m").protocol_name for version in range(10)}
    assert names == {**dict.fromkeys(range(7), ""), **dict.fromkeys(range(7, 10))}


def test_an_error_of_a_commit_stands_at_each_partition() -> None:
    """The partitions whose metadata is too large have that error in its place."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(
        name="orders", partitions=[partition(partition_index=0), partition(partition_index=1)]
    )
    answer = commit_answer(OffsetCommitRequest(topics=[topic]), ErrorCode.NOT_COORDINATOR, {("orders", 1)})
    codes = [(each.partition_index, each.error_code) for each in answer.topics[0].partitions]
    assert codes == [(0, ErrorCode.NOT_COORDINATOR), (1, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
