"""When a suite fails, and that the documentation lists each of its differences."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.suites import (
    test_aiokafka,
    test_faststream,
    test_franz_go,
    test_kafka_python,
    test_librdkafka,
    test_quixstreams,
)
from tests.suites.outcomes import Otherwise, of_report, run, unexpected

CLIENTS_PAGE = Path(__file__).parents[2] / "docs/start/clients.md"
ELSE = {"b": Otherwise("a reason", "failed", "passed")}


def test_a_difference_that_no_table_names_fails_the_suite() -> None:
    """A failed, a skipped and a lost test are each one line; a test that passed is none."""
    found = {"a": "passed", "c": "failed", "d": "skipped"}
    assert list(unexpected("apache", ["a", "c", "d", "e"], found, {})) == [  # type: ignore[arg-type]
        "c: failed, expected: passed",
        "d: skipped, expected: passed",
        "e: failed, expected: passed",
    ]


def test_a_table_names_what_happens_on_each_server() -> None:
    """The test of the table must fail on one server and pass on the other."""
    assert list(unexpected("tenure", ["b"], {"b": "failed"}, ELSE)) == []
    assert list(unexpected("tenure", ["b"], {"b": "passed"}, ELSE)) == ["b: passed, expected: failed"]
    assert list(unexpected("apache", ["b"], {"b": "passed"}, ELSE)) == []


def test_a_suite_without_tests_fails() -> None:
    """A suite whose tests have other names than they had is no success."""
    assert list(unexpected("tenure", [], {}, {})) == ["the suite has no tests"]


def test_a_suite_that_hangs_is_ended(tmp_path: Path) -> None:
    """It gets SIGKILL in time, and its output until then is there."""
    hangs = "import signal; print('so far', flush=True); signal.pause()"
    assert run([sys.executable, "-c", hangs], tmp_path, {}, tmp_path / "log", 2) == "so far\n"


def test_outcomes_of_a_report_of_pytest(tmp_path: Path) -> None:
    """A failed fixture or a failed namesake fails a test; without a report there are no outcomes."""
    report = tmp_path / "report.xml"
    assert of_report(report) == {}
    cases = "<failure/>", "<error/>", "<skipped/>", ""
    body = "".join(f'<testcase name="{number}">{inside}</testcase>' for number, inside in enumerate(cases))
    body += "".join(f'<testcase name="twice">{inside}</testcase>' for inside in ("<skipped/>", "<failure/>", ""))
    report.write_text(f"<testsuites><testsuite>{body}</testsuite></testsuites>")
    assert of_report(report) == {"0": "failed", "1": "failed", "2": "skipped", "3": "passed", "twice": "failed"}


def test_namesakes_of_two_classes_are_told_apart(tmp_path: Path) -> None:
    """With the class, or the file of a test without one, each has its own outcome."""
    report = tmp_path / "report.xml"
    report.write_text(
        """<testsuites><testsuite>
            <testcase classname="tests.test_a.TestA" name="a"><failure/></testcase>
            <testcase classname="tests.test_a" name="a"/>
        </testsuite></testsuites>"""
    )
    assert of_report(report, with_class=True) == {"TestA::a": "failed", "test_a::a": "passed"}


def test_the_page_of_clients_lists_each_difference() -> None:
    """Each test in a table OTHERWISE is in docs/start/clients.md with its reason."""
    page = CLIENTS_PAGE.read_text()
    suites = (test_aiokafka, test_faststream, test_franz_go, test_kafka_python, test_librdkafka, test_quixstreams)
    for suite in suites:
        for name, otherwise in suite.OTHERWISE.items():
            assert f"`{name}`" in page
            assert otherwise.reason in page
