"""`tenure doctor`: usage, exit codes and forms. Its findings: tests/timeline/test_diagnosis.py, test_explain.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.cli.doctor import _together
from coordinator.cli.main import make_app
from coordinator.timeline import diagnosis
from coordinator.timeline.words import time_text
from schemas.errors import ErrorCode
from tests.cli.conftest import MakeGroup, Ran, Run, at, run_app
from tests.support.patience import WITHIN_S
from tests.support.scripted import STAYS_MS, Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[Tenure]:
    """A server; each test has a group of its own on it."""
    with Tenure({"group.initial.rebalance.delay.ms": "300"}) as tenure:
        yield tenure
        hang_up()


def doctor(server: Tenure, *arguments: str) -> Ran:
    """Run the doctor against the server."""
    return run_app(make_app("doctor"), "doctor", *arguments, *at(server.bootstrap))


def test_a_group_or_all_of_them() -> None:
    """The doctor takes a group or --all; an unknown group is exit code 3, and --all may find no group."""
    with Tenure() as server:
        for arguments in ([], ["g", "--all"]):
            ran = doctor(server, *arguments)
            assert (ran.code, ran.err) == (2, "tenure: doctor: either GROUP or --all\n")
        ran = doctor(server, "g")
        assert (ran.code, ran.err) == (3, "tenure: no such group, and no events of one: g\n")
        assert (doctor(server, "--all").code, doctor(server, "--all").out) == (0, "0 groups looked at: nothing found\n")
        assert doctor(server, "--all", "--output", "json").json == []


def test_notices_are_no_failure(server: Tenure) -> None:
    """Each line has its severity, the last line has totals; notices alone give exit code 0."""
    group = "notices"
    a = Member(server.port, group, "old", 5)
    settle(a)
    told = wait_until(lambda: doctor(server, group, "--output", "json").json or None, "the join is told", WITHIN_S)
    keys = ["severity", "kind", "group_id", "found", "advice", "last_at_ms", "times"]
    assert [(list(each), each["severity"], each["kind"]) for each in told] == [
        (keys, "notice", "client_without_reason")
    ]
    ran = doctor(server, group)
    assert (ran.code, ran.err) == (0, "")
    first, advice, summary = ran.out.splitlines()
    assert first.startswith("notices: notice: can't say why they join")
    assert advice == "    nothing needs to be done: causes of theirs are inferred"
    assert summary == "1 group looked at: 1 notice"


def test_the_worst_comes_first(server: Tenure) -> None:
    """With --all, the worst finding comes first, and one error is enough for exit code 1."""
    one = Member(server.port, "ahead", "one", 5, instance="seat")
    settle(one)
    settle(Member(server.port, "another", "one", 5))
    settle(Member(server.port, "conflict", "one", 5))
    other = Member(server.port, "ahead", "other", 5, instance="seat")
    other.send_join()
    assert other.receive_join().error_code == ErrorCode.NONE
    assert one.heartbeat() == ErrorCode.FENCED_INSTANCE_ID

    def all_told() -> Ran | None:
        ran = doctor(server, "--all")
        return ran if "ahead: error: two programs" in ran.out and "another, conflict" in ran.out else None

    ran = wait_until(all_told, "all is told", WITHIN_S)
    assert ran.code == 1
    lines = [line for line in ran.out.splitlines() if not line.startswith(" ")]
    (fenced,) = (each for each in doctor(server, "--all", "--output", "json").json if each["severity"] == "error")
    assert lines[0].endswith(f" (last at {time_text(fenced['last_at_ms'])})")
    said = [line.split(": ")[1] for line in lines[:-1]]
    assert said == ["error"] + ["notice"] * (len(said) - 1)
    found = doctor(server, "--all", "--output", "json").json
    assert lines[-1].endswith(f"groups looked at: 1 error, {len(found) - 1} notices")
    old = [each["group_id"] for each in found if each["kind"] == "client_without_reason"]
    assert {"another", "conflict"} <= set(old)
    text = "clients can't say why they join (JoinGroup before version 8)"
    assert lines[-2] == f"{len(old)} groups: notice: {text}: {', '.join(old)}"


def test_who_has_not_rejoined_is_named(server: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the group waits, a missing member is a notice at first, and later a problem."""
    group = "waits"
    a, b = Member(server.port, group, "a", 9), Member(server.port, group, "b", 9, instance="seat")
    settle(a, b)
    a.send_join()
    assert b.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    for awaited_ms, code, severity in ((STAYS_MS, 0, "notice"), (0, 1, "error")):
        monkeypatch.setattr(diagnosis, "AWAITED_MS", awaited_ms)
        ran = doctor(server, group)
        assert ran.code == code
        assert re.search(
            rf"waits: {severity}: the group has waited \d+ s for seat \(b at 127.0.0.1\) to rejoin", ran.out
        )


