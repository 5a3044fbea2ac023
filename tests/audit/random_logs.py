"""Random logs for Hypothesis: valid records of every version, odd ones, every attribute of a batch, and damage.

House rule: this module makes bytes; only the code under test interprets them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.messages import GroupMetadataValue, OffsetCommitValue, encode
from protocol.records.batch import Record, encode_batch
from protocol.records.codecs import Codec
from tests.audit.scenes import (
    CONTROL,
    START_MS,
    TRANSACTIONAL,
    Member,
    assignment,
    compressed,
    group_key,
    newer_key,
    offset_key,
    subscription,
    versioned,
    with_attributes,
)

LOG_APPEND_TIME = 0x08
DELETE_HORIZON = 0x40

texts = st.text(max_size=20)
names = st.sampled_from(["g", "group-1", "a-group-with-a-long-name", "ünïcödé", ""])
member_data = (
    st.builds(subscription, st.lists(texts, max_size=3), st.integers(0, 3))
    | st.builds(assignment, st.dictionaries(texts, st.lists(st.integers(0, 9), max_size=4), max_size=3))
    | st.binary(max_size=20)
)
OFTEN_ONE = st.sampled_from([1, 1, 1, 1, 1, 15])
"""How many times a list is repeated. Columns read many records and members in step, and the longest list ends last."""
milliseconds = st.sampled_from([-1, 0, START_MS, START_MS + 1, 2**60])

members = st.builds(
    Member,
    member_id=texts,
    group_instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    rebalance_timeout=st.integers(-1, 2**31 - 1),
    session_timeout=st.integers(-1, 2**31 - 1),
    subscription=member_data,
    assignment=member_data,
)


@st.composite
def group_values(draw: st.DrawFn) -> bytes:
    """Draw a group's value of any version, mostly of the version that Kafka 3 writes."""
    version = draw(st.sampled_from([3, 3, 3, 0, 1, 2, 4]))
    value = GroupMetadataValue(
        protocol_type=draw(st.sampled_from(["consumer", "consumer", "connect", ""])),
        generation=draw(st.integers(0, 2**31 - 1)),
        protocol=draw(st.none() | texts),
        leader=draw(st.none() | texts),
        current_state_timestamp=draw(milliseconds),
        members=draw(st.lists(members, max_size=4)) * draw(OFTEN_ONE),
    )
    return versioned(version, encode(value, version))


@st.composite
def offset_values(draw: st.DrawFn) -> bytes:
    """Draw a committed offset's value of any version."""
    version = draw(st.sampled_from([3, 3, 3, 0, 1, 2, 4]))
    value = OffsetCommitValue(
        offset=draw(st.integers(-1, 2**63 - 1)),
        leader_epoch=draw(st.integers(-1, 9)),
        metadata=draw(texts),
        commit_timestamp=draw(milliseconds),
        expire_timestamp=draw(milliseconds),
    )
    return versioned(version, encode(value, version))


@st.composite
def damaged(draw: st.DrawFn, sound: st.SearchStrategy[bytes]) -> bytes:
    """Draw valid bytes and change one or two of them, or cut them."""
    data = bytearray(draw(sound))
    for _ in range(draw(st.integers(1, 2))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


keys = st.builds(group_key, names) | st.builds(
    offset_key, names, texts, st.integers(0, 9), st.sampled_from([1, 1, 1, 0])
)
odd_keys = (
    st.binary(max_size=12)
    | st.sampled_from([versioned(999, b"x"), newer_key("g"), newer_key("g", 5), newer_key("g", 11)])
    | damaged(keys)
)
headers = st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), min_size=1, max_size=3)
records = st.builds(
    Record,
    st.builds(group_key, names),
    st.none() | group_values() | group_values() | damaged(group_values()),
    milliseconds,
) | st.builds(
    Record,
    st.builds(offset_key, names, texts, st.integers(0, 9), st.sampled_from([1, 1, 1, 0])),
    st.none() | offset_values() | offset_values() | damaged(offset_values()),
    milliseconds,
)
odd_records = st.builds(Record, odd_keys, st.none() | st.binary(max_size=30), milliseconds)


def varint(number: int) -> bytes:
    """Encode a number as records do."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def sized(data: bytes | None) -> bytes:
    """Put the length of the bytes in front of them."""
    return varint(-1) if data is None else varint(len(data)) + data


def with_headers(batch: bytes, of: Sequence[Record], extra: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """Return the batch of these records with headers on each, which no coordinator writes."""
    body = b""
    for number, record in enumerate(of):
        made = b"\0" + varint(record.timestamp_ms - of[0].timestamp_ms) + varint(number)
        made += sized(record.key) + sized(record.value) + varint(len(extra))
        body += sized(made + b"".join(sized(name) + sized(value) for name, value in extra))
    return with_attributes(batch, 0, body=body)


@st.composite
def batches(draw: st.DrawFn, base_offset: int) -> tuple[bytes, int]:
    """Draw a batch; returns it and the number of its offsets."""
    of = draw(st.lists(records, min_size=1, max_size=4)) * draw(OFTEN_ONE)
    if draw(st.integers(0, 5)) == 0:
        of.append(draw(odd_records))
    batch = encode_batch(of, base_offset, draw(st.integers(0, 3)))
    kind = draw(st.integers(0, 13))
    if kind == 0:
        batch = compressed(batch, draw(st.sampled_from(list(Codec)[1:])))
    elif kind == 1:
        batch = with_attributes(batch, TRANSACTIONAL, draw(st.integers(1, 2)))
    elif kind == 2:
        marker = Record(struct.pack(">hh", 0, draw(st.integers(0, 2))), struct.pack(">hi", 0, 1), START_MS)
        batch = with_attributes(encode_batch([marker], base_offset, 0), TRANSACTIONAL | CONTROL, 1)
        of = [marker]
    elif kind == 3:
        changed = bytearray(batch)
        changed[draw(st.integers(0, len(changed) - 1))] ^= draw(st.integers(1, 255))
        batch = bytes(changed)
    elif kind == 4:
        # The CRC is correct for the damaged body.
        body = draw(damaged(st.just(batch[61:])))
        batch = with_attributes(batch, 0, body=body)
    elif kind == 5:
        batch = with_attributes(batch, draw(st.sampled_from([LOG_APPEND_TIME, DELETE_HORIZON])))
    elif kind == 6:
        batch = with_headers(batch, of, draw(headers))
    return batch, len(of)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Draw the batches of a segment; the last one may be torn."""
    made = []
    next_offset = 0
    for _ in range(draw(st.integers(0, 8))):
        batch, count = draw(batches(next_offset))
        made.append(batch)
        next_offset += count + draw(st.sampled_from([0, 0, 0, 2]))
    if made and draw(st.integers(0, 4)) == 0:
        made[-1] = made[-1][: draw(st.integers(0, len(made[-1])))]
    return made


def sample(count: int) -> list[list[bytes]]:
    """Return that many random logs, the same ones in each run."""
    made: list[list[bytes]] = []

    @settings(max_examples=3 * count, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(log=logs())
    def draw(log: list[bytes]) -> None:
        made.append(log)

    draw()
    return sorted(made, key=lambda log: -sum(map(len, log)))[:count]
