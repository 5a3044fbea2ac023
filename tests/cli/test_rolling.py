"""The scripts of examples/rolling: real consumers as processes; a stand-in for kubectl and systemctl restarts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from coordinator.client.client import Client
from coordinator.client.topics import create_topic
from tests.cli.conftest import SETTINGS
from tests.support import supervisor
from tests.support.patience import WITHIN_S
from tests.support.preloaded import run
from tests.support.seats import set_seats
from tests.support.tenure import Tenure, tenure_command, wait_until

ROOT = Path(__file__).parents[2]
ROLLING = ROOT / "examples/rolling"
GROUP = "workers"
NAMES = ("worker-0", "worker-1", "worker-2")


class Rolled:
    """Three workers, the programs that the scripts call, and what the workers saw."""

    def __init__(self, server: Tenure, folder: Path) -> None:
        self.server, self.folder = server, folder
        programs = folder / "bin"
        programs.mkdir()
        for name in ("kubectl", "systemctl"):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.support.supervisor {name} "$@"\n')
            program.chmod(0o755)
        tenure = programs / "tenure"
        tenure.write_text(f'#!/bin/sh\nexec {" ".join(tenure_command())} "$@"\n')
        tenure.chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "WORKERS": str(folder),
            "BOOTSTRAP": server.bootstrap,
            "TENURE_OPTIONS": f"--bootstrap-server {server.bootstrap}",
        }

    def supervise(self, *arguments: str) -> None:
        """Start or stop a worker."""
        command = [sys.executable, "-m", "tests.support.supervisor", *arguments]
        done = run(command, env=self.environment, cwd=ROOT)
        assert done.returncode == 0, done.stderr

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        return subprocess.run(
            [ROLLING / script, *arguments],
            env=self.environment | environment,
            text=True,
            capture_output=True,
            check=False,
            cwd=ROOT,
        )

    def log(self, name: str) -> list[str]:
        """The callbacks of a worker: lines of "assigned" or "revoked" with partitions."""
        file = self.folder / f"{name}.log"
        return file.read_text().splitlines() if file.exists() else []

    def is_seated(self, name: str) -> bool:
        """Whether a worker has two partitions, as each has once all three are there."""
        what, *partitions = (self.log(name) or [""])[-1].split() or [""]
        return what == "assigned" and len(partitions) == 2

    def pids(self) -> dict[str, str]:
        """The processes of the workers that run."""
        return {file.stem: file.read_text() for file in self.folder.glob("*.pid")}


@pytest.fixture
def rolled(tmp_path: Path) -> Iterator[Rolled]:
    """Three workers that share a topic."""
    with Tenure(SETTINGS) as server:
        with Client(server.bootstrap, WITHIN_S) as client:
            create_topic(client, "orders", 2 * len(NAMES))
        found = Rolled(server, tmp_path)
        try:
            for name in NAMES:
                found.supervise("start", name)
            wait_until(lambda: all(map(found.is_seated, NAMES)), "each has two partitions", WITHIN_S)
            yield found
        finally:
            for name in found.pids():
                supervisor.stop(tmp_path, name)


SCRIPTS = [
    pytest.param(("statefulset.sh", GROUP, "worker"), id="statefulset"),
    pytest.param(("systemd.sh", GROUP, "worker", "0", "1", "2"), id="systemd", marks=pytest.mark.long),
]


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS)
def test_all_seats_restart_and_nothing_moves(rolled: Rolled, script: tuple[str, ...]) -> None:
    """Each process is another one, each has its partitions again, and the server counts no rebalance."""
    before, mark = rolled.pids(), rolled.server.mark()
    seen = {name: rolled.log(name) for name in NAMES}
    ran = rolled.run(*script)
    assert ran.returncode == 0, ran.stderr
    after = rolled.pids()
    assert all(before[name] != after[name] for name in NAMES)
    assert rolled.server.count("rebalance_started", GROUP, since=mark) == 0
    assert rolled.server.count("member_replaced", GROUP, since=mark) == len(NAMES)
    for name in NAMES:
        own = seen[name][-1]
        wait_until(partial(rolled.is_seated, name), "it has its partitions", WITHIN_S)
        assert rolled.log(name) == [*seen[name], own.replace("assigned", "revoked"), own], "revoked by its own end"
    assert [line.split(":")[0] for line in ran.stdout.splitlines() if "ready" in line] == ["ready"] * 3


@pytest.mark.long
def test_a_standby_restarts_too_and_is_no_member(rolled: Rolled) -> None:
    """Three seats and a fourth worker: each process is another one, the standby still waits, and nothing moves."""
    names = (*NAMES, "worker-3")
    set_seats(rolled.server.port, GROUP, len(NAMES))
    mark = rolled.server.mark()
    rolled.supervise("start", names[-1])
    rolled.server.wait_for_event("standby_joined", GROUP, since=mark)
    wait_until(lambda: rolled.log(names[-1]), "it has its empty assignment", WITHIN_S)
    mark = rolled.server.mark()
    for script, restarted in (
        (("statefulset.sh", GROUP, "worker"), names),
        (("systemd.sh", GROUP, "worker", "3"), names[-1:]),
    ):
        before = rolled.pids()
        ran = rolled.run(*script)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        after = rolled.pids()
        assert {name for name in names if before[name] != after[name]} == {*restarted}
        assert ran.stdout.count("3 members and 1 standby") == len(restarted)
    for event in ("rebalance_started", "seat_taken"):
        assert rolled.server.count(event, GROUP, since=mark) == 0


@pytest.mark.long
def test_it_stops_before_a_seat_that_is_not_safe(rolled: Rolled) -> None:
    """While another member is away, the script restarts nobody, and its last line is the reason."""
    rolled.supervise("stop", "worker-0")
    before = rolled.pids()
    asks = ["groups", "ready", GROUP, "--restart", "worker-2", "--absent-after", "3"]
    wait_until(
        lambda: run([*tenure_command(), *asks, "--bootstrap-server", rolled.server.bootstrap]).returncode == 1,
        "worker-0 is away",
        WITHIN_S,
    )
    ran = rolled.run("statefulset.sh", GROUP, "worker", READY_OPTIONS="--absent-after 3")
    assert ran.returncode == 1
    assert ran.stdout.startswith("not ready: worker-0 (silent for ")
    assert rolled.pids() == before


@pytest.mark.long
def test_it_stops_after_a_member_that_does_not_come_back(rolled: Rolled) -> None:
    """The next seats stay as they are."""
    before = rolled.pids()
    ran = rolled.run("statefulset.sh", GROUP, "worker", BROKEN="worker-2", TIMEOUT="2")
    assert ran.returncode == 1
    assert ran.stderr.endswith(f"group {GROUP} is Stable with 3 members, and worker-2 is not back\n")
    assert rolled.pids() == {name: before[name] for name in ("worker-0", "worker-1")}


@pytest.mark.long
def test_a_second_run_takes_the_units_that_are_left(rolled: Rolled) -> None:
    """The first run stops at a unit that doesn't start; with the fault mended, the second restarts it and the rest."""
    mark = rolled.server.mark()
    ran = rolled.run("systemd.sh", GROUP, "worker", "0", "1", "2", BROKEN="worker-1", TIMEOUT="2")
    assert ran.returncode == 1
    rolled.supervise("start", "worker-1")
    before = rolled.pids()
    ran = rolled.run("systemd.sh", GROUP, "worker", "1", "2")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    after = rolled.pids()
    assert {name for name in NAMES if before[name] != after[name]} == {"worker-1", "worker-2"}
    assert rolled.server.count("rebalance_started", GROUP, since=mark) == 0


@pytest.mark.parametrize(("members", "units"), [("", "0 1 2 3"), ("4", "0 1 2")])
def test_a_group_with_too_few_members_stays_as_it_is(rolled: Rolled, members: str, units: str) -> None:
    """Three members for four units, or for MEMBERS=4: the script restarts nobody."""
    before = rolled.pids()
    ran = rolled.run("systemd.sh", GROUP, "worker", *units.split(), MEMBERS=members)
    assert ran.returncode == 1
    assert "4" in ran.stdout
    assert rolled.pids() == before


@pytest.mark.parametrize("script", ["systemd.sh", "statefulset.sh"])
def test_a_script_without_arguments_shows_its_usage(script: str) -> None:
    """Exit code 2, which is none that a seat has."""
    ran = subprocess.run([ROLLING / script], text=True, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"usage: {script} GROUP ")


def test_the_scripts_are_clean() -> None:
    """A shell can read them, and shellcheck finds nothing, where it is installed."""
    scripts = sorted(ROLLING.glob("*.sh"))
    assert len(scripts) == 3
    for script in scripts:
        subprocess.run(["sh", "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-x", "-P", ROLLING, *scripts], check=True)
