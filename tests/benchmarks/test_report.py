"""A table says what was measured: medians, ratios within a repetition, and whether a floor is reached."""

from __future__ import annotations

import pytest

from benchmarks import report
from benchmarks.cases import ECHO, KAFKA, TENURE, Case, Row, To

RATIO = Row("{size:,} members: ratio", "cpu", "", floor=1.25, to=To(server=ECHO))
TIME = Row("{size:,} members: CPU", "cpu", "us")
LOG = Row("log", "bytes", "kB", floor=KAFKA, scale=1000)
CASE = Case("case", "heartbeat", {"size": 1000}, {}, (RATIO, TIME, LOG))


def figures(*values: float) -> list[dict[str, float]]:
    """A repetition for each."""
    return [
        {"repetition": number, "cpu": value, "bytes": value * 1000, "other_share": 0.5}
        for number, value in enumerate(values)
    ]


RUNS = {"case": {ECHO: figures(10, 20, 40), TENURE: figures(12, 30, 44), KAFKA: figures(20, 40, 80)}}


def test_a_ratio_is_made_within_each_repetition() -> None:
    """12/10, 30/20 and 44/40: the median is 1.2, and not that of the medians."""
    ratio = report.lines([CASE], RUNS)[0]
    assert ratio.values[TENURE] == pytest.approx([1.2, 1.5, 1.1])
    assert report.cells(ratio, [ECHO, TENURE]) == [
        "1,000 members: ratio", "", "1.20 (1.10 to 1.50)", "<= 1.25", "reached", "50 %",
    ]  # fmt: skip


def test_a_repetition_that_failed_is_no_pair() -> None:
    """Where the echo has no figure, there is no ratio; the others stay in pairs."""
    runs = {"case": {ECHO: RUNS["case"][ECHO][1:], TENURE: RUNS["case"][TENURE]}}
    assert report.lines([CASE], runs)[0].values[TENURE] == pytest.approx([1.5, 1.1])


def test_a_ratio_may_be_to_another_figure() -> None:
    """The ratio is to a figure of the same repetition: 12 kB is 1000 of its own bytes per CPU."""
    own = CASE._replace(rows=(Row("to the CPU", "bytes", "", to=To(figure="cpu")),))
    (line,) = report.lines([own], RUNS)
    assert line.values[TENURE] == [1000.0] * 3


def test_a_server_that_waited_for_its_load_generator_is_marked() -> None:
    """In its cells, and the mark is explained; the others are not."""
    slow = [{**each, "generator_share": 0.95} for each in figures(10, 20)]
    found = report.lines([CASE], {"case": {ECHO: slow, TENURE: figures(12, 30)}})
    _, echo, tenure, *_ = report.cells(found[1], [ECHO, TENURE])
    assert echo.endswith(report.MARK)
    assert not tenure.endswith(report.MARK)
    assert report.MARK in report.surroundings_note(found)
    assert report.MARK not in report.surroundings_note(report.lines([CASE], RUNS))


def test_a_floor_may_be_what_another_server_needs() -> None:
    """A server that needs no more reaches the floor; without a figure of the other server it is unknown."""
    log = report.lines([CASE], RUNS)[2]
    assert (log.floor, log.verdict) == (40, "reached")
    alone = report.lines([CASE], {"case": {TENURE: figures(12)}})
    assert [(line.title, line.floor, line.verdict) for line in alone] == [
        ("1,000 members: CPU, us", None, ""),
        ("log, kB", None, ""),
    ]


def test_what_needs_more_has_not_reached_its_floor() -> None:
    """The median decides whether a floor is reached."""
    runs = {"case": {ECHO: figures(10, 10, 10), TENURE: figures(10, 13, 14)}}
    assert report.lines([CASE], runs)[0].verdict == "not reached"


def test_a_table_without_floors_has_no_place_for_them() -> None:
    """In a terminal and on a page."""
    found = report.lines([CASE._replace(rows=(TIME,))], RUNS)
    assert report.markdown(found, [TENURE]) == (
        "| work | Tenure | others' CPU |\n| --- | --- | --- |\n"
        "| 1,000 members: CPU, us | 30.0 (12.0 to 44.0) | 50 % |\n"
    )
    assert len(report.terminal(found, [TENURE]).columns) == 3
    assert len(report.terminal(report.lines([CASE], RUNS), [TENURE]).columns) == 5


def test_a_busy_machine_is_said() -> None:
    """Half a core used by others is worth a sentence, a hundredth is not."""
    assert "50% of a core" in report.surroundings_note(report.lines([CASE], RUNS))
    quiet = {"case": {TENURE: [{**figures, "other_share": 0.01} for figures in RUNS["case"][TENURE]]}}
    assert report.surroundings_note(report.lines([CASE], quiet)) == ""


def test_failures_are_named_with_how_often() -> None:
    """Each case and server once."""
    assert report.failures_note([]) == ""
    failed = [("storm", "kafka"), ("storm", TENURE), ("storm", "kafka")]
    assert report.failures_note(failed) == (
        " Failed, and left out: storm with Apache Kafka (2), storm with Tenure (1)."
    )


def test_a_page_gets_its_table_between_the_markers() -> None:
    """The report keeps the text before and behind the markers; a second rewrite changes nothing."""
    page = f"before\n{report.BEGIN}old\n{report.END}behind\n"
    once = report.rewritten(page, "about", "| table |\n")
    assert once == f"before\n{report.BEGIN}\nabout\n\n| table |\n\n{report.END}behind\n"
    assert report.rewritten(once, "about", "| table |\n") == once


@pytest.mark.parametrize(
    ("value", "shown"), [(0.123, "0.12"), (9.994, "9.99"), (12.34, "12.3"), (123.4, "123"), (79173.0, "79,173")]
)
def test_numbers_have_the_digits_that_say_something(value: float, shown: str) -> None:
    """Three of them, or all in front of the point."""
    assert report.number(value) == shown
