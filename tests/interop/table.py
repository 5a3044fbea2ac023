"""Writes the table of docs/clients.md from the results of a real run.

    pytest -m interop tests/interop --junit-xml=build/interop-tenure.xml
    pytest -m oracle tests/interop --junit-xml=build/interop-apache.xml
    python -m tests.interop.table build/interop-tenure.xml build/interop-apache.xml

Rows are scenarios, columns are clients with the versions that are installed; a cell says how the run ended on Tenure
and on Apache Kafka. Exit code 1 if anything failed.

House rule: nothing in the table is written by hand but the names of its rows.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from tests.interop.clients import CLIENTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
SERVERS = ("tenure", "apache")
SCENARIOS = {
    "test_what_is_produced_is_consumed": "Produce records of all kinds; each client consumes them",
    "test_a_group_goes_on_where_it_committed": "Consume, commit, server killed and restarted, go on",
    "test_every_partition_has_one_owner_and_idle_consumers_live": "Subscribe: each partition owned once, idle polls",
    "test_three_clients_share_one_group": "The three clients in one group",
    "test_rolling_restart_moves_nothing": "Rolling restart of static members: 0 rebalances, same partitions",
    "test_a_static_member_that_stays_away_expires": "A static member that stays away keeps its seat, then expires",
    "test_fenced_twin": "Fenced twin: FENCED_INSTANCE_ID",
    "test_aiokafka_twins_are_never_fenced": "Twins take the seat from each other without end",
    "test_members_come_leave_and_die[range]": "Dynamic members join, leave, die: never two owners",
    "test_members_come_leave_and_die[cooperative-sticky]": "The same, cooperative-sticky",
    "test_the_next_consumer_reads_what_the_last_one_committed": "Commit: the next consumer reads offsets and metadata",
    "test_metadata_that_is_too_large_is_refused": "Metadata one byte too large: OFFSET_METADATA_TOO_LARGE",
    "test_members_outlive_the_coordinator": "Coordinator killed and restarted: same generation, 0 rebalances",
    "test_a_static_member_restarts_while_the_coordinator_is_down": "A static member restarts while it is down",
    "test_coordinator_dies_in_a_rebalance": "Coordinator killed in the middle of a rebalance",
    "test_admin_client_sees_the_group_as_its_members_do": "Admin client: list and describe",
    "test_static_members_are_removed_and_the_group_is_deleted": "Admin client: remove by instance id, delete the group",
}
ADMIN_CLIENTS = {"test_static_members_are_removed_and_the_group_is_deleted": {"kafka-python"}}
ASSIGNORS = ("cooperative-sticky", "range")

Results = dict[tuple[str, str, str], bool]


def read(reports: Iterable[Path]) -> Results:
    """Whether a scenario passed, by scenario, client and server; of several runs of one cell all have to."""
    results: Results = {}
    for report in reports:
        for case in ET.parse(report).iter("testcase"):
            name, _, parameters = case.attrib["name"].rstrip("]").partition("[")
            if not parameters or case.find("skipped") is not None:
                continue  # not a scenario of both servers, or left out
            passed = case.find("failure") is None and case.find("error") is None
            server = next(server for server in SERVERS if parameters.startswith(server))
            assignor = next((assignor for assignor in ASSIGNORS if parameters.endswith(assignor)), None)
            scenario = f"{name}[{assignor}]" if assignor else name
            for client in clients_of(name, parameters):
                results[scenario, client, server] = passed and results.get((scenario, client, server), True)
    return results


def clients_of(name: str, parameters: str) -> set[str]:
    """Whom a test is about: its parameter, the client in its name, or all of them."""
    if name in ADMIN_CLIENTS:
        return ADMIN_CLIENTS[name]
    named = {client for client in CLIENTS if client in parameters or f"_{client}_" in name}
    return named or set(CLIENTS)


def table(results: Results) -> str:
    """The table as Markdown."""
    clients = sorted(CLIENTS)
    lines = [
        "| Scenario | " + " | ".join(f"{client} {version(client)}" for client in clients) + " |",
        "| --- |" + " --- |" * len(clients),
    ]
    for scenario, row in SCENARIOS.items():
        cells = [cell([results.get((scenario, client, server)) for server in SERVERS]) for client in clients]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def cell(ends: list[bool | None]) -> str:
    """Tenure first, Apache Kafka second."""
    if ends == [None, None]:
        return "n/a"
    return " / ".join({True: "yes", False: "**no**", None: "not run"}[end] for end in ends)


def main() -> int:
    """Rewrite the page."""
    results = read(Path(argument) for argument in sys.argv[1:])
    unknown = {scenario for scenario, _, _ in results} - SCENARIOS.keys()
    assert not unknown, unknown
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
