"""`tenure groups wait` against Tenure and against Apache Kafka."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer

from coordinator.cli.groups import app as groups_app
from coordinator.cli.wait import app
from coordinator.client.client import CLOSED_WITHIN
from tests.cli.conftest import SETTINGS, TOPIC, MakeGroup, Run, at, run_app, run_out_of_time
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure


def test_a_group_that_is_as_wanted(run: Run, make_group: MakeGroup) -> None:
    """The command ends at once, and says nothing."""
    group = make_group(["a", "b"])
    for wanted in ([], ["--members", "2"], ["--state", "empty,stable"]):
        ran = run(app, "wait", group, *wanted)
        assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_a_group_that_is_not_in_time(bootstrap: str, make_group: MakeGroup) -> None:
    """Exit code 1, and one line says what the group is, and what was wanted."""
    group = make_group(["a"])
    ran, time = run_out_of_time(app, 2, "wait", group, "--members", "3", "--bootstrap-server", bootstrap)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"tenure: after {time} group {group} is Stable with 1 member, not Stable with 3 members\n"


def test_a_group_that_does_not_come_is_not_called_dead(bootstrap: str) -> None:
    """The line says that it isn't there, and for how long the command waited."""
    ran, time = run_out_of_time(app, 0.5, "wait", "nobody-made-this-group", "--bootstrap-server", bootstrap)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"tenure: after {time} group nobody-made-this-group isn't there, not Stable\n"


def test_a_member_that_has_not_restarted(run: Run, bootstrap: str, make_group: MakeGroup) -> None:
    """A seat under the same member id as before is not back, though the group looks whole; with another id it is."""
    group = make_group(["a", "b"])
    (described,) = run(groups_app, "describe", group, "--members", "--output", "json").json
    member_id = described["members"][0]["member_id"]
    arguments = ["wait", group, "--members", "2", "--restarted", "a", "--from"]
    ran, time = run_out_of_time(app, 1, *arguments, member_id, "--bootstrap-server", bootstrap)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"tenure: after {time} group {group} is Stable with 2 members, and a is not back\n"
    assert run(app, *arguments, "a-before").code == 0
    assert run(app, "wait", group, "--restarted", "a").code == 2


def test_a_group_that_is_not_there_is_dead(run: Run) -> None:
    """So one can wait for the end of a group."""
    ran = run(app, "wait", "nobody-made-this-group", "--state", "Dead", "--members", "0")
    assert (ran.code, ran.err) == (0, "")


def test_a_group_becomes_as_wanted(run: Run, bootstrap: str) -> None:
    """The command waits for a group that comes into being meanwhile."""
    group = f"late-{uuid.uuid4()}"
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(run, app, "wait", group, "--members", "1")
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        consumer.subscribe([TOPIC])
        while not waiting.done():
            consumer.poll(0.1)
        consumer.close()
    assert waiting.result(WITHIN_S).code == 0


def test_a_server_that_is_away_for_a_while() -> None:
    """The command goes on when the server is back, also after the time in which other commands give up."""
    with Tenure(SETTINGS) as server, ThreadPoolExecutor(1) as threads:
        a, b = (Member(server.port, "g", name, 9, instance=name) for name in "ab")
        settle(a, b)
        server.kill()
        waiting = threads.submit(run_app, app, "wait", "g", "--members", "2", *at(server.bootstrap))
        with pytest.raises(TimeoutError):
            waiting.result(1.5 * CLOSED_WITHIN)
        server.start()
        assert waiting.result(WITHIN_S) == (0, "", "")
        server.kill()
        where = ["--bootstrap-server", server.bootstrap, "--timeout", "0.5"]
        ran = run_app(app, "wait", "g", "--members", "2", *where)
        assert (ran.code, ran.out) == (5, "")
        assert server.bootstrap in ran.err
        hang_up()
