"""Cuts a stream of bytes into frames; knows no sockets.

    reader = FrameReader(frame_size_max)
    reader.receive_data(data)                 # any number of bytes
    while (frame := reader.next_frame()) is not None:
        ...

When `next_frame` raises, nobody can say where the next frame begins: close the connection. Further calls raise too.

House rule: memory is taken for bytes that came, never for a size that was announced.
Source: Kafka's NetworkReceive.
"""

from __future__ import annotations

import struct

from protocol.errors import ProtocolError

SIZE_BYTES = 4
_unpack_size = struct.Struct(">i").unpack_from


class FrameReader:
    """Frames of one connection, in order, without their size.

    frame_size_max: the largest size allowed, in bytes without the size itself (socket.request.max.bytes).
    """

    __slots__ = ("_buffer", "_start", "frame_size_max")

    def __init__(self, frame_size_max: int) -> None:
        self.frame_size_max = frame_size_max
        # Frames that come whole stay in the bytes object that they came in. Only pieces of frames are collected, in a
        # bytearray: to append to it takes time in proportion to the bytes, however small the pieces are.
        self._buffer: bytes | bytearray = b""
        self._start = 0

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if not self._buffer:
            self._buffer = data
            return
        if isinstance(self._buffer, bytearray):
            del self._buffer[: self._start]
        else:
            self._buffer = bytearray(memoryview(self._buffer)[self._start :])
        self._start = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next frame, None if it isn't there yet. Raises ProtocolError if its size is below 1 or too large."""
        buffer = self._buffer
        start = self._start + SIZE_BYTES
        if start > len(buffer):
            return None
        (size,) = _unpack_size(buffer, self._start)
        if not 0 < size <= self.frame_size_max:
            raise ProtocolError(f"a frame of {size} bytes; 1 to {self.frame_size_max} are allowed")
        end = start + size
        if end > len(buffer):
            return None
        if end == len(buffer):
            self._buffer = b""
            self._start = 0
        else:
            self._start = end
        frame = buffer[start:end]
        return frame if frame.__class__ is bytes else bytes(frame)
