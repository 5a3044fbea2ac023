"""Answers with an error that several rules give.

House rule: an answer depends on its request alone, never on a group.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from protocol.messages import JoinGroupResponse, OffsetCommitResponse, SyncGroupResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import OffsetCommitRequest

NO_GENERATION = -1

NULL_NAME_SINCE = 7
"""The first version of JoinGroup whose protocol name can be null."""


def protocol_name_in(version: int, name: str | None) -> str | None:
    """A protocol name in an answer to JoinGroup: an empty one is null where that is possible (JoinGroupResponse)."""
    if name:
        return name
    return None if version >= NULL_NAME_SINCE else ""


def join_error(version: int, error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """The error answer of a JoinGroup."""
    return JoinGroupResponse(
        error_code=error,
        generation_id=NO_GENERATION,
        protocol_type=None,
        protocol_name=protocol_name_in(version, None),
        leader="",
        member_id=member_id,
        members=[],
    )


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """The error answer of a SyncGroup."""
    return SyncGroupResponse(error_code=error, protocol_type=None, protocol_name=None, assignment=b"")


def commit_answer(
    body: OffsetCommitRequest, error: ErrorCode, too_large: Collection[tuple[str, int]] = ()
) -> OffsetCommitResponse:
    """The answer to a commit: `error` for every partition, or INVALID for those whose metadata is too large."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE
                        if too_large and (topic.name, partition.partition_index) in too_large
                        else error,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
