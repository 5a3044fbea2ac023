"""The demo as a person and CI run it: real processes, and the server's figures at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.demo import command
from examples.demo.display import Figures
from tests.cli.conftest import run_app
from tests.examples.demo.test_roll import STILL
from tests.support.tenure import wait_until

DEMO = [sys.executable, "-m", "examples.demo"]
WITHIN_S = 240.0


def children(pid: int) -> list[int]:
    """The living child processes of a process."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = (tuple(map(int, line.split())) for line in listed.splitlines())
    return [child for child, parent in pairs if parent == pid]


def alive(pid: int) -> bool:
    """Whether the process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.long
def test_static_roll_moves_nothing(tmp_path: Path) -> None:
    """The server reports 0 rebalances and 12/12 assignments after five static restarts and a killed coordinator.

    So it does in the consumer protocol. With dynamic members it reports at least one rebalance for each restart: the
    figures can tell the difference.
    """
    done = subprocess.run(
        [*DEMO, "--output", "json"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    static, dynamic, consumer = json.loads(done.stdout)
    for act, kind in ((static, "static"), (consumer, "static, consumer protocol")):
        assert act == {
            "kind": kind,
            "restarts": 5,
            "rebalances": 0,
            "rebalancing_s": 0.0,
            "generation_before": act["generation_before"],
            "generation_after": act["generation_before"],
            "partitions": 12,
            "unchanged": 12,
        }
    assert dynamic["kind"] == "dynamic"
    assert dynamic["rebalances"] >= 5
    assert dynamic["rebalancing_s"] > 0.0
    assert dynamic["generation_after"] >= dynamic["generation_before"] + 5
    assert "rebalances during the roll 0, assignments unchanged 12/12" in done.stderr
    assert done.stderr.count("the leader") >= 1
    assert "\x1b" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.long
def test_interrupted_demo_leaves_nothing_behind(tmp_path: Path, ending: signal.Signals) -> None:
    """Ctrl-C in the middle ends every process of the demo, removes its data, and sets the exit code."""
    said = tmp_path / "said"
    data = tmp_path / "data"
    data.mkdir()
    with said.open("w") as errors:
        demo = subprocess.Popen(DEMO, stdout=errors, stderr=errors, env={**os.environ, "TMPDIR": str(data)})
    try:
        wait_until(lambda: "members share" in said.read_text(), "consumers share the topic", 60.0)
        started = children(demo.pid)
        assert len(started) >= 5
        demo.send_signal(ending)
        assert demo.wait(WITHIN_S) == 130
    finally:
        demo.kill()
        demo.wait()
    assert [pid for pid in started if alive(pid)] == []
    assert list(data.iterdir()) == []
    assert "Traceback" not in said.read_text()


def test_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without confluent-kafka, which no server needs, the demo prints one line with what to install; exit code 2."""

    def absent(_name: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", absent)
    ran = run_app(command.app)
    assert (ran.code, ran.out) == (2, "")
    assert "`make demo` in a clone installs it" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "changes", "code"),
    [
        (0, {}, 0),
        (0, {"rebalances": 1}, 1),
        (0, {"unchanged": 11}, 1),
        (1, {"rebalances": 10, "unchanged": 0}, 0),
        (2, {"rebalances": 1}, 1),
        (2, {"unchanged": 11}, 1),
    ],
)
def test_exit_code_tells_whether_a_static_roll_moved_anything(
    monkeypatch: pytest.MonkeyPatch, number: int, changes: dict[str, Any], code: int
) -> None:
    """The server's figures decide: one rebalance, or one changed assignment, makes exit code 1."""
    played = [STILL, STILL, STILL]
    played[number] = replace(STILL, **changes)

    def acts(*_arguments: object) -> list[Figures]:
        return played

    monkeypatch.setattr(command, "_play", acts)
    ran = run_app(command.app)
    assert ran.code == code
    assert "assignments unchanged" in ran.out
    assert ("the roll (static) caused" in ran.err) is bool(code)
