"""JSON in pieces: the same text as in one, and no large piece."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import given
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.json import encode

from coordinator.site.body import PIECE_BYTES, pieces_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(value=VALUES)
def test_the_pieces_are_the_text(value: Any) -> None:
    """Together they are what the encoder makes in one call."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert b"".join(pieces_of(value)).decode() == text


class Part(Struct):
    """A value with a field of another name in JSON, one that may be missing, and parts."""

    begin: int = field(name="from")
    times: int | UnsetType = UNSET
    parts: list[Part] = []


def test_values_of_classes_are_objects() -> None:
    """However deep they are, with the names of their fields in JSON; a missing field stays away."""
    value = Part(1, 2)
    for depth in range(6):
        assert b"".join(pieces_of(value)) == encode(value)
        assert b"".join(pieces_of({"part": value})) == encode({"part": value})
        value = Part(depth, parts=[value, Part(0)])


def test_pieces_are_small() -> None:
    """A body of megabytes has pieces of about PIECE_BYTES."""
    pieces = pieces_of({"timeline": [{"text": "x" * 1_000, "number": number} for number in range(5_000)]})
    assert len(pieces) > 50
    assert max(map(len, pieces)) < PIECE_BYTES + 2_000
