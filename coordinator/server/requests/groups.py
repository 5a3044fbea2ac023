"""Requests about groups: each becomes one event, or one for each group that it names.

A handler decides what Kafka decides before its coordinator sees a request: which topic partitions exist, which fields a
version has, which are mandatory. The coordinator decides the rest.

The coordinator handles an event at once, so an event is never large. A request that names much becomes several events,
in order, and their answers are put together. An OffsetCommit must not be divided: its offsets and records are prepared
in steps, before the event.

A request that changes groups is carried out to its end, even if its client closes the connection: Kafka does the same.

House rule: no state. Source: Kafka's KafkaApis and GroupCoordinatorAdapter, release 3.9 in KRaft mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from coordinator.group import offsets
from coordinator.group.events import (
    CommitOffsets,
    CommitPrepared,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    EraseOffsets,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    Remainder,
    RequestEvent,
    SyncGroup,
)
from coordinator.group.offsets import REMOVED_AT_ONCE
from coordinator.group.refuse import refuse
from coordinator.group.state import Kind, State
from coordinator.security.acls import Kind as Resource
from coordinator.security.acls import Operation
from coordinator.server.requests.rights import may, operations, operations_on_group
from coordinator.server.runtime.partition import Standing
from coordinator.server.wire.call import OneByOne, at_once, gather, parts
from coordinator.server.wire.repeated_commits import TOPIC_IDS_SINCE
from protocol.messages import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from coordinator.group.any_group import Prepared
    from coordinator.server.runtime.partition import Partition
    from coordinator.server.runtime.replies import Reply
    from coordinator.server.wire.call import Call, Services, Steps
    from protocol.messages import (
        DeleteGroupsRequest,
        DescribeGroupsRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        ListGroupsRequest,
        SyncGroupRequest,
    )

NO_OFFSET = -1

AT_ONCE = 200
"""Topic partitions or groups in an event of their own, at most: about 0.5 ms."""

DELETED_AT_ONCE = 100
"""Committed offsets to delete in one event, at most. Each costs a tombstone and a place in a log line, so there are
fewer.
"""

LEAVING_AT_ONCE = 50
"""Members that leave in one event, at most. Each costs a log line, and perhaps a rebalance."""

ASSIGNMENTS_AT_ONCE = 1_000
"""Assignments in a SyncGroup that the coordinator reads by itself."""

DESCRIBE_OF_KAFKA_4 = 6
"""The first version of DescribeGroups that Kafka 3.9 doesn't know."""

STATES = {state.value.lower() for state in State}
KINDS = {kind.value for kind in Kind}

Item = TypeVar("Item")


class Piece(NamedTuple):
    """Some of the topics of a request, with some of their partitions.

    goes_on: its first topic is the last one of the piece before.
    """

    topics: list[tuple[str, list[Any]]]
    goes_on: bool


def pieces(topics: Iterable[tuple[str, list[Any]]], size: int = AT_ONCE) -> Iterator[Piece]:
    """Topics in pieces of `size` topics and partitions at most. A topic without partitions counts, but is left out.

    A piece may be empty.
    """
    piece: list[tuple[str, list[Any]]] = []
    room, goes_on = size, False
    for name, partitions in topics:
        at = 0
        while at < len(partitions):
            if room < 2:  # a topic with a partition
                yield Piece(piece, goes_on)
                piece, room, goes_on = [], size, at > 0
            some = partitions[at : at + room - 1]
            piece.append((name, some))
            at += len(some)
            room -= 1 + len(some)
        if not partitions:
            room -= 1
            if room < 2:
                yield Piece(piece, goes_on)
                piece, room, goes_on = [], size, False
    if piece:
        yield Piece(piece, goes_on)


class _Refused(NamedTuple):
    """Partitions of a topic whose offsets the coordinator doesn't get, and why."""

    topic: OffsetCommitRequest.OffsetCommitRequestTopic
    indexes: list[int]
    error: ErrorCode


