"""Plain values as text for people."""

from __future__ import annotations

import os

import pytest

from coordinator.text import (
    MESSAGE_MAX,
    address_text,
    cut_text,
    duration_text,
    printable,
    second_text,
    several,
    short,
    size_text,
    time_text,
)


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (59_999, "60.0 s"), (61_500, "1 min 1 s")]
)
def test_durations(ms: int, text: str) -> None:
    """Each duration has a unit that suits its length."""
    assert duration_text(ms) == text


def test_times_stand_beside_log_lines() -> None:
    """Times are in UTC, with milliseconds; a time that no calendar has is a number."""
    assert time_text(1_500) == "1970-01-01 00:00:01.500Z"
    assert time_text(2**62) == str(2**62)


def test_sizes_and_times_in_words() -> None:
    """Sizes and times of any magnitude become words."""
    assert [size_text(size) for size in (0, 999, 1000, 1_500_000, 2 * 10**9)] == [
        "0 B", "999 B", "1.0 kB", "1.5 MB", "2.0 GB",
    ]  # fmt: skip
    assert second_text(2**63 - 1) == str(2**63 - 1)
    assert second_text(0) == "1970-01-01 00:00:00"
    assert second_text(-1) == "-"


def test_what_can_not_be_seen_is_spelt_out() -> None:
    """Characters that would move a cursor or reverse the text's direction are escaped."""
    assert printable("\x1b[2J\u202e\n") == "\\x1b[2J\\u202e\\n"


def test_counts_agree_with_their_noun() -> None:
    """The noun is singular for one, and plural for none or several."""
    assert [several(number, noun) for noun in ("segment", "batch") for number in (0, 1, 2)] == [
        "0 segments",
        "1 segment",
        "2 segments",
        "0 batches",
        "1 batch",
        "2 batches",
    ]


ID = "app-0a1b2c3d-1111-2222-3333-444455556666"


def test_a_member_id_is_shortened_to_what_it_begins_with() -> None:
    """The client id and the first part of the UUID remain; an id of another form stays whole."""
    assert short(ID) == "app-0a1b2c3d"
    assert short("line\n" + ID) == "line\napp-0a1b2c3d"
    for name in ("worker-1", "app-0a1b2c3d", ID + "x", ID.upper()):
        assert short(name) == name


def test_a_host_with_colons_stands_in_brackets() -> None:
    """Else nobody could tell where an IPv6 address ends and the port begins."""
    assert [address_text(host, 9092) for host in ("::1", "h")] == ["[::1]:9092", "h:9092"]


def test_an_error_message_fits_an_answer() -> None:
    """A message that names a path whose bytes aren't UTF-8, or that is long, can be sent."""
    assert (
        cut_text("No space left on device: " + os.fsdecode(b"/data/\xff")) == "No space left on device: /data/\\udcff"
    )
    assert len(cut_text(os.fsdecode(b"\xff") * MESSAGE_MAX)) == MESSAGE_MAX
