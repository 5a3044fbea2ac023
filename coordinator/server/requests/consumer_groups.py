"""Requests of the consumer protocol (KIP-848): each becomes one event, or one for each group that it names.

House rule: no state. Source: Kafka's KafkaApis, release 4.4.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING
from uuid import UUID

from coordinator.group.consumer.describe import Description, described
from coordinator.group.events import ConsumerHeartbeat, DescribeConsumerGroup
from coordinator.security.acls import Kind as Resource
from coordinator.security.acls import Operation
from coordinator.server.nodes.topic_view import problem, when_loaded
from coordinator.server.requests.many import AT_ONCE, Asked, at_places, each_once, still_true
from coordinator.server.requests.rights import may, operations_on_group
from coordinator.server.wire.call import Answers, Call, Steps
from protocol.messages import ConsumerGroupDescribeResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest

Described = ConsumerGroupDescribeResponse.DescribedGroup


def heartbeat(call: Call, request: ConsumerGroupHeartbeatRequest) -> Steps | None:
    """ConsumerGroupHeartbeat."""
    # Only a first heartbeat of version 0 may leave the member id to the coordinator.
    fresh_id = "" if request.member_id else call.services.fresh_id()
    names = request.subscribed_topic_names or ()
    event = ConsumerHeartbeat(call, call.api_version, call.client, request, fresh_id)
    if "consumer" not in call.services.config.group.group_coordinator_rebalance_protocols:
        # The core refuses it, and says so.
        call.services.runtime.submit(request.group_id, event)
    elif not may(call, Operation.READ, Resource.GROUP, request.group_id):
        call.answer(event.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    elif len(names) + len(request.topic_partitions or ()) > AT_ONCE:
        return _with_many_topics(call, event)
    elif all(may(call, Operation.DESCRIBE, Resource.TOPIC, name) for name in names):
        _submit(call, event)
    else:
        call.answer(event.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return None


def _with_many_topics(call: Call, event: ConsumerHeartbeat) -> Steps:
    """As `heartbeat`, a topic at a time."""
    call.is_kept = True
    request = event.body
    for name in request.subscribed_topic_names or ():
        if not may(call, Operation.DESCRIBE, Resource.TOPIC, name):
            call.answer(event.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            return
        yield
    if request.topic_partitions is not None:
        owned: dict[UUID, frozenset[int]] = {}
        for each in request.topic_partitions:
            owned[each.topic_id] = owned.get(each.topic_id, frozenset()).union(each.partitions)
            yield
        event.owned = owned
    _submit(call, event)


def _submit(call: Call, event: ConsumerHeartbeat) -> None:
    """Hand over a heartbeat. Only now is its regular expression read: that may take 50 ms."""
    regex = event.body.subscribed_topic_regex

    def submit() -> None:
        if regex:
            event.regex_error = problem(regex)
        call.services.runtime.submit(event.body.group_id, event)

    if regex:
        when_loaded(call.services.runtime.hop, submit)
    else:
        submit()


def describe(call: Call, request: ConsumerGroupDescribeRequest) -> Steps:
    """ConsumerGroupDescribe. A group is described once, however often it is named."""
    group_ids, places = yield from each_once(request.group_ids)
    asked: list[Asked] = []

    answers = Answers(len(group_ids))
    for group_id, reply in zip(group_ids, answers, strict=True):
        event = DescribeConsumerGroup(reply, group_id, call.client, request.include_waiting)
        asked.append(Asked.now(event, call.services.runtime.partition_of(group_id)))
        if not may(call, Operation.DESCRIBE, Resource.GROUP, group_id):
            reply.deliver(event.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        elif not group_id:
            reply.deliver(event.refused(ErrorCode.INVALID_GROUP_ID))
        else:
            call.services.runtime.submit(group_id, event)
        yield
    groups: list[Described] = []
    yield answers
    for each in (yield from still_true(asked, answers.found)):
        groups.append((yield from _shown(call, each)) if isinstance(each, Description) else each)
        if request.include_authorized_operations and not groups[-1].error_code:
            groups[-1].authorized_operations = operations_on_group(call, groups[-1].group_id)
        yield
    call.answer(ConsumerGroupDescribeResponse(groups=(yield from at_places(groups, places))))


def _shown(call: Call, description: Description) -> Generator[None, None, Described]:
    """A group as its client may see it: a topic that it may not see is an error for the whole group, as in Kafka."""
    group = yield from described(call.services.runtime.topics, description)
    seen: set[str] = set()
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            seen.update(topic.topic_name for topic in assignment.topic_partitions)
        yield
    if all(may(call, Operation.DESCRIBE, Resource.TOPIC, name) for name in seen):
        return group
    words = "The group has described topic(s) that the client is not authorized to describe."
    return Described(group_id=group.group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=words)
