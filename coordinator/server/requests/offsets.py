"""Requests about committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

A handler decides what Kafka decides before its coordinator sees a request: which topic partitions exist, which of them
the client may see, which fields a version has. The coordinator decides the rest.

The coordinator handles an event at once, so an event is never large. An OffsetFetch or OffsetDelete that names much
becomes several events. An OffsetCommit must not be divided: its offsets and records are prepared in steps, before the
event.

House rule: no state. Source: Kafka's KafkaApis and GroupCoordinatorAdapter, release 3.9 in KRaft mode.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.group import offsets
from coordinator.group.any_group import Prepared
from coordinator.group.events import CommitOffsets, CommitPrepared, DeleteOffsets, FetchOffsets
from coordinator.security.acls import Kind as Resource
from coordinator.security.acls import Operation
from coordinator.server.requests.many import AT_ONCE, Asked, Piece, append, at_places, pieces, still_true
from coordinator.server.requests.rights import may
from coordinator.server.runtime.partition import Partition
from coordinator.server.runtime.replies import Reply
from coordinator.server.wire.call import Answer, Answers, Call, Steps
from coordinator.server.wire.repeated_commits import TOPIC_IDS_SINCE
from protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from schemas.errors import ErrorCode

NO_OFFSET = -1

FETCHED_AT_ONCE = AT_ONCE // 2
"""Topics and their partitions whose offsets one event fetches, at most: their answers are put together behind it."""

DELETED_AT_ONCE = 100
"""Committed offsets to delete in one event, at most. Each costs a tombstone and a place in a log line, so there are
fewer.
"""


class _Refused(NamedTuple):
    """Partitions of a topic whose offsets the coordinator doesn't get, and why."""

    topic: OffsetCommitRequest.OffsetCommitRequestTopic
    indexes: list[int]
    error: ErrorCode


def commit_offsets(call: Call, request: OffsetCommitRequest) -> Steps | None:
    """OffsetCommit. The coordinator gets the topic partitions that exist; the others get their error here.

    From version 10 on, clients name topics by their ids, and the coordinator gets the names.
    Version 0 is for ZooKeeper. Without one, Kafka answers UNSUPPORTED_VERSION if any of the topic partitions exists.
    """
    if not may(call, Operation.READ, Resource.GROUP, request.group_id):
        return _answer_commit(call, request.topics, [], ErrorCode.GROUP_AUTHORIZATION_FAILED, ())
    if call.in_steps or len(request.topics) > AT_ONCE or call.api_version == 0:
        return _commit_in_steps(call, request, None)
    has_partition = call.services.discovery.has_partition
    errors: list[ErrorCode] = []
    all_exist = bool(request.topics)
    for topic in request.topics:
        error = _topic_error(call, topic, Operation.READ)
        errors.append(error)
        all_exist = all_exist and not error and bool(topic.partitions)
        for each in topic.partitions:
            all_exist = all_exist and has_partition(topic.name, each.partition_index)
    if not all_exist:
        return _commit_in_steps(call, request, errors)
    call.services.runtime.submit(request.group_id, CommitOffsets(call, call.api_version, call.client, request))
    return None


def _topic_error(call: Call, topic: Any, operation: Operation) -> ErrorCode:
    """The error of a topic in an OffsetCommit or OffsetFetch; NONE if the client may do this to it.

    A topic that the request names by its id gets its name.
    """
    if call.api_version >= TOPIC_IDS_SINCE:
        found = call.services.discovery.topic_by_id(topic.topic_id)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        topic.name = found.name
    is_allowed = may(call, operation, Resource.TOPIC, topic.name)
    return ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _commit_in_steps(call: Call, request: OffsetCommitRequest, errors: Sequence[ErrorCode] | None) -> Steps:
    """As `commit_offsets`, for many topic partitions, or where not all exist. errors: of the topics, if known."""
    call.is_kept = True
    has_partition = call.services.discovery.has_partition
    known: list[OffsetCommitRequest.OffsetCommitRequestTopic] = []
    unknown: list[_Refused] = []
    for place, topic in enumerate(request.topics):
        present: list[OffsetCommitRequest.OffsetCommitRequestPartition] = []
        absent: list[int] = []
        error = _topic_error(call, topic, Operation.READ) if errors is None else errors[place]
        for each in topic.partitions:
            if not error and has_partition(topic.name, each.partition_index):
                present.append(each)
            else:
                absent.append(each.partition_index)
            yield
        if present:
            request_topic = OffsetCommitRequest.OffsetCommitRequestTopic
            known.append(request_topic(name=topic.name, topic_id=topic.topic_id, partitions=present))
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
    prepared: Prepared = yield from offsets.prepare(request, call.services.config.group, call.services.clock.wall_ms())

    answer = Answer()
    event = CommitPrepared(answer, call.client, request, prepared, call.api_version)
    call.services.runtime.submit(request.group_id, event)
    yield answer
    error = answer.found
    yield from _answer_commit(call, known, unknown, error, () if error else prepared.too_large)


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
        answered = by_name[topic.name, topic.topic_id] = _committed(topic)
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
            found = _committed(topic)
            topics.append(found)
        for index in indexes:
            found.partitions.append(_committed_partition(index, why))
            yield
        yield
    call.answer(OffsetCommitResponse(topics=topics))


