"""The resources that a process uses, read from outside of it, by its id. Linux only.

CPU time is that of the process with all its threads, ended ones included, from its CPU clock (clock_getcpuclockid(3)),
which counts nanoseconds where /proc counts hundredths of a second. The workers of a server count as the server; its
other children, such as the one that compacts Tenure's log, are counted beside it.

House rule: reading changes nothing in the process that is read.
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
"""The state of a socket that takes connections, in /proc/PID/net/tcp."""

CPUCLOCK_SCHED = 2
"""The kind of CPU clock that the kernel keeps for each process (clock_getcpuclockid(3) makes the same number)."""


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, all its threads together."""
    return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED) / NS


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third, the state, on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()


def children(pid: int) -> list[int]:
    """The processes that a process has started, as far as they run."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it may have ended meanwhile
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def tree_cpu_s(pid: int) -> float:
    """Seconds of CPU that a process and all below it have used, be they there or not; 0 if it is gone."""
    try:
        fields = _stat(pid)
        total = cpu_s(pid) + (int(fields[13]) + int(fields[14])) * TICK_S
        return total + sum(tree_cpu_s(child) for child in children(pid))
    except OSError:  # it just ended, and is counted with its parent from now on
        return 0.0


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def peak_bytes(pid: int) -> int:
    """The most memory of a process that ever was in RAM at once."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def heap_bytes(pid: int) -> int:
    """Bytes in a JVM's heap after a full collection."""
    said = ""
    for command in ("GC.run", "GC.heap_info"):
        arguments = ["jcmd", str(pid), command]
        said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    found = re.search(r"heap\s+total \d+K, used (\d+)K", said)
    assert found is not None, said
    return int(found[1]) * 1024


def listens(pid: int, port: int) -> bool:
    """Whether it is this process that takes connections on a TCP port, of whatever address."""
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
    """Seconds of CPU that all processes of the machine have used, what its host took away included."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) * TICK_S


def appended_bytes(folder: str) -> int:
    """Bytes in the segments of a log."""
    return sum(path.stat().st_size for path in Path(folder).glob("__consumer_offsets-*/*.log"))


class Sample(NamedTuple):
    """The use up to a moment: seconds of CPU, and bytes in the log."""

    wall_s: float
    server_s: float
    children_s: float
    generator_s: float
    machine_s: float
    log_bytes: float


class Meter:
    """Reads a server, and this process, which loads it.

    folder: the server's log, if it keeps one that we can see. java: it is a JVM, whose memory is read by jcmd.

    workers: processes below the server's that are part of it; whatever else it starts are its children.
    """

    def __init__(self, pid: int, folder: str | None, *, java: bool = False, workers: Sequence[int] = ()) -> None:
        self.pid = pid
        self.folder = folder
        self.java = java
        self.workers = list(workers)

    def live_bytes(self) -> int:
        """Memory that it needs: what is resident, or for Java what its heap has left after a full collection."""
        return heap_bytes(self.pid) if self.java else self.resident_bytes()

    def resident_bytes(self) -> int:
        """Memory of it that is in RAM."""
        return sum(map(resident_bytes, (self.pid, *self.workers)))

    def peak_bytes(self) -> int:
        """The most of that so far, each process's at its own time."""
        return sum(map(peak_bytes, (self.pid, *self.workers)))

    def sample(self) -> Sample:
        """The use up to now."""
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
        """The use since then."""
        now = self.sample()
        return Sample(*(after - before for after, before in zip(now, began, strict=True)))


def surroundings(began: Sample, used: Sample) -> dict[str, float]:
    """Facts that a measurement's reader needs: its time, by `time.perf_counter`, and shares of one CPU.

    generator_share: near 1, the generator was the limit. server_share: of the server's own CPU. other_share: of all
    other processes of the machine.
    """
    wall = used.wall_s or 1.0
    ours = used.server_s + used.children_s + used.generator_s
    return {
        "began_s": began.wall_s,
        "wall_s": used.wall_s,
        "server_share": used.server_s / wall,
        # An ended child is counted in whole ticks, so this may go back by one.
        "children_share": max(used.children_s, 0.0) / wall,
        "generator_share": used.generator_s / wall,
        "other_share": max(used.machine_s - ours, 0.0) / wall,
    }
