"""Numbers, times and details become words that people can read."""

from __future__ import annotations

from coordinator.audit.check.checks import finding
from coordinator.audit.words import count_text, detail_words, printable, size_text, time_text


def test_sizes_and_times_in_words() -> None:
    """Sizes and times of any magnitude become words."""
    assert [size_text(size) for size in (0, 999, 1000, 1_500_000, 2 * 10**9)] == [
        "0 B", "999 B", "1.0 kB", "1.5 MB", "2.0 GB",
    ]  # fmt: skip
    assert time_text(2**63 - 1) == str(2**63 - 1)
    assert time_text(0) == "1970-01-01 00:00:00"
    assert (time_text(-1), count_text(1, "group"), count_text(1_200, "group")) == ("-", "1 group", "1,200 groups")


def test_detail_is_names_and_values() -> None:
    """Lists and counts become words and times become dates; durations stay numbers, and other text stays as it is."""
    detail = finding(
        "commit_back", 0, 1, gap_ms=5, ts_ms=1_700_000_000_000, x=["a", 1], y={"b": 2}, z=None, r=True
    ).detail
    assert detail_words(detail) == [
        ("gap_ms", "5"), ("r", "yes"), ("ts_ms", "2023-11-14 22:13:20"), ("x", "a, 1"), ("y", "2 x b"), ("z", "none"),
    ]  # fmt: skip
    assert [detail_words(text) for text in ("no JSON", "[1]")] == [[("", "no JSON")], [("", "[1]")]]


def test_what_can_not_be_seen_is_spelt_out() -> None:
    """Characters that would move a cursor or reverse the text's direction are escaped."""
    assert printable("\x1b[2J\u202e\n") == "\\x1b[2J\\u202e\\n"