def _committed(topic: Any) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    """A topic's answer, without its partitions."""
    return OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])


def _committed_partition(index: int, error: ErrorCode) -> OffsetCommitResponse.OffsetCommitResponsePartition:
    return OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=index, error_code=error)


def _add(topics: list[Any], more: list[Any]) -> Steps:
    """Add topics to those of a response; a topic that is in both gets its partitions together."""
    by_name: dict[Any, Any] = {}
    for topic in topics:
        by_name[topic.name] = topic
        yield
    for topic in more:
        if topic.name in by_name:
            by_name[topic.name].partitions.extend(topic.partitions)
        else:
            topics.append(topic)
        yield


def fetch_offsets(call: Call, request: OffsetFetchRequest) -> Steps:
    """OffsetFetch: one group up to v7, any number from v8 on. From v2 on, null topics mean all topics.

    From v10 on, clients name topics by their ids, and the coordinator gets the names.
    """
    if call.api_version == 0:
        group = OffsetFetchResponse.OffsetFetchResponseGroup(error_code=ErrorCode.UNSUPPORTED_VERSION)
        yield from _answer_one_group(call, request, group)
        return
    if call.api_version >= 8:
        yield from _fetch_groups(call, request)
        return

    answer = Answer()
    yield from _fetch_group(call, request.group_id, request.topics, answer, require_stable=request.require_stable)
    yield answer
    group = answer.found
    yield from _answer_one_group(call, request, group)


def _fetch_groups(call: Call, request: OffsetFetchRequest) -> Steps:
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

    answers = Answers(len(groups))
    for group, reply in zip(groups, answers, strict=True):
        event = FetchOffsets(call, group.group_id, None, request.require_stable, call.client)
        asked.append(Asked.now(event, call.services.runtime.partition_of(group.group_id)))
        steps = _fetch_group(
            call, group.group_id, group.topics, reply, require_stable=request.require_stable, member=group
        )
        call.work(steps)
        yield
    call.on_closed = answers.let_go  # else this request and its answers would stay until the collector looks
    yield answers
    call.on_closed = None
    told = yield from still_true(asked, answers.found)
    call.answer(OffsetFetchResponse(groups=(yield from at_places(told, places))))


