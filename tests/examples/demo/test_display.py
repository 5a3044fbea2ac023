"""The displays of the demo: lines, the live table, the summary."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from coordinator.story.described import Member
from examples.demo.display import Lines, LiveTable, View, display, step_line, summary
from examples.demo.roll import ACTS
from tests.examples.demo.test_roll import STILL


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self) -> bool:
        """A terminal is what this stream claims to be."""
        return True


def view() -> View:
    """A moment of the static roll."""
    members: dict[str, Member | None] = {
        "worker-1": Member("worker-1-0c5a3c4e-8ad1-4f0e-bd6f-0123456789ab", "worker-1", "c", "/h", {"orders": [0, 1]}),
        "worker-2": None,
    }
    return View("static", "generation", "worker-2 restarted", "Stable", 3, 0, members, "worker-1", {"worker-2": "down"})


def test_terminal_gets_a_table_and_a_pipe_gets_lines() -> None:
    """The live table is only for a terminal; any other output gets lines."""
    assert isinstance(display(Terminal()), LiveTable)
    assert isinstance(display(io.StringIO()), Lines)


def test_lines_tell_each_step_once() -> None:
    """The display prints a line for each step, and nothing between steps."""
    out = io.StringIO()
    with Lines(out) as shown:
        shown.chapter("5 members")
        shown.update(view())
        shown.step("worker-1 restarted", "0 rebalances")
    assert out.getvalue() == f"\n5 members\n{step_line('worker-1 restarted', '0 rebalances')}\n"


def test_table_shows_members_generation_and_rebalances() -> None:
    """The table shows instance ids, the end of each member id, partitions, and the workers that are down."""
    out = Terminal()
    with LiveTable(out) as shown:
        shown.update(view())
        shown.step("worker-1 restarted", "0 rebalances")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "static · Stable · generation 3 · rebalances 0" in text
    assert re.search(r"worker-1 +worker-1 +\.\.\.\S+0123456789ab +0 1 +leader", text)
    assert re.search(r"worker-2 +- +- +- +down", text)
    assert step_line("worker-1 restarted", "0 rebalances") in text


def test_steps_and_summary_fit_a_terminal() -> None:
    """No line is wider than 80 columns, so that it also fits a README."""
    step = step_line("coordinator killed and restarted", "10 rebalances  12 of 12 moved  generation 11")
    acts = [STILL, replace(STILL, rebalances=10), replace(STILL, generation_after=11)]
    acts = [replace(figures, kind=act.kind) for figures, act in zip(acts, ACTS, strict=True)]
    lines = [step, *summary(acts).splitlines()]
    assert max(map(len, lines)) <= 80


def test_summary_has_the_rolls_side_by_side() -> None:
    """The summary shows each figure unchanged, one per line."""
    moved = replace(STILL, kind="dynamic", rebalances=10, rebalancing_s=2.64, unchanged=0, generation_after=11)
    lines = {line[:32].strip(): line[32:].split() for line in summary([STILL, moved]).splitlines()}
    assert lines["rebalances during the roll"] == ["0", "10"]
    assert lines["time spent rebalancing"] == ["0.0", "s", "2.6", "s"]
    assert lines["assignments unchanged"] == ["12/12", "0/12"]
    assert lines["generation, epoch"] == ["1", "->", "1", "1", "->", "11"]
