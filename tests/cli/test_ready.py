"""`tenure groups ready` against Tenure and against Apache Kafka."""

from __future__ import annotations

import pytest

from coordinator.cli.ready import app
from tests.cli.conftest import MakeGroup, Run
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

UNTOLD = "doesn't tell which members are silent, session timeouts, how long restarts took: looked at the rest"


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
