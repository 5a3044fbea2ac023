"""The events of groups that a server kept: reads the records of `__rebalance_events` as any consumer could.

    reader = EventReader(client)
    for event in reader.read():      # all events so far, in the order of time
        ...
    while True:
        for placed in reader.poll_placed(500):
            ...

If a caller needs only the newest events, `read_back` reads from the end: each step brings more, until the caller has
enough.

In a cluster each node keeps the partition with the number of its id. The partition of a node that isn't there is passed
over (`absent`); the reader looks again every FIND_S, and goes on where it was.

Only Tenure has the topic; for any other server the reader raises NoEvents. The classes of events are in
`coordinator.story.events`.

House rule: the reader skips and counts a record that it can't read or that has a later version.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

from coordinator.client.client import Client, Node, metadata_request, nodes_of
from coordinator.client.errors import ClientError, Refused, Unreachable
from coordinator.client.topics import CONSUMER_REPLICA, EARLIEST, LATEST
from coordinator.story.events import RebalanceEvent, read_event
from coordinator.story.schema import EVENTS_TOPIC
from protocol.errors import ProtocolError
from protocol.messages import FetchRequest, ListOffsetsRequest
from protocol.records.batch import CorruptBatch, Record
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import FetchResponse, ListOffsetsResponse, Message, MetadataResponse

RECORD_BATCHES_SINCE = 4
"""The first version of Fetch that returns batches in the current format."""

FETCH_BYTES, FETCH_MIN_BYTES = 4 * 1024 * 1024, 64 * 1024
"""The most bytes that a Fetch asks for, and the least: each Fetch costs a round trip."""

RECORD_OVERHEAD_BYTES = 32
"""About so many bytes of a record are neither key nor value: its own fields and its share of the batch's header."""

NO_SESSION = -1
NONE_SO_LATE = -1
"""ListOffsets' answer if no record is as new as the requested time."""

FIND_S = 5.0
"""How often a reader that polls several partitions looks for nodes that came or went."""

BACK_FIRST, BACK_GROWTH = 1_000, 4
"""Records of each partition in the first step back from the end, and the factor by which each step grows."""

Answer = TypeVar("Answer")


class Placed(NamedTuple):
    """An event with its partition and offset."""

    partition: int
    offset: int
    event: RebalanceEvent


class Polled(NamedTuple):
    """The events of one poll, in the order of time, and the error of a partition, if there was one."""

    events: list[RebalanceEvent]
    problem: ClientError | None


class NoEvents(ClientError):
    """The cluster keeps no events."""


class Poller(ABC):
    """A reader that waits for further events.

    topic: the one that it reads. topic_id: its id; offsets are valid only for the topic with this id.
    """

    topic: str
    topic_id: UUID
    _client: Client

    @abstractmethod
    def _leader(self, partition: int) -> Node | None:
        """The node to ask about a partition."""

    def _offset(self, partition: int, at_ms: int) -> int:
        """The first offset of a partition with this time or a later one. at_ms: or LATEST, EARLIEST."""
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=at_ms)
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=self.topic, partitions=[asked])]
        request = ListOffsetsRequest(replica_id=CONSUMER_REPLICA, topics=topics)
        response: ListOffsetsResponse = self._client.request(request, self._leader(partition), at_least=1)
        answer = only(each for topic in response.topics for each in topic.partitions)
        if answer.error_code:
            raise self._refused(answer.error_code, partition, ListOffsetsRequest)
        return answer.offset

    def _fetch_request(
        self, partitions: list[FetchRequest.FetchPartition], wait_ms: int, max_bytes: int
    ) -> FetchRequest:
        """Asks for records of the topic, without a session. wait_ms: how long the answer may wait for the first one."""
        topic = FetchRequest.FetchTopic(topic=self.topic, topic_id=self.topic_id, partitions=partitions)
        return FetchRequest(
            replica_id=CONSUMER_REPLICA,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_epoch=NO_SESSION,
            topics=[topic],
        )

    def _refused(self, error_code: int, partition: int, request: type[Message]) -> Refused:
        """The error of an answer about a partition of the topic."""
        return self._client.refused(error_code, f"{self.topic}-{partition}", request, self.topic)

    @abstractmethod
    def _poll(self, wait_ms: int) -> tuple[list[Placed], ClientError | None]:
        """The next events in the order of time, and the error of a partition, if there was one."""

    @abstractmethod
    def read_placed(self) -> list[Placed]:
        """All events up to now, each with its partition and offset."""

    def read(self) -> list[RebalanceEvent]:
        """All events up to now, in the order of time."""
        return [each.event for each in self.read_placed()]

    def poll_placed(self, wait_ms: int) -> list[Placed]:
        """The next events with their places, in the order of time; none if none arrive within about that time.

        The list is also empty, and comes sooner, if the reader skipped all new records: to wait for more, poll again.
        Raises the error of a partition if the other partitions have no events.
        """
        events, problem = self._poll(wait_ms)
        if problem is not None and not events:
            raise problem
        return events

    def poll_each(self, wait_ms: int) -> Polled:
        """Poll as `poll_placed` does; returns the error of a partition beside the others' events; no event is lost."""
        events, problem = self._poll(wait_ms)
        return Polled([each.event for each in events], problem)


