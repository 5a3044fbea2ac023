"""Measures the audit's CPU time and memory, and prints them beside their limits: `make bench-audit`.

    python -m tests.audit.bench [--size-mb 1000] [--folder build/audit-bench] [--parts plain,dump,spark,segment,group]

The program writes its logs once and keeps them. The main log has 50 partitions of six groups each. A group has from ten
up to a hundred members, half of them static. Each restart and each rebalance writes the group again, and eight batches
of commits follow. A second log has the same groups in one segment. A third log has one large group that restarts again
and again. Times are CPU seconds of this process and of all processes that it starts (the JVM and its workers too),
because wall time says little on a shared machine. Where a part runs several times, the best run counts.

Spark runs as local[1] and as local[2], each in a process of its own that stays. Both are warm and take turns. Only wall
time shows what the second core gains, and it means something only on a machine that does nothing else.

House rule: the program prints only what it measured in this run.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from coordinator.audit.audit import CHECKED, Options, audit
from coordinator.audit.read.columns import read_tables
from coordinator.audit.read.logs import Range, plan
from coordinator.audit.read.parse import TABLES
from coordinator.audit.spark.job import audit_folder, load
from coordinator.audit.spark.session import make_session
from coordinator.audit.spark.source import GroupLogSource
from protocol.messages import encode
from protocol.records.batch import Record, encode_batch
from tests.audit.reference import parse
from tests.audit.scenes import START_MS, group_key, group_value, member, offset_key, offset_value
from tests.support.apache import dump_log_segments

PARTITION_COUNT = 50
GROUPS = 6
SEGMENT_SIZE = 100 * 1024 * 1024
MB = 1_000_000
MASTERS = ("local[1]", "local[2]")
ROUNDS = 3
LARGE_GROUP_MEMBERS = 200
LARGE_GROUP_RECORDS = 3_000
MEMBER_TABLES = ("batches", "offsets", "groups", "members", "other")
"""All tables that have each member decoded."""


class Reach(NamedTuple):
    """A limit of the audit: a value that must be at least, or at most, another one."""

    name: str
    floor: float
    seen: float
    at_most: bool = False

    def __str__(self) -> str:
        """A line of the last block."""
        reached = self.seen <= self.floor if self.at_most else self.seen >= self.floor
        bound = f"{'at most' if self.at_most else 'at least'} {self.floor:g}"
        return f"{self.name:<62} {bound:>14} {self.seen:9.2f}   {'reached' if reached else 'not reached'}"


class Grower:
    """A group that the log holds again and again, with one change each time."""

    def __init__(self, partition: int, number: int, chance: random.Random, count: int | None = None) -> None:
        self.group_id = f"service-{partition}-{number}"
        self.count = count or chance.randint(10, 100)
        self.is_static = number % 2 == 0
        self.generation = 1
        self.lives = [1] * self.count
        self.encoded = [self._member(seat) for seat in range(self.count)]
        self.chance = chance

    def _name(self, seat: int) -> str:
        return f"worker-{seat}-{self.lives[seat]:08x}-5f0e-4c3e-9df8-1f7a30aa88c1"

    def _member(self, seat: int) -> bytes:
        instance_id = f"worker-{seat}" if self.is_static else None
        return encode(member(self._name(seat), {"orders": [seat, seat + 100]}, instance_id=instance_id), 3)

    def value(self) -> bytes:
        """Return the next record's value: one member restarts."""
        seat = self.chance.randrange(self.count)
        self.lives[seat] += 1
        self.encoded[seat] = self._member(seat)
        if not self.is_static:
            self.generation += 1
        head = group_value([member("x")], self.generation, leader=self._name(0))
        head = head[: len(head) - len(encode(member("x"), 3)) - 4]
        return b"".join([head, struct.pack(">i", self.count), *self.encoded])


def grow(path: Path, partition: int, size: int, segment_size: int = SEGMENT_SIZE) -> None:
    """Write segments of a partition, `size` bytes in all."""
    chance = random.Random(partition)
    groups = [Grower(partition, number, chance) for number in range(GROUPS)]
    path.mkdir(parents=True)
    offset, now_ms, written, total = 0, START_MS, 0, 0
    parts: list[bytes] = []
    base = 0

    def roll() -> None:
        (path / f"{base:020}.log").write_bytes(b"".join(parts))
        parts.clear()

    while total < size:
        for group in groups:
            batches = [[Record(group_key(group.group_id), group.value(), now_ms)]]
            for number in range(8):
                commits = [
                    Record(offset_key(group.group_id, "orders", each), offset_value(offset, now_ms), now_ms)
                    for each in range(chance.randint(1, 6))
                ]
                batches.append(commits)
                now_ms += number
            for records in batches:
                batch = encode_batch(records, offset, 0)
                if written + len(batch) > segment_size:
                    roll()
                    base, written = offset, 0
                parts.append(batch)
                offset += len(records)
                written += len(batch)
                total += len(batch)
            now_ms += 60_000
    roll()


