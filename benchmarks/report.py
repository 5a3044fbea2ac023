"""The results as a table for a terminal, as JSON, and as the table of a page.

A cell has the median of the repetitions, and the least and the most behind it. A ratio is made within each repetition,
where both were measured one right after the other, and then the median is taken.

House rule: values are rounded only for display.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from time import gmtime, strftime
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.cases import TENURE, Case, Row, To

Runs = dict[str, dict[str, list[dict[str, float]]]]
"""Figures by case, server and repetition."""

Failed = tuple[str, str]
"""Case and server of a failed repetition."""

BEGIN, END = "<!-- the benchmark's table -->\n", "<!-- end of the table -->\n"

PLAIN_WIDTH = 170
BUSY = 0.2
"""Of one core: if other processes use more than this, absolute figures are too large."""

LIMIT = 0.9
"""Of one core: if the load generator uses more than this, the server may have waited for it."""

MARK = "\N{DAGGER}"

NAMES = {"echo": "echo", "tenure": "Tenure", "kafka": "Apache Kafka"}


class Line(NamedTuple):
    """A row with its values: by server, each repetition's; the others' CPU, in shares of one CPU.

    limited: the servers for which the load generator may have been too slow.
    """

    title: str
    row: Row
    values: dict[str, list[float]]
    others: list[float]
    limited: frozenset[str] = frozenset()

    @property
    def verdict(self) -> str:
        """Return whether Tenure reached its floor."""
        mine, floor = self.values.get(TENURE), self.floor
        if floor is None or not mine:
            return ""
        return "reached" if median(mine) <= floor else "not reached"

    @property
    def floor(self) -> float | None:
        """Return the most that Tenure may need; None without a limit, or without its measurement."""
        floor = self.row.floor
        if isinstance(floor, str):
            return median(self.values[floor]) if floor in self.values else None
        return floor


def lines(cases: list[Case], runs: Runs) -> list[Line]:
    """Return the rows of these cases that have values."""
    found = []
    for case in cases:
        measured = runs.get(case.name, {})
        for row in case.rows:
            values = {}
            for server in measured:
                found_by = _by_repetition(runs, case.name, server, row.figure)
                if row.to is None:
                    each = [value / row.scale for value in found_by.values()]
                else:
                    limit = _measure(runs, row.to, case.name, server, row.figure)
                    each = [value / limit[number] for number, value in found_by.items() if limit.get(number)]
                if each:
                    values[server] = each
            if values:
                mine = measured.get(TENURE) or next(iter(measured.values()))
                others = [figures["other_share"] for figures in mine if "other_share" in figures]
                title = row.title.format_map(case.parameters) + (f", {row.unit}" if row.unit else "")
                limited = frozenset(filter(lambda server: _is_limited(measured[server]), values))
                found.append(Line(title, row, values, others, limited))
    return found


def _by_repetition(runs: Runs, case: str, server: str, figure: str) -> dict[float, float]:
    """Return a figure by repetition, for repetitions that have it."""
    measured = runs.get(case, {}).get(server, [])
    return {figures["repetition"]: figures[figure] for figures in measured if figure in figures}


def _measure(runs: Runs, to: To, case: str, server: str, figure: str) -> dict[float, float]:
    """Return the divisor of a figure by repetition; nothing if that is the figure itself."""
    what = (to.server or server, to.figure or figure)
    return {} if what == (server, figure) else _by_repetition(runs, case, *what)


def _is_limited(repetitions: list[dict[str, float]]) -> bool:
    return median(figures.get("generator_share", 0.0) for figures in repetitions) >= LIMIT


def number(value: float) -> str:
    """Return the value with three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(values: list[float] | None) -> str:
    """Return the median, and the range if there are several values."""
    if not values:
        return ""
    middle = number(median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))} to {number(max(values))})"


def columns(servers: list[str], *, floors: bool = True) -> list[str]:
    """Return the heads of the table; floors: whether any line has one."""
    names = [NAMES.get(server, server) for server in servers]
    return ["work", *names, *(["floor", ""] if floors else []), "others' CPU"]


def cells(line: Line, servers: list[str], *, floors: bool = True) -> list[str]:
    """Return a line of the table."""
    floor = "" if line.floor is None else f"<= {number(line.floor)}"
    others = f"{100 * median(line.others):.0f} %" if line.others else ""
    mine = [cell(line.values.get(server)) + (f" {MARK}" if server in line.limited else "") for server in servers]
    return [line.title, *mine, *([floor, line.verdict] if floors else []), others]


def table(found: list[Line], servers: list[str]) -> list[list[str]]:
    """Return heads and lines."""
    floors = any(line.floor is not None for line in found)
    return [columns(servers, floors=floors), *(cells(line, servers, floors=floors) for line in found)]


def console() -> Console:
    """Return a console on standard output, wide enough for a table if no terminal has a width."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def terminal(found: list[Line], servers: list[str]) -> Table:
    """Return the table for a terminal."""
    heads, *rows = table(found, servers)
    shown = Table(*heads, box=box.SIMPLE)
    for column in shown.columns[1 : 1 + len(servers)]:
        column.justify = "right"
    for row in rows:
        shown.add_row(*row)
    return shown


def surroundings_note(found: list[Line]) -> str:
    """Return sentences about a busy machine or a load generator at its limit; empty without either."""
    note = ""
    others = [share for line in found for share in line.others]
    if others and median(others) >= BUSY:
        note += (
            f" **The machine was shared:** others used {median(others):.0%} of a core meanwhile, so all times are "
            "larger than they would be alone, and a floor that is not reached here may be."
        )
    if any(line.limited for line in found):
        note += f" {MARK} The load generator used more than {LIMIT:.0%} of its core, so this server waited for it."
    return note


def failures_note(failed: list[Failed]) -> str:
    """Return a sentence with each failed measurement and its count; empty without any."""
    often = Counter(failed)
    named = [f"{case} with {NAMES.get(server, server)} ({count})" for (case, server), count in often.items()]
    return f" Failed, and left out: {', '.join(named)}." if named else ""


def markdown(found: list[Line], servers: list[str]) -> str:
    """Return the table as Markdown for a page."""
    heads, *rows = table(found, servers)
    return "".join(f"| {' | '.join(row)} |\n" for row in [heads, ["---"] * len(heads), *rows])


def place() -> str:
    """Return when and where something was measured."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processor = model[1] if model else platform.machine()
    return (
        f"{strftime('%Y-%m-%d', gmtime())}, {os.cpu_count()} cores of {processor}, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def rewritten(page: str, about: str, table: str) -> str:
    """Replace the text between the page's two markers. Raises ValueError if they are missing."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError("the page has lost its markers")
    return f"{before}{BEGIN}\n{about}\n\n{table}\n{END}{after}"
