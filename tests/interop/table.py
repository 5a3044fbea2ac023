"""Runs every scenario with every client, and writes the tables of two pages from what came out.

    python -m tests.interop.table                              all clients, on Tenure and on Apache Kafka
    python -m tests.interop.table --server tenure --jobs 2     one server only, two at a time
    python -m tests.interop.table --client sarama kafkajs      these clients only
    python -m tests.interop.table --protocol consumer          scenarios of the consumer protocol only

Each client has a pytest of its own for each server, with a server of its own, and several run at once: most of what a
scenario does is to wait for a timeout. The run names clients whose toolchain is missing, and leaves them out. Other
tests in tests/interop that need a toolchain run beside them, and aren't in the table. The exit code is 1 if anything
failed.

There is a part for each protocol of groups: the classic one, compared with Apache Kafka 3.9.1
(docs/start/clients.md), and the consumer protocol, compared with 4.4.0 (docs/run/consumer-protocol.md, and
one row in the other page). Rows of a part's table are scenarios, columns are clients. A part is made of the reports in
build/interop/reports, the latest of each client on each server, and is written once all of them are there,
by a run on both servers.

House rule: nothing in the tables is written by hand but the names of their rows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.client import OF_THE_CONSUMER_PROTOCOL, ROOT, Ability
from tests.interop.clients import CLIENTS
from tests.support import apache

PAGE = ROOT / "docs/start/clients.md"
CONSUMER_PAGE = ROOT / "docs/run/consumer-protocol.md"
REPORTS = ROOT / "build" / "interop" / "reports"
SERVERS = ("tenure", "apache")
MARKERS = {"tenure": "interop", "apache": "oracle"}
CLASSIC_SCENARIOS = {
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
CONSUMER_SCENARIOS = {
    "test_consumers_come_leave_and_die": "Members join, leave, die: never two owners",
    "test_roll_of_static_consumers_moves_nothing": "Rolling restart of static members: same epoch, same partitions",
    "test_static_consumer_does_not_say_that_it_will_be_back": "Instead: it closes, and partitions move",
    "test_static_consumer_that_stays_away_expires": "A static member that stays away keeps its seat, then expires",
    "test_twin_of_a_static_consumer_is_refused": "Twin: UNRELEASED_INSTANCE_ID, the first keeps its seat",
    "test_killed_static_consumer_waits_for_its_session": "A killed static member gets its seat after its session",
    "test_frozen_static_consumer_is_fenced": "A frozen static member is fenced by the process in its seat",
    "test_consumers_outlive_the_coordinator": "Coordinator killed and restarted: same epoch, nothing moves",
    "test_static_members_roll_from_one_protocol_to_the_other": "Static members roll from classic and back",
    "test_topic_grows_under_its_consumers": "A topic gets more partitions",
    "test_regular_expression_finds_topics": "A regular expression finds topics, a later one too",
}
NO_TESTS = 5
"""How pytest ends when it had none to run."""


@dataclass(frozen=True)
class Part:
    """A protocol: its page, scenarios, their test files in tests/interop, and the suffix of its reports.

    abilities: those that its table explains.
    """

    protocol: str
    page: Path
    scenarios: Mapping[str, str]
    files: tuple[str, ...]
    abilities: frozenset[Ability]
    suffix: str = ""

    @property
    def begin(self) -> str:
        """The line of the page before its table."""
        return f"<!-- results{self.suffix} -->\n"

    @property
    def end(self) -> str:
        """The line behind."""
        return f"<!-- end of results{self.suffix} -->\n"

    @property
    def clients(self) -> list[str]:
        """The clients that speak it."""
        if self.protocol == "classic":
            return sorted(CLIENTS)
        return sorted(name for name, client in CLIENTS.items() if Ability.CONSUMER_PROTOCOL not in client.cannot)

    def report(self, client: str, server: str) -> Path:
        """The report of a client on a server."""
        return REPORTS / f"{client}-{server}{self.suffix}.xml"


PARTS = (
    Part(
        "classic",
        PAGE,
        CLASSIC_SCENARIOS,
        ("admin", "dynamic", "offsets", "produce", "restart", "sasl_ssl", "static", "subscribe"),
        frozenset(Ability) - OF_THE_CONSUMER_PROTOCOL,
    ),
    Part(
        "consumer",
        CONSUMER_PAGE,
        CONSUMER_SCENARIOS,
        ("consumer_protocol",),
        OF_THE_CONSUMER_PROTOCOL | {Ability.STATIC},
        "-consumer",
    ),
)


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


def run(report: Path, *selection: str) -> tuple[bool, str]:
    """A pytest with that report: whether all passed, and what it printed."""
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


def selection_of(part: Part, client: str, server: str) -> list[str]:
    """All scenarios of a client, as arguments of pytest."""
    files = [f"tests/interop/test_{name}.py" for name in part.files]
    return ["-m", MARKERS[server], "-k", f"{server}-{client}", *files]


def selection_of_the_rest(servers: Sequence[str]) -> list[str]:
    """Return all other tests that need a toolchain, as arguments of pytest."""
    markers = "toolchain" if "apache" in servers else "toolchain and not oracle"
    scenarios = " or ".join(f"{server}-{client}" for server in SERVERS for client in CLIENTS)
    return ["-m", markers, "-k", f"not ({scenarios})", "tests/interop"]


def table(part: Part, results: Results) -> str:
    """The table as Markdown, and why cells are empty."""
    clients = part.clients
    lines = [
        "| Scenario | " + " | ".join(f"{client} {results.versions[client]}" for client in clients) + " |",
        "| --- |" + " --- |" * len(clients),
    ]
    for scenario, row in part.scenarios.items():
        cells = [cell([results.passed.get((scenario, client, server)) for server in SERVERS]) for client in clients]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    lines += ["", "A client has no scenario of what it can't do:", "", "| Client | doesn't do this | because |"]
    lines += ["| --- | --- | --- |"]
    for client in clients:
        by_reason: dict[str, list[Ability]] = {}
        for ability, reason in CLIENTS[client].cannot.items():
            if ability in part.abilities:
                by_reason.setdefault(reason, []).append(ability)
        for reason, abilities in by_reason.items():
            lines.append(f"| {client} | {'; '.join(ability.value for ability in abilities)} | {reason} |")
    return "\n".join(lines) + "\n"


def speakers(part: Part, results: Results) -> str:
    """Who speaks the protocol, and how many of its scenarios passed, as one row."""
    clients = sorted(CLIENTS)
    cells = []
    for client in clients:
        ends = [
            [passed for (_, name, where), passed in results.passed.items() if (name, where) == (client, server)]
            for server in SERVERS
        ]
        speaks = client in part.clients
        cells.append(" / ".join(f"{sum(passed)} of {len(passed)}" for passed in ends) if speaks else "no")
    lines = ["| | " + " | ".join(clients) + " |", "| --- |" + " --- |" * len(clients)]
    return "\n".join([*lines, "| consumer protocol | " + " | ".join(cells) + " |\n"])


def cell(ends: Sequence[bool | None]) -> str:
    """Tenure first, Apache Kafka second."""
    if all(end is None for end in ends):
        return "n/a"
    return " / ".join({True: "yes", False: "**no**", None: "not run"}[end] for end in ends)


def write(part: Part, results: Results) -> None:
    """Rewrite the part's tables in the pages."""
    replace(part, part.page, table(part, results))
    if part.page is not PAGE:
        replace(part, PAGE, speakers(part, results))