def _fetch_group(
    call: Call,
    group_id: str,
    asked: Collection[Any] | None,
    reply: Reply,
    *,
    require_stable: bool,
    member: OffsetFetchRequest.OffsetFetchRequestGroup | None = None,
) -> Steps:
    """Fetch the offsets of one group. asked: topics with partition indexes, None for all.

    member: names the member of the consumer protocol that asks; None from outside.
    """
    who = (None, -1) if member is None else (member.member_id, member.member_epoch)
    partition = call.services.runtime.partition_of(group_id)
    if not may(call, Operation.DESCRIBE, Resource.GROUP, group_id):
        event = FetchOffsets(call, group_id, None, require_stable, call.client)
        reply.deliver(event.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    topics: Iterable[tuple[str, list[int]]] | None
    hidden: list[Hidden] = []
    is_checked = not call.services.access.is_open or call.api_version >= TOPIC_IDS_SINCE
    if asked is None:
        topics = _topics_of_large_group(partition, group_id)
    else:
        if is_checked:
            asked, hidden = yield from _divide(call, asked)
        topics = ((topic.name, topic.partition_indexes) for topic in asked)
    some = [ALL] if topics is None else (yield from pieces(topics, FETCHED_AT_ONCE))
    answers = Answers(len(some))
    for piece, answer in zip(some, answers, strict=True):
        named = None
        if piece is not ALL:
            named = [
                OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in piece.topics
            ]
        partition.submit(group_id, FetchOffsets(answer, group_id, named, require_stable, call.client, *who))
        yield
    yield answers
    whole, *others = answers.found
    for piece, body in zip(some[1:], others, strict=True):
        if whole.error_code:
            break
        if body.error_code:  # an error of one is the group's
            whole = body
        else:
            append(whole.topics, body.topics, goes_on=piece.goes_on)
        yield
    if is_checked:
        yield from _show(call, asked, hidden, whole)
    reply.deliver(whole)


Hidden = tuple[Any, ErrorCode]
"""A topic that a client asked for and doesn't get, and why."""


ALL = Piece([], goes_on=False)
"""Stands for all topics of a group."""


def _divide(call: Call, asked: Collection[Any]) -> Generator[None, None, tuple[list[Any], list[Hidden]]]:
    """The topics that the client may describe, and the others."""
    shown: list[Any] = []
    hidden: list[Hidden] = []
    for topic in asked:
        error = _topic_error(call, topic, Operation.DESCRIBE)
        if error:
            hidden.append((topic, error))
        else:
            shown.append(topic)
        yield
    return shown, hidden


def _show(
    call: Call, asked: Collection[Any] | None, hidden: list[Hidden], body: OffsetFetchResponse.OffsetFetchResponseGroup
) -> Steps:
    """Leave in an answer what the client may see. asked: the topics that it may describe; None for all."""
    if asked is None:
        body.topics = yield from _described(call, body.topics)
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


def _described(call: Call, topics: list[Any]) -> Generator[None, None, list[Any]]:
    """Of all topics with offsets, those that the client may describe. A topic without an id has none to answer with."""
    found = []
    for topic in topics:
        known = call.services.discovery.topic(topic.name) if call.api_version >= TOPIC_IDS_SINCE else None
        if known is not None:
            topic.topic_id = known.topic_id
        has_name = known is not None or call.api_version < TOPIC_IDS_SINCE
        if has_name and may(call, Operation.DESCRIBE, Resource.TOPIC, topic.name):
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


def _answer_one_group(
    call: Call, request: OffsetFetchRequest, group: OffsetFetchResponse.OffsetFetchResponseGroup
) -> Steps:
    """The answer of v0 to v7. Before v2 the group has no error field: each topic partition carries its error."""
    if not group.error_code or call.api_version >= 2:
        topics: Any = group.topics  # of another class, whose fields have the same names
        call.answer(OffsetFetchResponse(error_code=group.error_code, topics=topics))
        return
    body = OffsetFetchResponse()
    for asked in request.topics or []:
        refused = OffsetFetchResponse.OffsetFetchResponseTopic(name=asked.name, partitions=[])
        body.topics.append(refused)
        for index in asked.partition_indexes:
            refused.partitions.append(
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=group.error_code
                )
            )
            yield
        yield
    call.answer(body)


def delete_offsets(call: Call, request: OffsetDeleteRequest) -> Steps:
    """OffsetDelete (KIP-496). The coordinator gets the topic partitions that exist; the others get their error here."""
    call.is_kept = True
    if not may(call, Operation.DELETE, Resource.GROUP, request.group_id):
        call.answer(OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    known: list[tuple[str, list[OffsetDeleteRequest.OffsetDeleteRequestPartition]]] = []
    unknown: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        present: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = []
        absent: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = []
        is_allowed = may(call, Operation.READ, Resource.TOPIC, topic.name)
        why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for each in topic.partitions:
            if is_allowed and call.services.discovery.has_partition(topic.name, each.partition_index):
                present.append(each)
            else:
                absent.append(_deleted_partition(each.partition_index, why))
            yield
        if present:
            known.append((topic.name, present))
        if absent:
            unknown.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=absent))
        yield

    some = yield from pieces(known, DELETED_AT_ONCE)
    bodies: list[OffsetDeleteResponse] = []
    for piece in some:  # one after the other: each makes a note of all that it removes
        topics = [
            OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=partitions)
            for name, partitions in piece.topics
        ]
        answer = Answer()
        event = DeleteOffsets(answer, OffsetDeleteRequest(group_id=request.group_id, topics=topics), call.client)
        call.services.runtime.submit(request.group_id, event)
        yield answer
        bodies.append(answer.found)
        yield
    whole = bodies[0]  # an error of the whole request has no topics
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
        append(whole.topics, body.topics, goes_on=piece.goes_on)
        yield
    if not whole.error_code:
        yield from _add(whole.topics, unknown)
    call.answer(whole)


def _deleted_partition(index: int, error: ErrorCode) -> OffsetDeleteResponse.OffsetDeleteResponsePartition:
    return OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=error)
