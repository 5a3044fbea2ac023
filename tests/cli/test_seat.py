"""`tenure seat run`: wrong options are one line; tests/seats/test_run.py has what it does."""

from __future__ import annotations

import pytest

from tests.support.preloaded import run
from tests.support.tenure import tenure_command


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--pool", "w-[3..1]", "true"), "--pool: "),
        (
            ("--pool", ",".join(["worker"] * 300), "true"),
            "--pool: more than 2000 characters; ranges like orders-[0..7]",
        ),
        (("--pool", "w", "--identity", "a" * 250, "true"), "--identity: more than 249 characters"),
        (
            ("--pool", "w", "--session", "10", "--grace", "7", "true"),
            "--grace: 7 s is more than 60% of --session (10 s)",
        ),
        (("--pool", "w", "--session", "1000000", "true"), "--session: 1e+06 s is more than a day"),
        (("--pool", "w", "--variable", "A=B", "true"), "--variable: 'A=B' is no name of a variable"),
        (("--pool", "w", "--variable", "", "true"), "--variable: '' is no name of a variable"),
        (("--pool", "w", "no-such-program"), "there is no program no-such-program"),
        (("--pool", "w", "--bootstrap-server", "kafka", "true"), "--bootstrap-server: 'kafka' is not HOST:PORT"),
        (("--pool", "w", "--command-config", "absent.properties", "true"), "--command-config: "),
        (("--pool", "w", "--kubernetes", "--kubeconfig", "absent", "true"), "--kubeconfig: there is no file absent"),
    ],
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], text: str) -> None:
    """A wrong option ends the command with one line that names it, and no program starts."""
    ran = run([*tenure_command(), "seat", "run", *arguments])
    assert ran.returncode == 2
    assert ran.stderr.removeprefix("tenure: ").startswith(text)
    assert ran.stderr.count("\n") == 1
