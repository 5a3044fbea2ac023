"""Requests about groups and their members: each becomes one event, or one for each group that it names.

A handler decides what Kafka decides before its coordinator sees a request: which fields a version has, which are
mandatory. The coordinator decides the rest.

The coordinator handles an event at once, so an event is never large. A request that names much becomes several events,
in order, and their answers are put together. A request that changes groups is carried out to its end, even if its
client closes the connection: Kafka does the same.

House rule: no state. Source: Kafka's KafkaApis and GroupCoordinatorAdapter, release 3.9 in KRaft mode.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

from coordinator.group.events import (
    DeleteGroup,
    DescribeGroup,
    EraseOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    Remainder,
    SyncGroup,
)
from coordinator.group.offsets import REMOVED_AT_ONCE
from coordinator.group.state import Kind, State
from coordinator.security.acls import Kind as Resource
from coordinator.security.acls import Operation
from coordinator.server.requests.many import AT_ONCE, Asked, at_places, each_once, still_true
from coordinator.server.requests.rights import may, operations, operations_on_group
from coordinator.server.runtime.partition import Partition, Standing
from coordinator.server.runtime.replies import Reply
from coordinator.server.wire.call import Answer, Answers, Call, Steps, parts
from protocol.messages import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import (
        DeleteGroupsRequest,
        DescribeGroupsRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        ListGroupsRequest,
        SyncGroupRequest,
    )

LEAVING_AT_ONCE = 50
"""Members that leave in one event, at most. Each costs a log line, and perhaps a rebalance."""

ASSIGNMENTS_AT_ONCE = 1_000
"""Assignments in a SyncGroup that the coordinator reads by itself."""

DESCRIBE_OF_KAFKA_4 = 6
"""The first version of DescribeGroups that Kafka 3.9 doesn't know."""

STATES = {state.value.lower() for state in State}
KINDS = {kind.value for kind in Kind}


def join_group(call: Call, request: JoinGroupRequest) -> None:
    """JoinGroup."""
    # Only a member without an id needs a fresh one, and making one takes time.
    fresh_id = "" if request.member_id else call.services.fresh_id()
    event = JoinGroup(call, call.api_version, call.client, request, fresh_id)
    if call.services.access.is_open or may(call, Operation.READ, Resource.GROUP, request.group_id):
        call.services.runtime.submit(request.group_id, event)
    else:
        call.answer(event.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))


