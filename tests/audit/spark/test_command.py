"""`tenure audit` on Spark as a process: its exit codes, and no files in its working folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.scenes import clean
from tests.cli.conftest import make_app, run_app
from tests.support.tenure import wait_until

pytestmark = pytest.mark.spark

WITHIN_S = 300.0
ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_following_ends_with_a_signal(tmp_path: Path) -> None:
    """After a signal it exits with 0, without a traceback and without files of Spark in the working folder."""
    folder, out, here = clean().write(tmp_path / "log"), tmp_path / "out", tmp_path / "here"
    here.mkdir()
    command = [sys.executable, "-m", "coordinator.cli.main", "audit", str(folder), "--follow", "--out", str(out)]
    errors = tmp_path / "errors"
    with errors.open("w") as stream:
        process = subprocess.Popen(
            [*command, "--master", "local[1]"], stdout=subprocess.PIPE, stderr=stream, start_new_session=True,
            cwd=here, env=ENVIRONMENT,
        )  # fmt: skip
        try:
            wait_until((out / "checkpoint" / "commits" / "0").exists, "the first tables are written", WITHIN_S)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=WITHIN_S)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0, errors.read_text()
    assert b"until SIGINT" in output
    assert "Traceback" not in errors.read_text()
    assert list((out / "tables" / "groups.parquet" / "batch=0").glob("*.parquet"))
    assert list(here.iterdir()) == []


def test_failure_of_spark_is_exit_code_2(tmp_path: Path) -> None:
    """A failure of Spark is exit code 2 and one line; here a file is in the place of a table's folder."""
    folder, out = clean().write(tmp_path / "log"), tmp_path / "out"
    out.mkdir()
    (out / "tables").touch()
    command = [sys.executable, "-m", "coordinator.cli.main", "audit", str(folder), "--out", str(out), "--spark"]
    done = subprocess.run(
        [*command, "--master", "local[1]"], capture_output=True, text=True, check=False, cwd=tmp_path, env=ENVIRONMENT
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("tenure: ")]
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    assert lines[0].startswith("tenure: Spark: ")
    assert "Traceback" not in done.stderr


def test_what_spark_could_not_read_is_said_before_it_starts(tmp_path: Path) -> None:
    """The command names a folder without a log before Spark starts."""
    for arguments in (["--spark"], ["--follow", "--out", str(tmp_path)]):
        ran = run_app(make_app("audit"), "audit", str(tmp_path), *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert len(ran.err.splitlines()) == 1
