"""The error answer of any event, whatever state its group is in.

The runtime refuses events while a partition loads, belongs to another node, or could not write. The coordinator refuses
events with a group id that no group may have.
"""

from __future__ import annotations

from typing import Any, assert_never

from coordinator.group.events import (
    CommitInTransaction,
    CommitOffsets,
    CommitPrepared,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    EndTransaction,
    EraseOffsets,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    RequestEvent,
    SyncGroup,
)
from coordinator.group.offsets import commit_answer
from coordinator.group.turn import join_error, sync_error
from protocol.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    HeartbeatResponse,
    LeaveGroupResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)
from schemas.errors import ErrorCode


def refuse(event: RequestEvent, error: ErrorCode) -> Any:
    """The answer to `event` with `error`: a body of the type that the event names.

    While a partition loads, a heartbeat gets NONE and a sync REBALANCE_IN_PROGRESS, because old clients don't expect
    COORDINATOR_LOAD_IN_PROGRESS there.
    """
    loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    match event:
        case JoinGroup():
            return join_error(event.version, error, event.body.member_id)
        case SyncGroup():
            return sync_error(ErrorCode.REBALANCE_IN_PROGRESS if loading else error)
        case Heartbeat():
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error)
        case ConsumerHeartbeat():
            return ConsumerGroupHeartbeatResponse(error_code=error, member_id=None)
        case DescribeConsumerGroup():
            return ConsumerGroupDescribeResponse.DescribedGroup(error_code=error, group_id=event.group_id)
        case LeaveGroup():
            return LeaveGroupResponse(error_code=error, members=[])
        case CommitOffsets():
            return commit_answer(event.body, error)
        case CommitPrepared() | CommitInTransaction() | EndTransaction():
            return error
        case FetchOffsets():
            return OffsetFetchResponse.OffsetFetchResponseGroup(group_id=event.group_id, topics=[], error_code=error)
        case DeleteOffsets():
            return OffsetDeleteResponse(error_code=error)
        case DescribeGroup():
            return DescribeGroupsResponse.DescribedGroup(error_code=error, group_id=event.group_id, members=[])
        case DeleteGroup() | EraseOffsets():
            return DeleteGroupsResponse.DeletableGroupResult(group_id=event.group_id, error_code=error)
        case ListGroups():
            return None
        case _:
            assert_never(event)
