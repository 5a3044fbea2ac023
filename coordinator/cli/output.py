"""The output of commands: columns for people and pipes, or JSON.

Columns are padded with blanks and never cut or wrapped, on a terminal as in a pipe, so that `grep` and `awk` see the
same text as a person. A missing value is "-", as in Kafka's tools.

House rule: headings are Kafka's, JSON keys are the same words in snake_case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from coordinator.text import printable

MISSING = "-"


class Output(StrEnum):
    """The form of a command's output."""

    TABLE = "table"
    JSON = "json"


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print one line per row under the headings; None and "" print as "-"."""
    texts = ([printable("" if value is None else str(value)) or MISSING for value in row] for row in rows)
    lines = [list(headings), *texts]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)).rstrip())


def show(output: Output, value: Any, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print one JSON document, or a table."""
    if output is Output.JSON:
        print_json(value)
    else:
        print_table(headings, rows)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """A JSON document that is safe for a terminal. Letters of all languages stay; JSON itself escapes only ASCII."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def assignment_text(assignment: Mapping[str, Sequence[int]] | None) -> str:
    """An assignment as one column: "orders(0,1), refunds(0)"; "unreadable" if only the group's clients can read it."""
    if assignment is None:
        return "unreadable"
    return ", ".join(f"{topic}({','.join(map(str, partitions))})" for topic, partitions in assignment.items())
