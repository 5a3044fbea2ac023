"""`python -m benchmarks.cluster`: three nodes of Tenure on three of etcd beside three nodes of Apache Kafka.

Faults: 24 groups, each with a static member that sends a heartbeat, a commit and a read every 50 ms, while nodes are
killed, frozen, stopped and started. For each fault the table has the longest time in which a group got no yes at all,
from whatever node, and what was wrong (tests/support/cluster_history.py): reads older than an acknowledged commit,
answers of a node that was the coordinator no more, acknowledged commits that are gone, groups that rebalanced.

Load: commits, restarts and new groups as fast as they are answered, by one process on the same machine; CPU is that of
the nodes, of etcd, and of both together. Beside these two, one node of Tenure with a data folder.

House rule: each system gets the same faults in the same order, and only processes that were started here get signals.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import gmtime, strftime
from typing import Annotated, Any, NamedTuple, Protocol

import typer

from benchmarks import frames, report
from benchmarks.driver import Driver, Script, clock
from benchmarks.members import Group, UnexpectedAnswer
from benchmarks.meter import cpu_s
from benchmarks.servers import JVM_FLAGS
from benchmarks.stage import progress
from benchmarks.works import commits, percentiles
from protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from tests.interop.brokers import create_topic
from tests.support.apache import VERSION
from tests.support.apache_cluster import ApacheCluster
from tests.support.cluster_history import Wrong, gaps, stood_still, wrongs
from tests.support.cluster_probe import Probe
from tests.support.etcd import Etcd, program, stands_still
from tests.support.patience import WITHIN_S
from tests.support.raw import ask
from tests.support.tenure import Tenure, wait_until
from tests.support.tenure_cluster import TenureCluster

app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)

GROUPS = 24
FROZEN_S = 8.0
DOWN_S = 8.0
"""How long two nodes are down: Kafka's third can't go on alone, so a test that waited for it would never end."""
SETTLED_S = 4.0
SESSION_TIMEOUT_MS = 30_000
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
TOPICS = {"tenure.topics": f"{frames.TOPIC}:6"}
"""Topics of Tenure's nodes."""

TENURE, KAFKA, SINGLE = "Tenure, 3 nodes, 3 etcd", f"Apache Kafka {VERSION}, 3 nodes", "Tenure, 1 node"


class Node(Protocol):
    """A node of either system."""

    @property
    def pid(self) -> int:
        """Its process."""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""

    def kill(self) -> None:
        """SIGKILL."""

    def stop(self) -> Any:
        """SIGTERM, and wait for the end."""

    def start(self) -> Any:
        """Start again."""

    def freeze(self) -> None:
        """SIGSTOP."""

    def thaw(self) -> None:
        """SIGCONT."""


class System(NamedTuple):
    """A running system. others: processes that belong to it, and serve no client (etcd)."""

    name: str
    bootstraps: Sequence[str]
    nodes: Sequence[Any]
    others: Sequence[int] = ()

    def cpu(self) -> tuple[float, float]:
        """Seconds of CPU of the nodes, and of the others."""
        return sum(cpu_s(node.pid) for node in self.nodes), sum(map(cpu_s, self.others))


@contextmanager
def tenure_cluster() -> Iterator[System]:
    """Three nodes on three members of etcd."""
    with (
        Etcd(members=3, arguments=["--quota-backend-bytes", str(8 << 30)]) as etcd,
        TenureCluster(etcd, settings={**SETTINGS, **TOPICS}) as cluster,
    ):
        yield System(TENURE, cluster.bootstraps, cluster.nodes, [member.pid for member in etcd.members])


@contextmanager
def kafka_cluster() -> Iterator[System]:
    """Three nodes of Kafka, with the flags of its start script but half its heap."""
    flags = tuple("-Xms512m" if each == "-Xms1G" else "-Xmx512m" if each == "-Xmx1G" else each for each in JVM_FLAGS)
    with ApacheCluster(settings=SETTINGS, jvm_flags=flags) as cluster:
        create_topic(cluster.bootstraps[0], frames.TOPIC, 6)
        yield System(KAFKA, cluster.bootstraps, cluster.nodes)


@contextmanager
def one_node() -> Iterator[System]:
    """One node with a data folder."""
    with Tenure({**SETTINGS, **TOPICS}) as tenure:
        yield System(SINGLE, [tenure.bootstrap], [tenure])


SYSTEMS: dict[str, Callable[[], Any]] = {"tenure": tenure_cluster, "kafka": kafka_cluster, "single": one_node}


# ---- Faults. Each begins and ends with all nodes running.


