"""`python -m benchmarks`: measures the chosen works and prints the results.

House rule: standard output has the result; the progress goes to standard error.
"""

from __future__ import annotations

import inspect
import json
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import report
from benchmarks.cases import ALL, CASES, KAFKA, TENURE, Case
from benchmarks.servers import given, tenure
from benchmarks.stage import FAILURES, Stage, cpus, measured, progress, turns
from benchmarks.works import WORKS
from tests.support.apache import available

app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)


SECURITY = "security"
"""A name for all cases of secured servers. They have a page of their own, and are left out where no name is given."""

OFFERED = sorted({case.work for case in CASES} | {SECURITY})
"""The works that can be chosen by name."""


def pairs(given: list[str]) -> dict[str, str]:
    """Return NAME=VALUE options as a dict."""
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise typer.BadParameter(f"{each}: NAME=VALUE is wanted")
        found[name] = value
    return found


def changed(given: list[str]) -> dict[str, Any]:
    """Return parameters of works, whose values are JSON."""
    found = {}
    for name, text in pairs(given).items():
        try:
            found[name] = json.loads(text)
        except ValueError:
            raise typer.BadParameter(f"--with {name}={text}: a number is wanted, or other JSON") from None
    return found


def check(work: str, name: str, value: Any, default: Any) -> None:
    """Raise BadParameter if a parameter's type isn't its default's, or it is 0 and its default isn't."""
    wanted = {float: (float, int), tuple: (list,), type(None): (dict,)}.get(type(default), (type(default),))
    is_less = isinstance(value, int | float) and value < 0
    if type(value) not in wanted or is_less or (default and not value):
        raise typer.BadParameter(f"--with {name}={json.dumps(value)}: {work} has {json.dumps(default)}, for one")


def defaults(work: str) -> dict[str, Any]:
    """Return a work's parameters that can be changed, with their defaults."""
    parameters = inspect.signature(WORKS[work]).parameters
    return {name: each.default for name, each in parameters.items() if each.default is not each.empty}


def chosen(works: list[str], changes: dict[str, Any], *, quick: bool) -> list[Case]:
    """Return the cases of these works, by the name of the work or of the case; without names, all but SECURITY."""
    unknown = set(works) - set(OFFERED) - {case.name for case in CASES}
    if unknown:
        raise typer.BadParameter(f"no such work: {', '.join(sorted(unknown))}; there are {', '.join(OFFERED)}")
    found, taken = [], set()
    for case in CASES:
        names = {case.work, case.name, *([SECURITY] if case.listener else [])}
        if names & set(works) if works else not case.listener:
            takes = defaults(case.work)
            mine = {name: value for name, value in changes.items() if name in takes}
            for name, value in mine.items():
                check(case.work, name, value, takes[name])
            taken |= set(takes)
            found.append(asked(case, {**(case.quick if quick else {}), **mine}))
    if untaken := set(changes) - taken:
        there_are = ", ".join(sorted(taken))
        raise typer.BadParameter(f"--with {', '.join(sorted(untaken))}: no such parameter here; there are {there_are}")
    return found


def asked(case: Case, changes: Mapping[str, Any]) -> Case:
    """Return a case with other parameters and without floors, because a floor belongs to the case's own parameters."""
    parameters = {**case.parameters, **changes}
    if parameters == case.parameters:
        return case
    return case._replace(parameters=parameters, rows=tuple(row._replace(floor=None) for row in case.rows))


def startable(settings: dict[str, str]) -> None:
    """Raise BadParameter if Tenure doesn't start with these settings."""
    try:
        with tenure(settings, cpus()[0]):
            pass
    except FAILURES as error:
        raise typer.BadParameter(f"--set: {str(error).strip()}") from None


def writable(out: Path, page: Path | None) -> None:
    """Raise BadParameter if the results couldn't be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a"):
            pass
        if page is not None:
            report.rewritten(page.read_text(), "", "")
            with page.open("a"):
                pass
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"can't be written: {error}") from None


def measurable(names: list[str]) -> None:
    """Raise BadParameter if one of these servers can't be measured."""
    for name in names:
        if name in ALL:
            continue
        if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", name):
            raise typer.BadParameter(f"--servers: of {', '.join(ALL)}, and 127.0.0.1:PORT:PID of one that runs already")
        try:
            given(name)
        except ValueError as error:
            raise typer.BadParameter(f"--servers {name}: {error}") from None


def about(cases: list[Case], repeat: int) -> str:
    """Return a sentence about place and time of the measurement."""
    fewer = "".join(f" ({case.name}: {case.repeat_max})" for case in cases if case.repeat_max < repeat)
    return f"{report.place()}; median of {repeat}{fewer}, in brackets the least and the most."


@app.command()
def main(
    works: Annotated[
        list[str] | None,
        typer.Argument(help=f"Of {', '.join(OFFERED)}, or one case: {', '.join(case.name for case in CASES)}."),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Repetitions.")] = 5,
    servers_: Annotated[str, typer.Option("--servers", help="Which to measure, with commas.")] = ",".join(ALL),
    with_: Annotated[
        list[str] | None, typer.Option("--with", metavar="NAME=VALUE", help="A work's parameter: connections=256.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of Tenure.")] = None,
    out: Annotated[Path, typer.Option(help="Where all figures go, as JSON.")] = Path("build/bench.json"),
    page: Annotated[
        Path | None, typer.Option(help="A page whose table is replaced as a whole by what was measured.")
    ] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Less of everything, once: whether it works, not how fast it is.")
    ] = False,
) -> None:
    """Measure what requests cost: Tenure beside a bare echo and Apache Kafka."""
    # Any end of this process ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    names = servers_.split(",")
    measurable(names)
    if KAFKA in names and (missing := available()):
        progress.print(f"without Apache Kafka: {missing}")
        names.remove(KAFKA)
    cases = chosen(works or [], changed(with_ or []), quick=quick)
    settings = pairs(set_ or [])
    if next(turns(cases, names, 1), None) is None:
        raise typer.BadParameter(f"nothing to measure: {', '.join(works or OFFERED)} with {', '.join(names) or 'none'}")
    writable(out, page)
    for case in cases:
        if case.without is not None and (both := sorted(settings.keys() & case.settings)):
            raise typer.BadParameter(f"--set {', '.join(both)}: {case.name} compares servers that differ in it")
    if settings and TENURE in names:
        startable(settings)
    repeat = 1 if quick else repeat

    def keep(runs: report.Runs) -> None:
        new = out.with_name(out.name + ".new")
        new.write_text(json.dumps({"about": about(cases, repeat), "figures": runs}, indent=1) + "\n")
        new.replace(out)

    with ExitStack() as stack:
        runs, failed = measured(Stage(settings, stack), cases, names, repeat, keep)
    found = report.lines(cases, runs)
    report.console().print(report.terminal(found, names))
    has_holes = any(not runs[case].get(server) for case, server in failed)
    if page is not None and not has_holes:
        table = report.markdown(found, names)
        text = about(cases, repeat) + report.failures_note(failed) + report.surroundings_note(found)
        page.write_text(report.rewritten(page.read_text(), text, table))
    if failed:
        stays = f"; {page} stays as it is" if page is not None and has_holes else ""
        progress.print(f"{len(failed)} measurements failed{stays}", style="red")
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
