"""The servers that are compared, each a process of its own on 127.0.0.1.

`Echo` and `Tenure` are started anew for every measurement: that takes a moment, and nothing of one measurement is left
in the next. Apache Kafka is started once, with the flags of its own start script, and serves all of them, since it
takes seconds to start and more until its code is compiled.

House rule: only processes that were started here are ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.tenure import Tenure


class Running(NamedTuple):
    """A server that runs. folder: where its log is, or None."""

    name: str
    port: int
    pid: int
    folder: str | None


ROOT = str(Path(__file__).parent.parent)
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


@contextmanager
def pinned(cpus: set[int]) -> Iterator[None]:
    """Processes that are started meanwhile run on these CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def echo(answer_bytes: int, cpus: set[int]) -> Iterator[Running]:
    """The echo server."""
    with pinned(cpus):
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.echo", str(answer_bytes)], stdout=subprocess.PIPE, text=True
        )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[1])
        yield Running("echo", port, process.pid, None)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def tenure(settings: Mapping[str, str], cpus: set[int]) -> Iterator[Running]:
    """Tenure as it lies in this tree, logging as it does by default."""
    server = Tenure({**SETTINGS, **settings}, arguments=["--log-format", "text"], environment={"PYTHONPATH": ROOT})
    try:
        with pinned(cpus):
            server.start()
        yield Running("tenure", server.port, server.pid, str(server.data_dir))
    finally:
        server.close()
