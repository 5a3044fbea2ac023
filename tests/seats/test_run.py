"""`tenure seat run` on a real Tenure: processes, signals, exit codes; and programs that are killed and paused."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.seats.run import clock
from tests.interop.brokers import TenureBroker
from tests.seats.leased import NAMES, SETTINGS, Round, children
from tests.seats.runs import SHELL, Runs
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until

IMPATIENT = """
import os, signal, sys
from coordinator.cli.main import main

half, *sys.argv = sys.argv[1:]
os.register_at_fork(**{f"after_in_{half}": lambda: os.kill(os.getpid(), signal.SIGTERM)})
main()
"""
"""`tenure`, of which one half gets SIGTERM as soon as there are two."""


@pytest.fixture
def tenure() -> Iterator[Tenure]:
    """Yield a server."""
    with Tenure(SETTINGS) as started:
        yield started


@pytest.fixture
def runs(tenure: Tenure, tmp_path: Path) -> Iterator[Runs]:
    """Yield the runs of a test."""
    with Runs(tenure.bootstrap, tmp_path) as made:
        yield made


def halves(process: subprocess.Popen[Any]) -> tuple[int, int, int]:
    """The keeper, the supervisor and the program."""
    (supervisor,) = children(process.pid)
    (program,) = children(supervisor)
    return process.pid, supervisor, program


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_gets_its_name_and_its_code_is_the_commands(runs: Runs) -> None:
    """A program has its name in its environment and arguments; two programs have two names, and get signals."""
    first = runs.start("one")
    second = runs.start(
        "two", "--variable", "OTHER", script="trap 'exit 9' TERM; " + SHELL + "while :; do sleep 0.1; done"
    )
    names = {runs.wait_for("one", r"began (w-\d) \d+  \1\n")[1], runs.wait_for("two", r"began  \d+ (w-\d) \1\n")[1]}
    assert names == {"w-0", "w-1"}
    for process in (first, second):
        process.send_signal(signal.SIGTERM)
    assert (first.wait(WITHIN_S), second.wait(WITHIN_S)) == (143, 9)


def test_a_name_that_is_given_back_is_free_at_once(runs: Runs) -> None:
    """A waiting program gets it, with a higher token; without --wait a program ends."""
    first = runs.start("one", pool="w")
    token = runs.wait_for("one", r"has w, token (\d+)")[1]
    runs.start("two", pool="w")
    runs.wait_for("two", "waits: no name is free")
    assert runs.start("three", "--no-wait", pool="w").wait(WITHIN_S) == 1
    assert "began" not in runs.said("three")
    first.send_signal(signal.SIGINT)
    assert first.wait(WITHIN_S) == 130
    assert int(runs.wait_for("two", r"has w, token (\d+)")[1]) > int(token)


def test_without_a_server_the_program_ends_before_its_name_can_go(runs: Runs, tenure: Tenure) -> None:
    """The program gets SIGTERM, its children end with it, and the command's code says that the lease is lost."""
    process = runs.start("one", script=SHELL + "sleep 600 & echo child $!; trap '' TERM; wait; sleep 600")
    child = int(runs.wait_for("one", r"child (\d+)")[1])
    tenure.kill()
    ended = clock()
    wait_until(lambda: not is_alive(child), "the child is dead", WITHIN_S)
    assert clock() - ended < 6
    assert process.wait(WITHIN_S) == 5
    said = runs.said("one")
    assert len(re.findall("the lease can't be renewed: ", said)) == 1
    assert re.search(r"SIGTERM, and SIGKILL [01]\.\d s later", said)
    assert "SIGKILL\n" in said


@pytest.mark.parametrize("half", ["supervisor", "keeper"])
def test_a_program_of_a_paused_half_ends_before_its_name_can_go(runs: Runs, tenure: Tenure, half: str) -> None:
    """The other half kills it when nobody renews the lease."""
    process = runs.start("one")
    runs.wait_for("one", "began")
    keeper, supervisor, program = halves(process)
    os.kill(supervisor if half == "supervisor" else keeper, signal.SIGSTOP)
    tenure.kill()
    ended = clock()
    wait_until(lambda: not is_alive(program), "the program is dead", WITHIN_S)
    assert clock() - ended < 6


