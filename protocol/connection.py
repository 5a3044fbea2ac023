"""Cuts a stream of bytes into frames; knows no sockets.

    reader = FrameReader(frame_size_max)
    reader.receive_data(data)                 # any number of bytes
    while (frame := reader.next_frame()) is not None:
        ...

A large frame is collected in a BytesIO, whose content becomes the frame without a copy: a copy of 100 MB takes as much
memory again, and stops a server for 50 ms.

When `next_frame` raises, nobody can say where the next frame begins: close the connection. Further calls raise too.

House rule: memory is taken for bytes that came, never for a size that was announced.
Source: Kafka's NetworkReceive.
"""

from __future__ import annotations

import struct
from io import BytesIO

from protocol.errors import ProtocolError

SIZE_BYTES = 4
HTTP_METHODS = frozenset({b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI "})
"""The first bytes of a request in HTTP."""
HTTP_ANSWER = b"HTTP"
"""The first bytes of an answer in HTTP."""
TLS_HANDSHAKE, TLS_MAJOR = 0x16, 3
"""The first two bytes of a connection with TLS."""
LARGE_BYTES = 64 * 1024
"""A frame of this size or more is collected for itself, if it doesn't come whole."""

_unpack_size = struct.Struct(">i").unpack_from


class FrameReader:
    """Frames of one connection, in order, without their size.

    frame_size_max: the largest size allowed, in bytes without the size itself (socket.request.max.bytes).
    """

    __slots__ = ("_buffer", "_large", "_missing", "_start", "frame_size_max")

    def __init__(self, frame_size_max: int) -> None:
        self.frame_size_max = frame_size_max
        # Frames that come whole stay in the bytes object that they came in. Only pieces of frames are collected, in a
        # bytearray: to append to it takes time in proportion to the bytes, however small the pieces are.
        self._buffer: bytes | bytearray = b""
        self._start = 0
        # A large frame whose first bytes came, and how many it still lacks.
        self._large: BytesIO | None = None
        self._missing = 0

    @property
    def collected_bytes(self) -> int:
        """How many bytes of a large frame have come that isn't whole; 0 if there is none."""
        return 0 if self._large is None else self._large.tell()

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._missing:
            self._add(data)
            return
        if not self._buffer:
            self._buffer = data
            return
        if isinstance(self._buffer, bytearray):
            del self._buffer[: self._start]
        else:
            self._buffer = bytearray(memoryview(self._buffer)[self._start :])
        self._start = 0
        self._buffer += data

    def _add(self, data: bytes) -> None:
        """Take bytes of a large frame, and what is behind it."""
        assert self._large is not None
        assert not self._buffer
        size = min(self._missing, len(data))
        self._missing -= size
        if size == len(data):
            self._large.write(data)
        else:
            self._large.write(memoryview(data)[:size])
            self._buffer = data
            self._start = size

    def next_frame(self) -> bytes | None:
        """The next frame, None if it isn't there yet. Raises ProtocolError if its size is below 1 or too large."""
        if self._large is not None:
            if self._missing:
                return None
            frame = self._large.getvalue()
            self._large = None
            return frame
        buffer = self._buffer
        start = self._start + SIZE_BYTES
        if start > len(buffer):
            return None
        (size,) = _unpack_size(buffer, self._start)
        if not 0 < size <= self.frame_size_max:
            allowed = f"1 to {self.frame_size_max} are allowed{_other_protocol(size)}"
            raise ProtocolError(f"a frame of {size} bytes; {allowed}")
        end = start + size
        if end > len(buffer):
            if size >= LARGE_BYTES:
                self._large = BytesIO()
                self._large.write(memoryview(buffer)[start:])
                self._missing = end - len(buffer)
                self._buffer = b""
                self._start = 0
            return None
        if end == len(buffer):
            self._buffer = b""
            self._start = 0
        else:
            self._start = end
        piece = buffer[start:end]
        return piece if piece.__class__ is bytes else bytes(piece)


def _other_protocol(size: int) -> str:
    """The protocol that the other end seems to speak, if these are its first four bytes; "" if none is known."""
    first = size.to_bytes(4, signed=True)
    if first == HTTP_ANSWER:
        return f'; the bytes are "{first.decode()}", so this looks like an answer of HTTP'
    if first in HTTP_METHODS:
        return f'; "{first.decode()}" looks like HTTP'
    if first[0] == TLS_HANDSHAKE and first[1] == TLS_MAJOR:
        return "; it looks like TLS, and this listener speaks none"
    return ""
