"""`python -m benchmarks`: what to measure, and what came out.

House rule: standard output is the result; what goes on meanwhile is on standard error.
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import re
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from time import gmtime, strftime
from typing import Annotated, Any

import typer

from benchmarks import report
from benchmarks.cases import ALL, CASES, KAFKA, Case
from benchmarks.stage import Stage, measured, progress
from benchmarks.works import WORKS
from tests.support.apache import available

app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)


def pairs(given: list[str]) -> dict[str, str]:
    """NAME=VALUE, several."""
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise typer.BadParameter(f"{each}: NAME=VALUE is wanted")
        found[name] = value
    return found


def chosen(works: list[str], changes: dict[str, Any], *, quick: bool) -> list[Case]:
    """The cases of these works, by the name of the work or of the case; of all if none is named."""
    unknown = set(works) - set(WORKS) - {case.name for case in CASES}
    if unknown:
        raise typer.BadParameter(f"no such work: {', '.join(sorted(unknown))}; there are {', '.join(WORKS)}")
    found = []
    for case in CASES:
        if not works or case.work in works or case.name in works:
            takes = inspect.signature(WORKS[case.work]).parameters
            mine = {name: value for name, value in changes.items() if name in takes}
            parameters = {**case.parameters, **(case.quick if quick else {}), **mine}
            found.append(case._replace(parameters=parameters))
    return found


def about(cases: list[Case], repeat: int) -> str:
    """Where and when it was measured."""
    fewer = "".join(f" ({case.name}: {case.repeat_max})" for case in cases if case.repeat_max < repeat)
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processor = model[1] if model else platform.machine()
    return (
        f"{strftime('%Y-%m-%d', gmtime())}, {os.cpu_count()} cores of {processor}, Linux {platform.release()}, "
        f"Python {platform.python_version()}; median of {repeat}{fewer}, in brackets the least and the most."
    )


@app.command()
def main(
    works: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(WORKS)}; all if none is named.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Repetitions.")] = 5,
    servers_: Annotated[str, typer.Option("--servers", help="Which to measure, with commas.")] = ",".join(ALL),
    with_: Annotated[
        list[str] | None, typer.Option("--with", metavar="NAME=VALUE", help="A work's parameter: connections=256.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of Tenure.")] = None,
    out: Annotated[Path, typer.Option(help="Where all figures go, as JSON.")] = Path("build/bench.json"),
    page: Annotated[Path | None, typer.Option(help="A page whose table is to be written anew.")] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A short look: less of everything, once.")] = False,
) -> None:
    """Measure what requests cost: Tenure beside a bare echo and Apache Kafka."""
    # However it is ended, what it started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    names = servers_.split(",")
    if any(name not in ALL and not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", name) for name in names):
        raise typer.BadParameter(f"--servers: of {', '.join(ALL)}, and 127.0.0.1:PORT:PID of one that runs already")
    if KAFKA in names and (missing := available()):
        progress.print(f"without Apache Kafka: {missing}")
        names.remove(KAFKA)
    changes = {name: json.loads(value) for name, value in pairs(with_ or []).items()}
    cases = chosen(works or [], changes, quick=quick)
    repeat = 1 if quick else repeat
    with ExitStack() as stack:
        runs, failed = measured(Stage(pairs(set_ or []), stack), cases, names, repeat)
    found = report.lines(cases, runs)
    report.console().print(report.terminal(found, names))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"about": about(cases, repeat), "figures": runs}, indent=1) + "\n")
    if failed:
        progress.print(f"{failed} measurements failed" + (f"; {page} stays as it is" if page else ""), style="red")
        raise typer.Exit(1)
    if page is not None:
        table = report.markdown(found, names)
        text = about(cases, repeat) + report.surroundings_note(found)
        page.write_text(report.rewritten(page.read_text(), text, table))


if __name__ == "__main__":
    app()