def each_once(names: Iterable[str]) -> Generator[None, None, tuple[dict[str, int], list[int]]]:
    """The names, each once with its number, and for each name of a request that number. Yields behind each."""
    numbers: dict[str, int] = {}
    places: list[int] = []
    for name in names:
        places.append(numbers.setdefault(name, len(numbers)))
        yield
    return numbers, places


def at_places(items: list[Item], places: list[int]) -> Generator[None, None, list[Item]]:
    """The items at these places. Yields behind each part, and copies a part without a step for each item."""
    found: list[Item] = []
    for some in parts(places, AT_ONCE):
        found += map(items.__getitem__, some)
        yield
    return found


class Asked(NamedTuple):
    """The question about one group of several. stays: as of `Partition.stays`."""

    event: RequestEvent
    stays: Callable[[], bool]


def still_true(asked: list[Asked], bodies: list[Item]) -> Generator[None, None, list[Item]]:
    """The answers about several groups. Yields behind each.

    The first answer may have waited for the last one, and another node may have its group by now: then it is a refusal.
    """
    told: list[Item] = []
    for (event, stays), body in zip(asked, bodies, strict=True):
        is_old = not getattr(body, "error_code", ErrorCode.NONE) and not stays()
        told.append(refuse(event, ErrorCode.NOT_COORDINATOR) if is_old else body)
        yield
    return told


def join_group(services: Services, call: Call, request: JoinGroupRequest) -> None:
    """JoinGroup."""
    # Only a member without an id needs a fresh one, and making one takes time.
    fresh_id = "" if request.member_id else services.fresh_id()
    event = JoinGroup(call, call.api_version, call.client, request, fresh_id)
    if may(services, call, Operation.READ, Resource.GROUP, request.group_id):
        services.runtime.submit(request.group_id, event)
    else:
        call.answer(refuse(event, ErrorCode.GROUP_AUTHORIZATION_FAILED))


