"""Varints compared with numbers that the test packs by hand, and with bytes that are no varint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.varint import encode_varint, read_varint, unzigzag, varint_at
from tests.support.batches import varint

EDGES = (0, -1, 1, 63, -64, 64, -65, 8_191, -8_192, 8_192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


@pytest.mark.parametrize("number", EDGES)
def test_edges(number: int) -> None:
    """The bytes equal another implementation's, and the reader gets the number back at any index."""
    data = encode_varint(number)
    assert data == varint(number)
    stored, end = varint_at(b"junk" + data + b"junk", 4)
    assert (unzigzag(stored), end) == (number, 4 + len(data))


@given(st.integers(-(2**63), 2**63 - 1))
def test_round_trip(number: int) -> None:
    """The reader gets back any number of 64 bits."""
    data = encode_varint(number)
    assert unzigzag(varint_at(data, 0)[0]) == number


def test_numbers_that_do_not_end() -> None:
    """A varint of more than ten bytes raises ValueError; the end of the data raises IndexError."""
    assert read_varint(b"\xff" * 8 + b"\x01", 0, 0xFF) == (2**64 - 1, 9)
    with pytest.raises(ValueError, match="too long"):
        varint_at(b"\xff" * 10 + b"\x01", 0)
    with pytest.raises(IndexError):
        varint_at(b"\xff" * 9, 0)
