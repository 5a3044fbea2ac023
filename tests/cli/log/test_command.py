"""`tenure log` itself: its commands are there."""

from __future__ import annotations

from coordinator.cli.log.command import app
from tests.cli.conftest import run_app


def test_help_names_each_command() -> None:
    """The help names every command."""
    shown = run_app(app, "--help").out
    assert all(command in shown for command in ("dump", "verify", "import", "export"))
