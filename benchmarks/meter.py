"""Reads the resources of a process from outside, by its id. Linux only.

CPU time is that of the process with all its threads, also ended ones, from its CPU clock (clock_getcpuclockid(3)),
which counts nanoseconds, while /proc counts hundredths of a second. A server's workers count as the server. Its other
children, for example the process that compacts Tenure's log, have a count of their own.

House rule: reading doesn't change the process.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NS = 1e9

LISTEN = "0A"
"""The state of a listening socket in /proc/PID/net/tcp."""

CPUCLOCK_SCHED = 2
"""The kind of CPU clock that the kernel keeps for each process (clock_getcpuclockid(3) makes the same number)."""


def cpu_s(pid: int) -> float:
    """Return the seconds of CPU of a process with all its threads."""
    return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED) / NS


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third, the state, on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()


def children(pid: int) -> list[int]:
    """Return the running processes that a process has started."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it may have ended meanwhile
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def tree_cpu_s(pid: int) -> float:
    """Return the seconds of CPU of a process and all below it, also ended ones; 0 if it is gone."""
    try:
        fields = _stat(pid)
        total = cpu_s(pid) + (int(fields[13]) + int(fields[14])) * TICK_S
        return total + sum(tree_cpu_s(child) for child in children(pid))
    except OSError:  # it just ended, and from now on its parent's count includes it
        return 0.0


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a process in RAM."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def heap_bytes(pid: int) -> int:
    """Return the size of a JVM's heap after a full collection."""
    said = ""
    for command in ("GC.run", "GC.heap_info"):
        arguments = ["jcmd", str(pid), command]
        said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    found = re.search(r"heap\s+total \d+K, used (\d+)K", said)
    assert found is not None, said
    return int(found[1]) * 1024


def listens(pid: int, port: int) -> bool:
    """Return whether this process listens on a TCP port, at any address."""
    listening = set()
    for table in Path(f"/proc/{pid}/net").glob("tcp*"):  # two where there is IPv6
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                listening.add(f"socket:[{fields[9]}]")
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it may have been closed meanwhile
            if str(file.readlink()) in listening:
                return True
    return False


def machine_busy_s() -> float:
    """Return the seconds of CPU of all processes of the machine, with the time that its host took away."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) * TICK_S


def appended_bytes(folder: str) -> int:
    """Return the bytes in the segments of a log."""
    return sum(path.stat().st_size for path in Path(folder).glob("__consumer_offsets-*/*.log"))


def settled_bytes(folder: str, quiet_s: float = 0.5) -> int:
    """Return the bytes in the segments of a log once they have been the same for `quiet_s`.

    A log may write its segments later than it answers: Tenure's does, up to 50 ms, for its journal has the records.
    """
    size, since = appended_bytes(folder), time.perf_counter()
    while time.perf_counter() < since + quiet_s:
        time.sleep(quiet_s / 10)
        if (now := appended_bytes(folder)) != size:
            size, since = now, time.perf_counter()
    return size


class Sample(NamedTuple):
    """The use up to one moment: seconds, and bytes in the log."""

    wall_s: float
    server_s: float
    children_s: float
    generator_s: float
    machine_s: float
    log_bytes: float


class Meter:
    """Reads a server, and this process, which loads it.

    folder: the server's log, if this machine has it. java: the server is a JVM, whose memory jcmd reads.

    workers: processes below the server's that are part of it; its further processes are its children.
    """

    def __init__(self, pid: int, folder: str | None, *, java: bool = False, workers: Sequence[int] = ()) -> None:
        self.pid = pid
        self.folder = folder
        self.java = java
        self.workers = list(workers)

    def live_bytes(self) -> int:
        """Return the memory that it needs: the resident memory, or a JVM's heap after a full collection."""
        return heap_bytes(self.pid) if self.java else self.resident_bytes()

    def resident_bytes(self) -> int:
        """Return its memory in RAM."""
        return sum(map(resident_bytes, (self.pid, *self.workers)))

    def peak_bytes(self) -> int:
        """Return its peak memory so far, each process's at its own time."""
        return sum(map(peak_bytes, (self.pid, *self.workers)))

    def sample(self) -> Sample:
        """Return the use up to now."""
        server_s = sum(map(cpu_s, (self.pid, *self.workers)))
        return Sample(
            wall_s=time.perf_counter(),
            server_s=server_s,
            children_s=tree_cpu_s(self.pid) - server_s,
            generator_s=time.process_time(),
            machine_s=machine_busy_s(),
            log_bytes=appended_bytes(self.folder) if self.folder else 0,
        )

    def since(self, began: Sample) -> Sample:
        """Return the use between a sample and now."""
        now = self.sample()
        return Sample(*(after - before for after, before in zip(now, began, strict=True)))


def surroundings(began: Sample, used: Sample) -> dict[str, float]:
    """Return the conditions of a measurement: its time, by `time.perf_counter`, and shares of one CPU.

    generator_share: near 1, the generator was the limit. server_share: the server's own CPU. other_share: the CPU of
    all other processes of the machine meanwhile.
    """
    wall = used.wall_s or 1.0
    ours = used.server_s + used.children_s + used.generator_s
    return {
        "began_s": began.wall_s,
        "wall_s": used.wall_s,
        "server_share": used.server_s / wall,
        # An ended child counts in whole ticks, so this may go back by one.
        "children_share": max(used.children_s, 0.0) / wall,
        "generator_share": used.generator_s / wall,
        "other_share": max(used.machine_s - ours, 0.0) / wall,
    }
