"""Processes `tenure seat run` of one test, with a session of 6 s, and what they printed.

    with Runs(bootstrap, folder) as runs:
        runs.start("one")
        runs.wait_for("one", "began w-0")

House rule: at the end of its block no process is left, also if it was paused.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen
from tests.support.started import Closes
from tests.support.tenure import tenure_command, wait_until

SHELL = 'echo "began $GROUP_INSTANCE_ID $TENURE_SEAT_TOKEN $OTHER {seat}"; '
SLEEP = SHELL + "exec sleep 600"


class Runs(Closes):
    """See the module."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder = bootstrap, folder
        self.processes: list[subprocess.Popen[Any]] = []

    def close(self) -> None:
        """Kill all of them."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(WITHIN_S)

    def start(
        self,
        name: str,
        *arguments: str,
        script: str = SLEEP,
        pool: str = "w-[0..1]",
        program: Sequence[str] = (),
        stdin: int = subprocess.DEVNULL,
    ) -> subprocess.Popen[Any]:
        """Start one, of a program or else of a script; its output is `said(name)`."""
        options = ["--pool", pool, "--bootstrap-server", self.bootstrap, "--session", "6", "--grace", "1"]
        command = [*tenure_command(), "seat", "run", *options, "--identity", name, *arguments, "--"]
        command += program or ("sh", "-c", script)
        with (self.folder / name).open("ab") as out:
            self.processes.append(popen(command, stdin=stdin, stdout=out, stderr=out))
        return self.processes[-1]

    def said(self, name: str) -> str:
        """All that it printed."""
        return (self.folder / name).read_text()

    def wait_for(self, name: str, text: str) -> re.Match[str]:
        """Wait until it printed this regular expression."""
        try:
            return wait_until(lambda: re.search(text, self.said(name)), f"{name} prints {text}", WITHIN_S)
        except TimeoutError:
            raise AssertionError(self.said(name)) from None
