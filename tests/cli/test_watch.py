"""`tenure watch` prints what happens as it happens, until Ctrl-C, even if servers go away and come back."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from coordinator.cli.watch import WAIT_MS, EventLines, follow
from coordinator.client.client import Client
from coordinator.client.errors import Unauthenticated
from coordinator.client.events import EventReader, Polled
from coordinator.client.properties import read
from coordinator.client.security import Security
from coordinator.story.words import cause_text
from protocol.messages import FindCoordinatorRequest
from tests.cli.conftest import at, make_app, run_app
from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen
from tests.support.raw import Connection
from tests.support.requests import join_request
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, tenure_command, wait_until
from tests.support.told import but, cause_of, event


@contextmanager
def watching(server: Tenure, folder: Path, *arguments: str) -> Iterator[Callable[[], str]]:
    """Run `tenure watch` in a process; yields a function for its output so far. SIGINT must end it well."""
    printed = folder / "watch.out"
    command = [*tenure_command(), "watch", *at(server.bootstrap), *arguments]
    with printed.open("wb") as out, popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            yield printed.read_text
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == 0, printed.read_text()


def join(server: Tenure, group: str, connection: Connection) -> None:
    """Let a static member join without waiting."""
    assert connection.ask(join_request(group, instance="i"), 5).error_code == 0
    assert server.running


def restarted(server: Tenure) -> str:
    """Restart the member of group g; returns its new member id."""
    with Connection(server.port, "c") as connection:
        found = connection.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
    member = Member(found.port, "g", "c", 5, instance="i")
    settle(member)
    hang_up()
    return member.member_id


def test_what_happens_is_printed_as_it_happens(tmp_path: Path) -> None:
    """Watch prints new events of one group in words, and of all groups as JSON, one event a line.

    It prints no earlier events. It escapes a client's name, so that it can't steer a terminal.
    """
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with Tenure(settings) as server, Connection(server.port, "c\x1b[2J") as connection:
        join(server, "g", connection)
        join(server, "h", connection)
        folders = [tmp_path / name for name in ("text", "json")]
        for folder in folders:
            folder.mkdir()
        with watching(server, folders[0], "h") as text, watching(server, folders[1], "--output", "json") as lines:
            began = f"tenure: watching {{}} of {server.bootstrap}, until Ctrl-C\n"
            wait_until(lambda: began.format("group h") in text(), "what it watches", WITHIN_S)
            wait_until(lambda: began.format("all groups") in lines(), "what it watches", WITHIN_S)

            def both_look_on() -> bool:
                join(server, "g", connection)
                join(server, "h", connection)
                return "c\\x1b[2J at 127.0.0.1" in text() and "member_replaced" in lines().rpartition("\n")[0]

            wait_until(both_look_on, "both have something to tell", WITHIN_S)
            whole, _, _ = lines().rpartition("\n")  # the last line may be half written
            told = [json.loads(line) for line in whole.splitlines() if not line.startswith("tenure: ")]
            assert {event["type"] for event in told} >= {"member_replaced"}
            assert all(event["version"] == 1 for event in told)
            assert "static member i is back as i-" in text() or "rebalance begins" in text()
            assert "[g] " not in text()
            assert "c\\x1b[2J at 127.0.0.1" in text()


CAUSES = [
    {
        "kind": kind,
        "member_ids": [member_id],
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/10.0.0.1",
        "source": "inferred",
        "reason": "",
        "meaning": None,
        "join_reason": None,
        "api_version": 5,
    }
    for kind, member_id in (("member_left", "m-1"), ("member_joined", "m-2"), ("member_joined", "m-3"))
]
OLD, *NEW = (cause_text(cause_of(cause)) for cause in CAUSES)


def ended(at_ms: int, began_ms: int, **fields: Any) -> Any:
    """The end of the rebalance from generation 3 to 4."""
    usual = {
        "outcome": "completed",
        "state": "Stable",
        "generation_before": 3,
        "generation": 4,
        "causes": CAUSES,
        "further_causes": 0,
        "began_ms": began_ms,
        "preparing_ms": 5,
        "completing_ms": 1,
        "waited_for": None,
        "late": [],
        "lapsed": [],
        "members_before": 2,
        "members_after": 3,
        "moved_partitions": 0,
        "assigned_partitions": 0,
        "freed_partitions": 0,
        "moved": [],
    }
    return event("rebalance_ended", at_ms, **(usual | fields))


def lines_of(*events: Any) -> list[str]:
    """The printed lines of these events, one after the other."""
    shown = EventLines()
    return [line for event in events for line in shown.lines([event])]


def test_a_long_rebalance_is_told_when_it_begins_and_when_it_ends() -> None:
    """Each line has its own time. Watch prints each cause once, a later one as soon as it is known."""
    started = event("rebalance_started", 1_000, cause=CAUSES[0], members=2, state="Stable", pending=[])
    stuck = event("rebalance_stuck", 4_000)
    further = event("rebalance_cause", 2_500, cause=CAUSES[1])
    assert lines_of(started, further, stuck, ended(62_000, 999, further_causes=7)) == [
        f"[g] 1970-01-01 00:00:01.000Z  rebalance begins, generation 3: {OLD}",
        f"[g] 1970-01-01 00:00:02.500Z  also: {NEW[0]}",
        "[g] 1970-01-01 00:00:04.000Z  nobody has rejoined within the rebalance timeout, the group waits on",
        (
            "[g] 1970-01-01 00:01:02.000Z  rebalance ended after 1 min 1 s, generation 3 -> 4: completed: 5 ms until "
            "all had joined, 1 ms until all was assigned"
        ),
        f"    also: {NEW[1]}",
        "    and 7 further causes",
        "    members 2 -> 3, 0 topic partitions moved",
    ]


def test_a_short_rebalance_is_told_by_its_end() -> None:
    """Watch prints both lines at the end; also if it missed the beginning, or saw another rebalance begin."""
    lines = [
        f"[g] 1970-01-01 00:00:01.000Z  rebalance begins, generation 3: {OLD}",
        (
            "[g] 1970-01-01 00:00:01.006Z  rebalance ended after 6 ms, generation 3 -> 4: completed: 5 ms until all "
            "had joined, 1 ms until all was assigned"
        ),
        f"    also: {NEW[0]}",
        f"    also: {NEW[1]}",
        "    members 2 -> 3, 0 topic partitions moved",
    ]
    assert lines_of(ended(1_006, 1_000)) == lines
    other = event("rebalance_started", 500, cause=CAUSES[2], members=2, state="Stable", pending=[], generation=2)
    assert lines_of(other, ended(1_006, 1_000))[1:] == lines
    same = but(other, generation=3)
    for gone in (event("group_deleted", 600, offsets=0, expired=False), event("group_loaded", 600, members=2)):
        assert lines_of(same, gone, ended(1_006, 1_000))[2:] == lines


def test_a_rebalance_of_the_consumer_protocol_has_epochs_and_steps() -> None:
    """Its targets and the members that must give up partitions have lines of their own; its counter is the epoch."""
    consumer = {"group_type": "consumer"}
    started = event("rebalance_started", 1_000, cause=CAUSES[0], members=2, state="Stable", pending=[], **consumer)
    change = {"member_id": "m", "group_instance_id": "i", "gains": 0, "loses": 1, "partitions": 1}
    target = event("target_assigned", 1_100, assignor="uniform", members=2, changes=[change], further_changes=0)
    asked = event(
        "member_revoking", 1_200, member_id="m", group_instance_id="i", client_id="c", client_host="/h", partitions=1,
        until_ms=61_200,
    )  # fmt: skip
    waited = {"member_id": "m", "group_instance_id": "i", "phase": "revoking", "ms": 4_000}
    end = ended(6_000, 1_000, causes=CAUSES[:1], waited_for=waited, **consumer)
    first, made, asked_line, last, *_ = lines_of(started, target, asked, end)
    assert first == f"[g] 1970-01-01 00:00:01.000Z  rebalance begins, epoch 3: {OLD}"
    assert made == "[g] 1970-01-01 00:00:01.100Z  target by uniform for 2 members: i +0 -1"
    assert asked_line == (
        "[g] 1970-01-01 00:00:01.200Z  i (c at h) must give up 1 topic partition until 1970-01-01 00:01:01.200Z"
    )
    assert "rebalance ended after 5.0 s, epoch 3 -> 4: completed: " in last
    assert last.endswith("waited longest for i to give up partitions, 4.0 s")


def test_what_comes_together_is_told_in_the_order_of_time() -> None:
    """Lines of several groups are sorted by time, with their details below; at one time they keep their order."""
    other = ended(1_008, 1_005, group="h")
    same = event("pending_expired", 1_006, member_id="m", left=False, group="h")
    lines = list(EventLines().lines([ended(1_006, 1_000), same, other]))
    heads = [line[:29] + line[29:].partition(",")[0][:18] for line in lines if line.startswith("[")]
    assert heads == [
        "[g] 1970-01-01 00:00:01.000Z  rebalance begins",
        "[h] 1970-01-01 00:00:01.005Z  rebalance begins",
        "[g] 1970-01-01 00:00:01.006Z  rebalance ended a",
        "[h] 1970-01-01 00:00:01.006Z  member id m is ta",
        "[h] 1970-01-01 00:00:01.008Z  rebalance ended a",
    ]
    assert [line.strip() for line in lines[3:6]] == [f"also: {NEW[0]}", f"also: {NEW[1]}", lines[-1].strip()]


def test_what_else_happens_has_a_line() -> None:
    """Other events have a line each; a gap has no group."""
    taken = event("pending_expired", 2_000, member_id="m", left=False)
    gap = event("events_dropped", 3_000, events=2, first_ms=0, last_ms=1)
    held = event("rebalance_held", 2_001, missing=["w"], missing_count=1, until_wall_ms=9_000)
    let_in = event("hold_ended", 2_002, joins=3, missing=[], missing_count=0)
    assert lines_of(taken, but(taken, left=True), held, let_in, gap) == [
        "[g] 1970-01-01 00:00:02.000Z  member id m is taken back unused",
        "[g] 1970-01-01 00:00:02.000Z  member id m is given back",
        (
            "[g] 1970-01-01 00:00:02.001Z  joins are held for 1 expected member (w) until 1970-01-01 00:00:09.000Z at "
            "the latest"
        ),
        (
            "[g] 1970-01-01 00:00:02.002Z  joins were held for expected members; 3 joins came in, and no expected "
            "member is missing"
        ),
        (
            "1970-01-01 00:00:03.000Z  gap: 2 events could not be kept between 1970-01-01 00:00:00.000Z and "
            "1970-01-01 00:00:00.001Z"
        ),
    ]


def said(text: str) -> list[str]:
    """What watch reports about the server, in order: away or back."""
    return re.findall(r"the server is (away|back)", text)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_that_goes_away_is_waited_for(tmp_path: Path, workers: str) -> None:
    """Watch says at once that the server is away, long before an answer is late, and later that it is back."""
    settings, arguments = {"group.initial.rebalance.delay.ms": "0"}, ["--workers", workers]
    with (
        Tenure(settings, arguments=arguments) as server,
        watching(server, tmp_path, "g", "--timeout", str(2 * WITHIN_S)) as text,
    ):
        wait_until(lambda: restarted(server) and "[g] " in text(), "it looks on", WITHIN_S)
        for _ in range(2):
            # The server writes this event while it ends.
            last = restarted(server)
            server.stop()
            wait_until(lambda: said(text())[-1:] == ["away"], "it is away", WITHIN_S)
            server.start()
            first = restarted(server)
            wait_until(lambda: f"back as {first[:10]}" in text(), "what comes is told", WITHIN_S)  # noqa: B023
            assert text().count(f"back as {last[:10]}") == 1
        lines = [line for line in text().splitlines() if line.startswith("[g] ")]
        assert len(lines) == len(set(lines))
        reported = said(text())
        assert len(reported) >= 4
        assert reported == ["away", "back"] * (len(reported) // 2)


class Noting(EventReader):
    """Notes how long each poll would wait for events, and doesn't wait."""

    waited_ms = -1

    def poll_each(self, wait_ms: int) -> Polled:
        """Poll without a wait."""
        self.waited_ms = wait_ms
        return super().poll_each(0)


