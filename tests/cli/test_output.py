"""Columns and JSON."""

from __future__ import annotations

import json

import pytest

from coordinator.cli.output import assignment_text, counted, print_json, print_table


def test_columns_are_aligned_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """As wide as the widest value, headings included, however wide that is; no blanks at the end of a line."""
    long = "x" * 200
    print_table(("GROUP", "STATE"), [("a", "Stable"), (long, "")])
    assert capsys.readouterr().out.splitlines() == [
        f"{'GROUP':<200}  STATE",
        f"{'a':<200}  Stable",
        f"{long}  -",
    ]


def test_what_is_not_there_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    """None and the empty text; 0 is a value."""
    print_table(("A", "B", "C"), [(None, "", 0)])
    assert capsys.readouterr().out.splitlines()[1].split() == ["-", "-", "0"]


def test_text_of_a_client_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """What would move the cursor or begin a line is escaped; letters of any language are as they are."""
    print_table(("A", "B"), [("a\x1b[2J\nb", "Grüße")])
    assert capsys.readouterr().out.splitlines()[1:] == ["a\\x1b[2J\\nb  Grüße"]


def test_no_rows_leave_the_headings(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty table says what it would show."""
    print_table(("GROUP", "STATE"), [])
    assert capsys.readouterr().out == "GROUP  STATE\n"


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """Text stays as it is, also beyond ASCII."""
    print_json([{"group_id": "größe"}])
    out = capsys.readouterr().out
    assert json.loads(out) == [{"group_id": "größe"}]
    assert "größe" in out


@pytest.mark.parametrize(
    ("assignment", "text"),
    [
        ({"orders": [0, 1], "refunds": [0]}, "orders(0,1), refunds(0)"),
        ({}, ""),
        (None, "unreadable"),
    ],
)
def test_assignment_in_a_column(assignment: dict[str, list[int]] | None, text: str) -> None:
    """Topics with their partitions."""
    assert assignment_text(assignment) == text


def test_counts_agree_with_their_noun() -> None:
    """One of a thing, or none, or more."""
    assert [counted(number, noun) for noun in ("segment", "batch") for number in (0, 1, 2)] == [
        "0 segments",
        "1 segment",
        "2 segments",
        "0 batches",
        "1 batch",
        "2 batches",
    ]
