"""`python -m benchmarks.observe`: what `tenure observe` costs, while members of many groups commit.

    python -m benchmarks.observe                                                       10,000 groups, one partition each
    python -m benchmarks.observe --groups 1000 --partitions 100 --beside OLD           beside another version, in turns
    python -m benchmarks.observe --beside OLD --together                               both at the same time

A server gets groups of one member each, and each member commits at its pace, so that the log grows by a steady number
of records a second. The observer runs beside it. After a while for its start the program reads the CPU and the memory
of the observer, and its own count of records. Then some groups are made anew, one after the other: the delay is the
time from the answer to a group's SyncGroup until the observer's HTTP has the rebalance.

Two versions have their turns on the same server, one after the other, because a shared machine changes its speed. With
`--together` both observe at the same time, so the ratio of their CPU tells little of the machine and of its other work.

House rule: the observer is a process of its own, with its defaults; it is known by its command and its HTTP.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from benchmarks import frames
from benchmarks.driver import Driver, Script, clock
from benchmarks.members import Group
from benchmarks.meter import cpu_s, peak_bytes
from benchmarks.records import RECORD_HEAD_BYTES, Partition, batch_of
from benchmarks.servers import kafka, tenure
from benchmarks.works import check, create_topic

if TYPE_CHECKING:
    from benchmarks.servers import Running

LINKS = 40
PROBES = 5
SETTLE_S = 10.0
"""How long the observer runs before it is measured, once it has read the history."""

WARM_S = {"tenure": 10.0, "kafka": 60.0}
"""How long the load runs before anything is measured: a JVM compiles what it runs often."""

MB = 1e6


class Turn(NamedTuple):
    """An observer, measured. cpu: the part of a core that it took. records: a second. told: delays in seconds."""

    cpu: float
    records: float
    memory: int
    of_server: float
    told: list[float]


def committing(group: Group, partitions: int, pause_s: float, phase_s: float) -> Script:
    """Commit for ever, once in `pause_s`."""
    template = frames.commit(group.group_id, partitions, static=False)
    done = frames.commit_done(partitions)
    me = group.members[0]
    offset, at = 0, clock() + phase_s
    while True:
        yield at
        offset += 1
        at += pause_s
        values = frames.generation(me.generation), *me.identity(), offset.to_bytes(8, "big")
        answer = yield template.fill(offset, *values)
        check(answer, frames.pack_id(offset), done)


def share(pid: int, seconds: float) -> float:
    """How much of a core a process takes, in percent, measured over that time."""
    began, before = clock(), cpu_s(pid)
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before) / (clock() - began)


@contextmanager
def observer(port: int, tree: Path | None = None) -> Iterator[tuple[int, str]]:
    """An observer of that server: its process id, and the address of its HTTP. tree: another version with its .venv."""
    python = sys.executable if tree is None else str(tree / ".venv/bin/python")
    command = [python, "-m", "coordinator.cli.main", "observe", "--http", "127.0.0.1:0"]
    command += ["--bootstrap-server", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tree)
    assert process.stdout is not None
    with process, process.stdout:
        try:
            yield process.pid, process.stdout.readline().strip().rpartition("http=")[2]
        finally:
            process.terminate()


def records_read(http: str) -> float:
    """The observer's count of records."""
    with urllib.request.urlopen(f"http://{http}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("tenure_observer_records_total ")).split()[1])


def is_ready(http: str) -> bool:
    """Whether the observer has read the history."""
    try:
        with urllib.request.urlopen(f"http://{http}/readyz"):
            return True
    except urllib.error.HTTPError:
        return False


def is_told(http: str, group_id: str) -> bool:
    """Whether the observer's HTTP has a rebalance of the group."""
    try:
        with urllib.request.urlopen(f"http://{http}/groups/{group_id}/events") as answer:
            return bool(json.load(answer)["timeline"])
    except urllib.error.HTTPError:
        return False


def delays(port: int, http: str, turn: str) -> list[float]:
    """How many seconds after a rebalance the observer tells it, for some new groups."""
    found = []
    with Driver("127.0.0.1", port) as driver:
        (link,) = driver.connect(1)
        for number in range(PROBES):
            group = Group(f"probe-{turn}-{number}", 1, static=False)
            driver.start(link, group.seat(0))
            driver.run()
            began = clock()
            while not is_told(http, group.group_id):
                time.sleep(0.02)
            found.append(clock() - began)
    return found


def turn(running: Running, trees: Sequence[Path | None], number: int, seconds: float) -> list[Turn]:
    """Measure an observer of each of these versions, all at the same time."""
    with ExitStack() as stack:
        observers = [stack.enter_context(observer(running.port, tree)) for tree in trees]
        while not all(is_ready(http) for _, http in observers):
            time.sleep(0.1)
        time.sleep(SETTLE_S)
        began, of_server = clock(), cpu_s(running.pid)
        before = [(cpu_s(pid), records_read(http)) for pid, http in observers]
        time.sleep(seconds)
        took = clock() - began
        after = [(cpu_s(pid), records_read(http)) for pid, http in observers]
        of_server = cpu_s(running.pid) - of_server
        return [
            Turn(
                (cpu - cpu_before) / took,
                (records - records_before) / took,
                peak_bytes(pid),
                of_server / took,
                delays(running.port, http, f"{number}-{place}"),
            )
            for place, ((pid, http), (cpu_before, records_before), (cpu, records)) in enumerate(
                zip(observers, before, after, strict=True)
            )
        ]


def main(
    groups: Annotated[int, typer.Option(help="Groups, of one member each.")] = 10_000,
    partitions: Annotated[int, typer.Option(help="Topic partitions of each member, up to 100.")] = 1,
    unread: Annotated[int, typer.Option(help="Records to read in each topic partition.")] = 0,
    rate: Annotated[int, typer.Option(help="Committed offsets a second, of all members together.")] = 5_000,
    seconds: Annotated[float, typer.Option(help="How long to measure.")] = 30.0,
    server: Annotated[str, typer.Option(help="tenure or kafka")] = "tenure",
    beside: Annotated[Path | None, typer.Option(help="A folder with another version and its .venv.")] = None,
    turns: Annotated[int, typer.Option(help="Turns of each version.")] = 1,
    *,
    together: Annotated[bool, typer.Option(help="Both versions at the same time.")] = False,
) -> None:
    """Measure the observer."""
    cpus = os.sched_getaffinity(0)
    opened = kafka(cpus) if server == "kafka" else tenure({"tenure.events.enable": "false"}, cpus)
    with opened as running, Driver("127.0.0.1", running.port) as driver:
        made = [Group(f"group-{number:05}", 1, static=False, partition_count=partitions) for number in range(groups)]
        links = driver.connect(LINKS)
        driver.start(links[0], create_topic())
        driver.run()
        if unread:
            batch, count = batch_of(1, unread * (1 + RECORD_HEAD_BYTES))
            logs = [Partition(frames.TOPIC, number, batch, count) for number in range(partitions)]
            for log in logs:
                driver.start(links[0], log.until_led())
                driver.run()
        for number, group in enumerate(made):
            driver.start(links[number % LINKS], group.seat(0))
        driver.run()
        pause_s = groups * partitions / rate
        for number, group in enumerate(made):
            driver.start(links[number % LINKS], committing(group, partitions, pause_s, number * partitions / rate))
        over = threading.Event()
        loading = threading.Thread(target=_load, args=(driver, over))
        loading.start()
        try:
            time.sleep(WARM_S[server])
            before = share(running.pid, seconds)
            trees = [None] if beside is None else [None, beside]
            rounds = [trees] * turns if together else [[tree] for tree in trees * turns]
            done = [
                each
                for number, some in enumerate(rounds)
                for each in zip(some, turn(running, some, number, seconds), strict=True)
            ]
            after = share(running.pid, seconds)
        finally:
            over.set()
            loading.join()
    print(f"{groups} groups of {partitions} partitions on {server}")
    for tree in trees:
        own = [each for which, each in done if which == tree]
        for each in own:
            cost = f"{100 * each.cpu:.1f} % of a core, {1e6 * each.cpu / each.records:.1f} us a record"
            print(f"{tree or 'observer'}: {each.records:.0f} records/s, {cost}, {each.memory / MB:.0f} MB at most")
        told = [delay for each in own for delay in each.told]
        of_server = sum(each.of_server for each in own) / len(own)
        print(f"server: {before:.1f} % of a core before, {100 * of_server:.1f} % with it, {after:.1f} % after")
        print(f"a rebalance is on the page after {min(told):.2f} to {max(told):.2f} s")
    if beside is not None:
        own, other = ([each for which, each in done if which == tree] for tree in trees)
        cpu = [one.cpu / two.cpu for one, two in zip(own, other, strict=True)]
        memory = max(each.memory for each in own) / max(each.memory for each in other)
        ratios = ", ".join(f"{ratio:.2f}" for ratio in cpu)
        print(f"CPU beside {beside}: {sum(cpu) / len(cpu):.2f} times on average ({ratios}), memory {memory:.2f} times")


def _load(driver: Driver, over: threading.Event) -> None:
    while not over.is_set():
        driver.run(0.5)


if __name__ == "__main__":
    typer.run(main)
