"""The records that a consumer with read_committed gets, and whether each of them is there once.

    tenure.records("invoices")                                       # those that are committed
    tenure.assert_exactly_once("invoices", [b"1", b"2"])             # no value is missing, none is there twice

House rule: all of it comes from requests that any client may send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.client.client import Client, metadata_request, nodes_of
from coordinator.client.errors import Refused
from coordinator.client.events import NO_SESSION
from coordinator.client.topics import CONSUMER_REPLICA, EARLIEST, LATEST
from coordinator.client.transactions import Transaction
from coordinator.transaction.state import Status
from protocol.messages import FetchRequest, ListOffsetsRequest
from protocol.records.batch import HEADER_SIZE, Header, peek_header
from protocol.records.varint import unzigzag, varint_at
from protocol.records.walk import DECOMPRESSED_SIZE_MAX, unpacked, walk

if TYPE_CHECKING:
    from protocol.messages import FetchResponse, ListOffsetsResponse, MetadataResponse

    Ask = Callable[..., Any]
    """Client.request of a partition's leader."""

READ_COMMITTED = 1
FETCH_BYTES = 1024 * 1024
"""The most bytes of one answer, if one batch isn't larger."""

ENDING = frozenset({Status.PREPARE_COMMIT.label, Status.PREPARE_ABORT.label})

SHOWN = 10
"""Values that an error names."""


def are_ending(transactions: Iterable[Transaction]) -> bool:
    """Whether the end of one is decided, and some of its partitions don't know yet."""
    return any(each.state in ENDING for each in transactions)


class Record(NamedTuple):
    """A record of a topic. timestamp_ms: Unix time."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def committed_records(client: Client, topic: str) -> list[Record]:
    """The records that a consumer with read_committed gets, partition by partition. Raises Refused."""
    found: MetadataResponse = client.request(metadata_request([topic]), at_least=4)
    (named,) = found.topics
    if named.error_code:
        raise Refused(named.error_code, f"topic {topic}")
    nodes = nodes_of(found)
    records: list[Record] = []
    for each in sorted(named.partitions, key=lambda partition: partition.partition_index):
        records += _of_partition(partial(client.request, node=nodes[each.leader_id]), named, each.partition_index)
    return records


def assert_exactly_once(topic: str, found: Iterable[Record], values: Iterable[bytes]) -> None:
    """Each of these values is in one record, and no other value is in any."""
    __tracebackhide__ = True
    read = Counter(record.value for record in found)
    wanted: Counter[bytes | None] = Counter(values)
    twice = {value: read[value] for value in read if read[value] > max(wanted[value], 1)}
    kinds: dict[str, Sequence[object]] = {
        "missing": [value for value in wanted if not read[value]],
        "more than once": [f"{value!r}: {count} times" for value, count in twice.items()],
        "not expected": [value for value in read if not wanted[value]],
    }
    lines = [f"    {name}: {_cut(those)}" for name, those in kinds.items() if those]
    if read != wanted:
        total = f"{read.total()} committed records, expected {wanted.total()}"
        raise AssertionError("\n".join([f"topic {topic}: {total}", *lines]))


def _cut(values: Sequence[object]) -> str:
    more = f", and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(each if isinstance(each, str) else repr(each) for each in values[:SHOWN]) + more


def _of_partition(ask: Ask, topic: MetadataResponse.MetadataResponseTopic, number: int) -> Iterator[Record]:
    place, end = (_offset(ask, topic.name or "", number, which) for which in (EARLIEST, LATEST))
    while place < end:
        fetched = _fetch(ask, topic, number, place)
        aborted = sorted((each.first_offset, each.producer_id) for each in fetched.aborted_transactions or ())
        open_ids: set[int] = set()
        first = place
        for header, records in _batches(number, fetched.records or b""):
            while aborted and aborted[0][0] < header.next_offset:
                open_ids.add(aborted.pop(0)[1])
            if header.is_control:
                open_ids.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in open_ids:
                yield from (record for record in records if first <= record.offset < end)
            place = header.next_offset
        if place == first:
            return


def _batches(number: int, data: bytes) -> Iterator[tuple[Header, list[Record]]]:
    """The batches of an answer, each with its records. The last one may be cut off."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = peek_header(data, position)
        if position + header.size > len(data):
            return
        body, at, end = unpacked(data, position, header, DECOMPRESSED_SIZE_MAX)
        records = []
        for _, _, delta_ms, delta, key_size, key_at in walk(body, at, end, header.record_count):
            key, at = _bytes(body, key_size, key_at)
            value, _ = _bytes(body, *varint_at(body, at))
            timestamp_ms = header.base_timestamp_ms + delta_ms
            records.append(Record(number, header.base_offset + unzigzag(delta), key, value, timestamp_ms))
        yield header, records
        position += header.size


def _bytes(data: bytes, size: int, at: int) -> tuple[bytes | None, int]:
    """A key or a value, and the place behind it. size: as it is encoded; -1 stands for none."""
    end = at + max(unzigzag(size), 0)
    return (None if unzigzag(size) < 0 else data[at:end]), end


def _offset(ask: Ask, topic: str, number: int, which: int) -> int:
    """The first offset of a partition, or the last stable one."""
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=which)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    request = ListOffsetsRequest(replica_id=CONSUMER_REPLICA, isolation_level=READ_COMMITTED, topics=topics)
    answer: ListOffsetsResponse = ask(request, at_least=2)
    (found,) = answer.topics[0].partitions
    if found.error_code:
        raise Refused(found.error_code, f"topic {topic}")
    return found.offset


def _fetch(
    ask: Ask, topic: MetadataResponse.MetadataResponseTopic, number: int, offset: int
) -> FetchResponse.PartitionData:
    wanted = FetchRequest.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    topics = [FetchRequest.FetchTopic(topic=topic.name or "", topic_id=topic.topic_id, partitions=[wanted])]
    request = FetchRequest(
        max_bytes=FETCH_BYTES, isolation_level=READ_COMMITTED, session_epoch=NO_SESSION, topics=topics
    )
    answer: FetchResponse = ask(request, at_least=4)
    if answer.error_code:
        raise Refused(answer.error_code, f"topic {topic.name}")
    (found,) = answer.responses[0].partitions
    if found.error_code:
        raise Refused(found.error_code, f"topic {topic.name}")
    return found
