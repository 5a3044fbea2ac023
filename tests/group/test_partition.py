"""The partition of a group: the same arithmetic as Java's, to the bit."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.group.bounds import INT32_MIN
from coordinator.group.partition import SHORT_MAX, java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("The quick brown fox", -1739336029),
        ("é", 233),
        ("日本語", 25921943),
        ("😀", 1772899),
        ("polygenelubricants", INT32_MIN),
    ],
)
def test_java_hash_is_javas(text: str, expected: int) -> None:
    """String.hashCode counts UTF-16 units and overflows into the sign bit."""
    assert java_hash(text) == expected


@given(st.text(), st.integers(0, 700), st.booleans())
@example("\uffff", 32_767, False)
@example("x", SHORT_MAX, True)
@example("x", SHORT_MAX + 1, True)
def test_long_texts_have_javas_hash(text: str, length: int, ascii_only: bool) -> None:
    """The hash of a long text is the sum that Java's documentation gives, whatever its length and its characters."""
    long = (text or "a") * (1 + length // max(1, len(text))) + "é" * (not ascii_only)
    units = long.encode("utf-16-be", "surrogatepass")
    expected = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        expected = (31 * expected + 256 * high + low) % 2**32
    assert java_hash(long) % 2**32 == expected
    assert INT32_MIN <= java_hash(long) < -INT32_MIN


def test_smallest_hash_is_partition_zero() -> None:
    """Java's Utils.abs gives 0 for the smallest int, which has no positive counterpart."""
    assert partition_for("polygenelubricants", 50) == 0


def test_negative_hash_is_not_masked() -> None:
    """A negative hash is negated; without its sign bit it would give another partition."""
    assert java_hash("The quick brown fox") < 0
    assert partition_for("The quick brown fox", 50) == 1739336029 % 50


@given(st.text(), st.integers(1, 1000))
def test_every_group_has_a_partition(group_id: str, count: int) -> None:
    """Any text gives the number of a partition."""
    assert 0 <= partition_for(group_id, count) < count
