"""The reader of `__rebalance_events` returns all events in the order of time, and skips records that it can't read."""

from __future__ import annotations

import json
import sys
from typing import Any
from uuid import UUID

import pytest

from coordinator.client import events
from coordinator.client.client import Client
from coordinator.client.errors import Refused, Unreachable
from coordinator.client.events import NONE_SO_LATE, EventReader, NoEvents, absent_line
from coordinator.client.topics import EARLIEST, LATEST
from coordinator.story.events import RebalanceEvent, event_json
from protocol.messages import FetchRequest, ListOffsetsRequest, MetadataRequest
from protocol.records.batch import CorruptBatch, Record, encode_batch
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.support.reading import poll
from tests.support.requests import response
from tests.support.told import told


class Cluster(Client):
    """A cluster of one node. Each partition has, for each Fetch, the bytes and the offset behind them.

    is_generous: a Fetch returns as much as it may. fetched: bytes so far. away: partitions whose leader doesn't answer.
    absent: partitions that have no leader. nobodys: partitions that no node has had either. is_noticed: whether the
    cluster has noticed that the leader of partitions is away.
    """

    def __init__(self, *partitions: list[tuple[int, bytes]], start: int = 0) -> None:
        super().__init__("127.0.0.1:1")
        self.partitions = list(partitions)
        self.start = start
        self.error = ErrorCode.NONE
        self.topic_id = UUID(int=7)
        self.leader = 1
        self.is_generous = False
        self.fetched = 0
        self.away: set[int] = set()
        self.absent: set[int] = set()
        self.nobodys: set[int] = set()
        self.is_noticed = False

    def request(self, message: Any, node: Any = None, *, at_least: int = 0, at_most: int = 0) -> Any:
        """Answer as a server would."""
        if isinstance(message, MetadataRequest):
            absent = self.absent | self.nobodys | (self.away if self.is_noticed else set())
            partitions = [
                {
                    "partition_index": index,
                    "leader_id": -1 if index in absent else self.leader,
                    "replica_nodes": [] if index in self.nobodys else [index + 10],
                }
                for index in range(len(self.partitions))
            ]
            topic = {"name": "__rebalance_events", "topic_id": self.topic_id, "error_code": self.error}
            brokers = [{"node_id": 1, "host": "127.0.0.1", "port": 1}]
            return response("Metadata", brokers=brokers, topics=[{**topic, "partitions": partitions}])
        if isinstance(message, ListOffsetsRequest):
            return self._offset(message)
        assert isinstance(message, FetchRequest)
        (asked,) = message.topics[0].partitions
        assert message.topics[0].topic_id == self.topic_id
        if asked.partition in self.away:
            raise Unreachable("127.0.0.1:1: Connection refused")
        answer: dict[str, Any] = {"partition_index": asked.partition, "log_start_offset": self.start}
        if asked.fetch_offset < self.start:
            answer |= {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE, "log_start_offset": -1}
        else:
            first, *others = [data for end, data in self.partitions[asked.partition] if end > asked.fetch_offset] or [
                b""
            ]
            for more in others if self.is_generous else ():
                if len(first) + len(more) > asked.partition_max_bytes:
                    break
                first += more
            answer["records"] = first
            self.fetched += len(first)
        return response("Fetch", responses=[{"topic": "__rebalance_events", "partitions": [answer]}])

    def _offset(self, message: ListOffsetsRequest) -> Any:
        """The end of a partition, or its first record with that time or a later one."""
        (asked,) = message.topics[0].partitions
        batches = [batch for _, data in self.partitions[asked.partition_index] for batch in decode_batches(data)]
        places = [place for batch in batches for place in zip(batch.offsets, batch.records, strict=True)]
        late = [offset for offset, record in places if record.timestamp_ms >= asked.timestamp]
        offset = min(late, default=NONE_SO_LATE)
        if asked.timestamp in {LATEST, EARLIEST}:
            offset = self.start + len(places) if asked.timestamp == LATEST else self.start
        return response("ListOffsets", topics=[{"partitions": [{"offset": offset}]}])


