"""Fetch: records from given offsets on.

There are no fetch sessions (KIP-227): the answer to a full fetch has session id 0, as from a Kafka broker whose cache
of sessions is full, and clients go on with full fetches.

House rule: no state. Source: Kafka's KafkaApis, ReplicaManager and FetchSession, release 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from coordinator.log.segments.segment import ENGINES_TOPICS
from coordinator.log.segments.view import NO_OFFSET, Ends, View
from coordinator.log.topics.partition import TopicPartition as LogPartition
from coordinator.security.acls import Kind, Operation
from coordinator.server.nodes.topic_data import Budget, Key
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
from coordinator.server.wire.call import Call, Steps
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
    keys: list[tuple[UUID, int]] = []
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
    may_wait = not refused and request.max_wait_ms > 0
    _Fetch(call, request, body, wanted, keys).look(may_wait=may_wait)


class _Fetch:
    """A Fetch under way: it reads; if there are too few records, it waits for more and reads again.

    keys: of the topic partitions that end its wait.
    """

    def __init__(
        self,
        call: Call,
        request: FetchRequest,
        body: FetchResponse,
        wanted: list[_Wanted],
        keys: list[tuple[UUID, int]],
    ) -> None:
        self._services = call.services
        self._call = call
        self._body = body
        self._wanted = wanted
        self._absent = ErrorCode.UNKNOWN_TOPIC_ID if call.api_version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._is_large = len(wanted) > PLAIN_MAX
        self._keys = keys
        self._max_bytes = min(request.max_bytes, call.services.config.fetch_max_bytes)
        quota_bytes = None if call.meter is None else call.meter.fetch_bytes_max()
        if quota_bytes is not None:
            self._max_bytes = min(self._max_bytes, quota_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._until_ms = call.services.waits.ms() + request.max_wait_ms
        self._has_waited = False
        self._in_journals: set[int] = set()
        self._of_engines: list[Key] = []
        self._engine_writes = 0

    def look(self, *, may_wait: bool) -> None:
        """Read on the logs' thread, unless the loop knows that there is nothing new.

        A topic that doesn't exist, or that the client may not read, gets an error.
        """
        steps = self._look(may_wait=may_wait)
        if self._is_large:
            self._call.work(steps)
        else:
            self._call.do(steps)

    def _look(self, *, may_wait: bool) -> Steps:
        present = []
        self._in_journals.clear()
        self._of_engines.clear()
        for each in self._wanted:
            if self._services.discovery.topic_by_id(each.topic_partition.topic_id) is None:
                each.answer.error_code = self._absent
                may_wait = False
            elif self._has_waited and not may(self._call, Operation.READ, Kind.TOPIC, each.topic_partition.topic):
                each.answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                each.answer.high_watermark = each.answer.last_stable_offset = each.answer.log_start_offset = NO_OFFSET
                may_wait = False
            else:
                present.append(each)
                note_engines_log(self._in_journals, each.topic_partition)
                if each.topic_partition.topic in ENGINES_TOPICS:
                    self._of_engines.append(each.topic_partition.key)
            yield
        self._wanted = present
        if self._is_at_the_end():
            if may_wait and self._min_bytes > 0:
                self._wait()
            else:
                self._call.answer(self._body)
            return

        data, wanted = self._services.data, self._wanted
        budget = data.budget

        def read(view_of: Look) -> int | None:
            return _read(view_of, wanted, self._max_bytes, self._min_bytes if may_wait else 0, budget)

        self._engine_writes = data.engine_writes(self._of_engines)
        data.read(read, self._in_journals, self._call.reply(self._looked).deliver)

    def _looked(self, outcome: Any) -> None:
        """Answer, or wait. outcome: how many bytes were read; None: too few; or an Exception."""
        if isinstance(outcome, Exception):
            raise outcome
        data, discovery, call = self._services.data, self._services.discovery, self._call
        if call.is_closed:
            data.budget.give(outcome or 0)
            return
        is_gone = False
        # A large Fetch leaves this out. If a topic is deleted meanwhile, it learns that when its wait is over.
        for each in () if self._is_large else self._wanted:
            if discovery.topic_by_id(each.topic_partition.topic_id) is None:
                is_gone = True
            elif each.ends is not None and each.topic_partition.topic not in ENGINES_TOPICS:
                data.remember_ends(each.topic_partition.key, each.ends)
        if outcome is not None:
            call.on_sent = partial(data.budget.give, outcome)
            if call.meter is not None:
                call.meter.fetched = outcome
            call.answer(self._body)
        elif is_gone:  # the topic was deleted before this call waited for it, so nothing would end the wait
            self.look(may_wait=False)
        elif data.engine_writes(self._of_engines) != self._engine_writes:
            self.look(may_wait=self._services.waits.ms() < self._until_ms)
        else:
            self._wait()

    def _wait(self) -> None:
        self._has_waited = True  # rules that change meanwhile count; Kafka asks once
        call = self._call
        on_time, on_more = call.reply(self._on_time), call.reply(self._on_more)
        call.on_wait, call.on_closed = partial(on_time.deliver, None), self._end_wait
        call.services.waits.arm(call, self._until_ms)
        call.services.data.wait(call, self._keys, partial(on_more.deliver, None))

    def _is_at_the_end(self) -> bool:
        """Whether every offset is the end of its log, as far as the loop knows; then the answers get these ends.

        A large Fetch leaves this out: an append could come in between two steps.
        """
        if self._is_large and self._wanted:
            return False
        for each in self._wanted:
            each.ends = self._services.data.ends(each.topic_partition.key)
            if each.ends is None or not each.readable <= each.offset <= each.ends.end:
                return False
        for each in self._wanted:
            _fill_ends(each)
        return True

    def _end_wait(self) -> None:
        self._call.on_wait = self._call.on_closed = None
        self._services.waits.cancel(self._call)
        self._services.data.forget(self._call, self._keys)

    def _on_time(self, _: None) -> None:
        self._end_wait()
        self.look(may_wait=False)

    def _on_more(self, _: None) -> None:
        self._end_wait()
        self.look(may_wait=True)


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
