"""Programs that choose a leader: those of docs/start/leaders-and-shards.md, as processes of their own.

House rule: a process ends by Ctrl-C, with exit code 0, and prints no trace.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator.testing import Tenure
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
LEADER = ROOT / "examples/coordination/leader.py"


class Program:
    """A running program. lines: what it has printed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.output = folder / f"{len(list(folder.iterdir()))}.out"
        with self.output.open("w") as output:
            self.process = subprocess.Popen([sys.executable, "-u", *arguments], stdout=output, stderr=output)

    @property
    def lines(self) -> list[str]:
        """What it has printed."""
        return self.output.read_text().splitlines()

    def until(self, line: str) -> None:
        """Wait for a line that begins so. A program that ends without it fails the test, which says what it printed."""

        def has_come() -> bool:
            is_over = self.process.poll() is not None  # asked before its lines, which may come as its last
            found = any(each.startswith(line) for each in self.lines)
            assert found or not is_over, f"it ended without {line!r}: {self.lines}"
            return found

        try:
            wait_until(has_come, line, WITHIN_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.lines}") from None

    def until_it_sleeps(self) -> None:
        """Wait until it has stopped itself. One that never does fails the test, which says what it printed."""

        def changed() -> tuple[int, int] | None:
            process, status = os.waitpid(self.process.pid, os.WUNTRACED | os.WNOHANG)
            return (process, status) if process else None

        try:
            _, status = wait_until(changed, "it sleeps", WITHIN_S)
            assert os.WIFSTOPPED(status), self.lines
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.lines}") from None

    def end(self) -> None:
        """End it by Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(WITHIN_S) == 0, self.lines
        assert "Traceback" not in self.output.read_text()


@pytest.fixture
def tenure() -> Iterator[Tenure]:
    """Yield a server with the topic of the programs."""
    with Tenure(topics={"leader": 1}, timeout=WITHIN_S) as made:
        yield made


@contextmanager
def ended(*programs: Program) -> Iterator[None]:
    """Kill programs that a failed test leaves."""
    try:
        yield
    finally:
        for program in programs:
            program.process.kill()
            program.process.wait()


def test_the_leader_of_the_page_ends_by_ctrl_c_and_the_other_one_leads_at_once(tenure: Tenure, tmp_path: Path) -> None:
    """It says that it leads and that it stops, and it leaves: the other one leads although no session can end."""
    page = (ROOT / "docs/start/leaders-and-shards.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if '"I lead"' in block)
    program = tmp_path / "program.py"
    program.write_text(code.replace("127.0.0.1:9092", tenure.bootstrap_servers))
    first = Program(tmp_path, str(program))
    with ended(first):
        first.until("I lead")
        second = Program(tmp_path, str(program))
        with ended(second):
            tenure.group("scheduler").wait_until_stable(members=2)
            tenure.freeze()
            first.end()
            assert first.lines == ["I lead", "I stop", "I left the group"]
            second.until("I lead")
            second.end()


@pytest.mark.parametrize(
    ("option", "is_safe"), [((), True), pytest.param(("--unfenced",), False, marks=pytest.mark.long)]
)
def test_a_leader_that_wakes_from_a_pause_writes_nothing(
    option: tuple[str, ...], is_safe: bool, tenure: Tenure, tmp_path: Path
) -> None:
    """Each write of either leader counts. Without the token, the old leader takes back what the new one wrote."""
    database = tmp_path / "counter.db"
    start = (str(LEADER), tenure.bootstrap_servers)
    old = Program(tmp_path, *start, "old", str(database), "--pause-at", "3", *option)
    with ended(old):
        old.until_it_sleeps()
        group = tenure.group("counters")
        (member,) = group.members
        group.expire(member.member_id)
        new = Program(tmp_path, *start, "new", str(database), *option)
        with ended(new):
            new.until("new wrote 7")
            old.process.send_signal(signal.SIGCONT)
            old.until("old may not write 4: another program leads" if is_safe else "old wrote 4")
            for program in (new, old):
                program.end()
        (value,) = sqlite3.connect(database).execute("SELECT value FROM counter").fetchone()
        written = sum(" wrote " in line for program in (old, new) for line in program.lines)
        assert (value == written) == is_safe
