"""Record batches as producers send them, packed by hand, and the golden ones that Kafka wrote.

House rule: our code only computes the CRC of these batches, so the tests compare our readers with other code.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from protocol.checksum import crc32c
from protocol.records.batch import Record

GOLDEN = Path(__file__).parents[1] / "protocol" / "golden" / "record_batch"
START_MS = 1_700_000_000_000
FIRST = Record(b"first", b"value", START_MS)
TOMBSTONE = Record(b"tombstone", None, START_MS - 10)

records_strategy = st.lists(
    st.builds(Record, st.binary(max_size=200), st.none() | st.binary(max_size=300), st.integers(-(2**40), 2**41)),
    min_size=1,
    max_size=150,
)

Sent = tuple[bytes | None, bytes | None, int]
"""Key, value, timestamp in milliseconds."""


def varint(number: int) -> bytes:
    """Zigzag, low bits first."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def batch(
    sent: Sequence[Sent],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    base_offset: int = 0,
    record_count: int | None = None,
    last_offset_delta: int | None = None,
    magic: int = 2,
    zipped: bool = False,
) -> bytes:
    """Return a batch of `sent`; record_count, last_offset_delta: wrong values for the header."""
    base_ms = sent[0][2] if sent else 0
    records = b""
    for delta, (key, value, timestamp_ms) in enumerate(sent):
        fields = b"\0" + varint(timestamp_ms - base_ms) + varint(delta) + _bytes(key) + _bytes(value) + varint(0)
        records += varint(len(fields)) + fields
    covered = struct.pack(
        ">hiqqqhii",
        attributes | (1 if zipped else 0),
        len(sent) - 1 if last_offset_delta is None else last_offset_delta,
        base_ms,
        max((each[2] for each in sent), default=0),
        producer_id,
        producer_epoch,
        sequence,
        len(sent) if record_count is None else record_count,
    ) + (gzip.compress(records, mtime=0) if zipped else records)
    return struct.pack(">qiibI", base_offset, len(covered) + 9, -1, magic, crc32c(covered)) + covered


def old_messages(magic: int, count: int = 1, first: int = 0, *, zipped: bool = False) -> bytes:
    """Return messages of format 0 or 1, as brokers before Kafka 0.11 kept them; zipped: inside one message."""

    def message(offset: int, key: bytes, value: bytes, attributes: int = 0) -> bytes:
        time = struct.pack(">q", 1_000) if magic else b""
        fields = struct.pack(">bb", magic, attributes) + time
        fields += struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
        return struct.pack(">qiI", offset, len(fields) + 4, zlib.crc32(fields)) + fields

    messages = b"".join(message(first + number, b"key", b"value") for number in range(count))
    return message(first + count - 1, b"", gzip.compress(messages, mtime=0), 1) if zipped else messages


def numbered(first: int, count: int, *, timestamp_ms: int = 1_000, size: int = 10) -> list[Sent]:
    """Return records that differ: keys k1, k2, ..., one millisecond apart."""
    return [
        (b"k%d" % number, b"%0*d" % (size, number), timestamp_ms + number - first)
        for number in range(first, first + count)
    ]


def any_size(chance: Random) -> Record:
    """Return a record whose sizes and times are near the limits of each size of a varint."""
    size = chance.choice([0, 1, 57, 58, 63, 64, 100, 8_180, 8_191, 8_192, 70_000])
    key = b"%0*d" % (chance.choice([1, 2, 63, 64, 9_000]), chance.randrange(4))
    value = None if chance.random() < 0.2 else chance.randbytes(size)
    return Record(key, value, 1_700_000_000_000 + chance.choice([-10_000, -65, -64, -1, 0, 1, 63, 64, 2**40]))


def golden(name: str) -> bytes:
    """The bytes of a batch that Kafka wrote."""
    return (GOLDEN / f"{name}.bin").read_bytes()


def with_crc(data: bytes | bytearray) -> bytes:
    """Return a single batch with its CRC corrected."""
    return bytes(data[:17]) + struct.pack(">I", crc32c(bytes(data[21:]))) + bytes(data[21:])


def compressed(codec: int, body: bytes, record_count: int = 1) -> bytes:
    """Return a batch whose records are the bytes of `body`."""
    header = struct.pack(">hiqqqhii", codec, record_count - 1, START_MS, START_MS, -1, -1, -1, record_count)
    frame = struct.pack(">qiib", 0, len(header) + len(body) + 9, 0, 2)
    return with_crc(frame + bytes(4) + header + body)
