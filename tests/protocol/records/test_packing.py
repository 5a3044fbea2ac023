"""Large values are packed, and come back as they were."""

from __future__ import annotations

import pytest

from protocol.errors import ProtocolError
from protocol.records.packing import PACKED, PACKED_FROM, packed, unpacked


def test_large_values_are_packed() -> None:
    """Smaller ones stay as they are; each comes back."""
    small, large = bytes(PACKED_FROM - 1), bytes(PACKED_FROM)
    assert packed(small) == small
    assert packed(large).startswith(PACKED)
    assert len(packed(large)) < PACKED_FROM // 100
    assert [unpacked(packed(each)) for each in (small, large, b"")] == [small, large, b""]


def test_a_value_that_is_packed_in_another_way_is_an_error() -> None:
    """Not a crash: another version may have written it."""
    for stored in (PACKED, PACKED + b"\x28\xb5\x2f\xfd", packed(bytes(PACKED_FROM))[:-1]):
        with pytest.raises(ProtocolError, match="can't be unpacked"):
            unpacked(stored)