def sync_group(services: Services, call: Call, request: SyncGroupRequest) -> Steps | None:
    """SyncGroup. From v5 on, protocol type and protocol name are mandatory (KIP-559)."""
    event = SyncGroup(call, call.api_version, call.client, request)
    if call.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        call.answer(refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif not may(services, call, Operation.READ, Resource.GROUP, request.group_id):
        call.answer(refuse(event, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    elif len(request.assignments) > ASSIGNMENTS_AT_ONCE:
        return _sync_with_many_assignments(services, call, event)
    else:
        services.runtime.submit(request.group_id, event)
    return None


def _sync_with_many_assignments(services: Services, call: Call, event: SyncGroup) -> Steps:
    call.is_kept = True
    event.given = {}
    for assignment in event.body.assignments:
        event.given[assignment.member_id] = assignment.assignment
        yield
    services.runtime.submit(event.body.group_id, event)


def heartbeat(services: Services, call: Call, request: HeartbeatRequest) -> None:
    """Heartbeat, if the short cut in `Api.dispatch` has not answered it."""
    event = Heartbeat(call, request, call.client)
    if may(services, call, Operation.READ, Resource.GROUP, request.group_id):
        services.runtime.submit(request.group_id, event)
    else:
        call.answer(refuse(event, ErrorCode.GROUP_AUTHORIZATION_FAILED))


def leave_group(services: Services, call: Call, request: LeaveGroupRequest) -> Steps | None:
    """LeaveGroup."""
    event = LeaveGroup(call, call.api_version, call.client, request)
    if not may(services, call, Operation.READ, Resource.GROUP, request.group_id):
        call.answer(LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return None
    if len(request.members) > LEAVING_AT_ONCE:
        return _leave_in_parts(services, call, request)
    services.runtime.submit(request.group_id, event)
    return None


def _leave_in_parts(services: Services, call: Call, request: LeaveGroupRequest) -> Steps:
    """A LeaveGroup of many members: an event for some members at a time."""
    call.is_kept = True
    some = parts(request.members, LEAVING_AT_ONCE)
    count = math.ceil(len(request.members) / LEAVING_AT_ONCE)

    def answer(bodies: list[LeaveGroupResponse]) -> None:
        call.work(_answer_leave(call, bodies))

    for members, receive in zip(some, gather(count, answer), strict=True):
        body = LeaveGroupRequest(group_id=request.group_id, members=members)
        services.runtime.submit(request.group_id, LeaveGroup(call.reply(receive), call.api_version, call.client, body))
        yield


def _answer_leave(call: Call, bodies: list[LeaveGroupResponse]) -> Steps:
    """Put the answers of parts together. An error of one is the request's."""
    whole = LeaveGroupResponse(members=[])
    for body in bodies:
        if body.error_code:
            whole = body
            break
        whole.members += body.members
        yield
    call.answer(whole)


def commit_offsets(services: Services, call: Call, request: OffsetCommitRequest) -> Steps | None:
    """OffsetCommit. The coordinator gets the topic partitions that exist; the others get their error here.

    From version 10 on, clients name topics by their ids, and the coordinator gets the names.
    Version 0 is for ZooKeeper. Without one, Kafka answers UNSUPPORTED_VERSION if any of the topic partitions exists.
    """
    if not may(services, call, Operation.READ, Resource.GROUP, request.group_id):
        return _refuse_commit(call, request)
    if call.in_steps or len(request.topics) > AT_ONCE:
        return _commit_in_steps(services, call, request)
    has_partition = services.discovery.has_partition
    known: list[OffsetCommitRequest.OffsetCommitRequestTopic] = []
    unknown: list[OffsetCommitResponse.OffsetCommitResponseTopic] = []
    for topic in request.topics:
        error = _topic_error(services, call, topic, Operation.READ)
        if error:
            unknown.append(_committed(topic, [each.partition_index for each in topic.partitions], error))
            continue
        exist = [has_partition(topic.name, each.partition_index) for each in topic.partitions]
        if all(exist) and exist:
            known.append(topic)
            continue
        present = [each for each, is_there in zip(topic.partitions, exist, strict=True) if is_there]
        absent = [each.partition_index for each, is_there in zip(topic.partitions, exist, strict=True) if not is_there]
        if present:
            known.append(_with_partitions(topic, present))
        if absent:
            unknown.append(_committed(topic, absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if not known:
        call.answer(OffsetCommitResponse(topics=unknown))
        return None
    if call.api_version == 0:
        all_of_it = [
            _committed(topic, [each.partition_index for each in topic.partitions], ErrorCode.UNSUPPORTED_VERSION)
            for topic in request.topics
        ]
        call.answer(OffsetCommitResponse(topics=all_of_it))
        return None

    request.topics = known
    if not unknown:
        event = CommitOffsets(call, call.api_version, call.client, request)
        services.runtime.submit(request.group_id, event)
        return None

    def answer(body: OffsetCommitResponse) -> None:
        at_once(_add(body.topics, unknown, attrgetter("name", "topic_id")))
        call.answer(body)

    event = CommitOffsets(call.reply(answer), call.api_version, call.client, request)
    services.runtime.submit(request.group_id, event)
    return None


def _topic_error(services: Services, call: Call, topic: Any, operation: Operation) -> ErrorCode:
    """The error of a topic in an OffsetCommit or OffsetFetch; NONE if the client may do this to it.

    A topic that the request names by its id gets its name.
    """
    if call.api_version >= TOPIC_IDS_SINCE:
        found = services.discovery.topic_by_id(topic.topic_id)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        topic.name = found.name
    is_allowed = may(services, call, operation, Resource.TOPIC, topic.name)
    return ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _refuse_commit(call: Call, request: OffsetCommitRequest) -> Steps:
    """The client may not read the group: each topic partition says so."""
    yield from _answer_commit(call, request.topics, [], ErrorCode.GROUP_AUTHORIZATION_FAILED, ())


def _commit_in_steps(services: Services, call: Call, request: OffsetCommitRequest) -> Steps:
    """As `commit_offsets`, for many topic partitions."""
    call.is_kept = True
    has_partition = services.discovery.has_partition
    known: list[OffsetCommitRequest.OffsetCommitRequestTopic] = []
    unknown: list[_Refused] = []
    for topic in request.topics:
        present: list[OffsetCommitRequest.OffsetCommitRequestPartition] = []
        absent: list[int] = []
        error = _topic_error(services, call, topic, Operation.READ)
        for each in topic.partitions:
            if not error and has_partition(topic.name, each.partition_index):
                present.append(each)
            else:
                absent.append(each.partition_index)
            yield
        if present:
            known.append(_with_partitions(topic, present))
        if absent:
            unknown.append(_Refused(topic, absent, error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        yield

    if not known:
        yield from _answer_commit(call, [], unknown, ErrorCode.NONE, ())
        return
    if call.api_version == 0:
        yield from _answer_commit(call, request.topics, [], ErrorCode.UNSUPPORTED_VERSION, ())
        return
    request.topics = known
    prepared: Prepared = yield from offsets.prepare(request, services.config.group, services.clock.wall_ms())

    def answer(error: ErrorCode) -> None:
        call.work(_answer_commit(call, known, unknown, error, () if error else prepared.too_large))

    services.runtime.submit(
        request.group_id, CommitPrepared(call.reply(answer), call.client, request, prepared, call.api_version)
    )


def _answer_commit(
    call: Call,
    known: list[OffsetCommitRequest.OffsetCommitRequestTopic],
    unknown: list[_Refused],
    error: ErrorCode,
    too_large: Collection[tuple[str, int]],
) -> Steps:
    """Answer a commit: `error` for the known topic partitions. too_large: those whose metadata is too large."""
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = []
    by_name: dict[tuple[str, UUID], OffsetCommitResponse.OffsetCommitResponseTopic] = {}
    for topic in known:
        answered = by_name[topic.name, topic.topic_id] = _committed(topic, [], error)
        topics.append(answered)
        for each in topic.partitions:
            is_too_large = bool(too_large) and (topic.name, each.partition_index) in too_large
            own = ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else error
            answered.partitions.append(_committed_partition(each.partition_index, own))
            yield
        yield
    for topic, indexes, why in unknown:
        found = by_name.get((topic.name, topic.topic_id))
        if found is None:
            found = _committed(topic, [], error)
            topics.append(found)
        for index in indexes:
            found.partitions.append(_committed_partition(index, why))
            yield
        yield
    call.answer(OffsetCommitResponse(topics=topics))


def _with_partitions(
    topic: OffsetCommitRequest.OffsetCommitRequestTopic,
    partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition],
) -> OffsetCommitRequest.OffsetCommitRequestTopic:
    """The topic with some of its partitions."""
    return OffsetCommitRequest.OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _committed(
    topic: OffsetCommitRequest.OffsetCommitRequestTopic, partitions: list[int], error: ErrorCode
) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    return OffsetCommitResponse.OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_committed_partition(index, error) for index in partitions],
    )


def _committed_partition(index: int, error: ErrorCode) -> OffsetCommitResponse.OffsetCommitResponsePartition:
    return OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=index, error_code=error)


def _add(topics: list[Any], more: list[Any], key: Callable[[Any], Any] = attrgetter("name")) -> Steps:
    """Add topics to those of a response; a topic that is in both gets its partitions together. key: names a topic."""
    by_name: dict[Any, Any] = {}
    for topic in topics:
        by_name[key(topic)] = topic
        yield
    for topic in more:
        if key(topic) in by_name:
            by_name[key(topic)].partitions.extend(topic.partitions)
        else:
            topics.append(topic)
        yield


def fetch_offsets(services: Services, call: Call, request: OffsetFetchRequest) -> Steps:
    """OffsetFetch: one group up to v7, any number from v8 on. From v2 on, null topics mean all topics.

    From v10 on, clients name topics by their ids, and the coordinator gets the names.
    """
    if call.api_version == 0:
        group = OffsetFetchResponse.OffsetFetchResponseGroup(error_code=ErrorCode.UNSUPPORTED_VERSION)
        yield from _answer_one_group(call, request, group)
        return
    if call.api_version >= 8:
        yield from _fetch_groups(services, call, request)
        return

    def answer(body: OffsetFetchResponse.OffsetFetchResponseGroup) -> None:
        call.work(_answer_one_group(call, request, body))

    yield from _fetch_group(
        services, call, request.group_id, request.topics, answer, require_stable=request.require_stable
    )


def _fetch_groups(services: Services, call: Call, request: OffsetFetchRequest) -> Steps:
    """Fetch the offsets of several groups. All offsets of a group are fetched once, however often it is named."""
    places: list[int] = []
    whole: dict[tuple[str, str | None, int], int] = {}
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = []
    asked: list[Asked] = []
    for group in request.groups:
        who = (group.group_id, group.member_id, group.member_epoch)
        place = len(groups) if group.topics is not None else whole.setdefault(who, len(groups))
        places.append(place)
        if place == len(groups):
            groups.append(group)
        yield

    def answer(bodies: list[OffsetFetchResponse.OffsetFetchResponseGroup]) -> None:
        call.work(put_together(bodies))

    def put_together(bodies: list[OffsetFetchResponse.OffsetFetchResponseGroup]) -> Steps:
        told = yield from still_true(asked, bodies)
        call.answer(OffsetFetchResponse(groups=(yield from at_places(told, places))))

    for group, receive in zip(groups, gather(len(groups), answer), strict=True):
        event = FetchOffsets(call, group.group_id, None, request.require_stable, call.client)
        asked.append(Asked(event, services.runtime.partition_of(group.group_id).stays()))
        yield from _fetch_group(
            services, call, group.group_id, group.topics, receive, require_stable=request.require_stable, member=group
        )
        yield


def _fetch_group(
    services: Services,
    call: Call,
    group_id: str,
    asked: Collection[Any] | None,
    receive: Callable[[OffsetFetchResponse.OffsetFetchResponseGroup], None],
    *,
    require_stable: bool,
    member: OffsetFetchRequest.OffsetFetchRequestGroup | None = None,
) -> Steps:
    """Fetch the offsets of one group. asked: topics with partition indexes, None for all.

    member: names the member of the consumer protocol that asks; None from outside.
    """
    who = (None, -1) if member is None else (member.member_id, member.member_epoch)
    partition = services.runtime.partition_of(group_id)
    all_of_it = FetchOffsets(call.reply(receive), group_id, None, require_stable, call.client, *who)
    if not may(services, call, Operation.DESCRIBE, Resource.GROUP, group_id):
        receive(refuse(all_of_it, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    topics: Iterable[tuple[str, list[int]]] | None
    hidden: list[Hidden] = []
    is_checked = not services.access.is_open or call.api_version >= TOPIC_IDS_SINCE
    if asked is None:
        topics = _topics_of_large_group(partition, group_id)
    else:
        if is_checked:
            asked, hidden = yield from _divide(services, call, asked)
        topics = ((topic.name, topic.partition_indexes) for topic in asked)
    if is_checked:
        receive = _shown(services, call, asked, hidden, receive)
    if topics is None:
        all_of_it.request = call.reply(receive)
        partition.submit(group_id, all_of_it)
        return

    some: list[Piece] = []
    for piece in pieces(topics):
        if piece.topics:
            some.append(piece)
        yield
    if not some:
        some.append(Piece([], goes_on=False))

    def put_together(bodies: list[OffsetFetchResponse.OffsetFetchResponseGroup]) -> None:
        call.work(_receive_pieces(some, receive, bodies))

    received = gather(len(some), put_together)
    for piece, take in zip(some, received, strict=True):
        named = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in piece.topics
        ]
        partition.submit(group_id, FetchOffsets(call.reply(take), group_id, named, require_stable, call.client, *who))
        yield


Hidden = tuple[Any, ErrorCode]
"""A topic that a client asked for and doesn't get, and why."""


def _divide(
    services: Services, call: Call, asked: Collection[Any]
) -> Generator[None, None, tuple[list[Any], list[Hidden]]]:
    """The topics that the client may describe, and the others."""
    shown: list[Any] = []
    hidden: list[Hidden] = []
    for topic in asked:
        error = _topic_error(services, call, topic, Operation.DESCRIBE)
        if error:
            hidden.append((topic, error))
        else:
            shown.append(topic)
        yield
    return shown, hidden


def _shown(
    services: Services,
    call: Call,
    asked: Collection[Any] | None,
    hidden: list[Hidden],
    receive: Callable[[OffsetFetchResponse.OffsetFetchResponseGroup], None],
) -> Callable[[OffsetFetchResponse.OffsetFetchResponseGroup], None]:
    """Takes an answer, and passes on what the client may see. asked: the topics that it may describe; None for all."""

    def take(body: OffsetFetchResponse.OffsetFetchResponseGroup) -> None:
        call.work(show(body))

    def show(body: OffsetFetchResponse.OffsetFetchResponseGroup) -> Steps:
        if asked is None:
            body.topics = yield from _described(services, call, body.topics)
        elif call.api_version >= TOPIC_IDS_SINCE:
            ids: dict[str, UUID] = {}
            for topic in asked:
                ids[topic.name] = topic.topic_id
                yield
            for answered in body.topics:
                answered.topic_id = ids[answered.name]
                yield
        for topic, error in () if body.error_code else hidden:
            refused = OffsetFetchResponse.OffsetFetchResponseTopics(name=topic.name, partitions=[])
            if call.api_version >= TOPIC_IDS_SINCE:  # a request for one group has topics without the field
                refused.topic_id = topic.topic_id
            for index in topic.partition_indexes:
                refused.partitions.append(
                    OffsetFetchResponse.OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error
                    )
                )
                yield
            body.topics.append(refused)
            yield
        receive(body)

    return take


def _described(services: Services, call: Call, topics: list[Any]) -> Generator[None, None, list[Any]]:
    """Of all topics with offsets, those that the client may describe. A topic without an id has none to answer with."""
    found = []
    for topic in topics:
        known = services.discovery.topic(topic.name) if call.api_version >= TOPIC_IDS_SINCE else None
        if known is not None:
            topic.topic_id = known.topic_id
        has_name = known is not None or call.api_version < TOPIC_IDS_SINCE
        if has_name and may(services, call, Operation.DESCRIBE, Resource.TOPIC, topic.name):
            found.append(topic)
        yield
    return found


def _topics_of_large_group(partition: Partition, group_id: str) -> Iterator[tuple[str, list[int]]] | None:
    """The topic partitions with offsets of a group; None if they fit into one event."""
    group = partition.coordinator.groups.get(group_id)
    if group is None:
        return None
    stored = group.offsets
    if len(stored) <= AT_ONCE and sum(map(len, stored.values())) <= AT_ONCE:
        return None
    return ((topic, list(stored.get(topic, ()))) for topic in list(stored))


def _receive_pieces(
    some: list[Piece],
    receive: Callable[[OffsetFetchResponse.OffsetFetchResponseGroup], None],
    bodies: list[OffsetFetchResponse.OffsetFetchResponseGroup],
) -> Steps:
    """Put the answers of pieces together. An error of one is the group's."""
    whole, *others = bodies
    for piece, body in zip(some[1:], others, strict=True):
        if whole.error_code:
            break
        if body.error_code:
            whole = body
        else:
            _append(whole.topics, body.topics, goes_on=piece.goes_on)
        yield
    receive(whole)


def _append(topics: list[Any], more: list[Any], *, goes_on: bool) -> None:
    """Add the topics of the next piece to those of an answer."""
    if goes_on:
        topics[-1].partitions.extend(more[0].partitions)
    topics.extend(more[1:] if goes_on else more)


def _answer_one_group(
    call: Call, request: OffsetFetchRequest, group: OffsetFetchResponse.OffsetFetchResponseGroup
) -> Steps:
    """The answer of v0 to v7. Before v2 the group has no error field: each topic partition carries its error."""
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = []
    if group.error_code and call.api_version < 2:
        for asked in request.topics or []:
            refused = OffsetFetchResponse.OffsetFetchResponseTopic(name=asked.name, partitions=[])
            topics.append(refused)
            for index in asked.partition_indexes:
                refused.partitions.append(
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=NO_OFFSET,
                        metadata="",
                        error_code=group.error_code,
                    )
                )
                yield
            yield
        call.answer(OffsetFetchResponse(topics=topics))
        return
    for topic in group.topics:
        answered = OffsetFetchResponse.OffsetFetchResponseTopic(name=topic.name, partitions=[])
        topics.append(answered)
        for each in topic.partitions:
            answered.partitions.append(
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
            )
            yield
        yield
    call.answer(OffsetFetchResponse(error_code=group.error_code, topics=topics))


def delete_offsets(services: Services, call: Call, request: OffsetDeleteRequest) -> Steps:
    """OffsetDelete (KIP-496). The coordinator gets the topic partitions that exist; the others get their error here."""
    call.is_kept = True
    if not may(services, call, Operation.DELETE, Resource.GROUP, request.group_id):
        call.answer(OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    known: list[tuple[str, list[OffsetDeleteRequest.OffsetDeleteRequestPartition]]] = []
    unknown: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        present: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = []
        absent: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = []
        is_allowed = may(services, call, Operation.READ, Resource.TOPIC, topic.name)
        why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for each in topic.partitions:
            if is_allowed and services.discovery.has_partition(topic.name, each.partition_index):
                present.append(each)
            else:
                absent.append(_deleted_partition(each.partition_index, why))
            yield
        if present:
            known.append((topic.name, present))
        if absent:
            unknown.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=absent))
        yield

    some: list[Piece] = []
    for piece in pieces(known, DELETED_AT_ONCE):
        if piece.topics:
            some.append(piece)
        yield
    if not some:
        some.append(Piece([], goes_on=False))

    def ask(piece: Piece, reply: Reply) -> None:
        topics = [
            OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=partitions)
            for name, partitions in piece.topics
        ]
        body = OffsetDeleteRequest(group_id=request.group_id, topics=topics)
        services.runtime.submit(request.group_id, DeleteOffsets(reply, body, call.client))

    def answer(bodies: list[OffsetDeleteResponse]) -> None:
        call.work(_answer_delete(call, some, bodies, unknown))

    # One after the other: each makes a note of all that it removes.
    OneByOne(call, some, ask, answer).go_on()


def _answer_delete(
    call: Call,
    some: list[Piece],
    bodies: list[OffsetDeleteResponse],
    unknown: list[OffsetDeleteResponse.OffsetDeleteResponseTopic],
) -> Steps:
    """Put the answers of pieces together. An error of the whole request has no topics."""
    whole = bodies[0]
    for piece, body in zip(some[1:], bodies[1:], strict=True):
        if whole.error_code:
            break
        if body.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            # The group went with its last offset, in an earlier piece. There is nothing to delete any more.
            body.topics = [
                OffsetDeleteResponse.OffsetDeleteResponseTopic(
                    name=name,
                    partitions=[_deleted_partition(each.partition_index, ErrorCode.NONE) for each in partitions],
                )
                for name, partitions in piece.topics
            ]
        elif body.error_code:
            whole = body
            break
        _append(whole.topics, body.topics, goes_on=piece.goes_on)
        yield
    if not whole.error_code:
        yield from _add(whole.topics, unknown)
    call.answer(whole)


def _deleted_partition(index: int, error: ErrorCode) -> OffsetDeleteResponse.OffsetDeleteResponsePartition:
    return OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=error)