def timed(*times_ms: int) -> tuple[int, bytes]:
    """A batch of records with these times."""
    written = [Record(b"g", event(at_ms), at_ms) for at_ms in times_ms]
    return len(written), encode_batch(written, 0, 0)


def records(base_offset: int, *values: bytes, key: bytes = b"g") -> tuple[int, bytes]:
    """A batch and the offset behind it."""
    batch = encode_batch([Record(key, value, 1) for value in values], base_offset, 0)
    return base_offset + len(values), batch


def event(at_ms: Any, /, **other: Any) -> bytes:
    """The value of an event's record."""
    return json.dumps(
        {"version": 1, "type": "rebalance_stuck", "at_ms": at_ms, "group": "g", "generation": 1} | other
    ).encode()


def times(events: list[RebalanceEvent]) -> list[int]:
    """The times of the events."""
    return [event.at_ms for event in events]


def test_all_partitions_are_read_to_their_ends_in_order_of_time() -> None:
    """The reader takes one batch after the other; behind the end it returns nothing."""
    cluster = Cluster([records(0, event(1), event(5)), records(2, event(9))], [records(0, event(3))])
    reader = EventReader(cluster)
    assert times(reader.read()) == [1, 3, 5, 9]
    assert reader.read() == []


def test_what_comes_later_is_polled() -> None:
    """A poll goes on where the reader was."""
    cluster = Cluster([records(0, event(1))])
    reader = EventReader(cluster)
    assert times(reader.read()) == [1]
    cluster.partitions[0].append(records(1, event(2)))
    assert times(poll(reader)) == [2]
    assert poll(reader) == []


def test_a_poll_keeps_its_time_while_others_are_busy() -> None:
    """A poll asks each partition once, even if it skipped all records that came."""
    others = [records(0, event(1), key=b"other"), records(1, event(2), key=b"other")]
    reader = EventReader(Cluster([*others, records(2, event(3))]), "g")
    assert [times(poll(reader)) for _ in range(4)] == [[], [], [3], []]
    assert times(EventReader(Cluster([*others, records(2, event(3))]), "g").read()) == [3]


def test_what_retention_took_is_gone() -> None:
    """The reader goes on with the records that retention kept."""
    assert times(EventReader(Cluster([records(5, event(8))], start=5)).read()) == [8]


def test_what_cant_be_read_is_counted() -> None:
    """The reader counts other bytes, other versions and events without a time, and reads the records behind them."""
    values = (b"", b"{", b"[]", event(1, version=2), event(1, at_ms="now"))
    reader = EventReader(Cluster([records(0, *values), records(len(values), event(7))]))
    assert times(reader.read()) == [7]
    assert reader.passed_over == len(values)


def test_a_batch_that_is_cut_short_comes_again() -> None:
    """A Fetch may end inside a batch, even if all records before it are of other groups."""
    end, whole = records(0, event(1))
    last = records(1, event(2), key=b"other")
    cluster = Cluster([(end, whole + last[1][:-3]), last])
    assert times(EventReader(cluster).read()) == [1, 2]
    assert times(EventReader(cluster, "other").read()) == [2]


def test_a_batch_that_is_damaged_is_no_end() -> None:
    """If a batch is never complete, however often it is fetched, the reader raises."""
    end, whole = records(0, event(1))
    damaged = Cluster([(end, whole), (end + 1, records(1, event(2))[1][:-3])])
    for group_id in (None, "other"):
        with pytest.raises(CorruptBatch):
            EventReader(damaged, group_id).read()


def test_a_reader_may_begin_at_a_time() -> None:
    """The reader begins at the time in each partition; a partition with only older records has no events."""
    reader = EventReader(Cluster([timed(10, 20, 30)], [timed(5, 15)]))
    reader.begin_at(20)
    assert times(reader.read()) == [20, 30]
    reader.begin_at(15)
    assert times(reader.read()) == [15, 20, 30]


