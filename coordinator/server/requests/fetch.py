"""Fetch: records from given offsets on.

There are no fetch sessions (KIP-227): the answer to a full fetch has session id 0, as from a Kafka broker whose cache
of sessions is full, and clients go on with full fetches.

House rule: no state. Source: Kafka's KafkaApis, ReplicaManager and FetchSession, release 3.9.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from coordinator.log.segments.segment import ENGINES_TOPICS
from coordinator.log.segments.view import NO_OFFSET, Ends, View
from coordinator.log.topics.partition import TopicPartition as LogPartition
from coordinator.security.acls import Kind, Operation
from coordinator.server.nodes.topic_data import Budget, Key, TopicData
from coordinator.server.nodes.topics import INTERNAL_TOPICS
from coordinator.server.requests.records import (
    BY_ID_SINCE,
    PLAIN_MAX,
    READ_COMMITTED,
    Look,
    begun,
    code_of,
    note_engines_log,
    partition_of,
    topic_of,
)
from coordinator.server.requests.rights import may
from coordinator.server.wire.call import Answer, Call, Steps
from protocol.messages import FetchResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import FetchRequest

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
"""The session epochs of a full fetch: the first asks for a session, the second for none."""

WATCHED_MAX = 2_000
"""Topic partitions of a Fetch that end its wait. With more, news of the others waits for max_wait_ms."""


ABSENT = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""The errors of topic partitions that don't exist."""


@dataclass(slots=True)
class _Wanted:
    """A topic partition to read. ends: where its log starts and ends; None if that isn't known yet."""

    topic_partition: LogPartition
    offset: int
    size_max: int
    answer: FetchResponse.PartitionData
    only_committed: bool
    ends: Ends | None = None

    @property
    def readable(self) -> int:
        """The offset up to which its reader may read."""
        assert self.ends is not None
        return self.ends.stable if self.only_committed else self.ends.end


def fetch(call: Call, request: FetchRequest) -> Steps | None:
    """Fetch: records from given offsets on. Waits for min_bytes of them, at most max_wait_ms."""
    return begun(call, _fetch(call, request), (topic.partitions for topic in request.topics))


def _fetch(call: Call, request: FetchRequest) -> Steps:
    if request.session_epoch not in {INITIAL_EPOCH, FINAL_EPOCH}:
        call.answer(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session_id=NO_SESSION, responses=[]))
        return
    wanted: list[_Wanted] = []
    keys: list[Key] = []
    refused = 0
    responses = []
    by_id = call.api_version >= BY_ID_SINCE
    for topic in request.topics:
        known, problem = topic_of(call, Operation.READ, topic.topic_id if by_id else topic.topic)
        answers = []
        for asked in topic.partitions:
            yield
            found = problem or partition_of(call, known, asked.partition, asked.current_leader_epoch)
            if isinstance(found, ErrorCode):
                answers.append(_unread(asked.partition, found, request.isolation_level))
                refused += found not in ABSENT
                continue
            answer = _unread(asked.partition, ErrorCode.NONE, request.isolation_level)
            answers.append(answer)
            # A cluster may have taken over the offsets of a broker: it has no records at them.
            is_empty = not call.services.discovery.keeps_records and found.topic not in INTERNAL_TOPICS
            offset = 0 if is_empty else asked.fetch_offset
            only_committed = request.isolation_level == READ_COMMITTED
            wanted.append(_Wanted(found, offset, asked.partition_max_bytes, answer, only_committed))
            if len(keys) < WATCHED_MAX:
                keys.append(found.key)
        responses.append(
            FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers)
        )
        yield
    body = FetchResponse(session_id=NO_SESSION, responses=responses)
    if not wanted:
        call.answer(body)
        return
    # Kafka waits only if no topic partition that it knows has an error.
    yield from _answered(call, request, body, wanted, keys, may_wait=not refused and request.max_wait_ms > 0)


def _answered(
    call: Call, request: FetchRequest, body: FetchResponse, wanted: list[_Wanted], keys: list[Key], *, may_wait: bool
) -> Steps:
    """Read, and answer. If there are too few records, wait for more and read again.

    The logs' thread reads, unless the loop knows that there is nothing new. keys: of the topic partitions that end a
    wait.
    """
    data, discovery, waits = call.services.data, call.services.discovery, call.services.waits
    is_large = len(wanted) > PLAIN_MAX
    max_bytes = min(request.max_bytes, call.services.config.fetch_max_bytes)
    quota_bytes = None if call.meter is None else call.meter.fetch_bytes_max()
    if quota_bytes is not None:
        max_bytes = min(max_bytes, quota_bytes)
    min_bytes = min(request.min_bytes, max_bytes)
    until_ms = waits.ms() + request.max_wait_ms
    has_waited = False
    while True:
        looked_at, wanted = wanted, []
        in_journals: set[int] = set()
        of_engines: list[Key] = []
        for each in looked_at:
            if _is_present(call, each, has_waited=has_waited):
                wanted.append(each)
                note_engines_log(in_journals, each.topic_partition)
                if each.topic_partition.topic in ENGINES_TOPICS:
                    of_engines.append(each.topic_partition.key)
            else:
                may_wait = False
            yield
        if not (is_large and wanted) and _are_at_the_end(data, wanted):
            if not may_wait or min_bytes <= 0:
                call.answer(body)
                return
        else:
            writes = data.engine_writes(of_engines)
            least = min_bytes if may_wait else 0
            call.is_kept = True  # what was read has to be given back to the budget
            read = partial(_read, wanted=wanted, max_bytes=max_bytes, min_bytes=least, budget=data.budget)
            outcome = Answer()
            data.read(read, in_journals, outcome.deliver)
            yield outcome
            call.is_kept = False
            size = outcome.found
            if isinstance(size, Exception):
                raise size
            if call.is_closed:
                data.budget.give(size or 0)
                return
            is_gone = False
            # A large Fetch leaves this out. If a topic is deleted meanwhile, it learns that when its wait is over.
            for each in () if is_large else wanted:
                if discovery.topic_by_id(each.topic_partition.topic_id) is None:
                    is_gone = True
                elif each.ends is not None and each.topic_partition.topic not in ENGINES_TOPICS:
                    data.remember_ends(each.topic_partition.key, each.ends)
            if size is not None:
                call.on_sent = partial(data.budget.give, size)
                if call.meter is not None:
                    call.meter.fetched = size
                call.answer(body)
                return
            if is_gone or data.engine_writes(of_engines) != writes:
                # A topic that was deleted before this call waits for it would end no wait.
                may_wait = not is_gone and waits.ms() < until_ms
                continue
        has_waited = True  # rules that change meanwhile count; Kafka asks once
        may_wait = yield from _news(call, keys, until_ms)
        if call.is_closed:
            return


