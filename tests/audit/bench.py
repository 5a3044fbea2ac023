"""What the audit costs: `make bench-audit`.

    python -m tests.audit.bench [--size-mb 1000] [--folder build/audit-bench] [--parts plain,dump,spark,segment]

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
import resource
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from coordinator.audit.audit import Options, audit
from coordinator.audit.columns import read_tables
from coordinator.audit.logs import plan, read_range
from coordinator.audit.parse import parse
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


def grow(path: Path, partition: int, size: int) -> None:
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
                if written + len(batch) > SEGMENT_SIZE:
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
    measured("parser, all tables (the reference)", part, lambda: [parse(each, *read_range(each)) for each in fifth], 1)
    wanted = ("batches", "offsets", "groups", "members", "other")
    figure = measured(
        "columns: offsets, groups, members", size, lambda: [read_tables(each, wanted) for each in planned.ranges]
    )
    measured("columns: all tables", part, lambda: [read_tables(each) for each in fifth])
    measured("columns: records", size, lambda: [read_tables(each, ["records"]) for each in planned.ranges])
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


def main() -> None:
    """Make the log if it isn't there, and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path("build/audit-bench"))
    parser.add_argument("--parts", default="plain,dump")
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
    if columns and dump:
        print(f"{'columns to DumpLogSegments':<52} {columns / dump:8.1f} times")


if __name__ == "__main__":
    main()
