"""`tenure migrate check`: exit codes, forms and rights. Its points: tests/story; real rolls: tests/interop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, at, make_app, run_app
from tests.cli.test_cluster import SERVER, allow_describe, client_file
from tests.support.apache import AUTHORIZER
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure


@pytest.fixture(scope="module")
def server() -> Iterator[Tenure]:
    """A server; each test has a group of its own on it."""
    with Tenure({"group.initial.rebalance.delay.ms": "0"}) as tenure:
        yield tenure
        hang_up()


def check(server: Tenure, *arguments: str) -> Ran:
    """Run the command against the server."""
    return run_app(make_app("migrate"), "migrate", "check", *arguments, *at(server.bootstrap))


def test_a_group_that_is_not_there(server: Tenure) -> None:
    """A group that doesn't exist is exit code 3."""
    ran = check(server, "nothing")
    assert (ran.code, ran.out) == (3, "")


def test_a_group_with_bytes_of_its_own(server: Tenure) -> None:
    """A coordinator would lose the data of its assignor: exit code 1, and a first step that mends it."""
    member = Member(server.port, "custom", "one", 5, instance="seat", protocols=["mine"])
    member.send_join()
    member.receive_join()
    member.send_sync({member.member_id: "one"}, b"of its own")
    member.connection.receive(WITHIN_S)
    ran = check(server, "custom")
    assert ran.code == 1
    first, *others = ran.out.splitlines()
    assert first == "custom can't move to group.protocol=consumer yet"
    (blocked,) = [line for line in others if line.startswith("  blocked ")]
    assert "its assignor mine puts data of its own into assignments" in blocked
    steps = [line for line in others if line.startswith("  step ")]
    assert steps[0].startswith("  step 1  roll the consumers to an assignor of Kafka's own first")
    told = check(server, "custom", "--output", "json").json
    assert (told["group_id"], told["stage"], len(told["steps"])) == ("custom", "blocked", len(steps))
    assert set(told["points"][0]) == {"mark", "kind", "found", "advice"}


def test_describe_is_enough_and_what_it_hides_is_named(tmp_path: Path) -> None:
    """A user who may describe the group gets an answer; settings of the broker are unknown to it."""
    rights = "super.users=User:ANONYMOUS\nallow.everyone.if.no.acl.found=false\n"
    properties = f"{SERVER}authorizer.class.name={AUTHORIZER}\n{rights}"
    listeners = {"OPEN": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
    with Tenure(listeners=listeners, properties=properties) as secured:
        member = Member(int(secured.bootstrap_of("OPEN").rpartition(":")[2]), "g", "one", 9, instance="seat")
        settle(member)
        login = ("--command-config", client_file(tmp_path, "secret"))
        where = ("migrate", "check", "g", "--bootstrap-server", secured.bootstrap_of("SASL"), *login)
        assert run_app(make_app("migrate"), *where).code == 4
        allow_describe(secured.bootstrap_of("OPEN"))
        ran = run_app(make_app("migrate"), *where, "--output", "json")
        hang_up()
    unknown = [each["kind"] for each in ran.json["points"] if each["mark"] == "unknown"]
    assert unknown == ["settings_unknown", "clients_unknown", "session_unknown"]
