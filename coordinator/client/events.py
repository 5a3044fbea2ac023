"""What a server kept of what happened to groups: the records of `__rebalance_events`, read as any consumer reads them.

    reader = EventReader(client)
    for event in reader.read():      # all that is there, in the order of time
        ...
    while True:
        for event in reader.poll(500):
            ...

Who wants the newest alone reads from the end: `read_back` brings more of them each time, until they are enough.

Only Tenure has the topic; of any other server the reader says that there is none. An event is the record's JSON object
(docs/events.md) as a dictionary.

House rule: a record that can't be read, or is of a later version, is passed over and counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from coordinator.client.client import Node
from coordinator.client.connection import Address
from coordinator.client.errors import ClientError, Refused
from coordinator.client.topics import CONSUMER_REPLICA, LATEST
from coordinator.timeline.schema import EVENTS_TOPIC, RebalanceEvent, read_event
from protocol.messages import FetchRequest, ListOffsetsRequest, MetadataRequest
from protocol.records.batch import CorruptBatch
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.client.client import Client
    from protocol.messages import FetchResponse, ListOffsetsResponse, MetadataResponse
    from protocol.records.batch import Record

RECORD_BATCHES_SINCE = 4
"""The first version of Fetch that brings batches of today's format."""

FETCH_BYTES, FETCH_MIN_BYTES = 4 * 1024 * 1024, 64 * 1024
"""What a Fetch may bring; the least that is asked for, as each asks anew."""

RECORD_OVERHEAD_BYTES = 32
"""What a record takes beside its key and value, about, with its share of the batch's header."""

NO_SESSION = -1
EARLIEST = -2
"""ListOffsets' timestamp for the beginning of the log."""

NONE_SO_LATE = -1
"""ListOffsets' answer where nothing is as new as was asked."""

BACK_FIRST, BACK_GROWTH = 1_000, 4
"""Records of each partition that are read from the end at first, and how many times as many then each time."""


class Placed(NamedTuple):
    """An event with where it is kept."""

    partition: int
    offset: int
    event: RebalanceEvent


class Polled(NamedTuple):
    """What a look brought, in the order of time, and what went wrong with a partition, if anything did."""

    events: list[RebalanceEvent]
    problem: ClientError | None


class NoEvents(ClientError):
    """The cluster keeps no events."""


