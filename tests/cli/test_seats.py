"""`tenure seats`: wrong options are one line; tests/seats and tests/kubernetes have what it does."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.seats.api_server import ApiServer
from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen, run
from tests.support.tenure import tenure_command


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--http", "nowhere"), "--http: "),
        (("--bootstrap-server", "kafka"), "--bootstrap-server: 'kafka' is not HOST:PORT"),
        (("--command-config", "absent.properties"), "--command-config: "),
        (("--kubeconfig", "absent"), "--kubeconfig: there is no file absent"),
    ],
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], text: str) -> None:
    """A wrong option ends the command with one line that names it."""
    ran = run([*tenure_command(), "seats", *arguments])
    assert ran.returncode == 2
    assert ran.stderr.removeprefix("tenure: ").startswith(text)
    assert ran.stderr.count("\n") == 1


async def test_it_is_ready_once_it_has_read_all_and_ends_on_sigterm(tmp_path: Path) -> None:
    """One line on standard output says so, and where HTTP is; the end is exit code 0."""
    async with ApiServer().serving() as server:
        command = [
            *tenure_command(),
            "seats",
            "--kubeconfig",
            str(server.kubeconfig(tmp_path)),
            "--http",
            "127.0.0.1:0",
        ]
        with popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            ready = await asyncio.to_thread(process.stdout.readline)
            assert ready.startswith("ready observes=127.0.0.1:9092 frees=false http=127.0.0.1:")
            url = f"http://{ready.rpartition('=')[2].strip()}/readyz"
            assert await asyncio.to_thread(lambda: urlopen(url).read()) == b"ok\n"
            process.send_signal(signal.SIGTERM)
            _, said = await asyncio.to_thread(process.communicate, None, WITHIN_S)
    assert process.returncode == 0, said