def test_a_reader_may_begin_with_the_newest() -> None:
    """The reader begins with so many records of each partition, or with all if there are fewer."""
    reader = EventReader(Cluster([timed(10, 20, 30)], [timed(5)]))
    reader.begin_with(2)
    assert times(reader.read()) == [5, 20, 30]


def test_the_newest_are_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step returns more events, all since a time, at last every event; no record is decoded twice."""
    monkeypatch.setattr(events, "BACK_FIRST", 1)
    monkeypatch.setattr(events, "BACK_GROWTH", 2)
    quick = [
        (offset + 1, encode_batch([Record(b"g", event(at_ms), at_ms)], offset, 0))
        for offset, at_ms in enumerate((10, 20, 30, 40, 50))
    ]
    broken = (1, encode_batch([Record(b"g", b"{", 5)], 0, 0))
    reader = EventReader(Cluster(quick, [broken, (2, encode_batch([Record(b"g", event(35), 35)], 1, 0))]))
    back = [(times(found), since_ms) for found, since_ms in reader.read_back()]
    assert back == [([], 50), ([50], 40), ([30, 35, 40, 50], 20), ([10, 20, 30, 35, 40, 50], 0)]
    assert reader.passed_over == 1
    assert poll(reader) == [], "it goes on behind the end"


def test_a_gap_that_was_told_late_says_nothing_of_what_stands_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap has the time of the lost events, which says nothing about the records before it."""
    monkeypatch.setattr(events, "BACK_FIRST", 2)
    first = (1, encode_batch([Record(b"g", event(40), 40)], 0, 0))
    gap = (2, encode_batch([Record(b"", event_json(told("events_dropped", at_ms=10)), 10)], 1, 0))
    last = (3, encode_batch([Record(b"g", event(50), 50)], 2, 0))
    back = [(times(found), since_ms) for found, since_ms in EventReader(Cluster([first, gap, last])).read_back()]
    assert back == [([], 50), ([10, 40, 50], 0)]
    monkeypatch.setattr(events, "BACK_FIRST", 1)
    back = [(times(found), since_ms) for found, since_ms in EventReader(Cluster([first, gap])).read_back()]
    assert back == [([], sys.maxsize), ([10, 40], 0)]


def test_the_newest_since_a_time_end_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps end at that time, or at the first record that retention kept."""
    monkeypatch.setattr(events, "BACK_FIRST", 1)
    reader = EventReader(Cluster([timed(10, 20, 30)]))
    reader.begin_at(20)
    assert [times(found) for found, _ in reader.read_back()][-1] == [20, 30]
    reader = EventReader(Cluster([records(5, event(8))], start=5))
    assert [times(found) for found, _ in reader.read_back()][-1] == [8]


def test_one_partition_that_is_away_hides_nothing_of_the_others() -> None:
    """The others return their events, and the missing partition loses none: they come when it answers again."""
    cluster = Cluster([records(0, event(1))], [records(0, event(2))])
    reader = EventReader(cluster)
    cluster.away.add(1)
    found, problem = reader.poll_each(0)
    assert (times(found), str(problem)) == ([1], "127.0.0.1:1: Connection refused")
    with pytest.raises(Unreachable):
        poll(reader)
    cluster.away.clear()
    assert times(poll(reader)) == [2]


def test_a_node_that_is_absent_hides_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partition is passed over and named; when it is back, the reader finds it and goes on where it was."""
    monkeypatch.setattr("coordinator.client.events.FIND_S", 0)
    cluster = Cluster([records(0, event(1))], [records(0, event(2))])
    cluster.absent.add(0)
    reader = EventReader(cluster)
    assert (reader.absent, times(reader.read())) == ((0,), [2])
    cluster.absent.clear()
    assert times(poll(reader)) == [1]
    assert not reader.absent
    cluster.absent.add(1)
    cluster.partitions[1].append(records(1, event(3)))
    assert times(poll(reader)) == []
    assert list(reader.absent) == [1]
    assert times(poll(reader)) == []
    cluster.absent.clear()
    assert times(poll(reader)) == [3]


