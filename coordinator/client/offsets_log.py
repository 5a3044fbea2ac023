"""The events of groups of a cluster that keeps none, such as Apache Kafka: inferred from its `__consumer_offsets`.

    reader = OffsetsReader(client)          # the methods of client.events.EventReader
    for event in reader.read():             # all that the log still tells, in the order of time
        ...
    while True:
        for event in reader.poll(500):
            ...

The reader is no member of a group and commits nothing. It asks for Metadata, ListOffsets and Fetch: on a server with
ACLs it needs Read and Describe on the topic `__consumer_offsets`. DescribeConfigs on groups is welcome: it says the
session timeouts of groups of the consumer protocol. coordinator.timeline.inference makes the events. A
record is compared with the one before it, so the reader always reads a partition from its start, and `begin_at` only
leaves events out. For one group it reads one partition.

    a leader that moves, or doesn't answer    the reader looks again (FIND_S), and goes on where it was
    records that are gone                     compaction or retention took them: it goes on with the next one
    a log that ends before that place         an unclean election cut it: it reads the partition anew, as what it knows
                                              may be of the part that is gone; events of batches that it had read
                                              before don't come again
    new partitions, a new topic               are read from their start
    transactions                              a commit shows that its member lives, also if it is aborted

House rule: bytes that can't be read are counted, and stop nothing.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from coordinator.client.client import Node
from coordinator.client.connection import Address
from coordinator.client.errors import ClientError, Refused
from coordinator.client.events import (
    EARLIEST,
    FIND_S,
    NO_SESSION,
    RECORD_BATCHES_SINCE,
    EventReader,
    NoEvents,
    Placed,
    Poller,
    in_order,
)
from coordinator.client.topics import CONSUMER_REPLICA, GROUPS_TOPIC, LATEST
from coordinator.group.partition import partition_for
from coordinator.timeline.inference.observed import Batch, Observed
from protocol.messages import DescribeConfigsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest
from protocol.records.batch import CorruptBatch, Header, check_crc, peek_header
from protocol.records.walk import decode_records
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.client.client import Client
    from coordinator.timeline.schema import RebalanceEvent
    from protocol.messages import DescribeConfigsResponse, FetchResponse, ListOffsetsResponse, MetadataResponse

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

NAMES_S = 5.0
"""How often the names of topics are asked for at most, when an id is unknown."""

LOOKUPS_MAX = 1_000
"""Groups of the consumer protocol whose session timeout is asked for, each with a request."""

GROUP_RESOURCE = 32
"""The resource type of a group (KIP-1043)."""

SESSION_TIMEOUT = "consumer.session.timeout.ms"
"""The setting of a group."""

LIMITS = (
    "this cluster keeps no events of groups: what follows is inferred from its __consumer_offsets, "
    "which tells neither whom classic groups waited for nor which requests were refused"
)
"""The line for people about the limits of inferred events."""


def reader_of(client: Client, group_id: str | None = None) -> GroupReader:
    """A reader of the events that the cluster keeps; of inferred ones if it keeps none.

    Kafka hides whether a topic exists that the user may not describe. Then the reader tries the groups' log, and if the
    user may not read that either, the first refusal is the answer.
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
            raise error from None


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
            except ClientError:
                raise KeyError(topic_id) from None
            self._names |= {topic.topic_id: topic.name for topic in response.topics if topic.name is not None}
        return self._names[topic_id]

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class SessionTimeouts(Mapping[str, int]):
    """The session timeouts of groups of the consumer protocol in ms, by group id: a setting of each group.

    The first LOOKUPS_MAX groups that are asked for have one, unless the server refuses or knows no such setting.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, int] = {}
        self._left = LOOKUPS_MAX

    def __getitem__(self, group_id: str) -> int:
        """The session timeout of a group; KeyError where it is unknown."""
        if group_id not in self._known and self._left:
            self._left -= 1
            resource = DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=GROUP_RESOURCE, resource_name=group_id, configuration_keys=[SESSION_TIMEOUT]
            )
            try:
                response: DescribeConfigsResponse = self._client.request(DescribeConfigsRequest(resources=[resource]))
            except ClientError:
                self._left = 0
                raise KeyError(group_id) from None
            for result in response.results:
                if result.error_code:
                    self._left = 0
                for config in result.configs:
                    if config.name == SESSION_TIMEOUT and config.value is not None and config.value.isdecimal():
                        self._known[group_id] = int(config.value)
        return self._known[group_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


@dataclass
class _Partition:
    """A partition: its leader, the next offset to read, the end as its leader said.

    epoch: of the newest leader whose batch was read. had: the end and the epoch when the log was found to be cut.
    """

    observed: Observed
    leader: Node | None = None
    next: int = 0
    end: int = 0
    epoch: int = -1
    had: tuple[int, int] = (0, -1)

    def is_repeated(self, header: Header) -> bool:
        """Whether a batch was read before the log was cut: a later one has a newer leader, or is behind the end."""
        end, epoch = self.had
        return header.next_offset <= end and header.partition_leader_epoch <= epoch


class OffsetsReader(Poller):
    """Reads the groups' log of a cluster from its start, and makes events of it.

    group_id: only events of this group; the reader reads only its partition.
    passed_over: records that could not be read. absent: partitions without a leader. on_fetched: called when records
    have come, before events are made of them.
    """

    topic = GROUPS_TOPIC
    """The topic that it reads."""

    def __init__(self, client: Client, group_id: str | None = None) -> None:
        self._client = client
        self._group_id = group_id
        name = (group_id or "").encode(errors="replace")
        self._prefix = None if group_id is None else struct.pack(">h", len(name)) + name
        self._names = TopicNames(client)
        self._session_timeouts = SessionTimeouts(client)
        self._partitions: dict[int, _Partition] = {}
        self._topic_id = UUID(int=0)
        self._found_s = 0.0
        self._since_ms = 0
        self._held: list[Placed] = []
        self.absent: tuple[int, ...] = ()
        self.absent_nodes: tuple[int, ...] = ()
        self.records = 0
        self.on_fetched: Callable[[], object] = lambda: None
        self._unreadable = 0
        """Records, and batches, that could not be read, beside those that the partitions count now."""
        self._turn = 0
        self.find_again()

    @property
    def passed_over(self) -> int:
        """The number of records that could not be read."""
        return self._unreadable + sum(each.observed.unreadable for each in list(self._partitions.values()))

    @property
    def topic_id(self) -> UUID:
        """The id of the topic; offsets are valid only for the topic with this id."""
        return self._topic_id

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
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=GROUPS_TOPIC)], allow_auto_topic_creation=False
        )
        response: MetadataResponse = self._client.request(request, at_least=4)
        nodes = {broker.node_id: Node(broker.node_id, Address(broker.host, broker.port)) for broker in response.brokers}
        (topic,) = response.topics
        self._found_s = time.monotonic()
        # No group yet: the topic comes with the first one.
        is_new = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.error_code and not is_new:
            raise Refused(topic.error_code, f"topic {GROUPS_TOPIC!r}")
        self._count = len(topic.partitions)
        if topic.topic_id != self._topic_id:
            self._unreadable = self.passed_over
            self._partitions.clear()
        self._topic_id = topic.topic_id
        wanted = None if self._group_id is None or not self._count else partition_for(self._group_id, self._count)
        for each in topic.partitions:
            if wanted is None or each.partition_index == wanted:
                known = self._partitions.setdefault(each.partition_index, _Partition(self._observed()))
                known.leader = nodes.get(each.leader_id)
        self.absent = tuple(sorted(number for number, each in self._partitions.items() if each.leader is None))

    def begin_at(self, at_ms: int) -> None:
        """Leave out events before this time (Unix time in ms)."""
        self._since_ms = at_ms

    def begin_with(self, newest: int) -> None:
        """Leave out all events up to now, but the `newest` last ones."""
        events = self.read_placed()
        self._held = events[len(events) - newest :] if newest else []

    def read(self) -> list[RebalanceEvent]:
        """All events up to now, in the order of time."""
        return [each.event for each in self.read_placed()]

    def read_placed(self) -> list[Placed]:
        """All events up to now, each with its partition and offset."""
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
            try:
                answers = self._ask(node, asked, wait_ms // len(led))
            except ClientError as error:
                problem, moved = error, True
                continue
            self.on_fetched()
            for answer in answers:
                if answer.error_code in MOVED:
                    moved = True
                elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    try:
                        self._go_on(answer.partition_index)
                    except ClientError as error:
                        problem, moved = error, True
                elif answer.error_code:
                    problem = Refused(answer.error_code, f"{GROUPS_TOPIC}-{answer.partition_index}")
                else:
                    self._partitions[answer.partition_index].end = answer.high_watermark
                    events += self._take(answer.partition_index, answer.records or b"")
        if moved:
            self._found_s = 0.0  # look for the leaders at the next poll
        return events, problem

    def _ask(self, node: Node, numbers: list[int], wait_ms: int) -> list[FetchResponse.PartitionData]:
        request = FetchRequest(
            replica_id=CONSUMER_REPLICA,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            session_epoch=NO_SESSION,
            topics=[
                FetchRequest.FetchTopic(
                    topic=GROUPS_TOPIC,
                    topic_id=self._topic_id,
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=number,
                            fetch_offset=self._partitions[number].next,
                            partition_max_bytes=PARTITION_BYTES,
                        )
                        for number in numbers
                    ],
                )
            ],
        )
        response: FetchResponse = self._client.request(request, node, at_least=RECORD_BATCHES_SINCE)
        if response.error_code:
            raise Refused(response.error_code, GROUPS_TOPIC)
        return [each for topic in response.responses for each in topic.partitions]

    def _go_on(self, number: int) -> None:
        """The next record isn't in the log: go on with its first one. If the log was cut, what is known is dropped."""
        partition = self._partitions[number]
        first, end = self._offset(number, EARLIEST), self._offset(number, LATEST)
        if partition.next > first:
            self._unreadable += partition.observed.unreadable
            partition.observed = self._observed()
            partition.had = end, partition.epoch
        partition.next = first
        partition.observed.begin_at(first)

    def _observed(self) -> Observed:
        return Observed(self._names, self._session_timeouts)

    def _offset(self, number: int, at_ms: int) -> int:
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=at_ms)
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=GROUPS_TOPIC, partitions=[asked])]
        request = ListOffsetsRequest(replica_id=CONSUMER_REPLICA, topics=topics)
        response: ListOffsetsResponse = self._client.request(request, self._partitions[number].leader, at_least=1)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise Refused(answer.error_code, f"{GROUPS_TOPIC}-{number}")
        return answer.offset

    def _take(self, number: int, data: bytes) -> list[Placed]:
        """The events in the bytes of a Fetch."""
        partition, position = self._partitions[number], 0
        observed, events = partition.observed, []
        while position < len(data):
            try:
                header = peek_header(data, position)
                if position + header.size > len(data):
                    break  # cut off: the next Fetch returns it whole
                check_crc(data, position, header)
                batch = decode_records(data, position, header)
            except CorruptBatch:
                if position:
                    break
                # A batch that can't be read is passed, as far as its header tells where the next one is.
                self._unreadable += 1
                partition.next = max(partition.next + 1, min(_end_of(data), partition.end))
                break
            place = Batch(header.base_offset, header.partition_leader_epoch, header.is_transactional)
            made: list[tuple[int, RebalanceEvent]] = []
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
            partition.next = max(partition.next, header.next_offset)
            partition.epoch = max(partition.epoch, header.partition_leader_epoch)
            position += header.size
            if not partition.is_repeated(header):
                events += [Placed(number, offset, event) for offset, event in made if event["at_ms"] >= self._since_ms]
        return events

    def _is_wanted(self, key: bytes) -> bool:
        """Whether a record is about the group; each key begins with a version and the group's id."""
        return self._prefix is None or key.startswith(self._prefix, 2)


GroupReader = EventReader | OffsetsReader
"""A reader of events, told or inferred."""


def _end_of(data: bytes) -> int:
    """The offset behind the batch that `data` begins with; 0 if its header can't be read."""
    try:
        return peek_header(data, 0).next_offset
    except CorruptBatch:
        return 0
