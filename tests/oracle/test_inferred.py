"""explain, watch and doctor on Apache Kafka: what they infer from its log is what happened.

The same script runs on Tenure, which keeps events: what it told has the same causes as what its own log tells.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.client import Client
from coordinator.client.offsets_log import LIMITS, OffsetsReader
from coordinator.story.events import RebalanceEnded, fields_of
from schemas.errors import ErrorCode
from tests.cli.conftest import at, make_app, run_app
from tests.support.apache import VERSION, VERSION_44, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, tenure_command, wait_until
from tests.support.topics import make_topics

pytestmark = pytest.mark.oracle

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}

CAUSES = [
    ["member_joined"],
    ["member_joined"],
    ["static_restart"],
    ["metadata_changed"],
    ["leader_rejoined"],
    ["member_left"],
    ["member_removed"],
    ["member_joined"],
    ["member_left"],
]
"""The steps of the script."""


@pytest.fixture(scope="module", params=[VERSION, VERSION_44, "tenure"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server on which the script ran."""
    is_ours = request.param == "tenure"
    server: Tenure | ApacheKafka = Tenure(SETTINGS) if is_ours else ApacheKafka(SETTINGS, version=request.param)
    with server:
        make_topics(server.bootstrap, {"t": 4})
        play(int(server.bootstrap.rpartition(":")[2]))
        # Tenure writes its events a little later.
        wait_until(lambda: len(kinds(explained(server.bootstrap)["timeline"])) >= len(CAUSES), "the events", WITHIN_S)
        yield server.bootstrap


def play(port: int) -> None:
    """A group lives: see CAUSES."""
    one = Member(port, "g", "one", 5)
    settle(one)
    two = Member(port, "g", "two", 5, instance="seat")
    two.send_join()
    is_called(one)
    settle(one, two)
    again = Member(port, "g", "two", 5, instance="seat")
    again.send_join()
    assert again.receive_join().error_code == ErrorCode.NONE
    one.topics = ["t", "u"]
    one.send_join()
    is_called(again)
    settle(one, again)
    one.send_join()
    is_called(again)
    settle(one, again)
    one.leave()
    settle(again)
    remove(port, "g", "seat")
    last = Member(port, "g", "last", 5)
    settle(last)
    last.leave()
    hang_up()


def is_called(member: Member) -> None:
    """Wait until the group prepares: a heartbeat calls the member to join."""
    wait_until(lambda: member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the group prepares", WITHIN_S)


def remove(port: int, group: str, instance_id: str) -> None:
    """Remove a static member as an operator does."""
    ran = run_app(make_app("members"), "members", "remove", "--group", group, "--instance-id", instance_id,
                  *at(f"127.0.0.1:{port}"))  # fmt: skip
    assert ran.code == 0


def kinds(entries: list[dict[str, Any]]) -> list[list[str]]:
    """The kinds of the causes of each entry; a return that only the log shows has none, and may be a restart."""
    return [
        [cause["kind"] for cause in entry["causes"]]
        if entry["type"] == "rebalance"
        else [entry["type"].replace("static_return", "static_restart")]
        for entry in entries
        if entry["type"] in {"rebalance", "static_restart", "static_return"}
    ]


def explained(bootstrap: str) -> dict[str, Any]:
    """The timeline of the group."""
    told: dict[str, Any] = run_app(make_app("explain"), "explain", "g", "--output", "json", *at(bootstrap)).json
    return told


def test_explain_tells_what_happened(bootstrap: str) -> None:
    """Told by Tenure, or inferred from Kafka's log: the same causes."""
    assert kinds(explained(bootstrap)["timeline"]) == CAUSES


def test_the_log_of_both_servers_tells_the_same(bootstrap: str) -> None:
    """Tenure's events and its log agree in all that both know."""
    with Client(bootstrap, WITHIN_S) as client:
        reader = OffsetsReader(client, "g")
        inferred = [event for event in reader.read() if isinstance(event, RebalanceEnded)]
    told = [entry for entry in explained(bootstrap)["timeline"] if entry["type"] == "rebalance"]
    for name in ("generation_before", "generation", "outcome", "members_before", "members_after", "moved"):
        assert [fields_of(event)[name] for event in inferred] == [entry[name] for entry in told], name
    assert [event.at_ms - event.began_ms >= 0 for event in inferred] == [True] * len(inferred)


def test_one_line_says_what_a_log_can_not_tell(bootstrap: str) -> None:
    """On Kafka explain and doctor say so on standard error; causes have a mark, JSON too."""
    is_kafka = explained(bootstrap)["inferred"]
    ran = run_app(make_app("explain"), "explain", "g", *at(bootstrap))
    assert ran.err == (f"tenure: {LIMITS}\n" if is_kafka else "")
    assert ran.out.count("[inferred from the log]") == (len(CAUSES) if is_kafka else 0)
    ran = run_app(make_app("doctor"), "doctor", "--all", *at(bootstrap))
    assert (ran.code, ran.out.splitlines()[-1].split(":")[0]) == (0, "1 group looked at")
    assert ran.err == (f"tenure: {LIMITS}\n" if is_kafka else "")


def test_watch_shows_what_happens(bootstrap: str, tmp_path: Path) -> None:
    """A rebalance shows once it is over."""
    printed = tmp_path / "watch.out"
    command = [*tenure_command(), "watch", "w", "--bootstrap-server", bootstrap, "--output", "json"]
    with printed.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            wait_until(lambda: "no such group yet" in printed.read_text(), "it looks on", WITHIN_S)
            settle(Member(int(bootstrap.rpartition(":")[2]), "w", "one", 5))
            wait_until(lambda: "rebalance_ended" in printed.read_text(), "it is told", WITHIN_S)
        finally:
            process.kill()
            hang_up()
    events = [json.loads(line) for line in printed.read_text().splitlines() if line.startswith("{")]
    (ended,) = [event for event in events if event["type"] == "rebalance_ended"]
    assert (ended["group"], ended["generation"], ended["causes"][0]["kind"]) == ("w", 1, "member_joined")


def test_a_rebalance_under_way_is_the_last_line(bootstrap: str) -> None:
    """Tenure says whom the group waits for; Apache Kafka, which writes no record before the end, has its state."""
    port = int(bootstrap.rpartition(":")[2])
    one = Member(port, "under-way", "one", 5)
    settle(one)
    Member(port, "under-way", "two", 5).send_join()
    is_called(one)
    ran = run_app(make_app("explain"), "explain", "under-way", *at(bootstrap))
    hang_up()
    assert "The group is PreparingRebalance now" in ran.out
