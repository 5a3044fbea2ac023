"""What came out, as a table for a terminal, as JSON, and as the table of a page.

A cell is the median of the repetitions, and the least and the most behind it. A ratio is made within each repetition,
where both were measured one right after the other, and then the median is taken.

House rule: nothing is rounded before it is shown.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.cases import ECHO, TENURE, Case, Row

Runs = dict[str, dict[str, list[dict[str, float]]]]
"""Figures by case, server and repetition."""

BEGIN, END = "<!-- the benchmark's table: make bench -->\n", "<!-- end of the table -->\n"

PLAIN_WIDTH = 170
BUSY = 0.2
"""Of one core: with more than this used by others, absolute figures are too large."""

NAMES = {"echo": "echo", "tenure": "Tenure", "kafka": "Apache Kafka"}


class Line(NamedTuple):
    """A row with its values: by server, each repetition's; the others' CPU, in shares of one CPU."""

    title: str
    row: Row
    values: dict[str, list[float]]
    others: list[float]

    @property
    def verdict(self) -> str:
        """Whether Tenure reached its floor."""
        mine, floor = self.values.get(TENURE), self.floor
        if floor is None or not mine:
            return ""
        return "reached" if median(mine) <= floor else "not reached"

    @property
    def floor(self) -> float | None:
        """The most that Tenure may need; None if there is no such limit, or it wasn't measured."""
        floor = self.row.floor
        if isinstance(floor, str):
            return median(self.values[floor]) if floor in self.values else None
        return floor


def lines(cases: list[Case], runs: Runs) -> list[Line]:
    """The rows of these cases that have values."""
    found = []
    for case in cases:
        measured = runs.get(case.name, {})
        for row in case.rows:
            values = {}
            for server, repetitions in measured.items():
                if row.to_echo:
                    echo = {figures["repetition"]: figures[row.figure] for figures in measured.get(ECHO, [])}
                    pairs = [(figures[row.figure], echo.get(figures["repetition"])) for figures in repetitions]
                    each = [mine / limit for mine, limit in pairs if limit and server != ECHO]
                else:
                    each = [figures[row.figure] / row.scale for figures in repetitions if row.figure in figures]
                if each:
                    values[server] = each
            if values:
                others = [figures["other_share"] for figures in measured.get(TENURE, []) if "other_share" in figures]
                title = row.title.format_map(case.parameters) + (f", {row.unit}" if row.unit else "")
                found.append(Line(title, row, values, others))
    return found


def number(value: float) -> str:
    """Three digits that say something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(values: list[float] | None) -> str:
    """Median, and range if there are several."""
    if not values:
        return ""
    middle = number(median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))} to {number(max(values))})"


def columns(servers: list[str]) -> list[str]:
    """The heads of the table."""
    return ["work", *(NAMES.get(server, server) for server in servers), "floor", "", "others' CPU"]


def cells(line: Line, servers: list[str]) -> list[str]:
    """A line of the table."""
    floor = "" if line.floor is None else f"<= {number(line.floor)}"
    others = f"{100 * median(line.others):.0f} %" if line.others else ""
    return [line.title, *(cell(line.values.get(server)) for server in servers), floor, line.verdict, others]


def console() -> Console:
    """Standard output, wide enough for a table where no terminal says how wide it is."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def terminal(found: list[Line], servers: list[str]) -> Table:
    """For a person who waited."""
    table = Table(*columns(servers), box=box.SIMPLE)
    for column in table.columns[1 : 1 + len(servers)]:
        column.justify = "right"
    for line in found:
        table.add_row(*cells(line, servers))
    return table


def surroundings_note(found: list[Line]) -> str:
    """A sentence for a run that wasn't alone on its machine; empty if it was."""
    others = [share for line in found for share in line.others]
    if not others or median(others) < BUSY:
        return ""
    return (
        f" **The machine was shared:** others used {median(others):.0%} of a core meanwhile, so all times are "
        "larger than they would be alone, and a floor that is not reached here may be."
    )


def markdown(found: list[Line], servers: list[str]) -> str:
    """For a page."""
    rows = [columns(servers), ["---"] * (len(servers) + 4), *(cells(line, servers) for line in found)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def rewritten(page: str, about: str, table: str) -> str:
    """A page with what stands between its two markers replaced."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    assert found, "the page has lost its markers"
    return f"{before}{BEGIN}\n{about}\n\n{table}\n{END}{after}"