def sync_group(call: Call, request: SyncGroupRequest) -> Steps | None:
    """SyncGroup. From v5 on, protocol type and protocol name are mandatory (KIP-559)."""
    event = SyncGroup(call, call.api_version, call.client, request)
    if call.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        call.answer(event.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif not call.services.access.is_open and not may(call, Operation.READ, Resource.GROUP, request.group_id):
        call.answer(event.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    elif len(request.assignments) > ASSIGNMENTS_AT_ONCE:
        return _sync_with_many_assignments(call, event)
    else:
        call.services.runtime.submit(request.group_id, event)
    return None


def _sync_with_many_assignments(call: Call, event: SyncGroup) -> Steps:
    call.is_kept = True
    event.given = {}
    for assignment in event.body.assignments:
        event.given[assignment.member_id] = assignment.assignment
        yield
    call.services.runtime.submit(event.body.group_id, event)


def heartbeat(call: Call, request: HeartbeatRequest) -> None:
    """Heartbeat, if the short cut in `Api.dispatch` has not answered it."""
    event = Heartbeat(call, request, call.client)
    if may(call, Operation.READ, Resource.GROUP, request.group_id):
        call.services.runtime.submit(request.group_id, event)
    else:
        call.answer(event.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))


def leave_group(call: Call, request: LeaveGroupRequest) -> Steps | None:
    """LeaveGroup."""
    event = LeaveGroup(call, call.api_version, call.client, request)
    if not may(call, Operation.READ, Resource.GROUP, request.group_id):
        call.answer(LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return None
    if len(request.members) > LEAVING_AT_ONCE:
        return _leave_in_parts(call, request)
    call.services.runtime.submit(request.group_id, event)
    return None


def _leave_in_parts(call: Call, request: LeaveGroupRequest) -> Steps:
    """A LeaveGroup of many members: an event for some members at a time."""
    call.is_kept = True
    answers = Answers(math.ceil(len(request.members) / LEAVING_AT_ONCE))
    for members, reply in zip(parts(request.members, LEAVING_AT_ONCE), answers, strict=True):
        body = LeaveGroupRequest(group_id=request.group_id, members=members)
        call.services.runtime.submit(request.group_id, LeaveGroup(reply, call.api_version, call.client, body))
        yield
    whole = LeaveGroupResponse(members=[])
    yield answers
    for answered in answers.found:
        if answered.error_code:  # an error of one is the request's
            whole = answered
            break
        whole.members += answered.members
        yield
    call.answer(whole)


def describe_groups(call: Call, request: DescribeGroupsRequest) -> Steps:
    """DescribeGroups. A group is described once, however often it is named."""
    shows_operations = call.api_version >= 3 and request.include_authorized_operations
    group_ids, places = yield from each_once(request.groups)
    asked: list[Asked] = []

    answers = Answers(len(group_ids))
    for group_id, reply in zip(group_ids, answers, strict=True):
        event = DescribeGroup(reply, call.api_version, group_id, request.include_waiting, call.client)
        asked.append(Asked.now(event, call.services.runtime.partition_of(group_id)))
        if may(call, Operation.DESCRIBE, Resource.GROUP, group_id):
            call.services.runtime.submit(group_id, event)
        else:
            reply.deliver(event.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        yield
    yield answers
    told = yield from still_true(asked, answers.found)
    for group in told if shows_operations else ():
        if not group.error_code:
            group.authorized_operations = (
                operations_on_group(call, group.group_id)
                if call.api_version >= DESCRIBE_OF_KAFKA_4
                else operations(call, Resource.GROUP, group.group_id)
            )
        yield
    call.answer(DescribeGroupsResponse(groups=(yield from at_places(told, places))))


def delete_groups(call: Call, request: DeleteGroupsRequest) -> Steps:
    """DeleteGroups: a group that is named twice is deleted once."""
    call.is_kept = True
    group_ids: dict[str, None] = {}
    for group_id in request.groups_names:
        group_ids[group_id] = None
        yield

    answers = Answers(len(group_ids))
    for group_id, reply in zip(group_ids, answers, strict=True):
        call.work(_delete_group(call, group_id, reply))
        yield
    yield answers
    call.answer(DeleteGroupsResponse(results=answers.found))


def _delete_group(call: Call, group_id: str, reply: Reply) -> Steps:
    """Delete a group, and then its offsets, a piece at a time. reply: gets the first error, or a result without."""
    answer = Answer()
    event = DeleteGroup(answer, group_id, call.client)
    if not may(call, Operation.DELETE, Resource.GROUP, group_id):
        reply.deliver(event.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    call.services.runtime.submit(group_id, event)
    yield answer
    result = answer.found
    if isinstance(result, Remainder):
        yield
        left = ((topic, index, each) for topic, held in result.offsets.items() for index, each in held.items())
        size = sum(map(len, result.offsets.values()))
        erased = Answers(math.ceil(size / REMOVED_AT_ONCE))
        for erasing in erased:
            some = list(islice(left, REMOVED_AT_ONCE))
            call.services.runtime.submit(group_id, EraseOffsets(erasing, group_id, some, call.client))
            yield
        yield erased
        results = erased.found
        result = next((each for each in results if each.error_code), results[0])
    reply.deliver(result)


def list_groups(call: Call, request: ListGroupsRequest) -> Steps:
    """ListGroups: the groups of all partitions that are served; with an error while other partitions load.

    A list that lacks groups of a served partition has an error too.
    """
    states: set[str] = set()
    types: set[str] = set()
    trimmed = map(str.strip, request.states_filter)
    for kept, names, known in ((states, trimmed, STATES), (types, request.types_filter, KINDS)):
        for name in names:
            # One unknown name stands for all others: they all let no group pass.
            lower = name.lower()
            if lower in known or not kept:
                kept.add(lower)
            yield

    def trouble() -> ErrorCode:
        partitions = call.services.runtime.partitions
        if any(each.standing is Standing.LOADING for each in partitions):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if all(each.is_sure for each in call.services.runtime.served()):
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    sees_all = may(call, Operation.DESCRIBE, Resource.CLUSTER, is_logged=False)

    def is_seen(group_id: str) -> bool:
        return may(call, Operation.DESCRIBE, Resource.GROUP, group_id, is_logged=False)

    before = trouble()
    some: list[tuple[Partition, list[str] | None]] = []
    # Tenure's own commands ask so whether a group that they don't know is one of Kafka's other kinds.
    lets_none_pass = bool(types) and types.isdisjoint(KINDS)
    for partition in () if lets_none_pass else call.services.runtime.served():
        held = partition.coordinator.groups
        if len(held) <= AT_ONCE:
            some.append((partition, None))
        else:
            some += [(partition, group_ids) for group_ids in parts(list(held), AT_ONCE)]

    answers = Answers(len(some))
    for (partition, group_ids), reply in zip(some, answers, strict=True):
        partition.submit(None, ListGroups(reply, list(states), list(types), call.client, group_ids))
        yield
    yield answers
    listed = answers.found
    error = before or trouble()
    groups: list[ListGroupsResponse.ListedGroup] = []
    for part in listed:
        if part is None:
            # Its groups are missing, although the lapse or the failed write may be over by now.
            error = error or ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            groups += part if sees_all else [each for each in part if is_seen(each.group_id)]
        yield
    call.answer(ListGroupsResponse(error_code=error, groups=groups))
