"""The examples of the test kit: each one passes, and README.md shows the first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("test_*.py"))
AT_ONCE = ("--numprocesses", "4", "--dist", "worksteal")
"""More than there are cores: an example mostly waits for its clients."""
CLIENTS = ("confluent-kafka", "aiokafka", "kafka-python")


def clients_of_the_page() -> set[tuple[str, str]]:
    """Each example and client of docs/test/recipes.md whose cell begins with a number, its seconds."""
    found = set()
    page = (ROOT / "docs/test/recipes.md").read_text(encoding="utf-8")
    for name, cells in re.findall(r"^\| \[(test_\w+\.py)\].*?\| (.*) \|$", page, re.MULTILINE):
        shown = zip(CLIENTS, cells.split(" | ")[-len(CLIENTS) :], strict=True)
        found |= {(name, client) for client, cell in shown if re.match(r"\d", cell)}
    return found


def blocks_of(page: str) -> list[str]:
    """The blocks of Python code of a page."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.long
@pytest.mark.interop
def test_all_examples_pass() -> None:
    """They run as a user would run them, without this project's settings of pytest, with the clients of the page."""
    plugin = ("-p", "no:tenure", "-p", "coordinator.testing.plugin", "-p", "no:cacheprovider", *AT_ONCE)
    command = [sys.executable, "-m", "pytest", "-v", "-c", os.devnull, "--rootdir", str(ROOT), *plugin, "examples"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    failed = re.findall(r"^FAILED examples/\S+", done.stdout, re.MULTILINE)
    assert done.returncode == 0, "\n".join([*failed, done.stdout])
    assert all(f"examples/{example.name}::" in done.stdout for example in EXAMPLES), done.stdout
    passed = re.findall(rf" PASSED examples/(test_\w+\.py)::\w+\[({'|'.join(CLIENTS)})\S*\]", done.stdout)
    assert set(passed) == clients_of_the_page()


@pytest.mark.interop
def test_the_pages_tests_pass_as_they_stand(tmp_path: Path) -> None:
    """A new user copies the conftest.py and the tests of the pages into an empty folder, and they pass."""
    pages = ("docs/test/first-test.md", "docs/test/recipes.md", "docs/test/time-faults-nodes.md")
    blocks = [block for page in pages for block in blocks_of(page)]
    (conftest,) = (block for block in blocks if "def start_worker" in block)
    tests = [block for block in blocks if block.startswith("def test_")]
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_it.py").write_text("\n\n".join(tests))
    plugin = ("-p", "no:tenure", "-p", "coordinator.testing.plugin", "-p", "no:cacheprovider")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
        *plugin,
        str(tmp_path),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/test/first-test.md"])
def test_a_page_shows_the_first_example_as_it_runs(page: str) -> None:
    """The test of a rolling restart stands there, line by line."""
    code = (ROOT / "examples/test_rolling_restart.py").read_text(encoding="utf-8")
    assert code[code.index("def test_") :] in blocks_of(page)
