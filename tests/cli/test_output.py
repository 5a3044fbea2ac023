"""Columns and JSON."""

from __future__ import annotations

import json

import pytest

from coordinator.cli.output import assignment_text, print_json, print_table


def test_columns_are_aligned_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """A column is as wide as its widest value or heading; no line ends with blanks."""
    long = "x" * 200
    print_table(("GROUP", "STATE"), [("a", "Stable"), (long, "")])
    assert capsys.readouterr().out.splitlines() == [
        f"{'GROUP':<200}  STATE",
        f"{'a':<200}  Stable",
        f"{long}  -",
    ]


def test_what_is_not_there_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    """None and the empty text print as "-", 0 as "0"."""
    print_table(("A", "B", "C"), [(None, "", 0)])
    assert capsys.readouterr().out.splitlines()[1].split() == ["-", "-", "0"]


def test_text_of_a_client_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Characters that move the cursor or begin a line are escaped; letters of any language are not."""
    print_table(("A", "B"), [("a\x1b[2J\nb", "Grüße")])
    assert capsys.readouterr().out.splitlines()[1:] == ["a\\x1b[2J\\nb  Grüße"]


def test_no_rows_leave_the_headings(capsys: pytest.CaptureFixture[str]) -> None:
    """A table without rows still has its headings."""
    print_table(("GROUP", "STATE"), [])
    assert capsys.readouterr().out == "GROUP  STATE\n"


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON keeps text unchanged, beyond ASCII too."""
    print_json([{"group_id": "größe"}])
    out = capsys.readouterr().out
    assert json.loads(out) == [{"group_id": "größe"}]
    assert "größe" in out


def test_json_of_a_client_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Characters that JSON leaves alone, and a terminal obeys, are escaped; a program reads the same text back."""
    name = "größe \x9b2J\x7f\u202e\u2028\ufeff\x1b]0;\n\U000e0001😀"
    print_json({"group_id": name})
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.splitlines())
    assert len(out.splitlines()) == 3
    assert json.loads(out) == {"group_id": name}


@pytest.mark.parametrize(
    ("assignment", "text"),
    [
        ({"orders": [0, 1], "refunds": [0]}, "orders(0,1), refunds(0)"),
        ({}, ""),
        (None, "unreadable"),
    ],
)
def test_assignment_in_a_column(assignment: dict[str, list[int]] | None, text: str) -> None:
    """An assignment shows topics with their partitions."""
    assert assignment_text(assignment) == text
