"""`tenure groups ready` against Tenure and against Apache Kafka."""

from __future__ import annotations

import uuid

import pytest

from coordinator.cli.groups import app as groups_app
from coordinator.cli.ready import app
from coordinator.cli.wait import app as wait_app
from schemas.errors import ErrorCode
from tests.cli.conftest import MakeGroup, Ran, Run, at, make_app, run_app, run_out_of_time
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle
from tests.support.seats import set_seats
from tests.support.tenure import Tenure, wait_until

READY_WITH_STANDBY = (
    "ready: group g is Stable, 2 members and 1 standby, each may be away for 30 min 0 s, no restart is known\n"
)
EXPIRED = "not ready: b expired, at 2"
SHORT_MS = 2_000
"""A session that ends soon, and yet not between a join and its sync on a busy machine."""
UNTOLD = (
    "doesn't tell which members are silent, session timeouts, which members expired, how long restarts took: looked at "
    "the rest"
)


@pytest.mark.parametrize("bootstrap", ["tenure"], indirect=True)
def test_a_seat_is_safe_until_another_one_is_away(run: Run, make_group: MakeGroup) -> None:
    """Just after both closed, neither counts as silent. Half a second later each keeps the other from a restart."""
    group = make_group(["a", "b"])
    ran = run(app, "ready", group, "--restart", "a", "--members", "2")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"ready: group {group} is Stable, 2 members, a may be away for 5 min 0 s, no restart is known\n"
    ran = wait_until(
        lambda: found if (found := run(app, "ready", group, "--restart", "a", "--absent-after", "0.5")).code else None,
        "b is silent",
        WITHIN_S,
    )
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith("not ready: b (silent for ")


@pytest.mark.parametrize("bootstrap", ["tenure"], indirect=True)
def test_a_member_that_expired_a_moment_ago(run: Run, bootstrap: str) -> None:
    """The group is Stable without it, and yet no other one is safe, unless the number of members is said."""
    port, group = int(bootstrap.rpartition(":")[2]), f"group-{uuid.uuid4().hex[:8]}"
    a = Member(port, group, "a", 9, instance="a")
    b = Member(port, group, "b", 9, instance="b", session_ms=SHORT_MS)
    settle(a, b)
    wait_until(lambda: a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "b expires", WITHIN_S)
    settle(a)

    def refused() -> Ran | None:
        """A refusal, once the event is there."""
        return ran if (ran := run(app, "ready", group, "--restart", "a")).code == 1 else None

    ran = wait_until(refused, "the events have it", WITHIN_S)
    assert (ran.out[: len(EXPIRED)], ran.err) == (EXPIRED, "")
    ran = run(app, "ready", group, "--restart", "a", "--members", "1")
    assert (ran.code, ran.err) == (0, "")
    back = Member(port, group, "b", 9, instance="b")
    back.send_join()
    wait_until(lambda: a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "b comes back", WITHIN_S)
    settle(a, back)
    ran = wait_until(refused, "the events have it", WITHIN_S)
    assert ran.out.startswith("not ready: b expired before it came back at 2")
    ran = run(app, "ready", group, "--restart", "b")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(": restart it with a longer one\n")


def test_standbys_are_no_members() -> None:
    """Neither `ready` nor `wait` counts a standby; the doctor and the description tell it apart."""
    with Tenure({"group.initial.rebalance.delay.ms": "500"}) as server:
        set_seats(server.port, "g", 2)
        a, b = (Member(server.port, "g", name, 9, instance=name) for name in "ab")
        settle(a, b)
        spare = Member(server.port, "g", "spare", 9, instance="spare")
        where = at(server.bootstrap)
        ran = run_app(make_app("doctor"), "doctor", "g", *where)
        assert (ran.code, "no standby is left" in ran.out) == (0, True)
        spare.send_join()
        assert spare.receive_join().error_code == 0
        assert run_app(wait_app, "wait", "g", "--members", "2", *where).code == 0
        back = ["--restarted", "spare", "--from"]
        assert run_app(wait_app, "wait", "g", "--members", "2", *back, "its-former-id", *where).code == 0
        assert run_out_of_time(wait_app, 0.1, "wait", "g", *back, spare.member_id, *where[:2])[0].code == 1
        ran = run_app(app, "ready", "g", "--members", "2", *where)
        assert (ran.code, ran.out) == (0, READY_WITH_STANDBY)
        (described,) = run_app(groups_app, "describe", "g", "--members", "--output", "json", *where).json
        assert described["target_size"] == 2
        assert [each["member_id"] for each in described["members"] if "standby_ms" in each] == [spare.member_id]
        assert run_app(make_app("doctor"), "doctor", "g", *where).out == "1 group looked at: nothing found\n"
        rows = run_app(groups_app, "describe", "g", "--members", *where[:2]).rows
        assert [(row["GROUP-INSTANCE-ID"], row["STANDBY"]) for row in rows] == [
            ("a", "false"), ("b", "false"), ("spare", "true")
        ]  # fmt: skip
        set_seats(server.port, "g", 4)
        wait_until(lambda: True if a.heartbeat() else None, "a rebalance", WITHIN_S)
        settle(a, b, spare)
        ran = run_app(app, "ready", "g", *where)
        assert (ran.code, ran.out) == (1, "not ready: only 3 of the 4 seats of group g are taken\n")
        ran = run_app(make_app("doctor"), "doctor", "g", *where)
        assert (ran.code, "g: warning: 3 of 4 seats" in ran.out) == (1, True)
        hang_up()


@pytest.mark.oracle
@pytest.mark.parametrize("bootstrap", ["apache"], indirect=True)
def test_apache_kafka_tells_state_and_members(run: Run, bootstrap: str, make_group: MakeGroup) -> None:
    """They decide; a line says what the command left out."""
    group = make_group(["a", "b"])
    ran = run(app, "ready", group, "--restart", "a", "--members", "2")
    assert (ran.code, ran.out) == (0, f"ready: group {group} is Stable, 2 members\n")
    assert ran.err == f"tenure: {bootstrap} {UNTOLD}\n"
    ran = run(app, "ready", group, "--members", "3")
    assert (ran.code, ran.out) == (1, f"not ready: group {group} has 2 members, not 3\n")


def test_an_unknown_group_or_seat(run: Run, make_group: MakeGroup) -> None:
    """Exit code 3, as for every command."""
    assert run(app, "ready", "nobody-made-this-group").code == 3
    group = make_group(["a"])
    ran = run(app, "ready", group, "--restart", "z")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == f"tenure: no member of group {group} has instance id z\n"
