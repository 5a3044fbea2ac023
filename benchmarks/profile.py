"""`python -m benchmarks.profile`: shows where Tenure spends its time, by samples of its stack under load.

py-spy samples the process from outside, a few hundred times a second, and only while it runs. The table shows the
functions that were on top of the stack most often (self), and how often they were anywhere on it (total), in the main
thread. The log's thread spends nearly all its time in the kernel; the report has only its share of the CPU.

House rule: the server has no code for this.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from benchmarks import report, servers
from benchmarks.meter import NS, Meter, cpu_s
from benchmarks.stage import cpus
from benchmarks.works import Bench

PROFILED: dict[str, dict[str, Any]] = {
    "heartbeat": {"seconds": 3600},
    "commit": {"seconds": 3600},
    "bounce": {"size": 500, "restarts": 1_000_000},
    "groups": {"steps": list(range(5_000, 1_000_000, 5_000)), "seconds": 0.1},
}
"""Works that last longer than the sampling, with their parameters. Groups come in steps, because the generator makes a
step's groups before it sends the first one; between two steps there are heartbeats, for that many seconds.
"""

MAIN_THREAD = ": MainThread"
SAMPLES_PER_S = 500
FORMING_CPU_S = 1.0
"""After this CPU time of the server the groups of a work exist, and its load is steady."""
LOOK_S = 0.1


def main(
    works: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(PROFILED)}.")] = None,
    seconds: Annotated[int, typer.Option(help="How long to look.")] = 5,
    top: Annotated[int, typer.Option(help="How many functions to show.")] = 20,
) -> None:
    """Show which functions Tenure spends its time in."""
    for work in works or ("heartbeat", "bounce"):
        if work not in PROFILED:
            raise typer.BadParameter(f"{work}: of {', '.join(PROFILED)}")
        report.console().print(table(work, *stacks(work, seconds), top))


def stacks(work: str, seconds: int) -> tuple[list[str], float]:
    """Return samples of Tenure under a work, and the main thread's share of its CPU time meanwhile.

    A sample is a line of "thread;function;function;function count", the outermost first.
    """
    server_cpus, generator_cpus = cpus()
    with servers.tenure({}, server_cpus) as server, tempfile.NamedTemporaryFile("r") as sampled:
        bench = Bench("127.0.0.1", server.port, Meter(server.pid, server.folder), work, plain=False)
        with servers.pinned(generator_cpus):
            load = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.load", bench.job(work, PROFILED[work], work)],
                stdout=subprocess.DEVNULL,
            )
        try:
            began_s = cpu_s(server.pid)
            while cpu_s(server.pid) - began_s < FORMING_CPU_S:
                if load.poll() is not None:
                    raise ChildProcessError(f"the load has ended: {load.returncode}")
                time.sleep(LOOK_S)
            command = [str(Path(sys.executable).parent / "py-spy"), "record", "--format", "raw", "--threads"]
            command += ["--rate", str(SAMPLES_PER_S), "--duration", str(seconds)]
            main_s, all_s = main_thread_s(server.pid), cpu_s(server.pid)
            command += ["--pid", str(server.pid), "--output", sampled.name]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            share = (main_thread_s(server.pid) - main_s) / (cpu_s(server.pid) - all_s)
        finally:
            load.kill()
            load.wait()
        return sampled.read().splitlines(), share


def main_thread_s(pid: int) -> float:
    """Return the seconds of CPU of a process's main thread."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / NS


def counted(samples: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """Return how often each function was on top of the main thread's stack, and how often anywhere on it."""
    own: Counter[str] = Counter()
    anywhere: Counter[str] = Counter()
    for line in samples:
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if thread.endswith(MAIN_THREAD):
            functions = [_without_line(frame) for frame in frames]
            own[functions[-1]] += int(count)
            anywhere.update(dict.fromkeys(functions, int(count)))
    return own, anywhere


def _without_line(frame: str) -> str:
    """Return function and file without the line: `dispatch (coordinator/server/wire/api.py:113)` has many lines."""
    return re.sub(r":\d+\)$", ")", frame)


def table(work: str, samples: list[str], main_share: float, top: int) -> Table:
    """Return the functions that were on top most often."""
    own, anywhere = counted(samples)
    count = own.total()
    shown = Table("self", "total", "function", box=box.SIMPLE, title_justify="left")
    shown.title = f"{work}: {count} samples of the main thread, which used {main_share:.0%} of the process's CPU time"
    for function, times in own.most_common(top):
        shown.add_row(f"{times / count:.1%}", f"{anywhere[function] / count:.1%}", function)
    return shown


if __name__ == "__main__":
    typer.run(main)