def test_the_newest_entries_alone(server: Tenure) -> None:
    """With --last, older entries don't count; entries are counted as in `explain`."""
    group = "newest"
    one = Member(server.port, group, "one", 5, instance="seat")
    settle(one)
    other = Member(server.port, group, "other", 9, instance="seat")
    other.send_join()
    assert other.receive_join().error_code == ErrorCode.NONE
    assert one.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    wait_until(lambda: "two programs" in doctor(server, group).out, "the fencing is told", WITHIN_S)
    again = Member(server.port, group, "other", 9, instance="seat")
    again.send_join()
    assert again.receive_join().error_code == ErrorCode.NONE
    wait_until(lambda: doctor(server, group, "--last", "1").code == 0, "the restart is told", WITHIN_S)
    assert doctor(server, group, "--last", "2").code == doctor(server, group).code == 1
    assert doctor(server, group, "--last", "0").code == 2


def test_a_server_without_events() -> None:
    """The doctor still describes the groups, and says that it knows no events."""
    with Tenure({"tenure.events.enable": "false", "group.initial.rebalance.delay.ms": "0"}) as server:
        settle(Member(server.port, "g", "old", 5))
        ran = doctor(server, "g")
        assert (ran.code, ran.out) == (0, "1 group looked at: nothing found\n")
        assert ran.err.startswith("tenure: this cluster has no topic __rebalance_events: only Tenure keeps")
        assert ran.err.endswith("; looked at the groups as they are now\n")
        ran = doctor(server, "nobody-made-this-group")
        assert (ran.code, ran.out) == (3, "")


def test_groups_of_any_cluster_are_looked_at(bootstrap: str, run: Run, make_group: MakeGroup) -> None:
    """The doctor works on Apache Kafka too: for a healthy group, one that rebalances, and an unknown one."""
    group = make_group(["a", "b"])
    app, is_ours = make_app("doctor"), run(make_app("explain"), "explain", "nobody").code == 3
    ran = run(app, "doctor", group)
    assert (ran.code, ran.out.splitlines()[-1].split(":")[0]) == (0, "1 group looked at")
    assert ("only Tenure keeps" in ran.err) is not is_ours
    ran = run(app, "doctor", "nobody-made-this-group")
    assert (ran.code, ran.out) == (3, "")
    told = ", and no events of one" if is_ours else ""
    assert ran.err == f"tenure: no such group{told}: nobody-made-this-group\n"
    waiting = [Member(int(bootstrap.rpartition(":")[2]), group, name, 9, instance=name) for name in ("a", "c")]
    waiting[1].send_join()
    found = wait_until(lambda: rebalancing(run, group), "it rebalances", WITHIN_S)
    hang_up()
    assert found["kind"] == "rebalancing" or (found["kind"], is_ours) == ("members_not_rejoined", True)


def rebalancing(run: Run, group: str) -> dict[str, Any] | None:
    """The finding about the rebalance that is under way."""
    found = run(make_app("doctor"), "doctor", group, "--output", "json").json
    return next((each for each in found if each["kind"] in {"rebalancing", "members_not_rejoined"}), None)


@pytest.mark.parametrize("command", ["explain", "watch", "doctor"])
def test_help_says_what_it_does(command: str) -> None:
    """The help shows the options of the command."""
    ran = run_app(make_app(command), command, "--help")
    assert ran.code == 0
    assert "--bootstrap-server" in ran.out


def test_what_is_true_of_all_groups_is_one_line() -> None:
    """Dropped events may concern any group: with --all they are one line, for a single group they are its finding."""
    found = [
        diagnosis.Finding(diagnosis.Severity.ERROR, "events_dropped", name, "3 events could not be kept", "see", 7, 1)
        for name in "gh"
    ]
    assert _together(found) == {
        "events_dropped": "any group: error: 3 events could not be kept (last at 1970-01-01 00:00:00.007Z); see"
    }
    assert _together(found[:1]) == {}
