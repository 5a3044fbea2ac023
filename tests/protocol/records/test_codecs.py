"""Codecs: the limit of unpacked bytes, both forms of snappy, and the time of their import."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import cramjam
import pytest

from protocol.records.batch import HEADER_SIZE, CorruptBatch, Record, encode_batch, peek_header
from protocol.records.codecs import Codec, compress, decompress
from protocol.records.walk import decode_batches, decode_records
from tests.support.batches import FIRST, compressed


@pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.name)
@pytest.mark.parametrize("size", [1, 40_000, 100_000])
def test_what_is_packed_unpacks(codec: Codec, size: int) -> None:
    """Packed data unpacks to the same bytes, in several blocks of snappy or in a part of one."""
    data = Random(size).randbytes(size // 2) + bytes(size - size // 2)
    packed = compress(data, codec)
    assert decompress(memoryview(packed), codec, size) == data


def test_snappy_block() -> None:
    """The reader unpacks snappy without Java's framing too, as librdkafka writes it."""
    plain = encode_batch([FIRST], 0, 0)
    body = bytes(cramjam.snappy.compress_raw(plain[HEADER_SIZE:]))
    assert next(decode_batches(compressed(Codec.SNAPPY, body))).records == [FIRST]


@pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.name)
def test_bomb(codec: Codec) -> None:
    """A small batch that unpacks to more than the limit is refused; one that unpacks to the limit is read."""
    plain = encode_batch([Record(b"k", bytes(1_000_000), 0)], 0, 0)[HEADER_SIZE:]
    compress: Any = {
        Codec.GZIP: cramjam.gzip.compress,
        Codec.SNAPPY: cramjam.snappy.compress_raw,
        Codec.LZ4: cramjam.lz4.compress,
        Codec.ZSTD: cramjam.zstd.compress,
    }[codec]
    data = compressed(codec, bytes(compress(plain)))
    header = peek_header(data)
    assert len(decode_records(data, 0, header, len(plain)).records) == 1
    with pytest.raises(CorruptBatch, match=codec.name.lower()):
        decode_records(data, 0, header, len(plain) - 1)


def test_snappy_block_sizes() -> None:
    """Blocks of Java's framing that are empty, or whose lengths point outside the batch, are refused."""
    for size in (-1, 0, 5, 2**31 - 1):
        body = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, size) + b"abc"
        with pytest.raises(CorruptBatch, match="snappy"):
            next(decode_batches(compressed(Codec.SNAPPY, body)))


@pytest.mark.parametrize("block", [b"\0", b"\1\0x"])
def test_snappy_blocks_have_a_limit(block: bytes) -> None:
    """Many blocks that unpack to next to nothing are refused, at the number that the limit of bytes has room for."""
    of_java = struct.pack(">i", len(block)) + block
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    body = memoryview(head + of_java * 100)
    with pytest.raises(ValueError, match="more than 99 blocks"):
        decompress(body, Codec.SNAPPY, 99 * 1024)
    assert len(decompress(body, Codec.SNAPPY, 100 * 1024)) == 100 * (len(block) // 3)


def test_codecs_are_loaded_when_met() -> None:
    """Batches without a codec import no codec, because the import would lengthen the start."""
    program = (
        "import sys; from protocol.records.batch import *; from protocol.records.walk import *;"
        "list(decode_batches(encode_batch([Record(b'k', b'v', 0)], 0, 0)));"
        "print('cramjam' in sys.modules)"
    )
    root = Path(__file__).parents[3]
    output = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "False"
