"""What the audit costs: `make bench-audit`.

    python -m tests.audit.bench [--size-mb 1000] [--folder build/audit-bench] [--parts plain,dump]
    python -m tests.audit.bench --parts spark,segment --master local[2]

The log is made once: 50 partitions of six groups each, of 10 to 100 members, half of them static; each group is written
anew for a restart or a rebalance, and eight batches of commits follow. Times are CPU seconds of this process and all
that it started, the JVM and its workers too, as wall time says little on a machine that others use. Each figure is the
better of two runs but for those that take long.

House rule: what is printed was measured in this run.
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
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from coordinator.audit.audit import Options, audit
from coordinator.audit.columns import read_tables
from coordinator.audit.logs import Range, plan, read_range
from coordinator.audit.parse import TABLES, parse
from coordinator.audit.spark.job import load
from coordinator.audit.spark.session import make_session
from coordinator.audit.spark.source import GroupLogSource
from protocol.messages import encode
from protocol.record_batch import Record, encode_batch
from tests.audit.scenes import START_MS, group_key, group_value, member, offset_key, offset_value
from tests.support.apache import dump_log_segments

PARTITION_COUNT = 50
GROUPS = 6
SEGMENT_SIZE = 100 * 1024 * 1024
MB = 1_000_000


class Grower:
    """A group that is written again and again."""

    def __init__(self, partition: int, number: int, chance: random.Random) -> None:
        self.group_id = f"service-{partition}-{number}"
        self.count = chance.randint(10, 100)
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
        """The next record's value: one member restarts."""
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


def cpu_s() -> float:
    """CPU seconds of this process and of those that it waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def measured(name: str, size: int, run: Callable[[], object], times: int = 2) -> float:
    """Print the better of some runs; returns MB per CPU second."""
    best = float("inf")
    for _ in range(times):
        before = cpu_s()
        run()
        best = min(best, cpu_s() - before)
    print(f"{name:<52} {size / MB:8.0f} MB  {best:8.2f} CPU s  {size / MB / best:8.1f} MB/s", flush=True)
    return size / MB / best


def bench_plain(folder: Path) -> float:
    """One process; returns the figure for all members decoded."""
    planned = plan(folder)
    size = planned.size
    fifth = [each for each in planned.ranges if each.partition < PARTITION_COUNT // 10]
    part = sum(each.end - each.start for each in fifth)
    measured("plan: all headers", size, lambda: plan(folder))

    def read(ranges: list[Range], wanted: Collection[str]) -> None:
        for each in ranges:
            read_tables(each, wanted)

    def parse_all(ranges: list[Range]) -> None:
        for each in ranges:
            parse(each, *read_range(each))

    measured("parser, all tables (the reference)", part, lambda: parse_all(fifth), 1)
    wanted = ("batches", "offsets", "groups", "members", "other")
    figure = measured("columns: all but assignments", size, lambda: read(planned.ranges, wanted))
    measured("columns: all tables", part, lambda: read(fifth, TABLES))
    measured("columns: records", size, lambda: read(planned.ranges, ["records"]))
    audited = folder / "__consumer_offsets-0"
    measured(
        "tenure audit, one process", plan(audited).size, lambda: audit(audited, None, Options(), lambda _done: None), 1
    )
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'peak memory of this process':<52} {peak_mb:8.0f} MB")
    return figure


def bench_dump(folder: Path) -> float:
    """Kafka's own tool, on a partition."""
    segments = sorted((folder / "__consumer_offsets-0").glob("*.log"))
    size = sum(segment.stat().st_size for segment in segments)
    return measured("Kafka's DumpLogSegments --offsets-decoder", size, lambda: dump_log_segments(*segments), 1)


def process_tree() -> dict[int, list[str]]:
    """This process and all below it: what /proc/PID/stat says of each, from the state on."""
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
    """CPU seconds of the tree, those of ended children too."""
    ticks = sum(sum(map(int, stat[11:15])) for stat in process_tree().values())
    return ticks / os.sysconf("SC_CLK_TCK")


def worker_peak_mb() -> float:
    """The largest memory that any Python process below this one has had."""
    peaks = [0.0]
    for each in process_tree().keys() - {os.getpid()}:
        with suppress(OSError):
            status = Path(f"/proc/{each}/status").read_text()
            if status.startswith("Name:\tpython"):
                peaks.append(int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024)  # type: ignore[index]
    return max(peaks)


def bench_spark(folder: Path, name: str, master: str) -> float:
    """The data source's member rows, warm; returns the wall seconds."""
    session = make_session(master)
    try:
        session.dataSource.register(GroupLogSource)
        size = plan(folder).size
        best: tuple[float, float] = (float("inf"), float("inf"))
        for number in range(3):
            began, before = time.monotonic(), tree_cpu_s()
            load(session, folder, "members").write.format("noop").mode("overwrite").save()
            wall, cpu = time.monotonic() - began, tree_cpu_s() - before
            if number:  # the first one starts the workers
                best = min(best, (wall, cpu))
        wall, cpu = best
        print(
            f"{f'Spark {master}, member rows, {name}':<52} {size / MB:8.0f} MB  {cpu:8.2f} CPU s  "
            f"{size / MB / cpu:8.1f} MB/s  {wall:8.2f} s wall  {worker_peak_mb():6.0f} MB a worker",
            flush=True,
        )
        return wall
    finally:
        session.stop()


def main() -> None:
    """Make the log if it isn't there, and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path("build/audit-bench"))
    parser.add_argument("--parts", default="plain,dump", help="plain, dump, spark, segment")
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    folder = arguments.folder / f"{arguments.size_mb}-mb"
    for partition in range(PARTITION_COUNT):
        path = folder / f"__consumer_offsets-{partition}"
        if not path.exists():
            grow(path, partition, arguments.size_mb * MB // PARTITION_COUNT)
    print(f"python {sys.version.split()[0]}, {os.cpu_count()} cores", flush=True)
    parts = arguments.parts.split(",")
    columns = bench_plain(folder) if "plain" in parts else None
    dump = bench_dump(folder) if "dump" in parts else None
    if "spark" in parts:
        bench_spark(folder, "50 folders", arguments.master)
    if "segment" in parts:
        path = arguments.folder / f"{arguments.size_mb}-mb-segment" / "__consumer_offsets-0"
        if not path.exists():
            grow(path, 0, arguments.size_mb * MB, segment_size=2**31)
        bench_spark(path.parent, "one segment", arguments.master)
    if columns and dump:
        print(f"{'columns to DumpLogSegments':<52} {columns / dump:8.1f} times")


if __name__ == "__main__":
    main()
