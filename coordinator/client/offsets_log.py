"""The events of groups of a cluster that keeps none, such as Apache Kafka: inferred from its `__consumer_offsets`.

    reader = OffsetsReader(client)          # the methods of client.events.EventReader
    for event in reader.read():             # all that the log still tells, in the order of time
        ...
    while True:
        for placed in reader.poll_placed(500):
            ...

The reader is no member of a group and commits nothing. It asks for Metadata, ListOffsets and Fetch: on a server with
ACLs it needs Read and Describe on the topic `__consumer_offsets`. DescribeConfigs on groups is welcome: it says the
session timeouts of groups of the consumer protocol. coordinator.story.inference makes the events. A
record is compared with the one before it, so the reader always reads a partition from its start, and `begin_at` only
leaves events out. For one group it reads one partition.

    a leader that moves, or doesn't answer    the reader looks again (FIND_S), and goes on where it was
    records that are gone                     compaction or retention took them: it goes on with the next one
    a log that was cut                        by an unclean election, or because its folder came from a backup: the
                                              reader reads the partition anew, as what it knows may be of the part that
                                              is gone; events of batches that it had read before don't come again
    a leader that keeps a request waiting     isn't asked again for as long as it took: the others have half of the time
    new partitions, a new topic               are read from their start
    transactions                              a commit shows that its member lives, also if it is aborted

A log that was cut may have grown since, so its end alone doesn't show it. Each Fetch names the epoch of the newest
batch that was read; a leader whose log has another history answers where the two part (KIP-595). A restored folder may
have the same epochs again. So after a leader moved or didn't answer, the reader reads its last record once more, and
compares it: an offset never gets another record, unless the log was cut.

House rule: bytes that can't be read are counted, and stop nothing.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from coordinator.client.client import Client, Node, metadata_request, nodes_of
from coordinator.client.errors import ClientError, Refused, Unreachable
from coordinator.client.events import FIND_S, EventReader, NoEvents, Placed, Poller, in_order, topic_of
from coordinator.client.topics import EARLIEST, GROUP, GROUPS_TOPIC, LATEST, described_settings
from coordinator.group.partition import partition_for
from coordinator.story.events import RebalanceEvent
from coordinator.story.inference.observed import Batch, Observed
from coordinator.story.records.consumer import CONSUMER_VERSIONS, STREAMS_VERSIONS
from coordinator.story.records.values import read_key
from protocol.errors import ProtocolError
from protocol.messages import DescribeConfigsRequest, FetchRequest, MetadataRequest
from protocol.records.batch import CorruptBatch, Header, Record, check_crc, peek_header
from protocol.records.walk import Batch as RecordBatch
from protocol.records.walk import decode_records
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import FetchResponse, MetadataResponse

FAILURES = (ClientError, ProtocolError)
"""The exceptions of a request: a server doesn't answer, refuses, or answers nonsense."""

LAST_EPOCH_SINCE = 12
"""The first version of Fetch that can name the epoch of the newest batch that was read (Kafka 2.7)."""

FETCH_BYTES, PARTITION_BYTES = 16 * 1024 * 1024, 1024 * 1024
"""The most bytes of a Fetch, and of one partition in it."""

MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors of a partition after which the reader looks for its leader again."""

SILENT_S = 1.0
"""A leader that fails after this time is left out for a while; one that fails sooner costs no time."""

NAMES_S = 5.0
"""How often the names of topics are asked for at most, when an id is unknown."""

LOOKED_UP_AT_ONCE = 500
"""Groups of the consumer protocol whose session timeouts one request asks for."""

TIMEOUTS_MAX = 10_000
"""Session timeouts in memory; those that were asked for first go first. One is used when its group is seen first."""

LOOKUPS_FAILED_MAX = 3
"""Requests for session timeouts that may fail in a row; after that none is sent."""

CONSUMER_KEYS = frozenset(struct.pack(">h", version) for version in CONSUMER_VERSIONS.values())
"""The first bytes of the keys of groups of the consumer protocol."""

SESSION_TIMEOUTS = {
    CONSUMER_KEYS: "consumer.session.timeout.ms",
    frozenset(struct.pack(">h", version) for version in STREAMS_VERSIONS.values()): "streams.session.timeout.ms",
}
"""The settings of groups, by the first bytes of their keys."""

NEWER_KEYS = frozenset[bytes]().union(*SESSION_TIMEOUTS)

LIMITS = (
    "this cluster keeps no events of groups: what follows is inferred from its __consumer_offsets, "
    "which tells neither whom classic groups waited for nor which requests were refused"
)
"""The line for people about the limits of inferred events."""


def reader_of(client: Client, group_id: str | None = None) -> GroupReader:
    """A reader of the events that the cluster keeps; of inferred ones if it keeps none.

    Kafka hides whether a topic exists that the user may not describe. Then the reader tries the groups' log, and if the
    user may not read that either, the answer names both topics.
    """
    try:
        return EventReader(client, group_id)
    except NoEvents:
        return OffsetsReader(client, group_id)
    except Refused as error:
        if error.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        try:
            return OffsetsReader(client, group_id)
        except Refused:
            reason = f"{error.reason} (on Apache Kafka: on topic {GROUPS_TOPIC!r})"
            raise Refused(error.error_code, f"topic {EventReader.topic!r}", reason) from None


def cut_line(cut: Cut) -> str:
    """A line about a log that was cut."""
    where = "" if cut.kept is None else f" at offset {cut.kept}"
    return (
        f"{GROUPS_TOPIC}-{cut.partition} was cut{where}, though records up to offset {cut.read} had been read: "
        "events of the part that is gone stay, and the cluster has forgotten them"
    )


class TopicNames(Mapping[UUID, str]):
    """The names of a cluster's topics by id. An unknown id makes it ask again, at most every NAMES_S."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: dict[UUID, str] = {}
        self._asked_s = -NAMES_S

    def __getitem__(self, topic_id: UUID) -> str:
        """The name of a topic; KeyError for an id that the cluster doesn't know."""
        if topic_id not in self._names and time.monotonic() >= self._asked_s + NAMES_S:
            self._asked_s = time.monotonic()
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            try:
                response: MetadataResponse = self._client.request(request, at_least=10)
            except FAILURES:
                raise KeyError(topic_id) from None
            self._names |= {topic.topic_id: topic.name for topic in response.topics if topic.name is not None}
        return self._names[topic_id]

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class SessionTimeouts(Mapping[str, int]):
    """The session timeouts of groups of a newer protocol in ms, by group id: a setting of each group.

    A server that refuses all groups of a request isn't asked again: it knows no such setting, or the user has no right.
    """

    def __init__(self, client: Client, setting: str) -> None:
        self._client = client
        self._setting = setting
        self._known: dict[str, int | None] = {}
        self._failed = 0

    def ask_for(self, group_ids: Iterable[str]) -> None:
        """Ask for those that are unknown, with as few requests as possible."""
        fresh = [group_id for group_id in dict.fromkeys(group_ids) if group_id not in self._known]
        while fresh and self._failed < LOOKUPS_FAILED_MAX:
            asked, fresh = fresh[:LOOKED_UP_AT_ONCE], fresh[LOOKED_UP_AT_ONCE:]
            self._known |= dict.fromkeys(asked)
            try:
                self._ask(asked)
            except Refused:
                self._failed = LOOKUPS_FAILED_MAX
            except FAILURES:
                self._failed += 1
            else:
                self._failed = 0
        for group_id in list(islice(self._known, max(len(self._known) - TIMEOUTS_MAX, 0))):
            del self._known[group_id]

    def _ask(self, group_ids: Iterable[str]) -> None:
        results = described_settings(self._client, GROUP, group_ids, [self._setting])
        for result in results:
            for config in result.configs:
                if config.name == self._setting and config.value is not None and config.value.isdecimal():
                    self._known[result.resource_name] = int(config.value)
        if results and all(result.error_code for result in results):
            first = results[0]
            raise self._client.refused(
                first.error_code, "settings of groups", DescribeConfigsRequest, first.resource_name
            )

    def __getitem__(self, group_id: str) -> int:
        """The session timeout of a group; KeyError where it is unknown."""
        self.ask_for((group_id,))
        known = self._known.get(group_id)
        if known is None:
            raise KeyError(group_id)
        return known

    def __iter__(self) -> Iterator[str]:
        return (group_id for group_id, known in self._known.items() if known is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Cut(NamedTuple):
    """A log that was cut. read: the offset behind the last record that was read.

    kept: the end of the part that is still there; None where nobody knows it.
    """

    partition: int
    read: int
    kept: int | None


class _Had(NamedTuple):
    """The part of a log that was read before the log was cut: up to an offset, an epoch and a time (Unix, ms)."""

    end: int
    epoch: int
    newest_ms: int


NOTHING = _Had(0, -1, 0)


@dataclass
class _Partition:
    """A partition: its leader, the next offset to read, the end as its leader said.

    led_in: the epoch of the leader, as the cluster said. epochs: of the leaders whose batches were read, each with its
    first offset. newest_ms: the newest time of a batch. last: the last record that was read, with its offset.
    is_doubted: whether that record must be compared with the log. had: see _Had. cut_at: where the reader was when the
    log was found to be cut. names_epoch: whether the leader's answers about epochs make sense.
    """

    observed: Observed
    leader: Node | None = None
    led_in: int = -1
    next: int = 0
    end: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    newest_ms: int = 0
    last: tuple[int, Record] | None = None
    is_doubted: bool = False
    had: _Had = NOTHING
    cut_at: int = 0
    names_epoch: bool = True

    @property
    def epoch(self) -> int:
        """The epoch of the newest leader whose batch was read; -1 if there is none."""
        return self.epochs[-1][0] if self.epochs else -1

    @property
    def last_epoch(self) -> int:
        """The epoch that the next Fetch names; -1 for none."""
        return self.epoch if self.names_epoch else -1

    @property
    def fetch_offset(self) -> int:
        """The offset that the next Fetch asks for."""
        return self.next if self.last is None or not self.is_doubted else self.last[0]

    def end_of(self, epoch: int) -> int:
        """The offset at which the part of the log that was read has a newer epoch than this one."""
        return next((begin for newer, begin in self.epochs if newer > epoch), self.next)

    def has_another(self, records: Iterable[tuple[int, Record]]) -> bool:
        """Whether these records have another one at the offset of the last one. Compaction may have removed it."""
        if self.last is None:
            return False
        at, known = self.last
        return any(offset == at and record != known for offset, record in records)

    def is_repeated(self, header: Header) -> bool:
        """Whether a batch was read before the log was cut."""
        had = self.had
        is_of_then = header.partition_leader_epoch <= had.epoch and header.max_timestamp_ms <= had.newest_ms
        return is_of_then and header.next_offset <= had.end


class OffsetsReader(Poller):
    """Reads the groups' log of a cluster from its start, and makes events of it.

    group_id: only events of this group; the reader reads only its partition.
    passed_over: records that could not be read. absent: partitions without a leader. on_fetched: called when records
    have come, before events are made of them. on_cut: called when a log was found to be cut. is_answered: whether some
    leader answered the newest poll.
    """

    topic = GROUPS_TOPIC

    def __init__(self, client: Client, group_id: str | None = None) -> None:
        self._client = client
        self._group_id = group_id
        name = (group_id or "").encode(errors="replace")
        self._prefix = None if group_id is None else struct.pack(">h", len(name)) + name
        self._names = TopicNames(client)
        self._session_timeouts = {keys: SessionTimeouts(client, name) for keys, name in SESSION_TIMEOUTS.items()}
        self._partitions: dict[int, _Partition] = {}
        self.topic_id = UUID(int=0)
        self._found_s = 0.0
        self._since_ms = 0
        self._held: list[Placed] = []
        self._silent: dict[Node, tuple[float, ClientError]] = {}
        """By leader that kept a request waiting, until when it isn't asked, and why."""
        self.absent: tuple[int, ...] = ()
        self.absent_nodes: tuple[int, ...] = ()
        self.records = 0
        self.on_fetched: Callable[[], object] = lambda: None
        self.on_cut: Callable[[Cut], object] = lambda _: None
        self.is_answered = False
        self._unreadable = 0
        """Records, and batches, that could not be read, beside those that the partitions count now."""
        self._turn = 0
        self.find_again()

    @property
    def passed_over(self) -> int:
        """The number of records that could not be read."""
        return self._unreadable + sum(each.observed.unreadable for each in list(self._partitions.values()))

    @property
    def reached(self) -> dict[int, int]:
        """By partition, the offset of the next record to read."""
        return {number: each.next for number, each in self._partitions.items()}

    @property
    def behind(self) -> int:
        """How many offsets there are still to read, as far as the leaders have said."""
        return sum(max(each.end - each.next, 0) for each in list(self._partitions.values()))

    def observed_of(self, group_id: str) -> Observed | None:
        """The inference that follows a group; None while the cluster has no groups' log, or another reader reads it."""
        count = len(self._partitions) if self._group_id is None else self._count
        partition = self._partitions.get(partition_for(group_id, count)) if count else None
        return None if partition is None else partition.observed

    def find_again(self) -> None:
        """Find the leaders anew, and new partitions. If the topic was made anew, all is read anew."""
        response: MetadataResponse = self._client.request(metadata_request([GROUPS_TOPIC]), at_least=4)
        nodes = nodes_of(response)
        topic = topic_of(response, GROUPS_TOPIC)
        self._found_s = time.monotonic()
        # No group yet: the topic comes with the first one.
        is_new = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.error_code and not is_new:
            raise self._client.refused(topic.error_code, f"topic {GROUPS_TOPIC!r}", FetchRequest, GROUPS_TOPIC)
        if is_new and self._partitions:
            # It was deleted, or this broker has just started and doesn't know it yet (Kafka with ZooKeeper).
            for known in self._partitions.values():
                known.leader = None
            self.absent = tuple(sorted(self._partitions))
            return
        self._count = len(topic.partitions)
        if topic.topic_id != self.topic_id:
            self._unreadable = self.passed_over
            self._partitions.clear()
        self.topic_id = topic.topic_id
        wanted = None if self._group_id is None or not self._count else partition_for(self._group_id, self._count)
        for each in topic.partitions:
            if wanted is None or each.partition_index == wanted:
                known = self._partitions.setdefault(each.partition_index, _Partition(self._observed()))
                leader = nodes.get(each.leader_id)
                if (leader, each.leader_epoch) != (known.leader, known.led_in):
                    known.is_doubted = known.names_epoch = True
                    known.cut_at = 0
                known.leader, known.led_in = leader, each.leader_epoch
        self.absent = tuple(sorted(number for number, each in self._partitions.items() if each.leader is None))

    def begin_at(self, at_ms: int) -> None:
        """Leave out events before this time (Unix time in ms)."""
        self._since_ms = at_ms

    def begin_with(self, newest: int) -> None:
        """Leave out all events up to now, but the `newest` last ones."""
        events = self.read_placed()
        self._held = events[len(events) - newest :] if newest else []

    def read_placed(self) -> list[Placed]:
        """As Poller."""
        events, self._held = self._held, []
        ends = {number: self._offset(number, LATEST) for number in self._partitions if number not in self.absent}
        while behind := [number for number, end in ends.items() if self._partitions[number].next < end]:
            before = {number: self._partitions[number].next for number in behind}
            found, problem = self._fetch_all(behind, 0)
            events += found
            if problem is not None:
                raise problem
            if all(self._partitions[number].next == at for number, at in before.items()):
                break  # the log is shorter by now
        return in_order(events)

    def read_back(self) -> Iterator[tuple[list[RebalanceEvent], int]]:
        """Yield all events: a record only tells something beside the one before it, so there is no way back."""
        yield self.read(), 0

    def _poll(self, wait_ms: int) -> tuple[list[Placed], ClientError | None]:
        self.is_answered = False
        if time.monotonic() > self._found_s + FIND_S:
            self.find_again()
        events, self._held = self._held, []
        if not self._partitions:
            return events, None
        # A server returns a batch above PARTITION_BYTES only for the first partition that has records.
        numbers = list(self._partitions)
        turn = self._turn % len(numbers)
        self._turn += 1
        found, problem = self._fetch_all(numbers[turn:] + numbers[:turn], 0 if events else wait_ms)
        return in_order(events + found), problem

    def _fetch_all(self, numbers: list[int], wait_ms: int) -> tuple[list[Placed], ClientError | None]:
        """One Fetch to each leader of these partitions."""
        events: list[Placed] = []
        problem: ClientError | None = None
        led: dict[Node, list[int]] = {}
        for number in numbers:
            leader = self._partitions[number].leader
            if leader is not None:
                led.setdefault(leader, []).append(number)
        moved = False
        for node, asked in led.items():
            began_s = time.monotonic()
            until_s, why = self._silent.get(node, (began_s, None))
            if began_s < until_s:
                problem, moved = why, True
                continue
            self._silent.pop(node, None)
            try:
                answers = self._ask(node, asked, wait_ms // len(led))
            except FAILURES as error:
                problem, moved = _lost(error), True
                for number in asked:
                    self._partitions[number].is_doubted = True
                took_s = time.monotonic() - began_s
                if took_s >= SILENT_S:
                    self._silent[node] = began_s + 2 * took_s, problem
                continue
            self.is_answered = True
            self.on_fetched()
            for answer in answers:
                partition = self._partitions.get(answer.partition_index)
                if partition is None:
                    problem = Unreachable(f"{node.address} answers about partition {answer.partition_index}")
                elif answer.error_code in MOVED:
                    moved = partition.is_doubted = True
                elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    try:
                        self._go_on(answer.partition_index)
                    except FAILURES as error:
                        problem, moved = _lost(error), True
                elif answer.error_code:
                    problem = self._refused(answer.error_code, answer.partition_index, FetchRequest)
                elif answer.diverging_epoch.end_offset >= 0:
                    epoch, end = answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset
                    self._cut(answer.partition_index, min(end, partition.end_of(epoch)), epoch)
                else:
                    partition.end = answer.high_watermark
                    events += self._take(answer.partition_index, answer.records or b"")
        if moved:
            self._found_s = 0.0  # look for the leaders at the next poll
        return events, problem

    def _ask(self, node: Node, numbers: list[int], wait_ms: int) -> list[FetchResponse.PartitionData]:
        wanted = [
            FetchRequest.FetchPartition(
                partition=number,
                fetch_offset=self._partitions[number].fetch_offset,
                last_fetched_epoch=self._partitions[number].last_epoch,
                partition_max_bytes=PARTITION_BYTES,
            )
            for number in numbers
        ]
        request = self._fetch_request(wanted, wait_ms, FETCH_BYTES)
        response: FetchResponse = self._client.request(request, node, at_least=LAST_EPOCH_SINCE)
        if response.error_code:
            raise self._client.refused(response.error_code, GROUPS_TOPIC, FetchRequest, GROUPS_TOPIC)
        return [each for topic in response.responses for each in topic.partitions]

    def _go_on(self, number: int) -> None:
        """The next record isn't in the log: go on with its first one, or read a log that was cut anew."""
        partition = self._partitions[number]
        first, end = self._offset(number, EARLIEST), self._offset(number, LATEST)
        if partition.next > first:
            self._cut(number, min(end, partition.next), partition.epoch, first)
        else:
            partition.last, partition.is_doubted = None, False
            partition.next = first
            partition.observed.begin_at(first)

    def _cut(self, number: int, end: int, epoch: int, first: int = 0) -> None:
        """The log was cut: drop what is known of it, and read it anew.

        end, epoch: the end of the part that may be there still, and its newest epoch. first: where the log begins. If
        it begins later, the next Fetch says so.
        """
        partition = self._partitions[number]
        cut = Cut(number, partition.next, end if end < partition.next else None)
        # A leader that lost its epochs would have the log read anew for ever.
        partition.names_epoch = partition.names_epoch and partition.next > partition.cut_at
        partition.cut_at = partition.next
        self._unreadable += partition.observed.unreadable
        partition.observed = self._observed()
        partition.had = _Had(end, epoch, partition.newest_ms)
        partition.epochs.clear()
        partition.last, partition.is_doubted = None, False
        partition.next = first
        partition.observed.begin_at(first)
        self.on_cut(cut)

    def _observed(self) -> Observed:
        return Observed(self._names, *self._session_timeouts.values())

    def _leader(self, partition: int) -> Node | None:
        return self._partitions[partition].leader

    def _take(self, number: int, data: bytes) -> list[Placed]:
        """The events in the bytes of a Fetch."""
        partition = self._partitions[number]
        observed, events = partition.observed, []
        # Without a record to compare, nothing can be doubted. A log that ends before that record is doubted still.
        if partition.last is None or (not data and partition.last[0] < partition.end):
            partition.is_doubted = False
        if not data:
            return []
        is_doubted = partition.is_doubted
        batches = self._batches(partition, data)
        newer = [
            record.key
            for batch in batches
            for record in batch.records
            if record.key[:2] in NEWER_KEYS and self._is_wanted(record.key) and not batch.header.is_control
        ]
        for keys, timeouts in self._session_timeouts.items():
            timeouts.ask_for(read_key(key).group_id or "" for key in newer if key[:2] in keys)
        for batch in batches:
            header = batch.header
            place = Batch(header.base_offset, header.partition_leader_epoch, header.is_transactional)
            made: list[tuple[int, RebalanceEvent]] = []
            partition.is_doubted = False
            if is_doubted and partition.has_another(zip(batch.offsets, batch.records, strict=True)):
                self._cut(number, partition.next, partition.epoch)
                break
            for offset, record in zip(batch.offsets, batch.records, strict=True):
                if offset < partition.next:
                    continue
                self.records += 1
                if header.is_control or not self._is_wanted(record.key):
                    observed.passed(offset)
                    continue
                made += [
                    (offset, event)
                    for event in observed.add(offset, record.timestamp_ms, record.key, record.value, place)
                ]
            made += [(header.next_offset - 1, event) for event in observed.end_batch()]
            if batch.records and batch.offsets[-1] >= partition.next:
                partition.last = batch.offsets[-1], batch.records[-1]
            if header.partition_leader_epoch > partition.epoch:
                partition.epochs.append((header.partition_leader_epoch, header.base_offset))
            partition.next = max(partition.next, header.next_offset)
            partition.newest_ms = max(partition.newest_ms, header.max_timestamp_ms)
            if not partition.is_repeated(header):
                events += [Placed(number, offset, event) for offset, event in made if event.at_ms >= self._since_ms]
        return events

    def _batches(self, partition: _Partition, data: bytes) -> list[RecordBatch]:
        """The whole batches in the bytes of a Fetch, up to one that can't be read."""
        batches: list[RecordBatch] = []
        position = 0
        while position < len(data):
            try:
                header = peek_header(data, position)
                if position + header.size > len(data):
                    break  # cut off: the next Fetch returns it whole
                check_crc(data, position, header)
                batches.append(decode_records(data, position, header))
            except CorruptBatch:
                if not batches and not partition.is_doubted:
                    # A batch that can't be read is passed, as far as its header tells where the next one is.
                    self._unreadable += 1
                    partition.next = max(partition.next + 1, min(_end_of(data), partition.end))
                break
            position += header.size
        return batches

    def _is_wanted(self, key: bytes) -> bool:
        """Whether a record is about the group; each key begins with a version and the group's id."""
        return self._prefix is None or key.startswith(self._prefix, 2)


GroupReader = EventReader | OffsetsReader
"""A reader of events, told or inferred."""


def _lost(error: ClientError | ProtocolError) -> ClientError:
    """Nonsense is no answer."""
    return error if isinstance(error, ClientError) else Unreachable(str(error))


def _end_of(data: bytes) -> int:
    """The offset behind the batch that `data` begins with; 0 if its header can't be read."""
    try:
        return peek_header(data, 0).next_offset
    except CorruptBatch:
        return 0