def _news(call: Call, keys: list[Key], until_ms: int) -> Generator[Answer, None, bool]:
    """Wait until there may be more in one of these topic partitions; False if the time is over before that."""
    news = Answer()
    call.on_wait = call.on_closed = partial(news.deliver, False)
    call.services.waits.arm(call, until_ms)
    call.services.data.wait(call, keys, partial(news.deliver, True))
    try:
        yield news
    finally:
        call.on_wait = call.on_closed = None
        call.services.waits.cancel(call)
        call.services.data.forget(call, keys)
    return bool(news.found)


def _is_present(call: Call, wanted: _Wanted, *, has_waited: bool) -> bool:
    """Whether a topic is still there and the client may read it; else its answer gets the error."""
    answer, topic_partition = wanted.answer, wanted.topic_partition
    if call.services.discovery.topic_by_id(topic_partition.topic_id) is None:
        by_id = call.api_version >= BY_ID_SINCE
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return False
    if has_waited and not may(call, Operation.READ, Kind.TOPIC, topic_partition.topic):
        answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = NO_OFFSET
        return False
    return True


def _are_at_the_end(data: TopicData, wanted: list[_Wanted]) -> bool:
    """Whether every offset is the end of its log, as far as the loop knows; then the answers get these ends.

    A large Fetch can't know: an append could come in between two steps.
    """
    for each in wanted:
        each.ends = data.ends(each.topic_partition.key)
        if each.ends is None or not each.readable <= each.offset <= each.ends.end:
            return False
    for each in wanted:
        _fill_ends(each)
    return True


def _fill_ends(wanted: _Wanted) -> None:
    assert wanted.ends is not None
    wanted.answer.log_start_offset, wanted.answer.high_watermark, wanted.answer.last_stable_offset = wanted.ends


def _read(view_of: Look, wanted: list[_Wanted], max_bytes: int, min_bytes: int, budget: Budget) -> int | None:
    """Read into the answers; returns how many bytes of records they have, which it took from the budget.

    Returns None, and reads nothing, if there are fewer than min_bytes and no error. The first batch of the answer is
    whole, however large: a consumer could not get past it otherwise (KIP-74).
    """
    found: list[tuple[_Wanted, View, int]] = []
    available, refused = 0, False
    for each in wanted:
        each.ends = None
        try:
            log = view_of(each.topic_partition)
            each.ends = log.ends()
            asked = min(max(each.size_max, 1), min_bytes - available)
            readable = each.readable
            available += log.available(each.offset, asked, readable)
        except Exception as problem:  # noqa: BLE001 - code_of sorts them
            each.answer.error_code, each.answer.aborted_transactions = code_of(problem), None
            refused = True
        else:
            found.append((each, log, readable))
    if available < min_bytes and not refused:
        return None
    allowed = budget.take(max_bytes)
    left, is_first = allowed, True
    for each, log, readable in found:
        answer = each.answer
        _fill_ends(each)
        if left > 0 or is_first:
            try:
                size_max = min(each.size_max, max(left, 0))
                data = log.read_from(each.offset, size_max, whole=is_first, before=readable)
            except Exception as problem:  # noqa: BLE001 - code_of sorts them
                answer.error_code = code_of(problem)
                continue
            answer.records = data
            if each.only_committed:
                answer.aborted_transactions = [
                    FetchResponse.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                    for aborted in log.aborted_within(each.offset, len(data))
                ]
            left -= len(data)
            is_first = is_first and not data
    budget.give(left)
    return allowed - left


def _unread(partition: int, error: ErrorCode, isolation_level: int) -> FetchResponse.PartitionData:
    """The answer before anything is read. It has zero bytes of records, because some clients don't take null."""
    # Kafka sends an empty list in place of null for a topic or partition that it doesn't know.
    absent = error in ABSENT
    return FetchResponse.PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=NO_OFFSET,
        last_stable_offset=NO_OFFSET,
        log_start_offset=NO_OFFSET,
        aborted_transactions=[] if isolation_level == READ_COMMITTED or absent else None,
        records=b"",
    )
