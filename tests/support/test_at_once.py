"""Several processes run the tests of a session."""

from __future__ import annotations

import os
import re
import sys
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.at_once import Shares, arranged
from tests.support.preloaded import run

TESTS = """
import os, signal, sys
import pytest

@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory):
    print("begun by", os.getpid())
    yield
    with open(os.environ["ENDED"], "a") as file:
        file.write(f"{os.getpid()}\\n")

@pytest.mark.parametrize("number", range(40))
def test_passes(number, tmp_path):
    print("not shown")
"""


def played(tmp_path: Path, tests: str, *options: str) -> tuple[int, str, list[str]]:
    """Run tests in three processes; returns the exit code, the output, and the processes that ended their fixture."""
    (tmp_path / "test_it.py").write_text(TESTS + tests)
    ended = tmp_path / "ended"
    ended.touch()
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.at_once", "-c", os.devnull, "--at-once", "3"]
    result = run(
        [*command, "--rootdir", str(tmp_path), *options, str(tmp_path)],
        env=os.environ | {"ENDED": str(ended), "COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return result.returncode, result.stdout + result.stderr, ended.read_text().split()


@pytest.mark.parametrize(("tests", "processes"), [(0, 1), (1, 3), (10, 3), (100, 4)])
def test_each_test_is_taken_once(tests: int, processes: int) -> None:
    """By one process or by all in turn."""
    edges = list(range(tests + 1))
    alone, shared = Shares(edges, processes), Shares(edges, processes)
    assert sorted(iter(lambda: alone.take(0), None)) == list(range(tests))
    turns = cycle(range(processes))
    assert sorted(iter(lambda: shared.take(next(turns)), None)) == list(range(tests))


@pytest.mark.parametrize("first", range(4))
def test_a_module_that_stays_together_is_one_processs(first: int) -> None:
    """One process takes its tests, in their order, also if another one has none left."""
    together = list(range(3, 60))
    shares = Shares([edge for edge in range(71) if edge not in together[1:]], 4)
    taken = [(number, test) for number in range(4) for _ in range(2) if (test := shares.take(number)) is not None]
    for number in (first, *range(4)):
        taken += [(number, test) for test in iter(lambda: shares.take(number), None)]  # noqa: B023 - called at once
    assert sorted(test for _, test in taken) == list(range(70))
    assert len({number for number, test in taken if test in together}) == 1
    assert [test for _, test in taken if test in together] == together


class Item(NamedTuple):
    """What `arranged` asks of a test."""

    path: str
    name: int
    early: bool = False

    def get_closest_marker(self, _name: str) -> bool | None:
        """Whether it has the marker."""
        return self.early or None


def test_early_tests_begin_a_share_each() -> None:
    """Those of a module stay together, and all others in their order."""
    others = [Item("others", number) for number in range(25)]
    one, two = ([Item(path, number, early=True) for number in range(2)] for path in ("one", "two"))
    items: Any = [*others[:20], *one, *others[20:], *two]
    result: Any = arranged(items, 3)
    assert (result[:2], result[9:11]) == (one, two)
    assert [item for item in result if not item.early] == others


@pytest.mark.long
def test_all_tests_run_and_each_process_ends_its_fixtures(tmp_path: Path) -> None:
    """Their output is not shown; a fixture of a module begins and ends once in each process that has a test of it."""
    code, output, ended = played(tmp_path, "")
    assert code == 0, output
    assert "40 passed" in output
    assert "not shown" not in output
    assert len(set(ended)) == len(ended) <= 3


@pytest.mark.long
def test_a_failure_is_shown_with_its_own_output(tmp_path: Path) -> None:
    """Also that of the fixture, in the same process."""
    code, output, _ = played(tmp_path, "def test_fails():\n    print('mine')\n    assert False, 'the reason'\n")
    assert code == 1
    assert "the reason" in output
    assert re.search(r"Captured stdout call -+\nmine\n", output)
    assert "1 failed, 40 passed" in output


@pytest.mark.long
def test_a_process_that_dies_fails_its_test(tmp_path: Path) -> None:
    """The others run the tests that it hasn't taken."""
    code, output, _ = played(tmp_path, "def test_dies():\n    os.kill(os.getpid(), signal.SIGKILL)\n")
    assert code == 1
    assert "test_dies - the process that ran this test ended" in output
    assert re.search(r"1 failed, (40|39) passed", output)


@pytest.mark.long
def test_a_run_that_ends_at_the_first_failure_ends_all_fixtures(tmp_path: Path) -> None:
    """With -x each process runs at most the test that it has taken, and the one behind it."""
    failing = "@pytest.mark.parametrize('number', range(40))\ndef test_fails(number):\n    assert False\n"
    code, output, ended = played(tmp_path, failing, "-x")
    assert code == 1
    assert "stopping after" in output
    assert len(set(ended)) == len(ended)
    assert " 40 failed" not in output


@pytest.mark.long
def test_an_interrupt_ends_the_run(tmp_path: Path) -> None:
    """Ctrl-C reaches all processes; each ends its fixtures."""
    interrupting = "def test_interrupts():\n    os.killpg(0, signal.SIGINT)\n"
    code, output, ended = played(tmp_path, interrupting)
    assert code == 2, output
    assert "KeyboardInterrupt" in output
    assert ended
