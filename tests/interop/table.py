"""Runs every scenario with every client, and writes the table of docs/clients.md from what came out.

    python -m tests.interop.table                              all clients, on Tenure and on Apache Kafka
    python -m tests.interop.table --server tenure --jobs 2     one server only, two at a time
    python -m tests.interop.table --client sarama kafkajs      these clients only

Each client has a pytest of its own for each server, with a server of its own, and several run at once: most of what a
scenario does is to wait for a timeout. The run names clients whose toolchain is missing, and leaves them out. Other
tests in tests/interop that need a toolchain run beside them, and aren't in the table. The exit code is 1 if anything
failed.

Rows of the table are scenarios, columns are clients. It is made of the reports in build/interop/reports, the latest of
each client on each server, and the page is written once all of them are there, by a run on both servers.

House rule: nothing in the table is written by hand but the names of its rows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.client import ROOT, Ability
from tests.interop.clients import CLIENTS
from tests.support import apache

PAGE = ROOT / "docs" / "clients.md"
REPORTS = ROOT / "build" / "interop" / "reports"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
SERVERS = ("tenure", "apache")
MARKERS = {"tenure": "interop", "apache": "oracle"}
SCENARIOS = {
    "test_what_is_produced_is_consumed": "Produce, plain and gzip; it and another client consume it all",
    "test_a_group_goes_on_where_it_committed": "Consume, commit, server killed and restarted, go on",
    "test_every_partition_has_one_owner_and_idle_consumers_live": "Subscribe: each partition owned once, idle polls",
    "test_clients_of_many_makers_share_one_group": "Clients of many makers in one group (1)",
    "test_rolling_restart_moves_nothing": "Rolling restart of static members: 0 rebalances, same partitions",
    "test_a_static_member_that_stays_away_expires": "A static member that stays away keeps its seat, then expires",
    "test_fenced_twin": "Fenced twin: FENCED_INSTANCE_ID",
    "test_aiokafka_twins_are_never_fenced": "Instead: twins take the seat from each other without end",
    "test_a_fenced_member_takes_the_seat_back": "Instead: the fenced member's commit takes the seat back",
    "test_a_static_member_leaves_when_it_closes": "Closing a static member rebalances the group",
    "test_a_restart_without_instance_ids_rebalances": "Without instance ids: a restart is two rebalances",
    "test_members_come_leave_and_die": "Dynamic members join, leave, die: never two owners",
    "test_cooperative_members_come_leave_and_die": "The same, cooperative-sticky",
    "test_the_next_consumer_reads_what_the_last_one_committed": "Commit: the next consumer reads offsets and metadata",
    "test_metadata_that_is_too_large_is_refused": "Metadata one byte too large: OFFSET_METADATA_TOO_LARGE",
    "test_members_outlive_the_coordinator": "Coordinator killed and restarted: same generation, 0 rebalances",
    "test_a_static_member_restarts_while_the_coordinator_is_down": "A static member restarts while it is down",
    "test_coordinator_dies_in_a_rebalance": "Coordinator killed in the middle of a rebalance",
    "test_kcat_ends_with_the_coordinator": "Instead: it ends with the coordinator, and is started again; 0 rebalances",
    "test_admin_client_sees_the_group_as_its_members_do": "Admin client: list and describe",
    "test_static_members_are_removed_and_the_group_is_deleted": "Admin client: remove by instance id, delete the group",
}
FILES = ("admin", "dynamic", "offsets", "produce", "restart", "sasl_ssl", "static", "subscribe")
"""The test files of the scenarios, in tests/interop."""
NO_TESTS = 5
"""How pytest ends when it had none to run."""


@dataclass
class Results:
    """All runs: whether a scenario passed, by scenario, client and server; and each client's version."""

    passed: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def read(self, report: Path) -> None:
        """Add a report of pytest. A cell that was run twice passed if both did."""
        for case in ET.parse(report).iter("testcase"):
            properties = {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}
            if case.find("skipped") is not None or not {"broker", "client"} <= properties.keys():
                continue
            passed = case.find("failure") is None and case.find("error") is None
            cell = (case.attrib["name"].partition("[")[0], properties["client"], properties["broker"])
            self.passed[cell] = passed and self.passed.get(cell, True)
            for name, value in properties.items():
                if name.startswith("version of "):
                    self.versions[name.removeprefix("version of ")] = value


def run(name: str, *selection: str) -> tuple[bool, str]:
    """A pytest whose report gets that name: whether all passed, and what it printed."""
    report = REPORTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", f"--junit-xml={report}"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *selection],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.returncode in {0, NO_TESTS}, ended.stdout


