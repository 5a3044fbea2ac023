"""JSON in pieces: the same text as in one, and no large piece."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

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


def test_pieces_are_small() -> None:
    """A body of megabytes has pieces of about PIECE_BYTES."""
    pieces = pieces_of({"timeline": [{"text": "x" * 1_000, "number": number} for number in range(5_000)]})
    assert len(pieces) > 50
    assert max(map(len, pieces)) < PIECE_BYTES + 2_000
