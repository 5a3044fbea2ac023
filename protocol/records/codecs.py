"""Compression of a batch's records: gzip, snappy, lz4 and zstd.

Decompression has a limit, since a few kB can grow to gigabytes. The codecs write into memory that is reserved at the
limit but taken only as it is touched. So a small batch costs the memory of what it really unpacks to.

House rule: the codecs are imported at their first use. A log of our own has no compressed batch, so most servers never
load them.
"""

from __future__ import annotations

import mmap
import struct
from enum import IntEnum


class Codec(IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_INT32 = struct.Struct(">i")
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\x01\0\0\0\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_XERIAL_BLOCK_SIZE_MIN = 1024
"""SnappyOutputStream takes no smaller block size: no client writes more blocks than fit the limit with this size."""


def decompress(body: memoryview, codec_number: int, size_max: int) -> bytes:
    """The bytes that `body` unpacks to. Raises ValueError or struct.error if it is damaged or exceeds `size_max`."""
    if codec_number == Codec.NONE or not body:
        return bytes(body)
    import cramjam

    try:
        if codec_number == Codec.SNAPPY:
            return _decompress_snappy(body, size_max)
        module = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[Codec(codec_number)]
        with mmap.mmap(-1, size_max) as output:
            return output[: module.decompress_into(body, output)]
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error


def compress(data: bytes, codec_number: int) -> bytes:
    """Pack records in a form that all of Kafka's clients read.

    Java's clients read snappy only in the blocks of SnappyOutputStream, and lz4 only in blocks that don't refer to
    each other.
    """
    import cramjam

    if codec_number == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec_number == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data))
    if codec_number == Codec.LZ4:
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_SIZE]))
        parts += [_INT32.pack(len(block)), block]
    return b"".join(parts)


def _decompress_snappy(body: memoryview, size_max: int) -> bytes:
    """Unpack one raw block, or the blocks of Java's SnappyOutputStream, each behind its length (int32)."""
    from cramjam import snappy

    if body[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        blocks = [body]
    else:
        blocks = []
        at = len(_XERIAL_HEADER)
        while at < len(body):
            (size,) = _INT32.unpack_from(body, at)
            at += _INT32.size
            if not 0 < size <= len(body) - at:
                raise ValueError(f"block of {size} bytes, {len(body) - at} left")
            if len(blocks) * _XERIAL_BLOCK_SIZE_MIN >= size_max:
                raise ValueError(f"more than {len(blocks)} blocks")
            blocks.append(body[at : at + size])
            at += size
    sizes = [snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > size_max:
        raise ValueError(f"unpacks to {sum(sizes)} bytes, {size_max} allowed")
    output = bytearray(sum(sizes))
    at = 0
    with memoryview(output) as view:
        for block, size in zip(blocks, sizes, strict=True):
            snappy.decompress_raw_into(block, view[at : at + size])
            at += size
    return bytes(output)
