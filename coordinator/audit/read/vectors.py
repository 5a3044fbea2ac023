"""Reads numbers and texts at many positions of the same bytes at once, with numpy and Arrow.

A position, a size or a number is never a Python object here: each argument and each result is an array with an entry
for each position. `Text` is such an array of texts that stay where they are, in the bytes of the file. Arrow copies
them out in one go (`array`).

A position may be wrong, as the bytes may be damaged. So PADDING zeros follow the bytes, each reader reports the entries
that can't be right, and the caller keeps every position below its limit.

House rule: no position that is within its limit reads beyond the padding, whatever the bytes are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

PADDING = 4 * (2**16 + 8)
"""Zeros behind the bytes: four short texts of the greatest length fit, so a damaged member reads nothing else."""
VARINT_MAX = 9
"""Bytes of a varint that are read here; nothing that Kafka writes has more."""


class Text(NamedTuple):
    """Texts, or bytes: each starts at `start` and has `size` bytes, -1 for null."""

    start: Ints
    size: Ints

    def take(self, of: Ints) -> Text:
        """Some of the texts."""
        return Text(self.start[of], self.size[of])


class Data:
    """The bytes of a range, and PADDING zeros behind them.

    view: all of them, to be written into and read from.
    """

    def __init__(self, size: int) -> None:
        self._bytes = np.empty(size + PADDING, np.uint8)
        self._bytes[size:] = 0
        self._buffer = pa.py_buffer(self._bytes)
        self.view = self._bytes.data

    def every(self, kind: str | np.dtype[Any], ahead: int = 0) -> Any:
        """The bytes from `ahead` on as values of that type; one value begins at each byte."""
        size = np.dtype(kind).itemsize
        return np.ndarray((len(self._bytes) - ahead - size + 1,), kind, self.view, ahead, (1,))

    def at(self, positions: Ints) -> Any:
        """The bytes at these positions."""
        return self._bytes[positions]

    def signed(self, at: Ints, size: int) -> Ints:
        """Signed big-endian integers of 2, 4 or 8 bytes."""
        read: Ints = self.every(f">i{size}")[at].astype(np.int64)
        return read

    def varint(self, at: Ints) -> tuple[Ints, Ints, Flags]:
        """Varints before zigzag decoding, the ends of them, and a flag for each that is longer than VARINT_MAX."""
        first = self._bytes[at]
        number: Ints = (first & 0x7F).astype(np.int64)
        end = at + 1
        rest = np.flatnonzero(first >= 0x80)
        size = 1
        while len(rest) and size < VARINT_MAX:
            byte = self._bytes[at[rest] + size]
            number[rest] |= (byte & 0x7F).astype(np.int64) << (7 * size)
            end[rest] += 1
            rest = rest[byte >= 0x80]
            size += 1
        long = np.zeros(len(at), np.bool_)
        long[rest] = True
        return number, end, long

    def text(self, at: Ints, limit: Ints, *, nullable: bool = False) -> tuple[Text, Ints, Flags]:
        """Texts with a length of 2 bytes in front, the ends of them, and a flag for each that can't be right."""
        size = self.signed(at, 2)
        end = at + 2 + np.maximum(size, 0)
        bad = (end > limit) | (size < (-1 if nullable else 0))
        return Text(at + 2, size), np.minimum(end, limit), bad

    def array(self, text: Text, kind: pa.DataType) -> pa.Array:
        """The texts as an Arrow array; each text starts behind the end of the one before it.

        Raises pa.ArrowInvalid if `kind` is text and one of them is no UTF-8.
        """
        count = len(text.size)
        if not count:
            return pa.array([], kind)
        # Arrow sees the bytes as a column that is cut where each text begins and ends: every second value is a text.
        cuts = np.empty((count, 2), np.int32)
        cuts[:, 0] = text.start
        cuts[:, 1] = text.start + np.maximum(text.size, 0)
        column = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(cuts), self._buffer])
        _, ends, data = column.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))).buffers()
        null = text.size < 0
        valid = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
        # Bytes below 0x80 are UTF-8, and nearly all text has no others: one maximum is faster than a check for UTF-8.
        is_ascii = kind == pa.binary() or np.frombuffer(data, np.uint8).max(initial=0) < 0x80
        array = pa.Array.from_buffers(kind if is_ascii else pa.binary(), count, [valid, ends, data])
        return array if is_ascii else pc.cast(array, kind)
