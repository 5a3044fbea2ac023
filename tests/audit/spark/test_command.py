"""`tenure audit --follow` as a process: it writes until it is told to end, and ends well."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.scenes import clean
from tests.support.tenure import wait_until

WITHIN_S = 300.0


@pytest.mark.spark
def test_following_ends_with_a_signal(tmp_path: Path) -> None:
    """Exit code 0, and no trace of what was interrupted."""
    folder, out = clean().write(tmp_path / "log"), tmp_path / "out"
    command = [sys.executable, "-m", "coordinator.cli.main", "audit", str(folder), "--follow", "--out", str(out)]
    errors = tmp_path / "errors"
    with errors.open("w") as stream:
        process = subprocess.Popen(
            [*command, "--master", "local[1]"], stdout=subprocess.PIPE, stderr=stream, start_new_session=True
        )
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