@pytest.mark.parametrize(("timeout_s", "wait_ms"), [(5.0, WAIT_MS), (0.5, 250)])
def test_a_server_with_nothing_to_tell_is_not_away(timeout_s: float, wait_ms: int) -> None:
    """A poll waits half as long as an answer may take, so a quiet server is never taken for one that is away."""
    with Tenure() as server, Client(server.bootstrap) as client:
        reader = Noting(client)
        reader.begin_with(0)
        client.timeout = timeout_s
        next(follow(client, reader))
    assert reader.waited_ms == wait_ms


def test_a_server_that_comes_back_without_events_is_no_longer_waited_for(tmp_path: Path) -> None:
    """A server without events has nothing to watch: exit code 4, as at the start."""
    printed = tmp_path / "watch.out"
    with Tenure({"group.initial.rebalance.delay.ms": "0"}) as server:
        command = [*tenure_command(), "watch", "--bootstrap-server", server.bootstrap, "--timeout", "3"]
        with printed.open("wb") as out, popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
            try:
                wait_until(lambda: restarted(server) and "[g] " in printed.read_text(), "it looks on", WITHIN_S)
                server.stop()
                shutil.rmtree(server.data_dir)
                server.settings["tenure.events.enable"] = "false"
                wait_until(lambda: "the server is away" in printed.read_text(), "it is away", WITHIN_S)
                server.start()
                assert process.wait(WITHIN_S) == 4
            finally:
                process.kill()
    assert printed.read_text().splitlines()[-1].startswith("tenure: this cluster has no topic __rebalance_events")