class EventReader:
    """Reads the events of a cluster from the oldest on. Raises NoEvents if there is no such topic.

    group_id: only what is of this group, or may be of any (a gap); what isn't is fetched, but not decoded.
    passed_over: records that could not be read.
    """

    def __init__(self, client: Client, group_id: str | None = None) -> None:
        self._client = client
        self._keys = None if group_id is None else {group_id.encode(errors="replace"), b""}
        self.passed_over = 0
        self._topic_id = UUID(int=0)
        self._leaders: dict[int, Node] = {}
        self._next: dict[int, int] = {}
        self._find()

    def _find(self) -> None:
        """Who leads the partitions."""
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=EVENTS_TOPIC)], allow_auto_topic_creation=False
        )
        response: MetadataResponse = self._client.request(request, at_least=4)
        nodes = {broker.node_id: Node(broker.node_id, Address(broker.host, broker.port)) for broker in response.brokers}
        (topic,) = response.topics
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NoEvents(
                f"this cluster has no topic {EVENTS_TOPIC}: only Tenure keeps what happens to groups, "
                "unless tenure.events.enable=false"
            )
        if topic.error_code:
            raise Refused(topic.error_code, f"topic {EVENTS_TOPIC!r}")
        self._topic_id = topic.topic_id
        if any(each.leader_id not in nodes for each in topic.partitions):
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {EVENTS_TOPIC!r}")
        self._leaders = {each.partition_index: nodes[each.leader_id] for each in topic.partitions}
        self._next = dict.fromkeys(self._leaders, 0)

    def find_again(self) -> None:
        """Ask anew who leads the partitions, and go on in each where the reader was; one that is new has all to tell.

        Raises as a new reader does.
        """
        topic_id, known = self._topic_id, self._next
        self._find()
        if self._topic_id == topic_id:
            self._next |= {partition: offset for partition, offset in known.items() if partition in self._next}

    def begin_at(self, at_ms: int) -> None:
        """Pass over what was written before this time (Unix time in ms)."""
        ends = self._offsets(LATEST)
        for partition, offset in self._offsets(at_ms).items():
            self._next[partition] = ends[partition] if offset == NONE_SO_LATE else offset

    def begin_with(self, newest: int) -> None:
        """Pass over all but the newest so many records of each partition."""
        for partition, end in self._offsets(LATEST).items():
            self._next[partition] = max(end - newest, 0)

    def _offsets(self, at_ms: int) -> dict[int, int]:
        """The first offset of each partition that is no older; NONE_SO_LATE where there is none."""
        return {partition: self._offset(partition, at_ms) for partition in self._leaders}

    def _offset(self, partition: int, at_ms: int) -> int:
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=at_ms)
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=EVENTS_TOPIC, partitions=[asked])]
        request = ListOffsetsRequest(replica_id=CONSUMER_REPLICA, topics=topics)
        response: ListOffsetsResponse = self._client.request(request, self._leaders[partition], at_least=1)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise Refused(answer.error_code, f"{EVENTS_TOPIC}-{partition}")
        return answer.offset

    @property
    def topic_id(self) -> UUID:
        """Of the topic that is read: offsets of another one say nothing of this one."""
        return self._topic_id

    @property
    def reached(self) -> dict[int, int]:
        """The offset of each partition from which on nothing has been read."""
        return dict(self._next)

    def read(self) -> list[RebalanceEvent]:
        """All events that are there, in the order of time."""
        return [each.event for each in self.read_placed()]

    def read_placed(self) -> list[Placed]:
        """Likewise, with where each is kept."""
        events: list[Placed] = []
        for partition in self._leaders:
            reached = -1
            while reached != self._next[partition]:
                reached = self._next[partition]
                events += self._decoded(partition, self._fetch(partition, 0))
        return _in_order(events)

    def read_back(self) -> Iterator[tuple[list[RebalanceEvent], int]]:
        """The newest events in the order of time, and ever more of them; in the end those that `read` brings.

        Each time with the time (Unix time in ms) after which none that is there is missing; of older ones there are
        none, too. In the end that is 0.
        """
        firsts = {partition: max(first, self._next[partition]) for partition, first in self._offsets(EARLIEST).items()}
        ends = self._offsets(LATEST)
        begins = dict(ends)
        found: dict[int, list[Placed]] = {partition: [] for partition in begins}
        began_ms = dict.fromkeys(begins, sys.maxsize)
        newest = BACK_FIRST
        record_bytes = dict.fromkeys(begins, FETCH_BYTES)
        is_all = False
        while not is_all:
            for partition, end in ends.items():
                begin = max(end - newest, firsts[partition])
                records = list(self._between(partition, begin, begins[partition], record_bytes[partition]))
                if records:
                    size = sum(len(record.key) + len(record.value or b"") for _, record in records)
                    record_bytes[partition] = size // len(records) + RECORD_OVERHEAD_BYTES
                found[partition] = [*self._decoded(partition, records), *found[partition]]
                # A gap is told when it can be, which may be long after: its time says nothing of those before it.
                times_ms = (record.timestamp_ms for _, record in records if record.key)
                began_ms[partition] = next(times_ms, began_ms[partition])
                begins[partition] = begin
            is_all = all(begins[partition] <= first for partition, first in firsts.items())
            since_ms = max((began_ms[each] for each, first in firsts.items() if begins[each] > first), default=0)
            events = _in_order(chain.from_iterable(found.values()))
            yield [each.event for each in events if is_all or each.event["at_ms"] > since_ms], since_ms
            newest *= BACK_GROWTH
        self._next = ends

    def _between(self, partition: int, begin: int, end: int, record_bytes: int) -> Iterator[tuple[int, Record]]:
        """The records of a partition from one offset to another, about so large each: hardly more is fetched."""
        self._next[partition] = begin
        reached = -1
        while reached != self._next[partition] < end:
            reached = self._next[partition]
            most = min(max((end - reached) * record_bytes, FETCH_MIN_BYTES), FETCH_BYTES)
            yield from (each for each in self._fetch(partition, 0, most) if each[0] < end)

    def poll(self, wait_ms: int) -> list[RebalanceEvent]:
        """The next events, in the order of time; none if there are none within about that time.

        Also none, and sooner, if all that came was passed over: whoever waits for more polls again. Raises if something
        went wrong, but not while other partitions have something to tell.
        """
        return [each.event for each in self.poll_placed(wait_ms)]

    def poll_placed(self, wait_ms: int) -> list[Placed]:
        """Likewise, with where each is kept."""
        events, problem = self._poll(wait_ms)
        if problem is not None and not events:
            raise problem
        return events

    def poll_each(self, wait_ms: int) -> Polled:
        """Likewise; what goes wrong with one partition hides nothing of the others, and loses nothing of its own."""
        events, problem = self._poll(wait_ms)
        return Polled([each.event for each in events], problem)

    def _poll(self, wait_ms: int) -> tuple[list[Placed], ClientError | None]:
        events: list[Placed] = []
        problem: ClientError | None = None
        for partition in self._leaders:
            try:
                fetched = self._fetch(partition, wait_ms // len(self._leaders))
            except ClientError as error:
                problem = error
            else:
                events += self._decoded(partition, fetched)
        return _in_order(events), problem

    def _fetch(self, partition: int, wait_ms: int, most: int = FETCH_BYTES) -> list[tuple[int, Record]]:
        """The records of one Fetch with their offsets; the partition's end is reached if it doesn't move the offset."""
        answer = self._ask(partition, wait_ms, most)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Retention took them; or it is another log, which has all to tell. This answer doesn't say where it starts.
            start = self._offset(partition, EARLIEST)
            if start != self._next[partition]:
                self._next[partition] = start
                return []
        if answer.error_code:
            raise Refused(answer.error_code, f"{EVENTS_TOPIC}-{partition}")
        return self._records(partition, answer.records or b"")

    def _ask(self, partition: int, wait_ms: int, most: int) -> FetchResponse.PartitionData:
        request = FetchRequest(
            replica_id=CONSUMER_REPLICA,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=most,
            session_epoch=NO_SESSION,
            topics=[
                FetchRequest.FetchTopic(
                    topic=EVENTS_TOPIC,
                    topic_id=self._topic_id,
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=partition, fetch_offset=self._next[partition], partition_max_bytes=most
                        )
                    ],
                )
            ],
        )
        response: FetchResponse = self._client.request(request, self._leaders[partition], at_least=RECORD_BATCHES_SINCE)
        if response.error_code or not response.responses:
            raise Refused(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR, f"{EVENTS_TOPIC}-{partition}")
        return response.responses[0].partitions[0]

    def _records(self, partition: int, data: bytes) -> list[tuple[int, Record]]:
        """What comes next in the partition of what a Fetch brought."""
        records: list[tuple[int, Record]] = []
        start = self._next[partition]
        try:
            for batch in decode_batches(data):
                for offset, record in zip(batch.offsets, batch.records, strict=True):
                    if offset >= self._next[partition]:
                        self._next[partition] = offset + 1
                        records.append((offset, record))
        except CorruptBatch:
            # A last batch that is cut short comes again, whole.
            if self._next[partition] == start:
                raise
        return records

    def _decoded(self, partition: int, records: Iterable[tuple[int, Record]]) -> list[Placed]:
        """The events that are asked for."""
        events = []
        for offset, record in records:
            if self._keys is not None and record.key not in self._keys:
                continue
            event = read_event(record.value)
            if event is None:
                self.passed_over += 1
            else:
                events.append(Placed(partition, offset, event))
        return events


def _in_order(events: Iterable[Placed]) -> list[Placed]:
    return sorted(events, key=lambda each: int(each.event["at_ms"]))
