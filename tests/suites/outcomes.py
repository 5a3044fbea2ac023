"""The outcomes of a suite's tests, and the outcomes that they must have.

House rule: a test that doesn't pass and isn't in the suite's table OTHERWISE fails the suite. So does a line of the
table that isn't needed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as ET

Outcome = Literal["passed", "failed", "skipped"]

WORST_LAST: tuple[Outcome, ...] = ("passed", "skipped", "failed")


@dataclass(frozen=True, slots=True)
class ServerUnderTest:
    """Tenure or Apache Kafka.

    start: starts it with these settings, Kafka's names to values, and returns HOST:PORT.
    """

    name: Literal["tenure", "apache"]
    start: Callable[[dict[str, str]], str]


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A test that doesn't pass.

    reason: why; docs/start/clients.md says it.
    tenure, apache: what the test does on each server.
    """

    reason: str
    tenure: Outcome
    apache: Outcome


def unexpected(
    server: Literal["tenure", "apache"],
    wanted: Collection[str],
    found: Mapping[str, Outcome],
    otherwise: Mapping[str, Otherwise],
) -> Iterator[str]:
    """Yield a line for each test whose outcome isn't the expected one.

    wanted: tests that must have run. One without an outcome failed: it hung, or its program ended.
    found: outcomes of these tests and of their parts.
    """
    if not wanted:
        yield "the suite has no tests"
    for name in sorted({*wanted, *found, *otherwise}):
        expected: Outcome = getattr(otherwise[name], server) if name in otherwise else "passed"
        if (outcome := found.get(name, "failed")) != expected:
            yield f"{name}: {outcome}, expected: {expected}"


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path, within_s: float) -> str:
    """Run a suite to its end, or for this many seconds; return its output, which the file `log` gets."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return log.read_text(errors="replace")


def of_report(report: Path, *, with_class: bool = False) -> dict[str, Outcome]:
    """Return the outcomes in a JUnit report of pytest; none if there is no report.

    with_class: the class of a test, or its file without one, and `::` come before its name.

    If several tests have one name, the worst outcome counts.
    """
    found: dict[str, Outcome] = {}
    if report.exists():
        for case in ET.parse(report).iter("testcase"):
            owner = case.attrib["classname"].rpartition(".")[2] + "::" if with_class else ""
            name = owner + case.attrib["name"]
            found[name] = max(found.get(name, "passed"), _of_case(case), key=WORST_LAST.index)
    return found


def _of_case(case: ET.Element) -> Outcome:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"