def describe_groups(services: Services, call: Call, request: DescribeGroupsRequest) -> Steps:
    """DescribeGroups. A group is described once, however often it is named."""
    shows_operations = call.api_version >= 3 and request.include_authorized_operations
    group_ids, places = yield from each_once(request.groups)
    asked: list[Asked] = []

    def answer(groups: list[DescribeGroupsResponse.DescribedGroup]) -> None:
        call.work(put_together(groups))

    def put_together(groups: list[DescribeGroupsResponse.DescribedGroup]) -> Steps:
        told = yield from still_true(asked, groups)
        call.answer(DescribeGroupsResponse(groups=(yield from at_places(told, places))))

    def take(
        receive: Callable[[DescribeGroupsResponse.DescribedGroup], None], group: DescribeGroupsResponse.DescribedGroup
    ) -> None:
        if shows_operations and not group.error_code:
            group.authorized_operations = (
                operations_on_group(services, call, group.group_id)
                if call.api_version >= DESCRIBE_OF_KAFKA_4
                else operations(services, call, Resource.GROUP, group.group_id)
            )
        receive(group)

    for group_id, receive in zip(group_ids, gather(len(group_ids), answer), strict=True):
        reply = call.reply(partial(take, receive))
        event = DescribeGroup(reply, call.api_version, group_id, request.include_waiting, call.client)
        asked.append(Asked(event, services.runtime.partition_of(group_id).stays()))
        if may(services, call, Operation.DESCRIBE, Resource.GROUP, group_id):
            services.runtime.submit(group_id, event)
        else:
            reply.deliver(refuse(event, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        yield


def delete_groups(services: Services, call: Call, request: DeleteGroupsRequest) -> Steps:
    """DeleteGroups: a group that is named twice is deleted once."""
    call.is_kept = True
    group_ids: dict[str, None] = {}
    for group_id in request.groups_names:
        group_ids[group_id] = None
        yield

    def answer(results: list[DeleteGroupsResponse.DeletableGroupResult]) -> None:
        call.answer(DeleteGroupsResponse(results=results))

    def take(
        group_id: str,
        receive: Callable[[DeleteGroupsResponse.DeletableGroupResult], None],
        result: DeleteGroupsResponse.DeletableGroupResult | Remainder,
    ) -> None:
        if isinstance(result, Remainder):
            call.work_later(_erase_offsets(services, call, group_id, result, receive))
        else:
            receive(result)

    for group_id, receive in zip(group_ids, gather(len(group_ids), answer), strict=True):
        reply = call.reply(partial(take, group_id, receive))
        event = DeleteGroup(reply, group_id, call.client)
        if may(services, call, Operation.DELETE, Resource.GROUP, group_id):
            services.runtime.submit(group_id, event)
        else:
            receive(refuse(event, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        yield


def _erase_offsets(
    services: Services,
    call: Call,
    group_id: str,
    remainder: Remainder,
    receive: Callable[[DeleteGroupsResponse.DeletableGroupResult], None],
) -> Steps:
    """Erase the offsets of a deleted group, a piece at a time. receive: gets the first error, or a result without."""
    left = ((topic, index, each) for topic, held in remainder.offsets.items() for index, each in held.items())
    size = sum(map(len, remainder.offsets.values()))

    def done(results: list[DeleteGroupsResponse.DeletableGroupResult]) -> None:
        receive(next((result for result in results if result.error_code), results[0]))

    for take in gather(math.ceil(size / REMOVED_AT_ONCE), done):
        some = list(islice(left, REMOVED_AT_ONCE))
        services.runtime.submit(group_id, EraseOffsets(call.reply(take), group_id, some, call.client))
        yield


def list_groups(services: Services, call: Call, request: ListGroupsRequest) -> Steps:
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
        partitions = services.runtime.partitions
        if any(each.standing is Standing.LOADING for each in partitions):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if all(each.is_sure for each in services.runtime.served()):
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    sees_all = may(services, call, Operation.DESCRIBE, Resource.CLUSTER, is_logged=False)

    def is_seen(group_id: str) -> bool:
        return may(services, call, Operation.DESCRIBE, Resource.GROUP, group_id, is_logged=False)

    before = trouble()
    some: list[tuple[Partition, list[str] | None]] = []
    # Tenure's own commands ask so whether a group that they don't know is one of Kafka's other kinds.
    lets_none_pass = bool(types) and types.isdisjoint(KINDS)
    for partition in () if lets_none_pass else services.runtime.served():
        groups = partition.coordinator.groups
        if len(groups) <= AT_ONCE:
            some.append((partition, None))
        else:
            some += [(partition, group_ids) for group_ids in parts(list(groups), AT_ONCE)]

    def answer(listed: list[list[ListGroupsResponse.ListedGroup] | None]) -> None:
        call.work(put_together(listed))

    def put_together(listed: list[list[ListGroupsResponse.ListedGroup] | None]) -> Steps:
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

    for (partition, group_ids), receive in zip(some, gather(len(some), answer), strict=True):
        event = ListGroups(call.reply(receive), list(states), list(types), call.client, group_ids)
        partition.submit(None, event)
        yield