def selection_of(client: str, server: str) -> list[str]:
    """All scenarios of a client, as arguments of pytest."""
    return ["-m", MARKERS[server], "-k", f"{server}-{client}", *(f"tests/interop/test_{name}.py" for name in FILES)]


def selection_of_the_rest(servers: Sequence[str]) -> list[str]:
    """Return all other tests that need a toolchain, as arguments of pytest."""
    markers = "toolchain" if "apache" in servers else "toolchain and not oracle"
    scenarios = " or ".join(f"{server}-{client}" for server in SERVERS for client in CLIENTS)
    return ["-m", markers, "-k", f"not ({scenarios})", "tests/interop"]


def table(results: Results) -> str:
    """The table as Markdown, and why cells are empty."""
    clients = sorted(CLIENTS)
    lines = [
        "| Scenario | " + " | ".join(f"{client} {results.versions[client]}" for client in clients) + " |",
        "| --- |" + " --- |" * len(clients),
    ]
    for scenario, row in SCENARIOS.items():
        cells = [cell([results.passed.get((scenario, client, server)) for server in SERVERS]) for client in clients]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    lines += ["", "What a client can't do, and so has no scenario of:", "", "| Client | doesn't do this | because |"]
    lines += ["| --- | --- | --- |"]
    for client in clients:
        by_reason: dict[str, list[Ability]] = {}
        for ability, reason in CLIENTS[client].cannot.items():
            by_reason.setdefault(reason, []).append(ability)
        for reason, abilities in by_reason.items():
            lines.append(f"| {client} | {'; '.join(ability.value for ability in abilities)} | {reason} |")
    return "\n".join(lines) + "\n"


def cell(ends: Sequence[bool | None]) -> str:
    """Tenure first, Apache Kafka second."""
    if all(end is None for end in ends):
        return "n/a"
    return " / ".join({True: "yes", False: "**no**", None: "not run"}[end] for end in ends)


def write(results: Results) -> None:
    """Rewrite the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")


def summary(results: Results) -> str:
    """A line for each client: its version, and how many of its scenarios passed on which server."""
    lines = []
    for client in sorted(CLIENTS):
        counts = []
        for server in SERVERS:
            ends = [passed for (_, name, where), passed in results.passed.items() if (name, where) == (client, server)]
            if ends:
                counts.append(f"{server} {sum(ends)} of {len(ends)}")
        lines.append(f"{client} {results.versions.get(client, '')}: {', '.join(counts)}")
    return "\n".join(lines)


def main() -> int:
    """Run, print, and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.table", description=__doc__.partition("\n")[0])
    parser.add_argument("--server", choices=SERVERS, help="on this one only")
    parser.add_argument("--client", choices=sorted(CLIENTS), nargs="+", default=[], help="these only")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="how many at a time")
    arguments = parser.parse_args()
    servers = [arguments.server] if arguments.server else list(SERVERS)
    if "apache" in servers and (reason := apache.available()) is not None:
        print(f"left out: all scenarios on Apache Kafka: {reason}")
        servers.remove("apache")
    clients = []
    for client in arguments.client or sorted(CLIENTS):
        if (reason := CLIENTS[client].missing) is not None:
            print(f"left out: {reason}")
        else:
            clients.append(client)
    REPORTS.mkdir(parents=True, exist_ok=True)

    failed = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        began = time.monotonic()
        runs = {
            f"{client}-{server}": pool.submit(run, f"{client}-{server}", *selection_of(client, server))
            for client in clients
            for server in servers
        }
        if not arguments.client:
            runs["others"] = pool.submit(run, "others", *selection_of_the_rest(servers))
        for name, ended in runs.items():
            passed, said = ended.result()
            shown = said.rstrip().rpartition("\n")[2] if passed else said
            print(f"---- {name}, {time.monotonic() - began:.0f} s: {shown}", flush=True)
            if not passed:
                failed.append(name)

    results = Results()
    reports = [REPORTS / f"{client}-{server}.xml" for client in CLIENTS for server in SERVERS]
    for report in reports:
        if report.exists():
            results.read(report)
    unknown = {scenario for scenario, _, _ in results.passed} - SCENARIOS.keys()
    assert not unknown, unknown
    print(summary(results))
    complete = all(report.exists() for report in reports) and CLIENTS.keys() <= results.versions.keys()
    if complete and not arguments.server:
        write(results)
        print(f"{PAGE.relative_to(ROOT)} has the results")
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