class EventReader(Poller):
    """Reads the events of a cluster from the oldest on. Raises NoEvents if there is no such topic.

    group_id: only events of this group, and gaps, which may concern any group. The reader fetches other records but
    doesn't decode them.
    passed_over: records that could not be read. absent: partitions whose node isn't there; absent_nodes: the ids of
    those nodes. A node that goes while the reader reads is passed over too, once the cluster has noticed.
    """

    topic = EVENTS_TOPIC

    def __init__(self, client: Client, group_id: str | None = None) -> None:
        self._client = client
        self._keys = None if group_id is None else {group_id.encode(errors="replace"), b""}
        self.passed_over = 0
        self.absent: tuple[int, ...] = ()
        self.absent_nodes: tuple[int, ...] = ()
        self.topic_id = UUID(int=0)
        self._leaders: dict[int, Node] = {}
        self._next: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._found_s = 0.0
        self._find()

    def _find(self) -> None:
        """Find the leaders of the partitions."""
        response: MetadataResponse = self._client.request(metadata_request([EVENTS_TOPIC]), at_least=4)
        nodes = nodes_of(response)
        topic = topic_of(response, EVENTS_TOPIC)
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NoEvents(
                f"this cluster has no topic {EVENTS_TOPIC}: only Tenure keeps events of groups, "
                "and only without tenure.events.enable=false"
            )
        if topic.error_code:
            # Describe alone is of no use here, and Read brings it.
            raise self._client.refused(topic.error_code, f"topic {EVENTS_TOPIC!r}", FetchRequest, EVENTS_TOPIC)
        self.topic_id = topic.topic_id
        leaders = {each.partition_index: nodes.get(each.leader_id) for each in topic.partitions}
        self._leaders = {partition: node for partition, node in leaders.items() if node is not None}
        if not self._leaders:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {EVENTS_TOPIC!r}")
        # A partition that no node has or had isn't away: ids of nodes may begin at any number.
        away = {
            each.partition_index: each.leader_id if each.leader_id >= 0 else each.replica_nodes[0]
            for each in topic.partitions
            if each.partition_index not in self._leaders and (each.leader_id >= 0 or each.replica_nodes)
        }
        self.absent, self.absent_nodes = tuple(sorted(away)), tuple(sorted(set(away.values())))
        self._next = dict.fromkeys(self._leaders, 0)
        self._found_s = time.monotonic()

    def find_again(self) -> None:
        """Find the leaders of the partitions anew, and go on in each partition where the reader was.

        A new partition is read from its start. Raises the errors of a new reader.
        """
        topic_id, known = self.topic_id, self._left | self._next
        self._find()
        self._left = {}
        if self.topic_id == topic_id:
            self._next |= {partition: offset for partition, offset in known.items() if partition in self._next}
            self._left = {partition: offset for partition, offset in known.items() if partition not in self._next}

    def begin_at(self, at_ms: int) -> None:
        """Skip records that were written before this time (Unix time in ms)."""
        ends = self._offsets(LATEST)
        for partition, offset in self._offsets(at_ms).items():
            self._next[partition] = ends.get(partition, 0) if offset == NONE_SO_LATE else offset

    def begin_with(self, newest: int) -> None:
        """Skip all records of each partition but the `newest` last ones."""
        for partition, end in self._offsets(LATEST).items():
            self._next[partition] = max(end - newest, 0)

    def _offsets(self, at_ms: int) -> dict[int, int]:
        """By partition, the first offset with that time or a later one; NONE_SO_LATE if there is none."""
        found = ((partition, self._of(partition, partial(self._offset, partition, at_ms))) for partition in self._known)
        return {partition: offset for partition, offset in found if offset is not None}

    @property
    def _known(self) -> list[int]:
        """The partitions that have a node, as a list that stays if one goes."""
        return list(self._leaders)

    def _of(self, partition: int, ask: Callable[[], Answer]) -> Answer | None:
        """The answer of a partition's node; None if it doesn't answer, and the cluster has noticed that it is gone.

        Raises Unreachable if it is still a node of the cluster.
        """
        if partition not in self._leaders:
            return None
        try:
            return ask()
        except Unreachable:
            self.find_again()
            if partition in self._leaders:
                raise
            return None

    def _leader(self, partition: int) -> Node:
        return self._leaders[partition]

    @property
    def reached(self) -> dict[int, int]:
        """By partition, the offset of the next record to read."""
        return dict(self._next)

    def read_placed(self) -> list[Placed]:
        """As Poller."""
        events: list[Placed] = []
        for partition in self._known:
            reached = -1
            while reached != self._next.get(partition, reached):
                reached = self._next[partition]
                events += self._decoded(partition, self._of(partition, partial(self._fetch, partition, 0)) or ())
        return in_order(events)

    def read_back(self) -> Iterator[tuple[list[RebalanceEvent], int]]:
        """Yield the newest events in the order of time, then more and more of them, at last all that `read` returns.

        Each step also yields a time (Unix time in ms), 0 in the last step. The step has all events after this time, and
        none of the older ones.
        """
        firsts = {partition: max(first, self._next[partition]) for partition, first in self._offsets(EARLIEST).items()}
        ends = {partition: end for partition, end in self._offsets(LATEST).items() if partition in firsts}
        begins = dict(ends)
        found: dict[int, list[Placed]] = {partition: [] for partition in begins}
        began_ms = dict.fromkeys(begins, sys.maxsize)
        newest = BACK_FIRST
        record_bytes = dict.fromkeys(begins, FETCH_BYTES)
        is_all = False
        while not is_all:
            for partition, end in ends.items():
                begin = max(end - newest, firsts[partition])
                span = begin, begins[partition], record_bytes[partition]
                records = self._of(partition, partial(self._between, partition, *span))
                if records is None:  # no more of it
                    begins[partition] = firsts[partition]
                    continue
                if records:
                    size = sum(len(record.key) + len(record.value or b"") for _, record in records)
                    record_bytes[partition] = size // len(records) + RECORD_OVERHEAD_BYTES
                found[partition] = [*self._decoded(partition, records), *found[partition]]
                # A server writes a gap when it can, perhaps much later: the time of a gap says nothing about the
                # records before it.
                times_ms = (record.timestamp_ms for _, record in records if record.key)
                began_ms[partition] = next(times_ms, began_ms[partition])
                begins[partition] = begin
            is_all = all(begin <= firsts[partition] for partition, begin in begins.items())
            since_ms = max((began_ms[each] for each, begin in begins.items() if begin > firsts[each]), default=0)
            events = in_order(chain.from_iterable(found.values()))
            yield [each.event for each in events if is_all or each.event.at_ms > since_ms], since_ms
            newest *= BACK_GROWTH
        self._next = {partition: ends.get(partition, at) for partition, at in self._next.items()}

    def _between(self, partition: int, begin: int, end: int, record_bytes: int) -> list[tuple[int, Record]]:
        """The records from one offset to another; `record_bytes`, their size on average, keeps the Fetch small."""
        self._next[partition] = begin
        records: list[tuple[int, Record]] = []
        reached = -1
        while reached != self._next[partition] < end:
            reached = self._next[partition]
            most = min(max((end - reached) * record_bytes, FETCH_MIN_BYTES), FETCH_BYTES)
            records += (each for each in self._fetch(partition, 0, most) if each[0] < end)
        return records

    def _poll(self, wait_ms: int) -> tuple[list[Placed], ClientError | None]:
        events: list[Placed] = []
        problem: ClientError | None = None
        if len(self._leaders) + len(self.absent) > 1 and time.monotonic() > self._found_s + FIND_S:
            self.find_again()
        for partition in self._leaders:
            try:
                fetched = self._fetch(partition, wait_ms // len(self._leaders))
            except ClientError as error:
                problem = error
            else:
                events += self._decoded(partition, fetched)
        return in_order(events), problem

    def _fetch(self, partition: int, wait_ms: int, most: int = FETCH_BYTES) -> list[tuple[int, Record]]:
        """The records of one Fetch with their offsets; if the offset doesn't move, it is the end of the partition."""
        answer = self._ask(partition, wait_ms, most)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Retention removed the records, or this is another log, which is read from its start. The response doesn't
            # have the start of the log.
            start = self._offset(partition, EARLIEST)
            if start != self._next[partition]:
                self._next[partition] = start
                return []
        if answer.error_code:
            raise self._refused(answer.error_code, partition, FetchRequest)
        return self._records(partition, answer.records or b"")

    def _ask(self, partition: int, wait_ms: int, most: int) -> FetchResponse.PartitionData:
        wanted = FetchRequest.FetchPartition(
            partition=partition, fetch_offset=self._next[partition], partition_max_bytes=most
        )
        request = self._fetch_request([wanted], wait_ms, most)
        response: FetchResponse = self._client.request(request, self._leaders[partition], at_least=RECORD_BATCHES_SINCE)
        if response.error_code:
            raise self._refused(response.error_code, partition, FetchRequest)
        return only(each for topic in response.responses for each in topic.partitions)

    def _records(self, partition: int, data: bytes) -> list[tuple[int, Record]]:
        """The records in the bytes of a Fetch, without those that the reader already has."""
        records: list[tuple[int, Record]] = []
        start = self._next[partition]
        try:
            for batch in decode_batches(data):
                for offset, record in zip(batch.offsets, batch.records, strict=True):
                    if offset >= self._next[partition]:
                        self._next[partition] = offset + 1
                        records.append((offset, record))
        except CorruptBatch:
            # If the last batch is cut short, the next Fetch returns it whole.
            if self._next[partition] == start:
                raise
        return records

    def _decoded(self, partition: int, records: Iterable[tuple[int, Record]]) -> list[Placed]:
        """The events of the group that the reader reads, or of all groups."""
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


def topic_of(response: MetadataResponse, name: str) -> MetadataResponse.MetadataResponseTopic:
    """The topic in an answer. Raises ProtocolError if it isn't there."""
    return only(topic for topic in response.topics if topic.name == name)


def only(answers: Iterable[Answer]) -> Answer:
    """The part of an answer that a server must send. Raises ProtocolError if it isn't there."""
    for answer in answers:
        return answer
    raise ProtocolError("the server's answer lacks a part")


def absent_line(absent: Iterable[int], topic: str, nodes: Sequence[int] = ()) -> str:
    """A line about partitions whose nodes aren't there."""
    names = ", ".join(map(str, absent))
    if nodes:
        who = f"node {nodes[0]} is" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))} are"
        return f"{who} away: events in {topic}-{names}, if there are any, are not shown"
    return f"no node has {topic}-{names} now: events there, if there are any, are not shown"


def in_order(events: Iterable[Placed]) -> list[Placed]:
    """Events in the order of their times."""
    return sorted(events, key=lambda each: each.event.at_ms)