def all_at_once(nodes: Sequence[Node], do: Callable[[Node], Any]) -> None:
    """Do the same with several nodes at the same time."""
    threads = [threading.Thread(target=do, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def killed(nodes: Sequence[Node], probe: Probe) -> None:
    """SIGKILL; it comes back when the others have taken over."""
    nodes[0].kill()
    probe.wait_for_commits(probe.now())
    probe.wait(SETTLED_S)
    nodes[0].start()


def restarted(nodes: Sequence[Node], probe: Probe) -> None:  # noqa: ARG001 - all faults have the same form
    """SIGKILL, and a start at once."""
    nodes[0].kill()
    nodes[0].start()


def frozen(nodes: Sequence[Node], probe: Probe) -> None:
    """SIGSTOP for 8 s; clients keep asking the frozen node for some seconds more."""
    probe.anchor(FROZEN_S + SETTLED_S)
    nodes[0].freeze()
    wait_until(lambda: stands_still(nodes[0].pid), "the node stands still", WITHIN_S)
    began = probe.now()
    probe.wait(FROZEN_S)
    probe.note(stood_still(probe.ports.index(int(nodes[0].bootstrap.rpartition(":")[2])), began, probe.now()))
    nodes[0].thaw()


def stopped(nodes: Sequence[Node], probe: Probe) -> None:
    """SIGTERM; it comes back when the others have taken over."""
    nodes[0].stop()
    probe.wait_for_commits(probe.now())
    probe.wait(SETTLED_S)
    nodes[0].start()


def rolled(nodes: Sequence[Node], probe: Probe) -> None:
    """SIGTERM and start of each node in turn."""
    for node in nodes:
        node.stop()
        node.start()
        probe.wait_for_commits(probe.now())
        probe.wait(SETTLED_S)


def two_killed(nodes: Sequence[Node], probe: Probe) -> None:
    """SIGKILL of two nodes at once; both come back after 8 s."""
    all_at_once(nodes[:2], lambda node: node.kill())
    probe.wait(DOWN_S)
    all_at_once(nodes[:2], lambda node: node.start())


def all_killed(nodes: Sequence[Node], probe: Probe) -> None:  # noqa: ARG001 - as above
    """SIGKILL of all nodes at once, and a start of all."""
    all_at_once(nodes, lambda node: node.kill())
    all_at_once(nodes, lambda node: node.start())


FAULTS: dict[str, Callable[[Sequence[Node], Probe], None]] = {
    "a node killed, started after the others took over": killed,
    "a node killed and started at once": restarted,
    "a node frozen for 8 s": frozen,
    "a node stopped by SIGTERM, started later": stopped,
    "rolling restart of the three nodes": rolled,
    "two nodes killed, started after 8 s": two_killed,
    "all three killed, and started at once": all_killed,
}


class Fault(NamedTuple):
    """The effects of a fault. gap_s: the longest of all groups."""

    gap_s: float
    stale: int
    late: int
    lost: int
    rebalanced: int


def faults(system: System, names: Sequence[str]) -> dict[str, Fault]:
    """Play the faults one after the other."""
    found = {}
    with Probe(system.bootstraps, groups=GROUPS, session_timeout_ms=SESSION_TIMEOUT_MS) as probe:
        probe.wait_for_commits(probe.now())
        for name in names:
            progress.print(f"{system.name}: {name}")
            probe.wait(SETTLED_S)
            before, began = probe.state(), probe.now()
            FAULTS[name](busiest_first(system, probe), probe)
            probe.wait(SETTLED_S)
            ended = probe.wait_for_commits(probe.now())
            found[name] = Fault(
                max(gaps(probe.history, began, ended).values()),
                *counts(wrongs(probe.history), began),
                len(probe.lost()),
                len(probe.rebalances(before)),
            )
            progress.print(f"  {found[name]}")
    return found


def counts(found: Sequence[Wrong], since: float) -> tuple[int, int]:
    """How many wrong reads and how many late yeses there are, of requests answered since that moment."""
    late = [(each.request.got or 0.0) >= since for each in found if each.what == "late yes"]
    reads = [each.request.sent >= since for each in found if each.what != "late yes"]
    return sum(reads), sum(late)


def busiest_first(system: System, probe: Probe) -> list[Any]:
    """The nodes by the number of groups that they coordinate: Kafka leaves a node that came back without any."""
    owners = list(probe.coordinators().values())
    return [system.nodes[number] for number in sorted(range(len(system.nodes)), key=lambda each: -owners.count(each))]


# ---- Load.


class Load(NamedTuple):
    """The cost of a load. node_us, etcd_us: CPU of nodes and etcd for each request."""

    per_s: float
    p50_ms: float
    p99_ms: float
    node_us: float
    etcd_us: float


def address_of(system: System, group_id: str) -> tuple[str, int]:
    """The coordinator of a group. Raises UnexpectedAnswer."""
    port = int(system.bootstraps[0].rpartition(":")[2])
    until = clock() + 30
    while clock() < until:
        answer: FindCoordinatorResponse = ask(port, FindCoordinatorRequest(key=group_id, key_type=0), 1)
        if answer.error_code == 0:
            return answer.host, answer.port
    raise UnexpectedAnswer(f"nobody coordinates {group_id}")


def measured(system: System, driver: Driver, seconds: float, took: list[float]) -> Load:
    """Run the scripts: a fifth of the time to get going, the rest measured."""
    driver.run(seconds / 5)
    took.clear()
    nodes, others, began = *system.cpu(), clock()
    driver.run(seconds)
    wall = clock() - began
    nodes, others = (now - before for now, before in zip(system.cpu(), (nodes, others), strict=True))
    figures = percentiles(took)
    return Load(
        len(took) / wall,
        figures["latency_p50_us"] / 1000,
        figures["latency_p99_us"] / 1000,
        nodes / len(took) * 1e6,
        others / len(took) * 1e6,
    )


def partition_of(group_id: str) -> int:
    """The partition of `__consumer_offsets`, of 50, that has a group: Java's hash of its id."""
    code = 0
    for character in group_id:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return abs(code - (1 << 32) if code & 0x80000000 else code) % 50


def group_ids(count: int, tag: str) -> list[str]:
    """Ids of groups on the 50 partitions in turn."""
    found: dict[int, list[str]] = {partition: [] for partition in range(50)}
    number = 0
    while sum(map(len, found.values())) < count:
        group_id = f"{tag}-{number}"
        ids = found[partition_of(group_id)]
        if len(ids) < -(-count // 50):
            ids.append(group_id)
        number += 1
    return [each for ids in found.values() for each in ids]


def commit_load(system: System, connections: int, seconds: float, tag: str) -> Load:
    """Commits of static members, one group and connection each, on all 50 partitions."""
    took: list[float] = []
    done = frames.commit_done(1)
    with Driver(*_address(system)) as driver:
        groups = []
        for group_id in group_ids(connections, tag):
            group = Group(group_id, 1, static=True)
            (link,) = driver.connect(1, address=address_of(system, group_id))
            driver.start(link, group.seat(0))
            groups.append((link, group))
        driver.run()
        for link, group in groups:
            member = group.members[0]
            identity = (frames.generation(member.generation), *member.identity())
            driver.start(link, commits(frames.commit(group.group_id, 1, static=True), identity, done, took))
        return measured(system, driver, seconds, took)


def restart_load(system: System, groups: int, size: int, seconds: float, tag: str) -> Load:
    """Restarts of static members of stable groups; one at a time in each group."""
    took: list[float] = []

    def roll(group: Group) -> Script:
        while True:
            for member in group.members:
                began = clock()
                yield from group.restart(member)
                took.append(clock() - began)

    with Driver(*_address(system)) as driver:
        made = []
        for group_id in group_ids(groups, tag):
            group = Group(group_id, size, static=True)
            links = driver.connect(size, address=address_of(system, group_id))
            for number, link in enumerate(links):
                driver.start(link, group.seat(number))
            driver.run()
            made.append((links[0], group))
        for link, group in made:
            driver.start(link, roll(group))
        return measured(system, driver, seconds, took)


def group_load(system: System, connections: int, seconds: float, tag: str) -> Load:
    """New groups of one member each: JoinGroup and SyncGroup."""
    took: list[float] = []
    number = 0

    def found_groups(partition_ids: Sequence[str]) -> Script:
        for group_id in partition_ids:
            began = clock()
            yield from Group(group_id, 1, static=True).seat(0)
            took.append(clock() - began)

    with Driver(*_address(system)) as driver:
        ids = group_ids(connections * 150, tag)
        share = len(ids) // connections
        for number in range(connections):
            mine = ids[number * share : (number + 1) * share]
            (link,) = driver.connect(1, address=address_of(system, mine[0]))
            here = [each for each in mine if address_of_partition(system, each) == link.sock.getpeername()]
            driver.start(link, found_groups(here))
        return measured(system, driver, seconds, took)


_owners: dict[tuple[str, int], tuple[str, int]] = {}


def address_of_partition(system: System, group_id: str) -> tuple[str, int]:
    """As address_of, asked once for each partition."""
    key = (system.bootstraps[0], partition_of(group_id))
    if key not in _owners:
        _owners[key] = address_of(system, group_id)
    return _owners[key]


def _address(system: System) -> tuple[str, int]:
    host, _, port = system.bootstraps[0].rpartition(":")
    return host, int(port)


def loads(system: System, seconds: float) -> dict[str, Load]:
    """Play the loads one after the other."""
    found: dict[str, Load] = {}
    works: dict[str, Callable[[], Load]] = {
        "commits, 50 connections": lambda: commit_load(system, 50, seconds, "few"),
        "commits, 500 connections": lambda: commit_load(system, 500, seconds, "many"),
        "restarts, 50 groups of 10": lambda: restart_load(system, 50, 10, seconds, "rolled"),
        "new groups, 50 connections": lambda: group_load(system, 50, seconds, "new"),
    }
    for name, work in works.items():
        progress.print(f"{system.name}: {name}")
        found[name] = work()
        progress.print(f"  {found[name]}")
    return found


# ---- The page.


def faults_table(found: dict[str, dict[str, Fault]]) -> str:
    """A row for each fault, a column for each system."""
    heads = [
        "fault",
        *(f"{name}: longest time without success" for name in found),
        *(f"{name}: stale reads, late yeses, lost commits, groups rebalanced" for name in found),
    ]
    rows = []
    for fault in next(iter(found.values())):
        each = [found[name].get(fault) for name in found]
        rows.append(
            [
                fault,
                *("" if it is None else f"{it.gap_s:.2f} s" for it in each),
                *("" if it is None else f"{it.stale}, {it.late}, {it.lost}, {it.rebalanced}" for it in each),
            ]
        )
    return table(heads, rows)


def loads_table(found: dict[str, dict[str, Load]]) -> str:
    """A row for each load and system."""
    heads = ["load", "system", "per second", "50th percentile", "99th percentile", "CPU of nodes", "CPU of etcd"]
    rows = [
        [
            load,
            name,
            f"{it.per_s:,.0f}",
            f"{it.p50_ms:.1f} ms",
            f"{it.p99_ms:.1f} ms",
            f"{it.node_us:.0f} us",
            f"{it.etcd_us:.0f} us" if it.etcd_us else "",
        ]
        for load in next(iter(found.values()))
        for name, each in found.items()
        if (it := each.get(load)) is not None
    ]
    return table(heads, rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in [heads, ["---"] * len(heads), *rows])


def about() -> str:
    """A sentence about place and time of the measurement."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    first = os.popen(f"{program()} --version").readline().strip()  # noqa: S605 - our own path
    version = first.replace("etcd Version:", "etcd")
    return (
        f"{strftime('%Y-%m-%d', gmtime())}, {os.cpu_count()} cores of {model[1] if model else platform.machine()} for "
        f"all nodes, etcd and the clients; {version}, Python {platform.python_version()}; one run."
    )


@app.command()
def main(
    systems: Annotated[str, typer.Option(help="Which to measure, with commas.")] = "tenure,kafka,single",
    parts: Annotated[str, typer.Option(help="faults, loads or both.")] = "faults,loads",
    seconds: Annotated[float, typer.Option(min=0.1, help="Length of each load.")] = 6.0,
    only: Annotated[str, typer.Option(help="Faults with one of these words alone, with commas.")] = "",
    out: Annotated[Path, typer.Option(help="Where all figures go, as JSON.")] = Path("build/bench-cluster.json"),
    page: Annotated[Path | None, typer.Option(help="A page whose tables are replaced.")] = None,
) -> None:
    """Measure clusters under faults and load."""
    # Any end of this process ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    found_faults: dict[str, dict[str, Fault]] = {}
    found_loads: dict[str, dict[str, Load]] = {}
    for each in systems.split(","):
        with SYSTEMS[each]() as system:
            if "faults" in parts and len(system.nodes) > 1:
                found_faults[system.name] = faults(
                    system, [name for name in FAULTS if any(word in name for word in only.split(","))]
                )
        if "loads" in parts:
            with SYSTEMS[each]() as system:
                found_loads[system.name] = loads(system, seconds)
    tables = [faults_table(found_faults)] if found_faults else []
    tables += [loads_table(found_loads)] if found_loads else []
    text = "\n".join(tables)
    print(text)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"faults": found_faults, "loads": found_loads}, indent=1))
    if page is not None:
        page.write_text(report.rewritten(page.read_text(), about(), text.strip()))


if __name__ == "__main__":
    app()