def grow_group(path: Path) -> None:
    """Write a partition that is one large group, which restarts one member after the other."""
    group = Grower(0, 0, random.Random(0), LARGE_GROUP_MEMBERS)
    records = (Record(group_key(group.group_id), group.value(), START_MS + each) for each in range(LARGE_GROUP_RECORDS))
    path.mkdir(parents=True)
    batches = (encode_batch([record], offset, 0) for offset, record in enumerate(records))
    (path / f"{0:020}.log").write_bytes(b"".join(batches))


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def children_cpu_s() -> float:
    """Return the CPU seconds of this process's children that ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def measured(
    name: str, size: int, run: Callable[[], object], times: int = 2, clock: Callable[[], float] = cpu_s
) -> float:
    """Run several times and print the best run; returns MB per CPU second."""
    best = float("inf")
    for _ in range(times):
        before = clock()
        run()
        best = min(best, clock() - before)
    print(f"{name:<52} {size / MB:8.0f} MB  {best:8.2f} CPU s  {size / MB / best:8.1f} MB/s", flush=True)
    return size / MB / best


def read(ranges: Iterable[Range], wanted: Collection[str]) -> None:
    """Read tables of these ranges in columns."""
    for each in ranges:
        for _tables in read_tables(each, wanted):
            pass


def bench_plain(folder: Path) -> Reach:
    """Measure the audit in one process."""
    planned = plan(folder)
    size = planned.size
    tenth = [each for each in planned.ranges if each.partition < PARTITION_COUNT // 10]
    part = sum(each.end - each.start for each in tenth)
    measured("plan: all headers", size, lambda: plan(folder))

    def parse_all(ranges: list[Range]) -> None:
        for each in ranges:
            parse(each)

    measured("parser, all tables (the reference)", part, lambda: parse_all(tenth), 1)
    figure = measured("columns: all but assignments", size, lambda: read(planned.ranges, MEMBER_TABLES), ROUNDS)
    measured("columns: all tables", part, lambda: read(tenth, TABLES))
    measured("columns: what the checks are fed with", size, lambda: read(planned.ranges, CHECKED))
    measured("columns: batches", size, lambda: read(planned.ranges, ["batches"]))
    audited = folder / "__consumer_offsets-0"
    measured(
        "tenure audit, one process", plan(audited).size, lambda: audit(audited, None, Options(), lambda _done: None), 1
    )
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'peak memory of this process':<52} {peak_mb:8.0f} MB")
    return Reach("columns, all members decoded: MB per CPU second", 150, figure)


def bench_dump(folder: Path) -> Reach:
    """Measure Kafka's own tool, and the columnar path on the same files."""
    ranges = [each for each in plan(folder).ranges if each.partition < PARTITION_COUNT // 10]
    segments = sorted({Path(each.path) for each in ranges})
    size = sum(segment.stat().st_size for segment in segments)
    dump = measured(
        "Kafka's DumpLogSegments --offsets-decoder", size, lambda: dump_log_segments(*segments), 2, children_cpu_s
    )
    columns = measured(
        "columns: all but assignments, the same files", size, lambda: read(ranges, MEMBER_TABLES), ROUNDS
    )
    return Reach("columns: times as fast as Kafka's DumpLogSegments", 10, columns / dump)


def process_tree() -> dict[int, list[str]]:
    """Return this process and all below it: process id -> the fields of /proc/PID/stat, from the state on."""
    found: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    below = {os.getpid()}
    while True:
        more = {each for each, stat in found.items() if int(stat[1]) in below} - below
        if not more:
            return {each: found[each] for each in below}
        below |= more


def tree_cpu_s() -> float:
    """Return the CPU seconds of the process tree, with those of ended children."""
    ticks = sum(sum(map(int, stat[11:15])) for stat in process_tree().values())
    return ticks / os.sysconf("SC_CLK_TCK")


def worker_peak_mb() -> float:
    """Return the largest memory that any Python process below this one had."""
    peaks = [0.0]
    for each in process_tree().keys() - {os.getpid()}:
        with suppress(OSError):
            status = Path(f"/proc/{each}/status").read_text()
            if status.startswith("Name:\tpython"):
                peaks.append(int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024)  # type: ignore[index]
    return max(peaks)


class Run(NamedTuple):
    """The times of one run on Spark, and the peak memory of its Python workers so far."""

    cpu_s: float
    wall_s: float
    worker_mb: float


def run_on_spark(master: str, folder: Path, *, whole_audit: bool) -> Run:
    """Read member rows, or run the whole audit, in this process, which keeps its session."""
    session = make_session(master)
    session.dataSource.register(GroupLogSource)
    began, before = time.monotonic(), tree_cpu_s()
    if whole_audit:
        audit_folder(session, folder, None, Options())
    else:
        load(session, folder, "members").write.format("noop").mode("overwrite").save()
    return Run(tree_cpu_s() - before, time.monotonic() - began, worker_peak_mb())


def stop_spark(master: str) -> None:
    """End this process's session."""
    make_session(master).stop()


class Sparks:
    """One process for each master; its session stays in it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        context = get_context("spawn")
        self._processes = {
            master: self._stack.enter_context(ProcessPoolExecutor(1, mp_context=context)) for master in MASTERS
        }

    def run(self, master: str, folder: Path, *, whole_audit: bool = False) -> Run:
        """Run in the process of that master."""
        return self._processes[master].submit(run_on_spark, master, folder, whole_audit=whole_audit).result()

    def close(self) -> None:
        """End the sessions and their processes."""
        for master, process in self._processes.items():
            process.submit(stop_spark, master).result()
        self._stack.close()


def print_run(name: str, size: int, run: Run) -> None:
    """Print one run."""
    print(
        f"{name:<52} {size / MB:8.0f} MB  {run.cpu_s:8.2f} CPU s  {size / MB / run.cpu_s:8.1f} MB/s"
        f"  {run.wall_s:8.2f} s wall  {run.worker_mb:6.0f} MB a worker",
        flush=True,
    )


def bench_spark(sparks: Sparks, folder: Path, name: str) -> dict[str, Run]:
    """Read the member rows with the data source, warm, masters in turn; returns each master's best run."""
    size = plan(folder).size
    for master in MASTERS:  # the first one starts the workers
        sparks.run(master, folder)
    runs: dict[str, list[Run]] = {master: [] for master in MASTERS}
    for _ in range(ROUNDS):
        for master in MASTERS:
            runs[master].append(sparks.run(master, folder))
    best = {}
    for master, of_master in runs.items():
        cpu_s, wall_s, _ = map(min, zip(*of_master, strict=True))
        best[master] = Run(cpu_s, wall_s, of_master[-1].worker_mb)
        print_run(f"Spark {master}, member rows, {name}", size, best[master])
    return best


def bench_all_of_spark(folder: Path, size_mb: int, parts: Collection[str]) -> list[Reach]:
    """Measure Spark on the 50 partitions, on one segment and on one large group."""
    sparks = Sparks()
    reaches = []
    worker_mb = 0.0
    try:
        if "spark" in parts:
            log = folder / f"{size_mb}-mb"
            found = bench_spark(sparks, log, "50 folders")
            figure = min(plan(log).size / MB / run.cpu_s for run in found.values())
            reaches.append(Reach("Spark, member rows, the lower of two: MB per CPU second", 100, figure))
            worker_mb = max(run.worker_mb for run in found.values())
        if "segment" in parts:
            path = folder / f"{size_mb}-mb-segment" / "__consumer_offsets-0"
            if not path.exists():
                grow(path, 0, size_mb * MB, segment_size=2**31)
            found = bench_spark(sparks, path.parent, "one segment")
            one, two = (found[master].wall_s for master in MASTERS)
            load_average = os.getloadavg()[0]
            name = f"one segment, wall of local[1] to local[2] (load {load_average:.1f})"
            reaches.append(Reach(name, 1, one / two))
            worker_mb = max(worker_mb, *(run.worker_mb for run in found.values()))
        if "group" in parts:
            path = folder / "large-group" / "__consumer_offsets-0"
            if not path.exists():
                grow_group(path)
            run = sparks.run("local[2]", path.parent, whole_audit=True)
            size = plan(path.parent).size
            print_run("Spark local[2], the whole audit, one large group", size, run)
            worker_mb = max(worker_mb, run.worker_mb)
    finally:
        sparks.close()
    return [*reaches, Reach("memory of a Python worker, the most of all: MB", 800, worker_mb, at_most=True)]


def main() -> None:
    """Write the logs if they don't exist, measure, and print which limits hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path("build/audit-bench"))
    parser.add_argument("--parts", default="plain,dump,spark,segment,group")
    arguments = parser.parse_args()
    folder = arguments.folder / f"{arguments.size_mb}-mb"
    for partition in range(PARTITION_COUNT):
        path = folder / f"__consumer_offsets-{partition}"
        if not path.exists():
            grow(path, partition, arguments.size_mb * MB // PARTITION_COUNT)
    print(f"python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    parts = arguments.parts.split(",")
    reaches = []
    if "plain" in parts:
        reaches.append(bench_plain(folder))
    if "dump" in parts:
        reaches.append(bench_dump(folder))
    if not {"spark", "segment", "group"}.isdisjoint(parts):
        reaches += bench_all_of_spark(arguments.folder, arguments.size_mb, parts)
    print(f"\n{'':<62} {'floor':>14} {'seen':>9}", *reaches, sep="\n")


if __name__ == "__main__":
    main()
