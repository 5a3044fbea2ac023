"""Details become words that people can read."""

from __future__ import annotations

from coordinator.audit.check.checks import finding
from coordinator.audit.words import detail_words


def test_detail_is_names_and_values() -> None:
    """Lists and counts become words and times become dates; durations stay numbers, and other text stays as it is."""
    detail = finding(
        "commit_back", 0, 1, gap_ms=5, ts_ms=1_700_000_000_000, x=["a", 1], y={"b": 2}, z=None, r=True
    ).detail
    assert detail_words(detail) == [
        ("gap_ms", "5"), ("r", "yes"), ("ts_ms", "2023-11-14 22:13:20"), ("x", "a, 1"), ("y", "2 x b"), ("z", "none"),
    ]  # fmt: skip
    assert [detail_words(text) for text in ("no JSON", "[1]")] == [[("", "no JSON")], [("", "[1]")]]