def test_a_node_that_goes_while_the_reader_reads() -> None:
    """Its events are left out, and it is named; but a node that the cluster still has is an error."""
    for read in (EventReader.read, lambda reader: [*reader.read_back()][-1][0]):
        cluster = Cluster([records(0, event(1))], [records(0, event(2))])
        reader = EventReader(cluster)
        cluster.away.add(1)
        with pytest.raises(Unreachable):
            read(reader)
        cluster.away.clear()
        reader = EventReader(cluster)
        cluster.away.add(1)
        cluster.is_noticed = True
        assert times(read(reader)) == [1]
        assert absent_line(reader.absent, reader.topic, reader.absent_nodes) == (
            "node 11 is away: events in __rebalance_events-1, if there are any, are not shown"
        )  # fmt: skip


def test_a_partition_that_no_node_has_had_is_not_absent() -> None:
    """Ids of nodes may begin at 11; then nobody misses what the nodes 0 to 10 would have."""
    cluster = Cluster([records(0, event(1))], [records(0, event(2))], [records(0, event(3))])
    cluster.nobodys, cluster.absent = {0}, {2}
    reader = EventReader(cluster)
    assert (reader.absent, reader.absent_nodes, times(reader.read())) == ((2,), (12,), [2])


def test_a_reader_that_finds_the_topic_again_goes_on_where_it_was() -> None:
    """A new partition is read from its start; another topic of that name is read as a whole."""
    cluster = Cluster([records(0, event(1))])
    reader = EventReader(cluster)
    assert times(reader.read()) == [1]
    cluster.partitions[0].append(records(1, event(2)))
    cluster.partitions.append([records(0, event(3))])
    reader.find_again()
    assert times(poll(reader)) == [2, 3]
    cluster.topic_id = UUID(int=8)
    reader.find_again()
    assert times(reader.read()) == [1, 2, 3]


def test_a_log_that_was_put_back_is_read_from_its_start() -> None:
    """A restored backup ends before the reader's position: the reader returns some events twice rather than none."""

    class PutBack(Cluster):
        def request(self, message: Any, node: Any = None, *, at_least: int = 0, at_most: int = 0) -> Any:
            answer = super().request(message, node, at_least=at_least, at_most=at_most)
            if isinstance(message, FetchRequest) and message.topics[0].partitions[0].fetch_offset > 1:
                part = answer.responses[0].partitions[0]
                part.error_code, part.log_start_offset, part.records = ErrorCode.OFFSET_OUT_OF_RANGE, -1, None
            return answer

    cluster = Cluster([records(0, event(1), event(2))])
    reader = EventReader(cluster)
    assert times(reader.read()) == [1, 2]
    restored = PutBack([records(0, event(1))])
    reader._client = restored
    assert [times(poll(reader)) for _ in range(3)] == [[], [1], []]


def test_a_reader_of_one_group() -> None:
    """The reader skips other groups without decoding them; it returns gaps, which may concern any group."""
    batch = [(b"g", event(1)), (b"other", b"{"), (b"", event(3)), (b"other", event(4))]
    data = encode_batch([Record(key, value, 1) for key, value in batch], 0, 0)
    reader = EventReader(Cluster([(len(batch), data)]), "g")
    assert times(reader.read()) == [1, 3]
    assert reader.passed_over == 0


def test_a_cluster_without_the_topic() -> None:
    """A cluster without the topic raises NoEvents: it isn't Tenure, or it keeps no events."""
    cluster = Cluster()
    cluster.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(NoEvents, match="only Tenure keeps"):
        EventReader(cluster)
    cluster.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(Refused):
        EventReader(cluster)
    cluster = Cluster([])
    cluster.leader = 2
    with pytest.raises(Refused, match="LEADER_NOT_AVAILABLE"):
        EventReader(cluster)
