"""`tenure doctor`: usage, exit codes and forms. What it finds: tests/client/test_diagnosis.py, test_explain.py."""

from __future__ import annotations

import pytest

from coordinator.cli.main import make_app
from tests.cli.conftest import Ran, run_app
from tests.support.tenure import Tenure


def doctor(server: Tenure, *arguments: str) -> Ran:
    """Run it."""
    return run_app(make_app("doctor"), "doctor", *arguments, "--bootstrap-server", server.bootstrap)


def test_a_group_or_all_of_them() -> None:
    """One of both; a group that nobody knows is exit code 3, and of all groups there may be none."""
    with Tenure() as server:
        for arguments in ([], ["g", "--all"]):
            ran = doctor(server, *arguments)
            assert (ran.code, ran.err) == (2, "tenure: doctor: either GROUP or --all\n")
        ran = doctor(server, "g")
        assert (ran.code, ran.err) == (3, "tenure: no such group, and nothing is told of one: g\n")
        assert (doctor(server, "--all").code, doctor(server, "--all").out) == (0, "nothing found\n")
        assert doctor(server, "--all", "--output", "json").json == []


@pytest.mark.parametrize("command", ["explain", "watch", "doctor"])
def test_help_says_what_it_does(command: str) -> None:
    """One sentence, and the options."""
    ran = run_app(make_app(command), command, "--help")
    assert ran.code == 0
    assert "--bootstrap-server" in ran.out
