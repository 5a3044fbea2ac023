"""Tests in other languages against `tenure serve --control`: the examples of docs/test/other-languages.md pass.

Each example is copied into a folder for builds, and gets its packages as its own users do, as its lock file has them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.client import ROOT, build_folder, run_build
from tests.support.tenure import READY_LINE

pytestmark = pytest.mark.toolchain

EXAMPLES = ROOT / "examples"
TENURE = [sys.executable, "-m", "coordinator.cli.main"]


def passed(name: str, *commands: Sequence[str], **environment: str) -> str:
    """Run the commands in a copy of the example; return what the last one printed."""
    given = os.environ | {"PYTHONPATH": str(ROOT), "TEST_TENURE": " ".join(TENURE)} | environment
    with build_folder(f"example-{name}") as folder:
        shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True)
        for command in commands[:-1]:
            run_build(command, folder)
        done = subprocess.run(commands[-1], cwd=folder, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


GO = ("go", "test", "-mod=readonly", "-count=1", "-v", ".")


@pytest.mark.programs("go")
def test_a_test_in_go() -> None:
    """Static members of franz-go restart without a rebalance; a lost answer to a commit costs nothing."""
    said = passed("go", ("go", "vet", "-mod=readonly", "."), GO)
    assert said.count("--- PASS: ") == 2


@pytest.mark.programs("go")
def test_a_test_takes_a_control_that_runs(tmp_path: Path) -> None:
    """With an address and a token the same tests run against a server of somebody else's, a container's for example."""
    options = ["serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--set", "tenure.control.token=t"]
    with (tmp_path / "log").open("w") as log:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        server = subprocess.Popen([*TENURE, *options], stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    try:
        assert server.stdout is not None
        ready = READY_LINE.match(server.stdout.readline())
        assert ready is not None
        said = passed("go", GO, TEST_TENURE="/nowhere", TEST_CONTROL=ready["control"], TEST_CONTROL_TOKEN="t")
        assert said.count("--- PASS: ") == 2
    finally:
        server.kill()
        server.communicate()


@pytest.mark.programs("node", "npm")
def test_a_test_in_node() -> None:
    """Members of kafkajs, which are dynamic, restart with two rebalances; static ones are scripted."""
    install = ("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    assert "# pass 3\n" in passed("node", install, ("node", "--test", "--test-reporter=tap"))


@pytest.mark.programs("javac", "mvn")
def test_a_test_in_junit() -> None:
    """Static members of kafka-clients restart without a rebalance; a lost answer to a commit costs nothing."""
    assert "Tests run: 2, Failures: 0, Errors: 0, Skipped: 0" in passed("junit", ("mvn", "--batch-mode", "test"))
