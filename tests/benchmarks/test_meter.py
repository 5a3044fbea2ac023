"""The meter's numbers for a process equal what the process used."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import meter

BURN = """
import subprocess, sys, time
def burn():
    while time.process_time() < 0.1: pass
child = subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.1: pass"])
burn()
print("burnt", time.process_time(), flush=True)
sys.stdin.read()
"""


def test_cpu_of_a_process_and_of_its_children_are_apart() -> None:
    """A process that used 0.1 s and had a child that used as much."""
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = float(process.stdout.readline().split()[1])
        own, tree = meter.cpu_s(process.pid), meter.tree_cpu_s(process.pid)
        process.stdin.close()
    assert own >= said >= 0.1
    assert tree - own >= 0.1 - 2 * meter.TICK_S


def test_a_peak_stays_when_memory_is_given_back() -> None:
    """If a process takes 64 MiB and gives them back, its peak still has them."""
    program = "held = b'x' * 2**26; del held; print('done', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        mine = meter.Meter(process.pid, None)
        peak, resident = mine.peak_bytes(), mine.resident_bytes()
        process.stdin.close()
    assert peak >= resident + 2**25


def test_a_process_that_runs_below_another_is_found() -> None:
    """The meter finds a child process while the child runs."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.pid in meter.children(os.getpid())
        assert meter.resident_bytes(process.pid) > 0
        assert process.stdin is not None
        process.stdin.close()


def test_workers_count_as_the_server() -> None:
    """Their CPU and memory are the server's."""
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        before = meter.cpu_s(process.pid) + time.process_time()
        supervisor = meter.Meter(os.getpid(), None, workers=[process.pid])
        counted, resident = supervisor.sample().server_s, supervisor.resident_bytes()
        alone = meter.resident_bytes(process.pid)
        process.stdin.close()
    assert counted >= before
    assert resident > alone > 0


def test_a_sample_is_what_was_used_since_the_last(tmp_path: Path) -> None:
    """CPU goes on, and appended bytes are those of segments."""
    partition = tmp_path / "__consumer_offsets-0"
    partition.mkdir()
    mine = meter.Meter(os.getpid(), str(tmp_path))
    began = mine.sample()
    before = time.process_time()
    (partition / "00000000000000000000.log").write_bytes(bytes(1000))
    (partition / "00000000000000000000.index").write_bytes(bytes(1000))
    while time.process_time() < before + 0.05:
        pass
    used = mine.since(began)
    assert used.log_bytes == 1000
    assert used.server_s >= 0.05
    assert used.generator_s >= 0.05
    shares = meter.surroundings(began, used)
    assert shares["began_s"] == began.wall_s
    assert shares["generator_share"] > 0