def test_without_a_server_it_does_not_begin(tmp_path: Path) -> None:
    """Without a server the command ends with one line and exit code 5, as every command."""
    with Tenure() as server:
        server.stop()
        ran = run_app(make_app("watch"), "watch", "--bootstrap-server", server.bootstrap, "--timeout", "0.3")
    assert (ran.code, ran.out) == (5, "")
    assert ran.err.startswith(f"tenure: {server.bootstrap}")
    assert len(ran.err.splitlines()) == 1


TRIES = 100
"""So many polls of a server that is back are far more than one login needs."""


def test_a_login_that_is_refused_ends_watch() -> None:
    """A server that is back is of no use to a client whose password it doesn't take any more."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = f"""listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={module} user_alice="secret";
"""
    login = f'sasl.jaas.config={module} username="alice" password="secret";'
    security = Security(read(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{login}\n", "f"))
    with (
        Tenure(listeners={"SASL": "SASL_PLAINTEXT"}, properties=properties) as server,
        Client(server.bootstrap, WITHIN_S, security=security) as client,
    ):
        polls = follow(client, EventReader(client))
        next(polls)
        server.kill()
        next(polls)
        server.properties = properties.replace("secret", "changed")
        server.start()
        with pytest.raises(Unauthenticated, match="PLAIN: Authentication failed"):
            for _events in islice(polls, TRIES):
                pass
