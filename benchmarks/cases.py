"""What is measured and what is to be reached: each work with its parameters, and the rows that are read off it.

The floors are those of the project's own plan: ratios to the echo in the same run where there is one, absolute times
and sizes otherwise, for a quiet machine of two cores like the one that docs/performance.md names.

House rule: data; how it is measured stands in `works`, how it is shown in `report`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ECHO, TENURE, KAFKA = "echo", "tenure", "kafka"
ALL = (ECHO, TENURE, KAFKA)


class Row(NamedTuple):
    """A line of the table.

    figure: what a work returns under this name. to_echo: shown as its ratio to the echo of the same repetition.
    floor: the most that Tenure may need, in `unit`; None where none is set.
    """

    title: str
    figure: str
    unit: str
    floor: float | None = None
    to_echo: bool = False


class Case(NamedTuple):
    """A work with its parameters. quick: other parameters, for a short look. servers: which can do it."""

    name: str
    work: str
    parameters: dict[str, Any]
    rows: tuple[Row, ...]
    quick: dict[str, Any]
    servers: tuple[str, ...] = ALL


CPU = "cpu_us_per_request"

CASES = (
    Case(
        "heartbeat-64",
        "heartbeat",
        {"connections": 64},
        (
            Row("heartbeat, 64 connections, CPU ratio to echo", CPU, "", floor=1.25, to_echo=True),
            Row("heartbeat, 64 connections, CPU", CPU, "us"),
        ),
        {"seconds": 0.5},
    ),
    Case(
        "heartbeat-1000",
        "heartbeat",
        {"connections": 1_000},
        (
            Row("heartbeat, 1,000 connections, CPU ratio to echo", CPU, "", floor=1.25, to_echo=True),
            Row("heartbeat, 1,000 connections, CPU", CPU, "us"),
        ),
        {"seconds": 0.5},
    ),
)