@pytest.mark.parametrize("half", ["supervisor", "keeper"])
def test_a_program_ends_with_either_half(runs: Runs, half: str) -> None:
    """The program ends at once, though the other half sleeps. After the session, its next run gets the same name."""
    process = runs.start("one")
    name, token = runs.wait_for("one", r"began (\S+) (\d+)").groups()
    keeper, supervisor, program = halves(process)
    killed, other = (supervisor, keeper) if half == "supervisor" else (keeper, supervisor)
    os.kill(other, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not is_alive(program), "the program is dead", WITHIN_S)
    process.send_signal(signal.SIGCONT)
    process.wait(WITHIN_S)
    runs.start("one")
    again = runs.wait_for("one", r"(?s)began .*began (\S+) (\d+)")
    assert again[1] == name
    assert int(again[2]) > int(token)


@pytest.mark.parametrize("half", ["supervisor", "keeper"])
def test_the_children_of_a_program_end_with_either_half(runs: Runs, half: str) -> None:
    """A worker that a shell started has the name too."""
    process = runs.start("one", script=SHELL + "sleep 600 & echo child $!; wait")
    child = int(runs.wait_for("one", r"child (\d+)")[1])
    keeper, supervisor, _ = halves(process)
    assert is_alive(child)
    os.kill(supervisor if half == "supervisor" else keeper, signal.SIGKILL)
    killed = clock()
    wait_until(lambda: not is_alive(child), "the child is dead", WITHIN_S)
    assert clock() - killed < 6


def test_a_refusal_ends_the_command(runs: Runs) -> None:
    """A session that is shorter than the server allows ends the command with the server's error."""
    process = runs.start("one", "--session", "1", "--grace", "0.5")
    assert process.wait(WITHIN_S) == 4
    assert "INVALID_SESSION_TIMEOUT" in runs.said("one")


def test_a_program_that_cannot_be_run_gives_its_name_back(runs: Runs) -> None:
    """The code is a shell's, one line says why, and the next program gets the name without a wait for the session."""
    script = runs.folder / "without-interpreter"
    script.write_text("exit 0\n")
    script.chmod(0o700)
    assert runs.start("one", pool="w", program=[str(script)]).wait(WITHIN_S) == 126
    said = runs.said("one").splitlines()
    assert len(said) == 2, said
    assert said[1].endswith("without-interpreter can't be run: Exec format error")
    assert runs.start("two", "--no-wait", pool="w", script="exit 0").wait(WITHIN_S) == 0


def test_a_server_that_never_answers_does_not_delay_the_end(runs: Runs) -> None:
    """The first request may take three sessions; SIGTERM ends the command long before it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        runs.bootstrap = f"127.0.0.1:{server.getsockname()[1]}"
        process = runs.start("one", "--session", "60")
        with server.accept()[0]:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 143


@pytest.mark.parametrize("half", ["child", "parent"])
def test_a_signal_at_the_fork_ends_the_command(half: str) -> None:
    """The code is that of a signal before the program began, and not of a lost lease."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = ["--pool", "w", "--bootstrap-server", f"127.0.0.1:{server.getsockname()[1]}"]
        command = ["tenure", "seat", "run", *options, "--", "true"]
        process = subprocess.run([sys.executable, "-c", IMPATIENT, half, *command], timeout=WITHIN_S, check=False)
    assert process.returncode == 143


def test_a_program_does_not_read_the_terminal(runs: Runs) -> None:
    """The kernel would stop it there; it finds the end of its input."""
    outer, inner = os.openpty()
    process = runs.start("one", script="cat; test -t 0 || echo no terminal; exit 7", stdin=inner)
    assert process.wait(20) == 7
    assert "no terminal" in runs.said("one")
    os.close(outer)
    os.close(inner)


@pytest.mark.long
def test_programs_that_are_killed_and_paused(tenure: Tenure, tmp_path: Path) -> None:
    """For 20 s, no name has two programs that work, and the programs' own group never rebalances."""
    assert play(tenure, tmp_path, 1 / 3) == NAMES


@pytest.mark.nightly
def test_programs_that_are_killed_and_paused_for_long(tenure: Tenure, tmp_path: Path) -> None:
    """The same holds for ten minutes."""
    assert play(tenure, tmp_path, 10) == NAMES


def play(tenure: Tenure, folder: Path, minutes: float) -> int:
    """Play a round in which no name has two programs; returns the number of names that programs had."""
    with Round(TenureBroker(tenure), folder, ["--bootstrap-server", tenure.bootstrap], seed=1) as made:
        made.run(minutes)
        assert made.shared_tokens() == 0
        late = made.late()[1]
        assert late == [], made.story(late[0])
        assert made.rebalances == 0, made.figures()
        return len({line.name for line in made.lines()})
