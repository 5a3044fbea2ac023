"""The reader returns the frames of a stream, however the stream was cut into pieces."""

from __future__ import annotations

import struct
import tracemalloc
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from protocol.connection import LARGE_BYTES, FrameReader
from protocol.errors import ProtocolError

FRAMES = [b"a", b"\0\0\0\5", b"x" * 300, b"last"]
STREAM = b"".join(struct.pack(">i", len(frame)) + frame for frame in FRAMES)


def frames_in(reader: FrameReader) -> list[bytes]:
    """Return all frames that are complete."""
    frames = []
    while (frame := reader.next_frame()) is not None:
        assert isinstance(frame, bytes)
        frames.append(frame)
    return frames


def test_whole() -> None:
    """From several frames in one piece the reader returns one after the other, in order."""
    reader = FrameReader(1_000)
    assert reader.next_frame() is None
    reader.receive_data(STREAM)
    assert frames_in(reader) == FRAMES


def test_byte_by_byte() -> None:
    """The reader returns a frame after its last byte, not before."""
    reader = FrameReader(1_000)
    found: list[bytes] = []
    ends = []
    for index in range(len(STREAM)):
        reader.receive_data(STREAM[index : index + 1])
        new = frames_in(reader)
        found += new
        ends += [index + 1] * len(new)
    assert found == FRAMES
    assert ends == [5, 13, 317, 325]


def test_trailing_data_waits() -> None:
    """The reader keeps the start of the next frame until the rest arrives."""
    for size in range(len(STREAM)):
        reader = FrameReader(1_000)
        reader.receive_data(b"\0\0\0\1!" + STREAM[:size])
        found = frames_in(reader)
        reader.receive_data(STREAM[size:])
        assert found + frames_in(reader) == [b"!", *FRAMES]


@given(
    frames=st.lists(st.binary(min_size=1, max_size=20), max_size=8),
    cuts=st.lists(st.integers(0, 200)),
    often=st.booleans(),
)
def test_any_cut(frames: list[bytes], cuts: list[int], *, often: bool) -> None:
    """The frames are the same for all cuts, and when they are taken between pieces or at the end."""
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = FrameReader(20)
    found = []
    for start, end in pairwise(edges):
        reader.receive_data(stream[start:end])
        if often:
            found += frames_in(reader)
    assert found + frames_in(reader) == frames


@pytest.mark.parametrize("piece", [1_000, 65_536, 100_000, 262_144])
@pytest.mark.parametrize("often", [True, False])
def test_large_frames(piece: int, *, often: bool) -> None:
    """Large and small frames come out as they went in, whether the reader is asked after each piece or at the end."""
    sizes = [LARGE_BYTES - 1, LARGE_BYTES, 5, 3 * LARGE_BYTES + 7, LARGE_BYTES + 1, 1]
    frames = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    reader = FrameReader(10**6)
    found = []
    for start in range(0, len(stream), piece):
        reader.receive_data(stream[start : start + piece])
        if often:
            found += frames_in(reader)
    assert found + frames_in(reader) == frames


def test_a_large_frame_is_not_copied() -> None:
    """Memory for a frame of 16 MB is about 16 MB, while it comes and when it is taken."""
    size = 16 * 1024 * 1024
    reader = FrameReader(size)
    reader.receive_data(struct.pack(">i", size))
    piece, frame = bytes(65_536), None
    tracemalloc.start()
    try:
        for _ in range(size // len(piece)):
            reader.receive_data(piece)
            frame = reader.next_frame()
        assert frame is not None
        assert len(frame) == size
        assert tracemalloc.get_traced_memory()[1] < 1.3 * size
    finally:
        tracemalloc.stop()


def test_largest_frame_is_allowed() -> None:
    """The reader accepts a frame of the maximum size."""
    reader = FrameReader(5)
    reader.receive_data(b"\0\0\0\5hello")
    assert reader.next_frame() == b"hello"


@pytest.mark.parametrize("size", [0, -1, -(2**31), 6, 2**31 - 1])
def test_size_out_of_bounds(size: int) -> None:
    """The reader refuses an impossible size as soon as it has arrived, and again at each later call."""
    reader = FrameReader(5)
    reader.receive_data(b"\0\0\0\1a" + struct.pack(">i", size)[:3])
    assert frames_in(reader) == [b"a"]
    reader.receive_data(struct.pack(">i", size)[3:])
    for _ in range(2):
        with pytest.raises(ProtocolError, match=str(size)):
            reader.next_frame()
    reader.receive_data(b"\0\0\0\1a")
    with pytest.raises(ProtocolError, match=str(size)):
        reader.next_frame()


def test_memory_is_taken_for_what_came() -> None:
    """A large announced size takes no memory; a large frame in small pieces takes little more than its bytes."""
    reader = FrameReader(100 * 2**20)
    tracemalloc.start()
    try:
        reader.receive_data(struct.pack(">i", 100 * 2**20))
        assert reader.next_frame() is None
        assert tracemalloc.get_traced_memory()[1] < 10_000
        for _ in range(20_000):
            reader.receive_data(b"0123456789")
            assert reader.next_frame() is None
        assert tracemalloc.get_traced_memory()[0] < 400_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "looks like HTTP"),
        (b"POST /x HTTP/1.1\r\n\r\n", "looks like HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", '"HTTP", so this looks like an answer of HTTP'),
        (b"\x16\x03\x01\x02\x00\x01", "looks like TLS"),
    ],
)
def test_another_protocol_is_named(data: bytes, named: str) -> None:
    """The error about another end that speaks HTTP or TLS says so: the size of its frame would puzzle an operator."""
    reader = FrameReader(1_000)
    reader.receive_data(data)
    with pytest.raises(ProtocolError, match=named):
        reader.next_frame()