def replace(part: Part, page: Path, text: str) -> None:
    """Rewrite what stands between the part's marks in a page."""
    before, _, rest = page.read_text().partition(part.begin)
    _, _, after = rest.partition(part.end)
    page.write_text(f"{before}{part.begin}\n{text}\n{part.end}{after}")


def summary(part: Part, results: Results) -> str:
    """A line for each client: its version, and how many of its scenarios passed on which server."""
    lines = [f"{part.protocol} protocol"]
    for client in part.clients:
        counts = []
        for server in SERVERS:
            ends = [passed for (_, name, where), passed in results.passed.items() if (name, where) == (client, server)]
            if ends:
                counts.append(f"{server} {sum(ends)} of {len(ends)}")
        lines.append(f"{client} {results.versions.get(client, '')}: {', '.join(counts)}")
    return "\n".join(lines)


def conclude(part: Part, *, may_write: bool) -> None:
    """Print the results of a part; write its table if they are complete."""
    results = Results()
    reports = [part.report(client, server) for client in part.clients for server in SERVERS]
    for report in reports:
        if report.exists():
            results.read(report)
    unknown = {scenario for scenario, _, _ in results.passed} - part.scenarios.keys()
    assert not unknown, unknown
    print(summary(part, results))
    complete = all(report.exists() for report in reports) and set(part.clients) <= results.versions.keys()
    if complete and may_write:
        write(part, results)
        print(f"{part.page.relative_to(ROOT)} has the results")


def main() -> int:
    """Run, print, and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.table", description=__doc__.partition("\n")[0])
    parser.add_argument("--server", choices=SERVERS, help="on this one only")
    parser.add_argument("--client", choices=sorted(CLIENTS), nargs="+", default=[], help="these only")
    parser.add_argument("--protocol", choices=[part.protocol for part in PARTS], help="scenarios of this one only")
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
    parts = [part for part in PARTS if arguments.protocol in {None, part.protocol}]
    REPORTS.mkdir(parents=True, exist_ok=True)

    failed = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        began = time.monotonic()
        runs = {
            part.report(client, server).stem: pool.submit(
                run, part.report(client, server), *selection_of(part, client, server)
            )
            for part in parts
            for client in clients
            for server in servers
            if client in part.clients
        }
        if not arguments.client and not arguments.protocol:
            runs["others"] = pool.submit(run, REPORTS / "others.xml", *selection_of_the_rest(servers))
        for name, ended in runs.items():
            passed, said = ended.result()
            shown = said.rstrip().rpartition("\n")[2] if passed else said
            print(f"---- {name}, {time.monotonic() - began:.0f} s: {shown}", flush=True)
            if not passed:
                failed.append(name)

    for part in parts:
        conclude(part, may_write=not arguments.server)
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
